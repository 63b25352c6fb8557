//! What the default profile keeps from containers; `docs/SECCOMP.md` says why.

use std::collections::HashSet;

use oci_spec::runtime::{
    Capability, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompOperator,
};

use super::{Target, default_profile};
use crate::runtime::oci::spec::containerd_capabilities;

/// Calls that no container without further capabilities may make.
///
/// In this order: keys, which have no namespace; programs and events in the kernel; requests that are carried out past the
/// filter; mounts, in the old and the new way; namespaces; files by handle; the machine; other processes; the memory of the
/// node; attributes that security modules have; what came with newer kernels; what no program uses any more.
const CLOSED: &str = include_str!("closed.txt");

/// Those that are as if the kernel had them not, so that C libraries do without.
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
    containerd_capabilities().into_iter().collect()
}

#[test]
fn calls_that_are_closed_stay_closed() {
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
        // No other action than these two, and no other call that pretends.
        assert_eq!(
            rules.len() - ABSENT.len(),
            rules
                .iter()
                .filter(|rule| rule.action() == LinuxSeccompAction::ScmpActAllow)
                .count()
        );
    }
}

/// Whether a call with this first argument is let through, as the kernel's filter decides it: 64 bits are compared.
fn passes(filter: &LinuxSeccomp, name: &str, value: u64) -> bool {
    let holds = |arg: &LinuxSeccompArg| {
        assert_eq!(arg.index(), 0);
        let masked = value & arg.value();
        match arg.op() {
            LinuxSeccompOperator::ScmpCmpMaskedEq => Some(masked) == arg.value_two(),
            LinuxSeccompOperator::ScmpCmpEq => value == arg.value(),
            other => panic!("{other:?} is not expected here"),
        }
    };
    let rules = filter.syscalls().iter().flatten();
    rules
        .filter(|rule| rule.names().iter().any(|one| one == name))
        .filter(|rule| rule.action() == LinuxSeccompAction::ScmpActAllow)
        .any(|rule| rule.args().iter().flatten().all(holds))
}

#[test]
fn every_socket_family_but_two_is_open_whatever_stands_in_the_upper_half() {
    for arch in ARCHITECTURES {
        let filter = profile(arch, &ordinary());
        for call in ["socket", "socketpair"] {
            for family in 0..=64_u64 {
                // AF_ALG, AF_VSOCK, and what no kernel knows yet.
                let open = !matches!(family, 38 | 40 | 48..);
                // The kernel cuts the family to 32 bits.
                for upper in [0, 1 << 32, u64::MAX << 32] {
                    let passed = passes(&filter, call, upper | family);
                    assert_eq!(passed, open, "{arch}: {call}({family}), {upper:x}");
                }
            }
        }
    }
}

#[test]
fn personalities_that_weaken_a_process_are_closed() {
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
        // The kernel looks at 32 bits.
        (1 << 32 | 0x4_0000, false),
    ] {
        assert_eq!(passes(&filter, "personality", persona), open, "{persona:x}");
    }
}
