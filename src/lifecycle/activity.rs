//! What the runtime was last seen doing for a call, in a few words for log lines and pages.

use super::process_scanner::{Observation, Observations, Work};
use crate::cri::Call;

/// As `cni plugin calico (iptables)`; `None` if nothing was seen.
pub fn doing(sightings: &Observations, call: &Call) -> Option<String> {
    match call.phases.get() {
        Some(phases) => phases.doing(),
        None => words(&sightings.of(call.seq)),
    }
}

/// The work seen last; of several, that which began last, since it is the one the others wait for.
fn words(sightings: &[Observation]) -> Option<String> {
    let last = sightings.iter().max_by_key(|s| (s.last_seen, s.began))?;
    let whose = match last.work {
        Work::Cni => "cni plugin",
        Work::Oci => "oci runtime",
        Work::Runtime => "runtime",
    };
    Some(match &last.doing {
        Some(doing) => format!("{whose} {} ({doing})", last.name),
        None => format!("{whose} {}", last.name),
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn sighting(work: Work, name: &str, doing: Option<&str>, began: u64, last: u64) -> Observation {
        let at = |secs| UNIX_EPOCH + Duration::from_secs(secs);
        Observation {
            work,
            name: name.into(),
            doing: doing.map(Into::into),
            began: at(began),
            last_seen: at(last),
        }
    }

    #[test]
    fn the_last_work_is_named() {
        let sightings = Observations::default();
        assert_eq!(words(&sightings.of(1)), None);
        let bridge = sighting(Work::Cni, "bridge", None, 1, 2);
        let calico = sighting(Work::Cni, "calico", Some("iptables"), 2, 9);
        assert!(sightings.put(1, vec![calico, bridge.clone()]));
        let said = words(&sightings.of(1));
        assert_eq!(said.as_deref(), Some("cni plugin calico (iptables)"));
        let runc = sighting(Work::Oci, "runc", Some("create"), 5, 9);
        let outer = sighting(Work::Runtime, "RunPodSandbox", None, 0, 9);
        assert!(sightings.put(2, vec![outer, runc, bridge]));
        let said = words(&sightings.of(2));
        assert_eq!(said.as_deref(), Some("oci runtime runc (create)"));
    }
}
