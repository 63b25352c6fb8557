//! Log lines and metrics of stuck calls.

use super::*;

pub(super) fn report(percent: u32) -> StuckCallReport {
    StuckCallReport {
        percent,
        is_first: percent == 50,
        activity: Some("cni plugin calico (iptables)".into()),
    }
}

#[test]
fn a_stuck_call_counts_once_and_is_logged_each_time() {
    let registry = registry();
    let signals = signals(&registry);
    let written = logged("info", LogFormat::Json, |_| {
        let call = full(Method::RunPodSandbox);
        for percent in [50, 90, 100] {
            signals.stuck(&call, &report(percent));
        }
    });
    assert_line(
        &text(&registry),
        "criscope_rpc_stuck_total{method=\"RunPodSandbox\"} 1",
    );
    let lines = written.objects();
    let percents: Vec<_> = lines.iter().map(|l| l["percent"].clone()).collect();
    assert_eq!(percents, [50, 90, 100]);
    assert_eq!(lines[0]["event"], "rpc.stuck");
    assert_eq!(lines[0]["level"], "warn");
    assert_eq!(lines[0]["phase"], "reading");
    assert_eq!(lines[0]["criscope.doing"], "cni plugin calico (iptables)");
}

#[test]
fn the_last_log_line_reports_a_stuck_call() {
    let signals = signals(&registry());
    let cancelled = outcome(Ending::Cancelled, Code::Cancelled, Duration::ZERO);
    let written = logged("info", LogFormat::Json, |_| {
        for outcome in [ok(), cancelled] {
            let call = full(Method::RunPodSandbox);
            signals.end(&call, &outcome);
            assert!(call.reaches(50) && call.reaches(90) && !call.reaches(50));
            signals.end(&call, &outcome);
        }
    });
    let lines = written.objects();
    let stuck: Vec<_> = lines.iter().map(|l| l.get("stuck").cloned()).collect();
    assert_eq!(stuck, [None, Some(90.into()), None, Some(90.into())]);
}
