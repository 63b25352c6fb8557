//! Orphans reparented to the shim while the OCI runtime creates a process: they hide no exit, and none is mistaken for the
//! process.

use criscope::runtime::shim_client::{Create, Runtime};

use super::pod::{Pod, exit};
use crate::prelude::*;

/// More than would fit in a bounded list.
const ORPHANS: usize = 400;

#[tokio::test]
async fn orphans_neither_hide_an_end_nor_fake_one() {
    let pod = Pod::new().await;
    let program = pod.path("runtime");
    // A slow OCI runtime, in a pod that leaves many orphans to the shim meanwhile. Its process exits with 7 before its
    // pid is reported. The script fails if the pid of the first orphan is free by then: the process could reuse it, and
    // the orphan's exit would be taken for its own.
    let script = format!(
        "#!/bin/sh
case \" $* \" in *' create '*) ;; *) exit 0 ;; esac
while [ $# -gt 0 ]; do [ \"$1\" = --pid-file ] && file=$2; shift; done
mkfifo $file.go
# Exits when told to, reparented to the shim: a shell would reap its own children.
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
    // Nothing is left behind.
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", pod.shim_pid()));
    assert_eq!(children.expect("children").trim(), "");
    pod.end(&["a"]).await;
}
