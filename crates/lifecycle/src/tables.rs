//! Fills the tables of calls: the JSON of `/debug/rpcz` and `/debug/tracez`.
//!
//! Times of day are microseconds since 1970-01-01 UTC; durations are milliseconds, with fractions, if their name does not say
//! microseconds.

use std::collections::HashMap;
use std::sync::Arc;

pub use criscope_pages::tables::{
    BUCKETS_US, CallSamples, LatencyBucket, MethodSamples, RateWindow, RpcMethodRow, RpcTable,
};

use super::rates::{CallRates, WindowRates};
use super::recorder::FlightRecorder;
use super::view::CallView;
use super::view::call::exact_millis;
use criscope_cri::Method;
use criscope_cri::call::Call;
use criscope_cri::call::{CallRecord, Ending};
use criscope_cri::units::times::UnixMicros;

impl From<WindowRates> for RateWindow {
    fn from(within: WindowRates) -> Self {
        let [p50_ms, p95_ms, p99_ms] = within.quantiles.map(|q| q.map(exact_millis));
        Self {
            seconds: within.time.as_secs_f64(),
            calls: within.calls,
            errors: within.errors,
            routine: within.routine,
            cancelled: within.cancelled,
            p50_ms,
            p95_ms,
            p99_ms,
        }
    }
}

fn rate_window(figures: Option<WindowRates>) -> RateWindow {
    figures.map(RateWindow::from).unwrap_or_default()
}

/// Rates of every method that was called or is in flight.
pub fn rpc_table(rates: &CallRates, in_flight: &[Arc<Call>]) -> RpcTable {
    let figures = rates.figures();
    let rows = Method::ALL.into_iter().filter_map(|method| {
        let of_method = figures.iter().find(|f| f.method == method);
        let flying: Vec<_> = in_flight.iter().filter(|c| c.method == method).collect();
        if of_method.is_none() && flying.is_empty() {
            return None;
        }
        Some(RpcMethodRow {
            method: method.name().to_owned(),
            in_flight: flying.len() as u64,
            stuck: flying.iter().filter(|c| c.share_used() > 0).count() as u64,
            oldest_ms: flying.iter().map(|c| c.age()).max().map(exact_millis),
            minute: rate_window(of_method.map(|f| f.minute)),
            hour: rate_window(of_method.map(|f| f.hour)),
            all: rate_window(of_method.map(|f| f.all)),
        })
    });
    RpcTable {
        now_unix_us: UnixMicros::now(),
        since_unix_us: rates.started_at().into(),
        methods: rows.collect(),
    }
}

/// Most samples in a bucket.
const MAX_SAMPLES_PER_BUCKET: usize = 5;

/// Most samples of failed calls.
const MAX_FAILED_SAMPLES: usize = 10;

/// Samples of every method that is recorded or in flight; of one method, if `only` is set.
pub fn samples(
    recorder: &FlightRecorder,
    in_flight: &[Arc<Call>],
    only: Option<Method>,
) -> CallSamples {
    let mut records = recorder.calls();
    records.retain(|record| only.is_none_or(|only| only == record.method));
    records.sort_unstable_by_key(|record| std::cmp::Reverse(record.end()));
    let mut methods: HashMap<Method, MethodSamples> = HashMap::new();
    for record in &records {
        let of_method = methods
            .entry(record.method)
            .or_insert_with(|| empty(record.method));
        add_sample(of_method, record);
    }
    let in_flight = in_flight
        .iter()
        .filter(|call| only.is_none_or(|only| only == call.method));
    for call in in_flight {
        let of_method = methods
            .entry(call.method)
            .or_insert_with(|| empty(call.method));
        of_method.in_flight += 1;
    }
    CallSamples {
        now_unix_us: UnixMicros::now(),
        methods: Method::ALL
            .iter()
            .filter_map(|method| methods.remove(method))
            .collect(),
    }
}

fn empty(method: Method) -> MethodSamples {
    let buckets = BUCKETS_US.map(|from_us| LatencyBucket {
        from_us,
        ..LatencyBucket::default()
    });
    MethodSamples {
        method: method.name().to_owned(),
        buckets: buckets.into(),
        ..MethodSamples::default()
    }
}

/// Adds a call; expects the newest first.
fn add_sample(samples: &mut MethodSamples, record: &CallRecord) {
    let took = record.elapsed().as_micros();
    let bucket = BUCKETS_US.partition_point(|from| u128::from(*from) <= took) - 1;
    let (bucket, most) = match samples.buckets.get_mut(bucket) {
        Some(bucket) if record.has_ended(Ending::Ok) => (bucket, MAX_SAMPLES_PER_BUCKET),
        _ => (&mut samples.errors, MAX_FAILED_SAMPLES),
    };
    bucket.count += 1;
    if bucket.samples.len() < most {
        bucket.samples.push(CallView::from_record(record));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::examples::{plain, record};
    use crate::rates::tests::{RPC_DURATION, RPC_ROUTINE};
    use criscope_cri::call::Ending;
    use criscope_telemetry::Registry;

    #[test]
    fn samples_fall_into_the_buckets_of_their_time() {
        let recorder = FlightRecorder::new(100, 100);
        for (seq, micros) in [(1, 0), (2, 9), (3, 10), (4, 999_999), (5, 1_000_000)] {
            let mut call = record(seq);
            call.outcome_mut().elapsed = Duration::from_micros(micros);
            recorder.record(Arc::new(call), true);
        }
        for seq in 10..20 {
            recorder.record(Arc::new(plain(seq, Method::Version)), false);
        }
        let mut failed = record(30);
        failed.outcome_mut().ending = Ending::Deadline;
        failed.outcome_mut().elapsed = Duration::from_secs(1000);
        recorder.record(Arc::new(failed), true);
        let flying = [Arc::new(Call::example(Method::PullImage))];
        let all = samples(&recorder, &flying, None);
        let names: Vec<_> = all.methods.iter().map(|m| &*m.method).collect();
        assert_eq!(names, ["Version", "StartContainer", "PullImage"]);
        let start = &all.methods[1];
        let counts: Vec<_> = start.buckets.iter().map(|b| b.count).collect();
        assert_eq!(counts, [2, 1, 0, 0, 0, 1, 1, 0, 0]);
        assert_eq!(start.buckets[0].samples[0].seq, 2, "the newest first");
        assert_eq!((start.errors.count, start.errors.samples[0].seq), (1, 30));
        let polls = &all.methods[0].buckets[4];
        let seqs: Vec<_> = polls.samples.iter().map(|s| s.seq).collect();
        assert_eq!((polls.count, seqs), (10, vec![19, 18, 17, 16, 15]));
        assert_eq!(all.methods[2].in_flight, 1);
        let only = samples(&recorder, &flying, Some(Method::Version));
        assert_eq!(only.methods, all.methods[..1]);
        let text = serde_json::to_string(&all).expect("json");
        assert_eq!(
            serde_json::from_str::<CallSamples>(&text).expect("read"),
            all
        );
    }

    #[test]
    fn the_table_has_what_was_called_and_what_is_in_flight() {
        let registry = Registry::new(prometheus::Registry::new(), []);
        let durations = registry.histograms(&RPC_DURATION).expect("once");
        durations.observe((Method::Version, Ending::Error), 0.3);
        let routine = registry.counters(&RPC_ROUTINE).expect("once");
        let rates = CallRates::new(Arc::new(durations), Arc::new(routine));
        let flying = [Arc::new(Call::example(Method::PullImage))];
        flying[0].reaches(50);
        let table = rpc_table(&rates, &flying);
        let names: Vec<_> = table.methods.iter().map(|m| &*m.method).collect();
        assert_eq!(names, ["Version", "PullImage"]);
        let [version, pull] = &table.methods[..] else {
            panic!("two")
        };
        assert_eq!((version.all.calls, version.all.errors), (1, 1));
        // Calls before the first snapshot are not calls of the last minute.
        assert_eq!((version.minute.calls, version.in_flight), (0, 0));
        assert_eq!((pull.in_flight, pull.stuck, pull.all.calls), (1, 1, 0));
        assert!(pull.oldest_ms.is_some() && version.oldest_ms.is_none());
        let text = serde_json::to_string(&table).expect("json");
        assert_eq!(
            serde_json::from_str::<RpcTable>(&text).expect("read"),
            table
        );
    }
}
