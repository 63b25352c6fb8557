//! Tests that the default profile blocks the calls listed in `closed.txt`; `docs/SECCOMP.md` gives the reasons.

use std::collections::HashSet;

use oci_spec::runtime::{
    Capability, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompOperator,
};

use super::{Target, default_profile};
use criscope_settings::value::default_capabilities;

/// Calls that no container without additional capabilities may make.
///
/// In this order: keys, which are not namespaced; programs and events in the kernel; requests that bypass the filter;
/// mounts, by the old and the new API; namespaces; files by handle; the machine; other processes; memory of the node;
/// attributes of security modules; calls of newer kernels; obsolete calls.
const CLOSED: &str = include_str!("closed.txt");

/// Calls that fail as if the kernel did not have them, so that C libraries fall back.
const ABSENT: &[&str] = &["clone3", "socketcall"];

const ARCHITECTURES: [&str; 6] = [
    "x86_64",
    "aarch64",
    "s390x",
    "riscv64",
    "powerpc64",
    "loongarch64",
];

fn profile(arch: &str, capabilities: &HashSet<Capability>) -> LinuxSeccomp {
    default_profile(&Target {
        arch,
        kernel: (6, 18),
        capabilities,
    })
    .expect("a profile")
}

fn ordinary() -> HashSet<Capability> {
    default_capabilities().into_iter().collect()
}

#[test]
fn blocked_calls_stay_blocked() {
    for arch in ARCHITECTURES {
        let filter = profile(arch, &ordinary());
        assert_eq!(filter.default_action(), LinuxSeccompAction::ScmpActErrno);
        assert_eq!(filter.default_errno_ret(), Some(1));
        let rules = filter.syscalls().clone().expect("rules");
        let let_through = rules
            .iter()
            .filter(|rule| rule.action() == LinuxSeccompAction::ScmpActAllow);
        let open: HashSet<&str> = let_through
            .flat_map(|rule| rule.names())
            .map(String::as_str)
            .collect();
        for name in CLOSED.split_whitespace().chain(ABSENT.iter().copied()) {
            assert!(!open.contains(name), "{arch}: {name}");
        }
        for name in ABSENT {
            let rule = rules
                .iter()
                .find(|rule| rule.names().contains(&(*name).to_owned()));
            assert_eq!(
                rule.expect("a rule").errno_ret(),
                Some(38),
                "{arch}: {name}"
            );
        }
        // No action other than these two, and no other call that fails with ENOSYS.
        assert_eq!(
            rules.len() - ABSENT.len(),
            rules
                .iter()
                .filter(|rule| rule.action() == LinuxSeccompAction::ScmpActAllow)
                .count()
        );
    }
}

/// Returns whether a call with this first argument is allowed. Like the kernel's filter, it compares 64 bits.
fn passes(filter: &LinuxSeccomp, name: &str, value: u64) -> bool {
    let rules = filter.syscalls().iter().flatten();
    rules
        .filter(|rule| rule.names().iter().any(|one| one == name))
        .filter(|rule| rule.action() == LinuxSeccompAction::ScmpActAllow)
        .any(|rule| {
            let mut args = rule.args().iter().flatten();
            args.all(|arg| holds(arg, value))
        })
}

fn holds(arg: &LinuxSeccompArg, value: u64) -> bool {
    assert_eq!(arg.index(), 0);
    let masked = value & arg.value();
    match arg.op() {
        LinuxSeccompOperator::ScmpCmpMaskedEq => Some(masked) == arg.value_two(),
        LinuxSeccompOperator::ScmpCmpEq => value == arg.value(),
        other => panic!("unexpected {other:?}"),
    }
}

#[test]
fn socket_families_are_filtered_regardless_of_the_upper_half() {
    for arch in ARCHITECTURES {
        let filter = profile(arch, &ordinary());
        for call in ["socket", "socketpair"] {
            for family in 0..=64_u64 {
                // AF_ALG, AF_VSOCK, and families that no kernel has yet.
                let open = !matches!(family, 38 | 40 | 48..);
                // The kernel truncates the family to 32 bits.
                for upper in [0, 1 << 32, u64::MAX << 32] {
                    let passed = passes(&filter, call, upper | family);
                    assert_eq!(passed, open, "{arch}: {call}({family}), {upper:x}");
                }
            }
        }
    }
}

#[test]
fn personalities_that_weaken_a_process_are_blocked() {
    let filter = profile("x86_64", &ordinary());
    for (persona, open) in [
        (0, true),
        (8, true),
        (0x2_0000, true),
        (0x2_0008, true),
        (0xffff_ffff, true),
        // ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC, MMAP_PAGE_ZERO.
        (0x4_0000, false),
        (0x40_0000, false),
        (0x10_0000, false),
        // The kernel evaluates 32 bits.
        (1 << 32 | 0x4_0000, false),
    ] {
        assert_eq!(passes(&filter, "personality", persona), open, "{persona:x}");
    }
}
