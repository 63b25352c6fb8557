//! Metrics as shims send them.

use prost::Message;

use criscope_wire::cgroups::{v1, v2};

use super::*;

const V1: &str = "io.containerd.cgroups.v1.Metrics";
const V2: &str = "io.containerd.cgroups.v2.Metrics";

fn entry(usage: u64, limit: u64) -> v1::MemoryEntry {
    v1::MemoryEntry {
        usage,
        limit,
        ..Default::default()
    }
}

fn runc_v1() -> v1::Metrics {
    let device = |op: &str, value| v1::BlkIoEntry {
        op: op.to_owned(),
        major: 8,
        minor: 0,
        value,
    };
    v1::Metrics {
        pids: Some(PidsStat {
            current: 3,
            limit: 0,
        }),
        cpu: Some(v1::CpuStat {
            usage: Some(v1::CpuUsage {
                total: 5_000,
                kernel: 2_000,
                user: 3_000,
            }),
            throttling: Some(v1::Throttle {
                periods: 7,
                throttled_periods: 1,
                throttled_time: 900,
            }),
        }),
        memory: Some(v1::MemoryStat {
            total_rss: 200,
            total_inactive_file: 300,
            total_active_file: 100,
            total_pg_fault: 60,
            usage: Some(entry(1000, 4096)),
            swap: Some(entry(1040, 12_288)),
            ..Default::default()
        }),
        blkio: Some(v1::BlkIoStat {
            io_service_bytes_recursive: vec![
                device("Read", 100),
                device("Write", 200),
                device("Total", 300),
            ],
            io_serviced_recursive: vec![device("Read", 1)],
        }),
        memory_oom_control: Some(v1::MemoryOomControl { oom_kill: 2 }),
        ..Default::default()
    }
}

fn read(type_url: &str, message: &impl Message) -> Usage {
    let read = usage(type_url, &message.encode_to_vec());
    read.expect("decoded").expect("metrics")
}

#[test]
fn metrics_of_version_1_are_a_usage() {
    let usage = read(V1, &runc_v1());
    let cpu = usage.cpu.expect("cpu");
    assert_eq!((cpu.usage, cpu.user, cpu.system), (5_000, 3_000, 2_000));
    assert_eq!(
        (cpu.periods, cpu.throttled_periods, cpu.throttled),
        (7, 1, 900)
    );
    let memory = usage.memory.expect("memory");
    assert_eq!((memory.usage, memory.working_set), (1000, 700));
    assert_eq!((memory.rss, memory.page_faults), (200, 60));
    assert_eq!((memory.limit, memory.oom_kills), (Some(4096), Some(2)));
    // `swap` counts both.
    assert_eq!((memory.swap, memory.swap_limit), (Some(40), Some(8192)));
    let io = usage.io.expect("io");
    assert_eq!(io.devices.len(), 1);
    let device = &io.devices[0];
    let numbers = (device.read_bytes, device.write_bytes, device.reads);
    assert_eq!(numbers, (100, 200, 1));
    let pids = usage.pids.expect("pids");
    assert_eq!((pids.current, pids.limit), (3, None));
}

#[test]
fn metrics_of_version_2_are_a_usage() {
    let psi = |total| {
        Some(v2::PsiStats {
            some: Some(v2::PsiData {
                avg10: 1.5,
                total,
                ..Default::default()
            }),
            full: None,
        })
    };
    let metrics = v2::Metrics {
        pids: Some(PidsStat {
            current: 3,
            limit: u64::MAX,
        }),
        cpu: Some(v2::CpuStat {
            usage_usec: 5,
            user_usec: 3,
            system_usec: 2,
            throttled_usec: 1,
            psi: psi(7),
            ..Default::default()
        }),
        memory: Some(v2::MemoryStat {
            anon: 200,
            inactive_file: 1500,
            pgmajfault: 4,
            usage: 1000,
            usage_limit: u64::MAX,
            ..Default::default()
        }),
        io: Some(v2::IoStat {
            usage: vec![v2::IoEntry {
                major: 8,
                minor: 16,
                rbytes: 100,
                wios: 2,
                ..Default::default()
            }],
            psi: psi(9),
        }),
        memory_events: Some(v2::MemoryEvents {
            max: 6,
            oom_kill: 1,
        }),
        ..Default::default()
    };
    let usage = read(V2, &metrics);
    let cpu = usage.cpu.expect("cpu");
    assert_eq!((cpu.usage, cpu.user, cpu.system), (5_000, 3_000, 2_000));
    assert_eq!(cpu.throttled, 1_000);
    let pressure = cpu.pressure.expect("pressure");
    assert_eq!((pressure.some.total, pressure.full), (7_000, None));
    let memory = usage.memory.expect("memory");
    assert_eq!(
        (memory.usage, memory.working_set),
        (1000, 0),
        "never below 0"
    );
    assert_eq!((memory.rss, memory.major_page_faults), (200, 4));
    assert_eq!(
        (memory.limit, memory.swap, memory.swap_limit),
        (None, None, None)
    );
    assert_eq!((memory.limit_hits, memory.oom_kills), (6, Some(1)));
    let io = usage.io.expect("io");
    let device = &io.devices[0];
    assert_eq!(
        (device.minor, device.read_bytes, device.writes),
        (16, 100, 2)
    );
    assert_eq!(io.pressure.map(|it| it.some.total), Some(9_000));
    assert_eq!(usage.pids.and_then(|pids| pids.limit), None);
}

#[test]
fn a_type_may_have_a_prefix() {
    let value = runc_v1().encode_to_vec();
    for prefix in ["", "/", "types.containerd.io/", "type.googleapis.com/a/"] {
        let read = usage(&format!("{prefix}{V1}"), &value).expect(prefix);
        assert!(read.is_some(), "{prefix}");
    }
    for other in [
        "",
        "io.containerd.cgroups.v3.Metrics",
        "xio.containerd.cgroups.v1.Metrics",
    ] {
        let error = usage(other, &value).expect_err(other);
        assert!(matches!(error, Error::Unknown(_)), "{error}");
    }
}

/// The answer of the shim of runsc 20221219 for a container.
const GVISOR: &[u8] = b"\x12\x02\x08\x03\x1a\x09\x0a\x05\x08\xcc\x8e\xa2\x52\x12\x00\
    \x22\x11\x8a\x02\x05\x10\x80\x80\x9c\x01\x92\x02\x00\x9a\x02\x00\xa2\x02\x00";

#[test]
fn what_gvisor_does_not_report_is_no_limit() {
    let usage = usage(V1, GVISOR).expect("decoded").expect("metrics");
    assert_eq!(usage.cpu.map(|cpu| cpu.usage), Some(172_525_388));
    let memory = usage.memory.expect("memory");
    let numbers = (memory.usage, memory.working_set);
    assert_eq!(numbers, (2_555_904, 2_555_904));
    let limits = (memory.limit, memory.swap_limit);
    assert_eq!(
        (limits, memory.swap, memory.kernel),
        ((None, None), None, None)
    );
    let pids = usage.pids.expect("pids");
    assert_eq!((pids.current, pids.limit), (3, None));
}

#[test]
fn zeros_are_no_metrics() {
    for empty in [
        v1::Metrics::default(),
        v1::Metrics {
            cpu: Some(v1::CpuStat {
                usage: Some(v1::CpuUsage::default()),
                throttling: None,
            }),
            memory: Some(v1::MemoryStat {
                usage: Some(entry(0, 4096)),
                ..Default::default()
            }),
            ..Default::default()
        },
    ] {
        let read = usage(V1, &empty.encode_to_vec()).expect("decoded");
        assert_eq!(read, None);
    }
    assert!(usage(V2, &[]).expect("decoded").is_none());
}

#[test]
fn malformed_metrics_are_an_error() {
    let value = runc_v1().encode_to_vec();
    let mut failed = 0;
    for at in 0..value.len() {
        failed += usize::from(usage(V1, &value[..at]).is_err());
        let mut flipped = value.clone();
        flipped[at] ^= 0xff;
        fuzz(&flipped);
    }
    assert!(failed > value.len() / 2, "{failed} of {}", value.len());
    let error = usage(V1, b"\x1a\x7f").expect_err("cut");
    assert!(
        error.to_string().starts_with("malformed metrics: "),
        "{error}"
    );
}
