//! Plugins that misbehave.

use std::fs;
use std::time::Duration;

use criscope_cni::{Error, Verb};

use super::fake::{Fake, pod, runs};
use super::support::{Runs, until};

/// Returns the error of an ADD whose only plugin runs this script, and checks that nothing is left.
async fn add(arms: &str) -> Error {
    let fake = Fake::new();
    fake.plugin("x", arms)
        .list("a.conflist", "1.0.0", r#"{"type":"x"}"#);
    let error = fake.cni().add(&pod("c1")).await.expect_err(arms);
    assert_eq!(fake.log(), ["x ADD", "x DEL"], "rolled back");
    assert!(fake.cached().is_empty(), "{:?}", fake.cached());
    error
}

#[tokio::test]
async fn errors_have_the_code_and_message_of_the_plugin() {
    let error = add(
        r#"ADD) echo '{"cniVersion":"1.0.0","code":11,"msg":"busy","details":"later"}'; exit 1;;"#,
    )
    .await;
    assert!(
        matches!(&error, Error::Plugin { error, .. } if error.code == 11),
        "{error}"
    );
    assert_eq!(error.to_string(), "CNI plugin x ADD: busy (code 11): later");
    let error = add(r#"ADD) echo '{"code":7,"msg":"bad"}'; exit 1;;"#).await;
    assert!(
        matches!(&error, Error::Plugin { verb: Verb::Add, error, .. } if error.code == 7),
        "{error}"
    );
}

#[tokio::test]
async fn failures_without_a_valid_error_quote_the_output() {
    for arms in [
        "ADD) echo oops >&2; exit 3;;",
        "ADD) echo oops; exit 3;;",
        "ADD) echo '{}'; echo oops >&2; exit 3;;",
    ] {
        let error = add(arms).await;
        assert!(matches!(error, Error::PluginFailed { .. }), "{error}");
        assert!(
            error.to_string().contains("oops") && error.to_string().contains('3'),
            "{error}"
        );
    }
    let error = add("ADD) kill -9 $$;;").await;
    assert!(error.to_string().contains("signal: 9"), "{error}");
}

#[tokio::test]
async fn invalid_output_is_an_error() {
    for arms in [
        "ADD) ;;",
        "ADD) echo garbage;;",
        "ADD) echo '[]';;",
        r#"ADD) echo '{"cniVersion":"0.1.0"}';;"#,
    ] {
        let error = add(arms).await;
        assert!(matches!(error, Error::BadResult { .. }), "{error}");
    }
}

#[tokio::test]
async fn huge_outputs_are_bounded() {
    let error = add("ADD) head -c 30000000 /dev/zero;;").await;
    assert!(matches!(error, Error::BadResult { .. }), "{error}");
    let error = add("ADD) head -c 30000000 /dev/zero | tr '\\0' x >&2; exit 1;;").await;
    assert!(
        error.to_string().len() < 1000,
        "{} bytes",
        error.to_string().len()
    );
}

#[tokio::test]
async fn a_plugin_may_ignore_its_input_or_leave_a_child() {
    let fake = Fake::new();
    let bin = fake.bin();
    // The child holds the pipes open for longer than any timeout.
    fake.plugin(
        "x",
        &format!(
            "ADD) sleep 7200 & echo $! > {}/child; echo '{}'; exit 0;;",
            bin.display(),
            super::fake::RESULT
        ),
    );
    fake.list("a.conflist", "1.0.0", r#"{"type":"x"}"#);
    fake.cni().add(&pod("c1")).await.expect("add");
    let child = fs::read_to_string(bin.join("child")).expect("pid");
    assert!(runs(&child), "daemons started by a plugin are not killed");
    let pid = nix::unistd::Pid::from_raw(child.trim().parse().expect("pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("kill");
}

#[tokio::test]
async fn one_that_hangs_is_killed_with_its_children() {
    let mut fake = Fake::new();
    // Much longer than it takes to start the plugin.
    fake.settings.add_timeout = Duration::from_secs(10);
    let bin = fake.bin();
    let arms = format!(
        "ADD) sleep 300 & echo $! > {0}/child; echo $$ > {0}/self; wait;;",
        bin.display()
    );
    fake.plugin("x", &arms)
        .list("a.conflist", "1.0.0", r#"{"type":"x"}"#);
    let error = fake.cni().add(&pod("c1")).await.expect_err("hangs");
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    gone(&fake).await;
    assert_eq!(
        fake.log(),
        ["x ADD", "x DEL"],
        "the rollback has its own timeout"
    );
}

#[tokio::test]
async fn an_add_whose_caller_is_gone_is_removed_by_a_del() {
    let fake = Fake::new();
    let bin = fake.bin();
    let arms = format!(
        "ADD) sleep 300 & echo $! > {0}/child; echo $$ > {0}/self; wait;;",
        bin.display()
    );
    fake.plugin("x", &arms)
        .list("a.conflist", "1.0.0", r#"{"type":"x"}"#);
    let cni = fake.cni();
    let pod = pod("c1");
    // Drops the future when the plugin has reached this point.
    let begun = until("the plugin", || async {
        let pid = fs::read_to_string(bin.join("self")).ok()?;
        pid.ends_with('\n').then_some(())
    });
    tokio::select! {
        ended = cni.add(&pod) => panic!("the plugin should hang: {ended:?}"),
        () = begun => {}
    }
    gone(&fake).await;
    assert_eq!(fake.cached(), ["a-c1-eth0"], "the started ADD is recorded");
    cni.del(&pod).await.expect("del");
    assert!(fake.cached().is_empty());
    assert_eq!(fake.log(), ["x ADD", "x DEL"]);
}

async fn gone(fake: &Fake) {
    for name in ["self", "child"] {
        let pid = fs::read_to_string(fake.bin().join(name)).expect("it started");
        let ended = || async { (!runs(&pid)).then_some(()) };
        until(&format!("the end of {name}"), ended).await;
    }
}

#[tokio::test]
async fn a_missing_plugin_is_named_with_the_searched_directories() {
    let mut fake = Fake::new();
    // The others do not run: their work could not be undone, because a DEL begins with the last plugin.
    fake.plugin("x", "")
        .list("a.conflist", "1.0.0", r#"{"type":"x"},{"type":"nowhere"}"#);
    let runs = Runs::default();
    fake.settings.observer = runs.clone().into();
    let error = fake.cni().add(&pod("c1")).await.expect_err("missing");
    assert_eq!(runs.all(), ["nowhere ADD error"]);
    let said = error.to_string();
    assert!(
        said.starts_with("CNI plugin nowhere was not found in /no/such/dir:"),
        "{said}"
    );
    assert!(!said.contains("rollback"), "{said}");
    let ready = fake.cni().ready().await.expect_err("not ready").to_string();
    assert!(ready.contains("nowhere was not found in"), "{ready}");
    assert!(fake.log().is_empty() && fake.cached().is_empty());
}

#[tokio::test]
async fn a_failed_del_is_retried_by_the_next() {
    let fake = Fake::new();
    fake.plugin("x", "").plugin("y", "DEL) exit 1;;").list(
        "a.conflist",
        "1.0.0",
        r#"{"type":"x"},{"type":"y"}"#,
    );
    let cni = fake.cni();
    cni.add(&pod("c1")).await.expect("add");
    cni.del(&pod("c1")).await.expect_err("y fails");
    // The address is not released while y may still depend on it.
    assert_eq!(fake.log(), ["x ADD", "y ADD", "y DEL"]);
    assert_eq!(fake.cached(), ["a-c1-eth0"]);
    fake.plugin("y", "");
    cni.del(&pod("c1")).await.expect("del");
    assert_eq!(fake.log()[3..], ["y DEL", "x DEL"]);
    assert!(fake.cached().is_empty());
}

#[tokio::test]
async fn a_failed_rollback_reports_both_errors() {
    let fake = Fake::new();
    fake.plugin(
        "x",
        "ADD) echo first >&2; exit 1;; DEL) echo second >&2; exit 1;;",
    );
    fake.list("a.conflist", "1.0.0", r#"{"type":"x"}"#);
    let error = fake.cni().add(&pod("c1")).await.expect_err("fails");
    assert!(matches!(error, Error::NotUndone { .. }));
    assert!(
        error.to_string().contains("first") && error.to_string().contains("second"),
        "{error}"
    );
    assert_eq!(fake.cached(), ["a-c1-eth0"], "a later DEL finds it");
}

#[tokio::test]
async fn names_the_specification_forbids_reach_no_plugin() {
    let fake = Fake::new();
    fake.plugin("x", "")
        .list("a.conflist", "1.0.0", r#"{"type":"x"}"#);
    for id in ["", "../c", "a/b", "-a", "a b"] {
        assert!(
            matches!(fake.cni().add(&pod(id)).await, Err(Error::Invalid { .. })),
            "{id}"
        );
    }
    let mut odd = pod("c1");
    odd.name = "a;CNI_ARGS=x".to_owned();
    let error = fake.cni().add(&odd).await.expect_err("separators");
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    assert!(fake.log().is_empty());
}
