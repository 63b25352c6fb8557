//! Outputs of runc 1.1.5 and crun 1.8.1 for a missing command, and outputs of neither.

use super::reason;

fn of(text: &str) -> String {
    reason(text.as_bytes())
}

#[test]
fn the_error_of_runc_is_found_after_its_warnings() {
    let text = r#"time="2026-11-22T03:46:27Z" level=error msg="runc create failed: unable to start container process: exec: \"nope\": executable file not found in $PATH""#;
    let expected = r#"runc create failed: unable to start container process: exec: "nope": executable file not found in $PATH"#;
    assert_eq!(of(text), expected);
    let json = r#"{"level":"error","msg":"runc create failed: unable to start container process: exec: \"nope\": executable file not found in $PATH","time":"2026-11-22T03:37:10Z"}
runc create failed: unable to start container process"#;
    assert_eq!(of(json), expected);
    let warning = r#"time="2026-11-22T03:46:27Z" level=warning msg="unable to get oom kill count" error="no directory specified for memory.oom_control""#;
    let warned = format!("{warning}\n{warning}\n{warning}\n{text}\n{warning}\n");
    assert_eq!(of(&warned), expected);
    assert_eq!(of(warning), "unable to get oom kill count");
    let plain = format!("{warning}\nrunc: killed by a friend\n{warning}");
    assert_eq!(of(&plain), "runc: killed by a friend");
    let info = format!("time=now level=info msg=done\n{warning}");
    assert_eq!(of(&info), "done");
}

#[test]
fn the_error_of_crun_is_its_last_line() {
    let text = "executable file `nope` not found in $PATH: No such file or directory\n";
    assert_eq!(of(text), text.trim());
    let two = format!("cannot set memory swappiness\n{text}\n");
    assert_eq!(of(&two), text.trim());
    let json = r#"{"msg":"cgroups in hybrid mode not supported, drop all controllers from cgroupv2","level":"error","time":"2026-11-22T03:37:10.747873Z"}"#;
    assert_eq!(
        of(json),
        "cgroups in hybrid mode not supported, drop all controllers from cgroupv2"
    );
}

#[test]
fn escapes_are_decoded() {
    let text = r#"level=error msg="a\tb\n\"c\" \\ \x1b\u00e9\U0001f600 \xff\a" pid=7"#;
    assert_eq!(of(text), "a\tb \"c\" \\ \u{1b}é😀 \u{fffd} ");
}

#[test]
fn unknown_output_is_kept_and_truncated() {
    for text in [
        r#"level=error msg="cut of"#,
        r#"level=error msg="a bad \u12"#,
        r#"of the reason" level=error"#,
        "exit code=3 of level=error msg=x",
        "{\"level\":7}",
        "level=error",
        "==",
    ] {
        assert_eq!(of(text), text);
    }
    assert_eq!(of(" \n"), "no error output");
    assert_eq!(reason(b"\xff no"), "\u{fffd} no");
    assert_eq!(of(&"é".repeat(2000)), "é".repeat(512));
    let panic = "panic: no memory\n\ngoroutine 1 [running]:\nmain.main()\n";
    assert_eq!(of(panic), "panic: no memory");
}
