//! The current activity of the runtime for a call, in a few words for log lines and pages.

use super::process_scanner::{Observation, Observations, WorkKind};
use criscope_cri::call::Call;

/// Describes what the runtime does for a call: `cni plugin calico (iptables)`. `None` if nothing was observed.
pub fn describe(observations: &Observations, call: &Call) -> Option<String> {
    if let Some(fault) = call.injected(call.age()) {
        return Some(format!("injected fault: {}", fault.kind().name()));
    }
    match call.steps.get() {
        Some(phases) => phases.activity(),
        None => words(&observations.for_call(call.seq)),
    }
}

/// Words for the work observed last. Among several the one that began last counts, since the others wait for it.
fn words(observations: &[Observation]) -> Option<String> {
    let last = observations.iter().max_by_key(|s| (s.last_seen, s.began))?;
    let whose = match last.work {
        WorkKind::Blocked => {
            let held = last.activity.as_deref().unwrap_or("blocked");
            return Some(format!("{}, {held}", last.name));
        }
        WorkKind::Injected => "held by an",
        WorkKind::Helper => "program",
        WorkKind::Layers => "layers:",
        WorkKind::Cni => "cni plugin",
        WorkKind::Oci => "oci runtime",
        WorkKind::Runtime => "runtime",
    };
    Some(match &last.activity {
        Some(activity) => format!("{whose} {} ({activity})", last.name),
        None => format!("{whose} {}", last.name),
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn observation(
        work: WorkKind,
        name: &str,
        activity: Option<&str>,
        began: u64,
        last: u64,
    ) -> Observation {
        let at = |secs| UNIX_EPOCH + Duration::from_secs(secs);
        Observation {
            work,
            name: name.into(),
            command: None,
            activity: activity.map(Into::into),
            began: at(began),
            last_seen: at(last),
        }
    }

    #[test]
    fn the_last_work_is_named() {
        let observations = Observations::default();
        assert_eq!(words(&observations.for_call(1)), None);
        let bridge = observation(WorkKind::Cni, "bridge", None, 1, 2);
        let calico = observation(WorkKind::Cni, "calico", Some("iptables"), 2, 9);
        assert!(observations.put(1, vec![calico, bridge.clone()]));
        let said = words(&observations.for_call(1));
        assert_eq!(said.as_deref(), Some("cni plugin calico (iptables)"));
        let runc = observation(WorkKind::Oci, "runc", Some("create"), 5, 9);
        let outer = observation(WorkKind::Runtime, "RunPodSandbox", None, 0, 9);
        assert!(observations.put(2, vec![outer, runc, bridge]));
        let said = words(&observations.for_call(2));
        assert_eq!(said.as_deref(), Some("oci runtime runc (create)"));
    }
}
