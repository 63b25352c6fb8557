//! Drops privileges of a process, irreversibly.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// The possible numbers of capabilities.
const CAPABILITIES: u32 = 64;

/// Protects the memory, environment and descriptors of this process from all processes without CAP_SYS_PTRACE.
pub(super) fn hide() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Drops what this process could still acquire; [`drop_capabilities`] drops the capabilities that it has.
pub(super) fn bound_capabilities() -> io::Result<()> {
    for number in 0..CAPABILITIES {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The kernel has no capability of this number.
            Err(rustix::io::Errno::INVAL) if number > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(clear_ambient_capability_set()?)
}

/// Drops all capabilities, including the ones that an exec could add.
pub(super) fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none)?;
    Ok(set_no_new_privs(true)?)
}

/// A seccomp filter that allows an init only to wait and to exit. It also filters calls that a debugger injects
/// (seccomp(2)).
pub(super) fn waiting_only() -> io::Result<BpfProgram> {
    use nix::libc::{
        SYS_close, SYS_exit, SYS_exit_group, SYS_read, SYS_restart_syscall, SYS_rt_sigreturn,
    };
    let calls = [
        SYS_read,
        SYS_close,
        SYS_exit,
        SYS_exit_group,
        // Used by the kernel after SIGSTOP and SIGCONT.
        SYS_restart_syscall,
        SYS_rt_sigreturn,
    ];
    let allowed = calls.into_iter().map(|call| (call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(nix::libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into();
    let filter = arch.and_then(|arch| {
        SeccompFilter::new(allowed, refuse, SeccompAction::Allow, arch)?.try_into()
    });
    filter.map_err(|error: seccompiler::BackendError| io::Error::other(error))
}

/// Restricts the process to these system calls, irreversibly.
pub(super) fn allow_only(calls: &BpfProgram) -> io::Result<()> {
    seccompiler::apply_filter(calls).map_err(io::Error::other)
}
