//! The program of a sandbox container: it waits until it is killed, and as the init of a shared PID namespace leaves no zombies.
//!
//! The program is written here because it must run wherever the shim of containerd runs it, in a virtual machine or under another kernel:
//! without a C library, and without an image that would have to be pulled. These are all its instructions:
//!
//! ```text
//! rt_sigaction(SIGCHLD, {SIG_IGN}, NULL, 8)    children are reaped by the kernel
//! loop { ppoll(NULL, 0, NULL, NULL, 0) }
//! ```

/// The address that the file is loaded at.
const BASE: u64 = 0x40_0000;

/// Length of the headers: the instructions follow them.
const HEADERS: u64 = 64 + 56;

/// The largest page of an architecture, to which segments are aligned.
const PAGE: u64 = 0x1_0000;

/// `struct sigaction` of the kernel, after the instructions: the handler `SIG_IGN`, no flags, no restorer, an empty mask.
const ACTION: [u64; 4] = [1, 0, 0, 0];

/// An architecture: the number in ELF headers, and the instructions.
struct Machine {
    elf: u16,
    code: &'static [u8],
}

const X86_64: Machine = Machine {
    elf: 62,
    code: &[
        0xb8, 0x0d, 0x00, 0x00, 0x00, //       mov  eax, 13 (rt_sigaction)
        0xbf, 0x11, 0x00, 0x00, 0x00, //       mov  edi, 17 (SIGCHLD)
        0x48, 0x8d, 0x35, 0x1f, 0x00, 0x00, 0x00, // lea rsi, [rip + 31] (ACTION)
        0x31, 0xd2, //                         xor  edx, edx
        0x41, 0xba, 0x08, 0x00, 0x00, 0x00, // mov  r10d, 8
        0x0f, 0x05, //                         syscall
        0xb8, 0x0f, 0x01, 0x00, 0x00, //    1: mov  eax, 271 (ppoll)
        0x31, 0xff, //                         xor  edi, edi
        0x31, 0xf6, //                         xor  esi, esi
        0x31, 0xd2, //                         xor  edx, edx
        0x45, 0x31, 0xd2, //                   xor  r10d, r10d
        0x45, 0x31, 0xc0, //                   xor  r8d, r8d
        0x0f, 0x05, //                         syscall
        0xeb, 0xeb, //                         jmp  1b
    ],
};

const AARCH64: Machine = Machine {
    elf: 183,
    code: &[
        0xc8, 0x10, 0x80, 0xd2, // mov x8, 134 (rt_sigaction)
        0x20, 0x02, 0x80, 0xd2, // mov x0, 17 (SIGCHLD)
        0x81, 0x01, 0x00, 0x10, // adr x1, ACTION
        0x02, 0x00, 0x80, 0xd2, // mov x2, 0
        0x03, 0x01, 0x80, 0xd2, // mov x3, 8
        0x01, 0x00, 0x00, 0xd4, // svc 0
        0x28, 0x09, 0x80, 0xd2, // 1: mov x8, 73 (ppoll)
        0x00, 0x00, 0x80, 0xd2, // mov x0, 0
        0x01, 0x00, 0x80, 0xd2, // mov x1, 0
        0x02, 0x00, 0x80, 0xd2, // mov x2, 0
        0x03, 0x00, 0x80, 0xd2, // mov x3, 0
        0x04, 0x00, 0x80, 0xd2, // mov x4, 0
        0x01, 0x00, 0x00, 0xd4, // svc 0
        0xf9, 0xff, 0xff, 0x17, // b 1b
    ],
};

/// The program for this architecture; `None` if there is none.
pub(super) fn program(arch: &str) -> Option<Vec<u8>> {
    match arch {
        "x86_64" => Some(elf(&X86_64)),
        "aarch64" => Some(elf(&AARCH64)),
        _ => None,
    }
}

/// A 64-bit little-endian executable with one segment, which is the whole file (elf(5)).
fn elf(machine: &Machine) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // ET_EXEC, the architecture, EV_CURRENT.
    file.extend([2_u16, machine.elf].map(u16::to_le_bytes).as_flattened());
    file.extend(1_u32.to_le_bytes());
    // The entry point, the place of the segment's header, no sections.
    let places = [BASE + HEADERS, 64, 0].map(u64::to_le_bytes);
    file.extend(places.as_flattened());
    file.extend(0_u32.to_le_bytes());
    // Lengths and numbers of headers: of the file, of one segment, of no section.
    let lengths = [64_u16, 56, 1, 0, 0, 0].map(u16::to_le_bytes);
    file.extend(lengths.as_flattened());
    // PT_LOAD, PF_R | PF_X.
    file.extend([1_u32, 5].map(u32::to_le_bytes).as_flattened());
    let length = HEADERS + machine.code.len() as u64 + 32;
    let segment = [0, BASE, BASE, length, length, PAGE].map(u64::to_le_bytes);
    file.extend(segment.as_flattened());
    file.extend(machine.code);
    file.extend(ACTION.map(u64::to_le_bytes).as_flattened());
    file
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;
    use crate::testing::PATIENCE;

    #[test]
    fn it_waits_ignores_its_children_and_ends_when_it_is_killed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("pause");
        fs::write(&path, program(std::env::consts::ARCH).expect("known")).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("executable");
        // Another process of this test may hold the file open for writing until its execve.
        let began = std::time::Instant::now();
        let mut child = loop {
            match Command::new(&path).spawn() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    assert!(began.elapsed() < PATIENCE, "{error}");
                }
                spawned => break spawned.expect("it is executable"),
            }
        };
        let status = format!("/proc/{}/status", child.id());
        let ignores = || {
            let text = fs::read_to_string(&status).expect("it runs");
            let line = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
            let mask = u64::from_str_radix(line.expect("a mask").trim(), 16);
            mask.expect("a mask") & 1 << 16 != 0
        };
        while !ignores() {
            assert!(began.elapsed() < PATIENCE, "SIGCHLD is not ignored");
        }
        assert!(child.try_wait().expect("a child").is_none(), "it waits");
        child.kill().expect("killed");
        assert_eq!(child.wait().expect("waited").signal(), Some(9));
    }

    #[test]
    fn every_architecture_has_its_action_after_its_instructions() {
        for machine in [X86_64, AARCH64] {
            let file = elf(&machine);
            assert_eq!(file.len(), 120 + machine.code.len() + 32);
            assert_eq!(file[120 + machine.code.len()], 1);
        }
        // The operands by which the instructions find it: relative to the next instruction, and to their own.
        assert_eq!(X86_64.code[13], (X86_64.code.len() - 17) as u8);
        let adr = u32::from_le_bytes(AARCH64.code[8..12].try_into().expect("four"));
        assert_eq!(
            (adr >> 5 & 0x7_ffff) << 2 | adr >> 29 & 3,
            AARCH64.code.len() as u32 - 8
        );
        assert_eq!(program("riscv64"), None);
    }
}
