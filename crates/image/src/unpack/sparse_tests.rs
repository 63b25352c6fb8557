//! Sparse files as GNU tar writes them, and headers that no program writes like that.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicU64;

use ::tar::{EntryType, Header};

use super::*;
use crate::config::Limits;
use crate::digest::Digest;

/// Bytes of the sparse file of these tests.
const SIZE: u64 = 4 << 20;

/// Creates a file of this many parts with holes between them, and a hole at the end.
fn sparse_file(path: &Path, parts: u64) {
    let file = File::create(path).expect("file");
    for part in 0..parts {
        let data = format!("part {part} {}", "x".repeat(4096));
        file.write_all_at(data.as_bytes(), part * 65_536 + 4096)
            .expect("write");
    }
    file.set_len(SIZE).expect("length");
}

fn unpack_all(layer: &[u8], limits: Limits) -> Result<tempfile::TempDir> {
    let dir = tempfile::tempdir().expect("directory");
    let job = UnpackJob {
        diff_id: &Digest::sha256(layer),
        staging: dir.path(),
        limits: &limits,
        consumed: &AtomicU64::new(layer.len() as u64),
        unpacked: &|_| {},
        large_window: &|| Ok(Box::new(())),
    };
    unpack(layer, &job, &|| {})?;
    Ok(dir)
}

/// A header with a valid checksum, and what follows it.
fn entry(kind: EntryType, data: &[u8], change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.as_mut_bytes()[0] = b'f';
    header.set_mode(0o644);
    header.set_uid(rustix::process::getuid().as_raw().into());
    header.set_gid(rustix::process::getgid().as_raw().into());
    header.set_size(data.len() as u64);
    change(&mut header);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(data);
    bytes.resize(bytes.len().div_ceil(512) * 512, 0);
    bytes
}

fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = ::tar::Builder::new(Vec::new());
    let records = records.iter().map(|(key, value)| (*key, value.as_bytes()));
    builder.append_pax_extensions(records).expect("pax");
    let mut bytes = builder.into_inner().expect("pax");
    // Without the end of the archive.
    bytes.truncate(bytes.len() - 1024);
    bytes
}

fn refused(layer: &[u8]) -> String {
    let error = unpack_all(layer, Limits::default()).expect_err("refused");
    error.to_string()
}

#[test]
fn sparse_files_of_gnu_tar_are_unpacked_with_their_holes() {
    let dir = tempfile::tempdir().expect("directory");
    // Four parts fit into the header of the old format, and 21 more into each block that follows.
    for parts in [0, 1, 4, 5, 60] {
        sparse_file(&dir.path().join("sparse"), parts);
        fs::write(dir.path().join("after"), "after").expect("file");
        let expected = fs::read(dir.path().join("sparse")).expect("read");
        for format in [
            &["--format=gnu"][..],
            &["--format=pax", "--sparse-version=0.0"],
            &["--format=pax", "--sparse-version=0.1"],
            &["--format=pax", "--sparse-version=1.0"],
        ] {
            let layer = Command::new("tar")
                .args(["-c", "-S"])
                .args(format)
                .arg("-C")
                .arg(dir.path())
                .args(["./sparse", "after"])
                .output()
                .expect("tar");
            assert!(layer.status.success(), "{format:?}");
            assert!(layer.stdout.len() < 1 << 20, "{format:?}");
            let unpacked = unpack_all(&layer.stdout, Limits::default());
            let unpacked = unpacked.unwrap_or_else(|error| panic!("{format:?} {parts}: {error}"));
            let file = unpacked.path().join("fs/sparse");
            assert!(
                fs::read(&file).expect("read") == expected,
                "{format:?} {parts}"
            );
            let stat = file.metadata().expect("there");
            assert!(stat.blocks() * 512 < SIZE / 2, "{format:?} {parts}");
            let after = fs::read_to_string(unpacked.path().join("fs/after"));
            assert_eq!(after.expect("after"), "after", "{format:?}");
        }
    }
}

#[test]
fn holes_are_bounded_like_bytes() {
    let hole = |size: &str| {
        let mut layer = pax(&[
            ("GNU.sparse.major", "0"),
            ("GNU.sparse.minor", "1"),
            ("GNU.sparse.numblocks", "0"),
            ("GNU.sparse.map", ""),
            ("GNU.sparse.size", size),
        ]);
        layer.extend(entry(EntryType::Regular, b"", |_| {}));
        layer
    };
    let small = unpack_all(&hole("1048576"), Limits::default()).expect("small");
    let stat = small.path().join("fs/f").metadata().expect("file");
    assert_eq!((stat.len(), stat.blocks()), (1 << 20, 0));
    for size in ["1099511627776", "9223372036854775807", "2147483648"] {
        let error = unpack_all(&hole(size), Limits::default()).expect_err("a bomb");
        assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    }
    // All files of a layer together.
    let limits = Limits {
        max_unpacked_bytes: 2 << 20,
        ..Limits::default()
    };
    let mut many = Vec::new();
    for _ in 0..3 {
        many.extend(hole("1048576"));
    }
    let error = unpack_all(&many, limits).expect_err("too many");
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

#[test]
fn damaged_sparse_files_are_refused() {
    let old = |data: &[u8], map: &[(u64, u64)], size: u64, more: u8| {
        entry(EntryType::GNUSparse, data, |header| {
            let gnu = header.as_gnu_mut().expect("GNU");
            for (sparse, (offset, length)) in gnu.sparse.iter_mut().zip(map) {
                sparse.set_offset(*offset);
                sparse.set_length(*length);
            }
            gnu.set_real_size(size);
            gnu.isextended[0] = more;
        })
    };
    let good = old(b"abc", &[(5, 3)], 10, 0);
    let dir = unpack_all(&good, Limits::default()).expect("good");
    let content = fs::read(dir.path().join("fs/f")).expect("read");
    assert_eq!(content, b"\0\0\0\0\0abc\0\0");
    for (what, layer) in [
        ("more data than the map", old(b"abcd", &[(5, 3)], 10, 0)),
        ("less data than the map", old(b"ab", &[(5, 3)], 10, 0)),
        ("beyond the end", old(b"abc", &[(5, 3)], 7, 0)),
        ("overlapping", old(b"abcd", &[(5, 2), (6, 2)], 10, 0)),
        ("an end in place of a block", old(b"", &[(5, 0)], 10, 1)),
    ] {
        assert!(refused(&layer).contains(' '), "{what}");
    }
    // Blocks without an end.
    let mut endless = old(b"", &[(0, 0)], 10, 1);
    let mut block = vec![0; 512];
    block[504] = 1;
    endless.extend(block.repeat(4096));
    assert!(refused(&endless).contains("too many parts"));
    // A map of version 1.0 without an end, and one that counts more parts than there are.
    for map in ["", "7", "3\n0\n", "99999999999\n0\n1\n"] {
        let records = [
            ("GNU.sparse.major", "1"),
            ("GNU.sparse.minor", "0"),
            ("GNU.sparse.realsize", "10"),
        ];
        let mut layer = pax(&records);
        let mut data = map.as_bytes().to_vec();
        data.resize(512, 0);
        layer.extend(entry(EntryType::Regular, &data, |_| {}));
        refused(&layer);
    }
    let mut link = pax(&[("GNU.sparse.map", "0,1"), ("GNU.sparse.numblocks", "1")]);
    link.extend(entry(EntryType::Symlink, b"", |_| {}));
    assert!(refused(&link).contains("not a file"));
}

#[test]
fn the_name_of_a_sparse_file_is_resolved_like_any_other() {
    for (name, place) in [("dir/../other", Some("other")), ("../out", None)] {
        let mut layer = pax(&[
            ("GNU.sparse.major", "1"),
            ("GNU.sparse.minor", "0"),
            ("GNU.sparse.name", name),
            ("GNU.sparse.realsize", "3"),
        ]);
        let mut data = b"1\n0\n3\n".to_vec();
        data.resize(512, 0);
        data.extend(b"abc");
        layer.extend(entry(EntryType::Regular, &data, |_| {}));
        let unpacked = unpack_all(&layer, Limits::default());
        match place {
            Some(place) => {
                let dir = unpacked.expect("unpacked");
                let file = dir.path().join("fs").join(place);
                assert_eq!(fs::read(file).expect("read"), b"abc");
            }
            None => drop(unpacked.expect_err("outside")),
        }
    }
}

#[test]
fn headers_are_read_as_go_reads_them() {
    let binary = |value: i64| {
        let mut field = [0xff; 12];
        if value >= 0 {
            field = [0; 12];
        }
        field[4..].copy_from_slice(&value.to_be_bytes());
        field[0] |= 0x80;
        field
    };
    let layer = entry(EntryType::Regular, b"x", |header| {
        let old = header.as_old_mut();
        old.mtime = binary(-86_400);
        old.size = *b"         1 \0";
        old.mode = *b"\0 644\0xy";
    });
    let dir = unpack_all(&layer, Limits::default()).expect("unpacked");
    let stat = dir.path().join("fs/f").metadata().expect("file");
    assert_eq!(
        (stat.mtime(), stat.len(), stat.mode() & 0o7777),
        (-86_400, 1, 0o644)
    );
    // A header of ustar with another version than POSIX has.
    let layer = entry(EntryType::Regular, b"x", |header| {
        let bytes = header.as_mut_bytes();
        bytes[257..265].copy_from_slice(b"ustar\0  ");
        bytes[345..348].copy_from_slice(b"dir");
    });
    let dir = unpack_all(&layer, Limits::default()).expect("unpacked");
    assert!(dir.path().join("fs/dir/f").exists());
    // What Go refuses.
    for change in [
        (|header: &mut Header| header.as_old_mut().size = [0xff; 12]) as fn(&mut Header),
        |header| header.as_old_mut().uid = *b"\x80\0\x01\0\0\0\0\0",
        |header| header.as_old_mut().mode = *b"0000898\0",
    ] {
        refused(&entry(EntryType::Regular, b"", change));
    }
}
