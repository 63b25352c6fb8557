//! Stories for tests of pages and terminal output: typical cases of slow or failed pods.

mod lists;
mod records;

pub use self::lists::{all, pods, recent, story};
pub use self::records::{plain, pod, record};
use std::time::Duration;

use super::view::{
    CallDetail, CallView, EpisodeState, EpisodeView, ExitView, InitContainerWaitView, PhaseDuration,
};
use criscope_cri::units::times::UnixMicros;

/// The time of day in all of them.
pub const NOW: UnixMicros = UnixMicros::new(1_769_850_487_123_456);

fn phases(parts: &[(&str, f64)]) -> Vec<PhaseDuration> {
    let phases = parts.iter().map(|(phase, ms)| PhaseDuration {
        phase: (*phase).to_owned(),
        ms: *ms,
    });
    phases.collect()
}

fn call(seq: u64, method: &str, offset_ms: f64, duration_ms: f64) -> CallView {
    CallView {
        seq,
        method: method.to_owned(),
        offset_ms,
        duration_ms,
        outcome: "ok".to_owned(),
        code: "OK".to_owned(),
        deadline_ms: Some(240_000.0),
        backend: Some("containerd".to_owned()),
        client: "kubelet".to_owned(),
        ..CallView::default()
    }
}

fn detail(what: &str, name: &str, doing: Option<&str>, at: f64, ms: f64) -> CallDetail {
    CallDetail {
        what: what.to_owned(),
        name: name.to_owned(),
        command: None,
        doing: doing.map(str::to_owned),
        offset_ms: at,
        duration_ms: ms,
        source: "process".to_owned(),
    }
}

fn container(mut call: CallView, name: &str) -> CallView {
    call.container = Some(name.to_owned());
    call
}

fn image(mut call: CallView, image: &str) -> CallView {
    call.image = Some(image.to_owned());
    call
}

fn with_remark(mut call: CallView, remark: &str) -> CallView {
    call.remarks.push(remark.to_owned());
    call
}

fn failed(mut call: CallView, outcome: &str, code: &str, error: &str) -> CallView {
    call.outcome = outcome.to_owned();
    call.code = code.to_owned();
    call.error = Some(error.to_owned());
    call
}

fn start(name: &str, ago_s: u64, duration_ms: f64, headline: &str) -> EpisodeView {
    EpisodeView {
        kind: "start".to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: "1f3c9a52-6d0e-4f1b-9f0a-3f1b2c4d5e6f".to_owned(),
        sandbox_id: Some("8d1c0b6f5e2a4f0e9c7b".repeat(3)),
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
        state: EpisodeState::Ok,
        began_unix_us: NOW - Duration::from_secs(ago_s),
        duration_ms,
        headline: headline.to_owned(),
        ..EpisodeView::default()
    }
}

/// 9.5 of 14.2 seconds in a CNI plugin.
pub fn slow_cni() -> EpisodeView {
    let mut sandbox = call(11, "RunPodSandbox", 0.0, 9830.0);
    sandbox.details = vec![
        detail("cni", "calico", Some("iptables"), 140.0, 9500.0),
        detail("oci", "runc", Some("create"), 9680.0, 120.0),
    ];
    EpisodeView {
        phases: phases(&[
            ("sandbox", 330.0),
            ("network", 9500.0),
            ("image_pull", 3200.0),
            ("container_create", 310.0),
            ("container_start", 260.0),
            ("outside_cri", 600.0),
        ]),
        pulled: true,
        calls: vec![
            sandbox,
            image(
                call(12, "PullImage", 9900.0, 3200.0),
                "registry.example.com/shop/web:1.2.3",
            ),
            container(call(13, "CreateContainer", 13_300.0, 310.0), "web"),
            container(call(14, "StartContainer", 13_940.0, 260.0), "web"),
        ],
        ..start(
            "web-7d4b9c6f5-x2x9k",
            120,
            14_200.0,
            "network: 9.5 s of 14 s in the CNI plugin calico (running iptables), during RunPodSandbox",
        )
    }
}

/// 6.5 of 8.1 seconds in an init container.
pub fn slow_init() -> EpisodeView {
    let start = start(
        "shop-db-0",
        200,
        8100.0,
        "init container migrate ran for 6.5 s of 8.1 s",
    );
    EpisodeView {
        phases: phases(&[
            ("sandbox", 170.0),
            ("container_create", 60.0),
            ("container_start", 240.0),
            ("init_container", 6500.0),
            ("outside_cri", 1130.0),
        ]),
        calls: vec![
            call(31, "RunPodSandbox", 0.0, 170.0),
            container(call(32, "CreateContainer", 200.0, 30.0), "migrate"),
            container(call(33, "StartContainer", 240.0, 120.0), "migrate"),
            container(call(34, "CreateContainer", 7900.0, 30.0), "postgres"),
            container(call(35, "StartContainer", 7980.0, 120.0), "postgres"),
        ],
        exits: vec![ExitView {
            container: "migrate".to_owned(),
            attempt: 0,
            code: 0,
            reason: "completed".to_owned(),
            ran_ms: 6520.0,
            at_unix_us: start.began_unix_us + Duration::from_millis(6860),
            evicted: None,
            signal: None,
            ordered: false,
        }],
        waits: vec![InitContainerWaitView {
            before: 3,
            offset_ms: 360.0,
            duration_ms: 6500.0,
            container: "migrate".to_owned(),
        }],
        ..start
    }
}

/// 41 of 42 seconds pulling.
pub fn slow_pull() -> EpisodeView {
    EpisodeView {
        phases: phases(&[
            ("sandbox", 180.0),
            ("network", 90.0),
            ("image_pull", 41_000.0),
            ("container_create", 120.0),
            ("container_start", 110.0),
            ("outside_cri", 500.0),
        ]),
        pulled: true,
        calls: vec![
            call(21, "RunPodSandbox", 0.0, 270.0),
            image(
                with_remark(
                    call(22, "PullImage", 500.0, 41_000.0),
                    "the image says that it is for linux/arm64, and this node is linux/amd64/v3",
                ),
                "registry.example.com/ml/model-server@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            ),
            container(call(23, "CreateContainer", 41_700.0, 120.0), "model"),
            container(call(24, "StartContainer", 41_890.0, 110.0), "model"),
        ],
        ..start(
            "model-0",
            300,
            42_000.0,
            "image pull: 41 s of 42 s pulling registry.example.com/ml/model-server@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        )
    }
}

fn failed_pull(seq: u64, offset_ms: f64) -> CallView {
    failed(
        image(
            call(seq, "PullImage", offset_ms, 900.0),
            "registry.example.com/shop/wbe:latest",
        ),
        "error",
        "NOT_FOUND",
        "failed to pull and unpack image \"registry.example.com/shop/wbe:latest\": failed to resolve reference: not found",
    )
}

/// An image that does not exist.
pub fn failed_image() -> EpisodeView {
    let mut again = failed_pull(33, 16_000.0);
    again.retry = true;
    EpisodeView {
        state: EpisodeState::Failed,
        retries: 1,
        failures: 2,
        phases: phases(&[
            ("sandbox", 200.0),
            ("network", 100.0),
            ("image_pull", 1800.0),
            ("outside_cri", 14_800.0),
        ]),
        back_off_ms: 14_500.0,
        cause: "image_not_found".to_owned(),
        calls: vec![
            call(31, "RunPodSandbox", 0.0, 300.0),
            failed_pull(32, 600.0),
            again,
        ],
        ..start(
            "typo-5c9f",
            30,
            16_900.0,
            "cannot pull registry.example.com/shop/wbe:latest: the registry has no such image (2 tries in 13 s)",
        )
    }
}

/// An image that has been pulled in vain seven times, and will be tried again.
pub fn many_tries() -> EpisodeView {
    let began = NOW - Duration::from_secs(490);
    let mut calls = failed_image().calls;
    let pull = calls.swap_remove(1);
    calls.truncate(1);
    calls.extend((0..7_u32).map(|n| CallView {
        seq: 40 + u64::from(n),
        offset_ms: 600.0 + f64::from(n) * 80_000.0,
        began_unix_us: began + Duration::from_millis(600 + u64::from(n) * 80_000),
        retry: n > 0,
        ..pull.clone()
    }));
    EpisodeView {
        state: EpisodeState::Failing,
        retries: 6,
        failures: 7,
        phases: phases(&[
            ("sandbox", 200.0),
            ("network", 100.0),
            ("image_pull", 6300.0),
            ("outside_cri", 483_400.0),
        ]),
        back_off_ms: 483_100.0,
        cause: "image_not_found".to_owned(),
        calls,
        began_unix_us: began,
        duration_ms: 490_000.0,
        headline:
            "cannot pull registry.example.com/shop/wbe:latest: the registry has no such image (7 tries in 8 min)"
                .to_owned(),
        ..start("typo-2", 0, 0.0, "")
    }
}

/// A container in a crash loop.
pub fn crash_loop() -> EpisodeView {
    EpisodeView {
        kind: "restart".to_owned(),
        attempt: 3,
        container: Some("app".to_owned()),
        phases: phases(&[("container_create", 90.0), ("container_start", 110.0)]),
        calls: vec![
            container(call(41, "CreateContainer", 0.0, 90.0), "app"),
            container(call(42, "StartContainer", 90.0, 110.0), "app"),
        ],
        exits: vec![ExitView {
            container: "app".to_owned(),
            attempt: 3,
            code: 137,
            reason: "oom_killed".to_owned(),
            ran_ms: 2100.0,
            at_unix_us: NOW - Duration::from_secs(8),
            evicted: None,
            signal: None,
            ordered: false,
        }],
        crash_loop: Some(
            "app was OOMKilled 4 times in 1m 32s (exit code 137 after 2.1 s)".to_owned(),
        ),
        ..start(
            "leaky-0",
            10,
            200.0,
            "app was OOMKilled after 2.1 s (exit code 137); the start took 0.2 s",
        )
    }
}

/// A sandbox that was retried after its deadline.
pub fn retries() -> EpisodeView {
    let first = failed(
        call(51, "RunPodSandbox", 0.0, 240_000.0),
        "deadline",
        "DEADLINE_EXCEEDED",
        "context deadline exceeded",
    );
    let second = failed(
        call(52, "RunPodSandbox", 250_000.0, 12.0),
        "error",
        "UNKNOWN",
        "failed to reserve sandbox name: name is reserved",
    );
    let mut third = call(53, "RunPodSandbox", 262_000.0, 900.0);
    third.retry = true;
    EpisodeView {
        retries: 2,
        failures: 2,
        back_off_ms: 22_000.0,
        phases: phases(&[
            ("sandbox", 240_912.0),
            ("outside_cri", 22_000.0),
            ("container_create", 100.0),
            ("container_start", 88.0),
        ]),
        calls: vec![
            first,
            CallView {
                retry: true,
                ..second
            },
            third,
            container(call(54, "CreateContainer", 262_910.0, 100.0), "db"),
            container(call(55, "StartContainer", 263_012.0, 88.0), "db"),
        ],
        ..start(
            "db-0",
            400,
            263_100.0,
            "RunPodSandbox timed out at the kubelet's deadline of 4 min; 1 more try was refused since: the runtime still holds the name (name is reserved); up after 4m 23s",
        )
    }
}

/// A start that still waits for its network.
pub fn in_flight() -> EpisodeView {
    let mut sandbox = call(61, "RunPodSandbox", 0.0, 130_000.0);
    sandbox.outcome = "in_flight".to_owned();
    sandbox.code = String::new();
    sandbox.phase = Some("waiting".to_owned());
    sandbox.details = vec![detail("cni", "bridge", None, 200.0, 129_800.0)];
    EpisodeView {
        state: EpisodeState::Open,
        sandbox_id: None,
        phases: phases(&[("sandbox", 200.0), ("network", 129_800.0)]),
        calls: vec![sandbox],
        ..start(
            "stuck-1",
            130,
            130_000.0,
            "waiting 2m 10s for the network: the CNI plugin bridge has not answered (limit 4 min)",
        )
    }
}

/// Names and texts with markup and control characters.
pub fn hostile() -> EpisodeView {
    let mut call = failed(
        call(71, "RunPodSandbox", 0.0, 5.0),
        "error",
        "UNKNOWN",
        "\u{1b}[2J<script>alert(1)</script>\u{202e}gnp.exe\nsecond line",
    );
    call.container = Some("\u{1b}]0;owned\u{7}<b>".to_owned());
    EpisodeView {
        state: EpisodeState::Failed,
        failures: 1,
        phases: phases(&[("sandbox", 5.0), ("\"><script>", 1.0)]),
        calls: vec![call],
        namespace: "../<ns>".to_owned(),
        ..start(
            "<img src=x onerror=alert('\"&')>\u{1b}[31m\u{202e}dab\u{200b}",
            5,
            6.0,
            "cannot create the sandbox: \u{1b}[31m<script>alert(1)</script>\u{202e}",
        )
    }
}
