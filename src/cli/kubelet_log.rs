//! What the kubelet's log has of a pod that no call has named. A pod that waits for a volume is known to criscope by its uid only, and one
//! that the kubelet has refused not at all; the kubelet logs both by name.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::cri::error_chain;

/// The systemd units in which a kubelet runs, alone or within a distribution.
const KUBELET_UNITS: [&str; 10] = [
    "kubelet",
    "k3s",
    "k3s-agent",
    "rke2-server",
    "rke2-agent",
    "k0scontroller",
    "k0sworker",
    "snap.kubelet-eks.daemon",
    "snap.microk8s.daemon-kubelite",
    "microshift",
];
/// The newest lines that are read. A kubelet logs some lines a minute, and some thousand when much fails.
const MAX_LINES: usize = 20_000;
/// Most bytes that are read.
const MAX_BYTES: u64 = 16 << 20;
/// Longest error that is told, in bytes.
const MAX_ERROR_BYTES: usize = 240;

/// A pod in the kubelet's log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LoggedPod {
    /// Its uid, if a line has it.
    pub(super) uid: Option<String>,
    /// The newest trouble with it: `09:14:07 Error syncing pod, skipping: unmounted volumes=[data]`.
    pub(super) trouble: Option<String>,
}

impl LoggedPod {
    /// The pod of this name in the journal of systemd; `None` without a journal, or if it has no such pod.
    pub(super) fn find(namespace: &str, name: &str) -> Option<Self> {
        let mut command = Command::new("journalctl");
        command.args(["--quiet", "--no-pager", "--output=cat", "--since=-1d"]);
        command.arg(format!("--lines={MAX_LINES}"));
        command.args(KUBELET_UNITS.map(|unit| format!("--unit={unit}")));
        let command = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut journal = command.spawn().ok()?;
        let lines = journal.stdout.take()?.take(MAX_BYTES);
        let found = Self::read(BufReader::new(lines), namespace, name);
        // The journal has more to say than is read, or has ended.
        let _ = journal.kill();
        let _ = journal.wait();
        found
    }

    /// The pod of this name in these lines, the oldest first.
    fn read(lines: impl BufRead, namespace: &str, name: &str) -> Option<Self> {
        let wanted = format!("{namespace}/{name}\"");
        let mut found: Option<Self> = None;
        for line in lines.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            if !names(&line, &wanted) {
                continue;
            }
            let pod = found.get_or_insert_default();
            pod.uid = uid(&line).map(str::to_owned).or(pod.uid.take());
            pod.trouble = trouble(&line).or(pod.trouble.take());
        }
        found
    }
}

/// Returns whether a line is about the pod `NAMESPACE/NAME"`: `pod="shop/web"`, `pods=["shop/web"]`.
fn names(line: &str, wanted: &str) -> bool {
    let mut found = line.match_indices(wanted);
    found.any(|(at, _)| line[..at].ends_with('"'))
}

/// The uid in a line: `podUID="0b5e..."`, `pod "web" (UID: "0b5e...")`.
fn uid(line: &str) -> Option<&str> {
    let beginnings = ["podUID=\"", "podUID=", "(UID: \\\"", "(UID: \""];
    let rest = beginnings
        .iter()
        .find_map(|before| Some(line.split_once(before)?.1))?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let end = end.unwrap_or(rest.len());
    Some(&rest[..end]).filter(|uid| uid.len() >= 8)
}

/// What a line says of a failure, or of a refusal, after its time. Lines without either are routine.
fn trouble(line: &str) -> Option<String> {
    let (head, rest) = line.split_once("] \"")?;
    let message = quoted(rest)?;
    let error = value(line, "err").or_else(|| value(line, "message"));
    let is_refusal =
        message.contains("dmi") && (message.contains("denied") || message.contains("ail"));
    if error.is_none() && !is_refusal {
        return None;
    }
    let reason = value(line, "reason").map(|reason| format!(" ({reason})"));
    let error = error.map(|error| {
        let one_line = error.split_whitespace().collect::<Vec<_>>().join(" ");
        format!(": {}", error_chain::shortened(&one_line, MAX_ERROR_BYTES))
    });
    let time = head.split_whitespace().nth(1)?.split('.').next()?;
    let [reason, error] = [reason, error].map(Option::unwrap_or_default);
    Some(format!("{time} {message}{reason}{error}"))
}

/// The value of a key of a line: `reason="OutOfcpu"`.
fn value(line: &str, key: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!(" {key}=\""))?;
    quoted(rest)
}

/// The text up to the closing quote of a Go string, whose opening quote has been read.
fn quoted(rest: &str) -> Option<String> {
    let (mut text, mut characters) = (String::new(), rest.chars());
    loop {
        match characters.next()? {
            '"' => return Some(text),
            '\\' => match characters.next()? {
                'n' | 't' | 'r' => text.push(' '),
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kubelets 1.36 log, with the default verbosity.
    const LOG: &str = r#"
I1128 09:14:01.100000    1234 reconciler_common.go:251] "operationExecutor.VerifyControllerAttachedVolume started for volume \"data\" (UniqueName: \"kubernetes.io/csi/x^y\") pod \"web\" (UID: \"0b5e2f6c-1111-2222-3333-444455556666\") " pod="shop/web"
E1128 09:16:04.200000    1234 kubelet.go:2012] "Unable to attach or mount volumes for pod; skipping pod" err="unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: context deadline exceeded" pod="shop/web"
E1128 09:16:04.300000    1234 pod_workers.go:1301] "Error syncing pod, skipping" err="unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: context deadline exceeded" pod="shop/web" podUID="0b5e2f6c-1111-2222-3333-444455556666"
I1128 09:16:05.000000    1234 kubelet.go:2500] "SyncLoop ADD" source="api" pods=["shop/web","shop/big"]
I1128 09:17:00.000000    1234 kubelet.go:2388] "Pod admission denied" podUID="77775555-1111-2222-3333-444455556666" pod="shop/big" reason="OutOfcpu" message="Node didn't have enough resource: cpu, requested: 64000, used: 500, capacity: 8000"
not a line of klog "shop/web"
E1128 09:18:00.000000    1234 pod_workers.go:1301] "Error syncing pod, skipping" err="failed to \"StartContainer\" for \"x\"" pod="shop/web-2" podUID="99995555-1111-2222-3333-444455556666"
"#;

    #[test]
    fn a_pod_that_waits_for_a_volume_is_found_by_name() {
        let uid = Some("0b5e2f6c-1111-2222-3333-444455556666".to_owned());
        let trouble = "09:16:04 Error syncing pod, skipping: unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: context deadline exceeded";
        let trouble = Some(trouble.to_owned());
        let found = LoggedPod::read(LOG.as_bytes(), "shop", "web");
        assert_eq!(found, Some(LoggedPod { uid, trouble }));
    }

    #[test]
    fn a_pod_that_is_refused_is_found_by_name() {
        let found = LoggedPod::read(LOG.as_bytes(), "shop", "big").expect("a pod");
        let trouble = found.trouble.expect("a refusal");
        assert!(
            trouble.starts_with("09:17:00 Pod admission denied (OutOfcpu): Node didn't have"),
            "{trouble}"
        );
    }

    #[test]
    fn a_name_within_another_is_not_meant() {
        for (namespace, name) in [("shop", "we"), ("shop", "eb"), ("op", "web"), ("", "web")] {
            assert_eq!(LoggedPod::read(LOG.as_bytes(), namespace, name), None);
        }
        let routine = r#"I1128 09:16:05.000000 1 kubelet.go:1] "SyncLoop ADD" pods=["shop/web"]"#;
        let found = LoggedPod::read(routine.as_bytes(), "shop", "web");
        assert_eq!(found, Some(LoggedPod::default()));
    }
}
