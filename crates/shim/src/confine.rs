//! Taking away what a process may do. Nothing of it can be taken back.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// The numbers that the kernel can have for capabilities.
const CAPABILITIES: u32 = 64;

/// Keeps the memory, the environment and the descriptors of this process from all but CAP_SYS_PTRACE.
pub(super) fn hide() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Gives up what this process could become; its capabilities go with [`drop_capabilities`].
pub(super) fn bound_capabilities() -> io::Result<()> {
    for number in 0..CAPABILITIES {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The kernel knows no more.
            Err(rustix::io::Errno::INVAL) if number > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(clear_ambient_capability_set()?)
}

/// Gives up all capabilities, and what an exec could bring.
pub(super) fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none)?;
    Ok(set_no_new_privs(true)?)
}

/// A filter that lets an init wait, and end. Also what a debugger has it call is filtered (seccomp(2)).
pub(super) fn waiting_only() -> io::Result<BpfProgram> {
    use nix::libc::{
        SYS_close, SYS_exit, SYS_exit_group, SYS_read, SYS_restart_syscall, SYS_rt_sigreturn,
    };
    let calls = [
        SYS_read,
        SYS_close,
        SYS_exit,
        SYS_exit_group,
        // After it was stopped.
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

/// From here on only these.
pub(super) fn allow_only(calls: &BpfProgram) -> io::Result<()> {
    seccompiler::apply_filter(calls).map_err(io::Error::other)
}
