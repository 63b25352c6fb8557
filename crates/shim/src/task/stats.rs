//! Statistics: the metrics of the containerd shim are passed on as they are.

use criscope_wire::task::{StatsRequest, StatsResponse};

use super::super::protocol::{Answer, Metrics, NOT_FOUND, RUNTIME, Stats, TIMEOUT};
use super::super::requests::{Result as Answered, failure};
use super::super::server::Shim;
use super::calls::{Result, decode, milliseconds};
use super::connection::Call;
use super::launch::not_running;

/// The longest metrics that are passed on, in bytes of their value. A frame holds four times as much. Those of runc's shim are about
/// 1 KiB, and grow with block devices.
const MAX_METRICS: usize = 256 << 10;

impl Shim {
    /// Queries the resource usage of a container. One that has exited has none.
    pub(crate) fn stats_task(&mut self, asked: (u64, u64), stats: Stats) -> Answered {
        let number = self.task_process(&stats.id)?;
        let mut all = self.processes.iter();
        if !all.any(|process| process.number == number && process.is_alive()) {
            return Err(failure(NOT_FOUND, "the container does not run"));
        }
        // Statistics are queried again and again: for a containerd shim that does not read, they would pile up here.
        let connection = self.connection(number).ok_or_else(not_running)?;
        if connection.is_blocked() {
            let text = "the containerd shim does not read its requests";
            return Err(failure(TIMEOUT, text));
        }
        let request = StatsRequest { id: stats.id };
        let timeout = milliseconds(stats.timeout_ms);
        self.send(Call::Stats, (number, Some(asked)), &request, timeout)
    }
}

/// The answer to [`Shim::stats_task`]. That something does not exist is not about the container, which runs: runc's shim says so of one whose
/// cgroup it could not open.
pub(super) fn reported(result: Result) -> Result<Answer> {
    let any = match result {
        Err(failed) if failed.kind == NOT_FOUND => None,
        result => decode::<StatsResponse>(&result?)?.stats,
    };
    let any = any.unwrap_or_default();
    let len = any.type_url.len() + any.value.len();
    if len > MAX_METRICS {
        let text = format!("metrics of {len} bytes are too long");
        return Err(failure(RUNTIME, text));
    }
    Ok(Answer::Metrics(Metrics {
        type_url: any.type_url,
        value: any.value,
    }))
}

#[cfg(test)]
mod tests {
    use criscope_wire::Any;
    use prost::Message as _;

    use super::super::super::protocol::SYSTEM;
    use super::*;

    fn response(stats: Option<Any>) -> Result {
        Ok(StatsResponse { stats }.encode_to_vec())
    }

    #[test]
    fn metrics_are_passed_on_as_they_are() {
        let any = Any {
            type_url: "io.containerd.cgroups.v2.Metrics".to_owned(),
            value: vec![0xff; 10],
        };
        let metrics = Metrics {
            type_url: any.type_url.clone(),
            value: any.value.clone(),
        };
        assert_eq!(
            reported(response(Some(any))),
            Ok(Answer::Metrics(metrics)),
            "whether or not they can be decoded"
        );
        let none = Answer::Metrics(Metrics::default());
        assert_eq!(reported(response(None)), Ok(none.clone()));
        let no_cgroup = failure(NOT_FOUND, "cgroup does not exist");
        assert_eq!(reported(Err(no_cgroup)), Ok(none));
    }

    #[test]
    fn what_is_too_long_or_damaged_fails() {
        let any = Any {
            type_url: String::new(),
            value: vec![0; MAX_METRICS + 1],
        };
        let long = reported(response(Some(any))).expect_err("too long");
        assert_eq!(long.kind, RUNTIME);
        let damaged = reported(Ok(vec![0x0a, 0x7f])).expect_err("damaged");
        assert_eq!(damaged.kind, SYSTEM);
        let failed = failure(RUNTIME, "no");
        assert_eq!(reported(Err(failed.clone())), Err(failed));
    }
}
