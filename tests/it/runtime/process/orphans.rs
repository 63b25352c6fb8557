//! Orphans that are left to the shim while the OCI runtime makes a process: any number of them hides no end, and none is taken
//! for that of the process.

use criscope::runtime::shim_client::{Create, Runtime};

use super::pod::{Pod, exit};
use crate::harness::executable::executable;

/// More than anybody would keep in a list.
const ORPHANS: usize = 400;

#[tokio::test]
async fn orphans_neither_hide_an_end_nor_fake_one() {
    let pod = Pod::new().await;
    let program = pod.path("runtime");
    // An OCI runtime that takes its time, in a pod that leaves the shim many orphans meanwhile. Its process ends with 7
    // before it has said which one it is. It fails if the number of the first orphan is free by then: the process could
    // have been given it, and the end of the orphan would be its own.
    let script = format!(
        "#!/bin/sh
verb=$1
while [ $# -gt 0 ]; do [ \"$1\" = --pid-file ] && file=$2; shift; done
[ $verb = create ] || exit 0
mkfifo $file.go
# Ends when it is told to, and is the shim's by then: a shell reaps its own children.
hold() {{ (read x < $file.go; exit $1) > /dev/null & echo $!; }}
first=$(hold 3)
: > $file.go
i=1
while [ $i -lt {ORPHANS} ]; do ( (exit 3) & ); i=$((i+1)); done
made=$(hold 7)
: > $file.go
rm $file.go
for pid in $first $made; do
    until [ ! -e /proc/$pid ] || grep -q '^State:.Z' /proc/$pid/status; do :; done
done
[ -e /proc/$first ] || {{ echo 'an orphan was reaped' >&2; exit 1; }}
echo $made > $file
"
    );
    executable(&program, &script);
    let mut events = pod.shim.events();
    let create = Create {
        id: "a".into(),
        bundle: pod.text("none"),
        runtime: Runtime {
            argv: vec![pod.text("runtime")],
            ..pod.runtime()
        },
        ..Create::default()
    };
    let made = pod.shim.create(create).await.expect("create");
    let ended = exit(&mut events, "a", "").await;
    assert_eq!((ended.pid, ended.code), (made, 7));
    // Nothing stays behind.
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", pod.shim_pid()));
    assert_eq!(children.expect("children").trim(), "");
    pod.end(&["a"]).await;
}
