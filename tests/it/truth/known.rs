//! Cases whose first line is not right yet: how bad it is at most, and what is said instead. The list may only become shorter.

use super::score::Verdict;

#[rustfmt::skip]
pub(super) const KNOWN: &[(&str, Verdict, &str)] = &[
    ("cni: a plugin of the chain fails", Verdict::Wrong, "network: it cannot be set up: UNKNOWN open /proc/sys/net/ipv4/no_such_setting: no such file or directory (2 tries, the last now)"),
    ("cni: cannot be taken down", Verdict::Partly, "network: it cannot be taken down: UNKNOWN the network controller does not answer: try again later (2 tries, the last now)"),
    ("container: crashed once and is up again", Verdict::Partly, "container app up after 62.4 ms, nothing slow"),
    ("container: ended by SIGTERM as asked", Verdict::Silent, "started after 804 ms, nothing slow"),
    ("oci: device missing", Verdict::Partly, "container app cannot be created: UNKNOWN <redacted> /dev/<redacted>: no such file or directory (2 tries, the last now)"),
    ("oci: wrapper fails", Verdict::Partly, "container app cannot be started: UNKNOWN unable to retrieve OCI runtime error (open /run/<redacted>/state/io.containerd.runtime.v2"),
    ("own cni: a plugin of the chain fails", Verdict::Partly, "network: it cannot be set up: INTERNAL network: CNI plugin <redacted> ADD: open /proc/sys/net/ipv4/no_such_setting: no such file o"),
    ("own oci: device missing", Verdict::Partly, "container app cannot be created: NOT_FOUND device /dev/<redacted> does not exist (2 tries, the last now)"),
    ("own oci: wrapper fails", Verdict::Partly, "container app cannot be started: INTERNAL OCI runtime: <redacted>: initialization error: <redacted> error: driver not loaded (2 tr"),
    ("own well: an ordered stop", Verdict::Wrong, "container app ended with exit code 0 after 1.07 s; the start took 205 ms"),
    ("runtime: shim killed", Verdict::Wrong, "container app up after 125 ms, nothing slow"),
    ("sandbox: container killed from outside", Verdict::Partly, "container app up after 86.5 ms, nothing slow"),
    ("sandbox: dies and is replaced", Verdict::Silent, "container app up after 68.8 ms, nothing slow"),
    ("well: a stop long after the end", Verdict::Wrong, "kubelet: 4.02 s of 4.24 s passed between CRI calls, before RemoveContainer of app"),
    ("well: an ordered stop", Verdict::Wrong, "container app ended with exit code 0 after 1.04 s; the start took 594 ms"),
];
