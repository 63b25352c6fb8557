//! Finds the one program of the smoke image, a static ELF that needs no library.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use oci_spec::image::Arch;

/// Paths of common distributions: Debian, Fedora, Alpine (`busybox-static`).
const BUSYBOX_PATHS: [&str; 3] = [
    "/bin/busybox",
    "/usr/bin/busybox",
    "/usr/bin/busybox.static",
];
const ALPINE_BUSYBOX: &str = "/bin/busybox.static";

/// Largest program accepted, in bytes. A static busybox has about two million.
const MAX_BYTES: u64 = 16 << 20;

const PT_INTERP: u32 = 3;

/// A static busybox, in memory.
#[derive(Clone)]
pub struct StaticBusybox {
    /// Where it was found.
    pub path: PathBuf,
    /// Architecture of the program.
    pub arch: Arch,
    /// The file.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for StaticBusybox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Busybox")
            .field("path", &self.path)
            .field("arch", &self.arch)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}

/// Why a file is not suitable.
#[derive(Debug, thiserror::Error)]
pub enum BusyboxError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is too large.
    #[error("{} has more than {MAX_BYTES} bytes", .0.display())]
    TooLarge(PathBuf),
    /// The file is not a program for this image.
    #[error("{} {reason}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: UnsuitableProgram,
    },
    /// None of the default paths has one.
    #[error("no busybox at {}", BUSYBOX_PATHS.join(", "))]
    Absent,
}

/// Why a program is not suitable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsuitableProgram {
    /// No ELF header, or an invalid one.
    #[error("is not an ELF program")]
    NotElf,
    /// The program needs a dynamic loader, which the image lacks.
    #[error("is dynamically linked")]
    Dynamic,
    /// An architecture without an OCI name in this program.
    #[error("is for an unknown machine (ELF e_machine {0})")]
    Machine(u16),
}

/// Reads the busybox at `path`, or the first suitable one of the default paths.
pub fn find(path: Option<&Path>) -> Result<StaticBusybox, BusyboxError> {
    if let Some(path) = path {
        return read(path);
    }
    let mut first = BusyboxError::Absent;
    for place in BUSYBOX_PATHS
        .into_iter()
        .chain([ALPINE_BUSYBOX])
        .map(Path::new)
    {
        match read(place) {
            Ok(busybox) => return Ok(busybox),
            // The error of a dynamic busybox explains more than a missing file.
            Err(error @ BusyboxError::Unfit { .. }) => first = error,
            Err(_) => {}
        }
    }
    Err(first)
}

fn read(path: &Path) -> Result<StaticBusybox, BusyboxError> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|source| BusyboxError::Read {
            path: path.to_owned(),
            source,
        })?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(BusyboxError::TooLarge(path.to_owned()));
    }
    let arch = static_arch(&bytes).map_err(|reason| BusyboxError::Unfit {
        path: path.to_owned(),
        reason,
    })?;
    Ok(StaticBusybox {
        path: path.to_owned(),
        arch,
        bytes,
    })
}

/// The architecture of a static ELF program (System V ABI, "ELF header" and "Program header": a program that needs a
/// dynamic loader has a `PT_INTERP` segment).
fn static_arch(elf: &[u8]) -> Result<Arch, UnsuitableProgram> {
    let header = ElfHeaderFields::parse(elf).ok_or(UnsuitableProgram::NotElf)?;
    for index in 0..header.segments {
        if header
            .segment_type(elf, index)
            .ok_or(UnsuitableProgram::NotElf)?
            == PT_INTERP
        {
            return Err(UnsuitableProgram::Dynamic);
        }
    }
    arch_of(header.machine, header.wide, header.little)
        .ok_or(UnsuitableProgram::Machine(header.machine))
}

/// The OCI name (Go's GOARCH) of an ELF machine.
fn arch_of(machine: u16, wide: bool, little: bool) -> Option<Arch> {
    Some(match (machine, wide, little) {
        (3, false, true) => Arch::i386,
        (21, true, true) => Arch::PowerPC64le,
        (22, true, false) => Arch::s390x,
        (40, false, true) => Arch::ARM,
        (62, true, true) => Arch::Amd64,
        (183, true, true) => Arch::ARM64,
        (243, true, true) => Arch::RISCV64,
        (258, true, true) => Arch::LoongArch64,
        _ => return None,
    })
}

/// The needed fields of an ELF header.
struct ElfHeaderFields {
    wide: bool,
    little: bool,
    machine: u16,
    table: usize,
    entry: usize,
    segments: usize,
}

impl ElfHeaderFields {
    fn parse(elf: &[u8]) -> Option<Self> {
        if elf.get(..4)? != b"\x7fELF" {
            return None;
        }
        let wide = match elf.get(4)? {
            1 => false,
            2 => true,
            _ => return None,
        };
        let little = match elf.get(5)? {
            1 => true,
            2 => false,
            _ => return None,
        };
        let kind = half(elf, 16, little)?;
        let (table, entry, count) = if wide {
            (wide_word(elf, 32, little)?, 54, 56)
        } else {
            (u64::from(word(elf, 28, little)?), 42, 44)
        };
        let header = Self {
            wide,
            little,
            machine: half(elf, 18, little)?,
            table: usize::try_from(table).ok()?,
            entry: usize::from(half(elf, entry, little)?),
            segments: usize::from(half(elf, count, little)?),
        };
        // ET_EXEC or ET_DYN (static-pie); without segments it is not executable.
        (matches!(kind, 2 | 3) && header.segments > 0).then_some(header)
    }

    fn segment_type(&self, elf: &[u8], index: usize) -> Option<u32> {
        let at = self.table.checked_add(self.entry.checked_mul(index)?)?;
        word(elf, at, self.little)
    }
}

fn half(elf: &[u8], at: usize, little: bool) -> Option<u16> {
    let raw = elf.get(at..at.checked_add(2)?)?.try_into().ok()?;
    Some(if little {
        u16::from_le_bytes(raw)
    } else {
        u16::from_be_bytes(raw)
    })
}

fn word(elf: &[u8], at: usize, little: bool) -> Option<u32> {
    let raw = elf.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(if little {
        u32::from_le_bytes(raw)
    } else {
        u32::from_be_bytes(raw)
    })
}

fn wide_word(elf: &[u8], at: usize, little: bool) -> Option<u64> {
    let raw = elf.get(at..at.checked_add(8)?)?.try_into().ok()?;
    Some(if little {
        u64::from_le_bytes(raw)
    } else {
        u64::from_be_bytes(raw)
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A 64-bit little-endian ELF header with one program header of the given type.
    pub(crate) fn elf(kind: u16, machine: u16, segment: u32) -> Vec<u8> {
        let mut elf = vec![0; 64 + 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[16..18].copy_from_slice(&kind.to_le_bytes());
        elf[18..20].copy_from_slice(&machine.to_le_bytes());
        elf[32..40].copy_from_slice(&64_u64.to_le_bytes());
        elf[54..56].copy_from_slice(&56_u16.to_le_bytes());
        elf[56..58].copy_from_slice(&1_u16.to_le_bytes());
        elf[64..68].copy_from_slice(&segment.to_le_bytes());
        elf
    }

    #[test]
    fn only_static_programs_pass() {
        assert_eq!(static_arch(&elf(2, 62, 1)), Ok(Arch::Amd64));
        assert_eq!(static_arch(&elf(3, 183, 1)), Ok(Arch::ARM64));
        assert_eq!(
            static_arch(&elf(3, 62, PT_INTERP)),
            Err(UnsuitableProgram::Dynamic)
        );
        assert_eq!(
            static_arch(&elf(2, 8, 1)),
            Err(UnsuitableProgram::Machine(8))
        );
        assert_eq!(static_arch(&elf(1, 62, 1)), Err(UnsuitableProgram::NotElf));
        assert_eq!(static_arch(b"#!/bin/sh\n"), Err(UnsuitableProgram::NotElf));
    }

    #[test]
    fn truncated_and_invalid_headers_are_rejected() {
        let whole = elf(2, 62, 1);
        for length in 0..whole.len() - 52 {
            assert_eq!(
                static_arch(&whole[..length]),
                Err(UnsuitableProgram::NotElf),
                "{length}"
            );
        }
        let mut far = whole;
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(static_arch(&far), Err(UnsuitableProgram::NotElf));
    }

    #[test]
    fn a_given_path_has_no_fallback() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("busybox");
        let absent = find(Some(&path));
        assert!(matches!(absent, Err(BusyboxError::Read { .. })));

        std::fs::write(&path, "no program").expect("write");
        let error = find(Some(&path)).expect_err("not a program");
        assert!(
            error.to_string().ends_with("busybox is not an ELF program"),
            "{error}"
        );

        std::fs::write(&path, elf(2, 62, 1)).expect("write");
        assert_eq!(find(Some(&path)).expect("static").arch, Arch::Amd64);

        let file = std::fs::File::create(&path).expect("create");
        file.set_len(MAX_BYTES + 1).expect("a sparse file");
        let large = find(Some(&path));
        assert!(matches!(large, Err(BusyboxError::TooLarge(_))));
    }
}
