//! A large layer, which is decompressed in another thread, is treated like a small one.

use std::io::{BufReader, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

use ::tar::{Builder, Header};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::config::Limits;
use crate::digest::Digest;

/// Counts the bytes read.
struct Counted<'a, R>(R, &'a AtomicU64);

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.0.read(buffer)?;
        self.1.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

/// An archive of this many files of 100 KB, which do not compress well, and of one file with another path after half of them.
fn archive(files: usize, other: &str) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    let mut number = 1_u32;
    let mut add = |path: &str| {
        let bytes = std::iter::repeat_with(|| {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (number >> 24) as u8 & 31
        });
        let data: Vec<u8> = bytes.take(100_000).collect();
        let mut header = Header::new_gnu();
        header.as_gnu_mut().expect("GNU").name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_uid(rustix::process::getuid().as_raw().into());
        header.set_gid(rustix::process::getgid().as_raw().into());
        header.set_cksum();
        tar.append(&header, &data[..]).expect("entry");
    };
    for file in 0..files {
        add(&format!("dir/{file}"));
        if file == files / 2 {
            add(other);
        }
    }
    tar.into_inner().expect("archive")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("gzip");
    encoder.finish().expect("gzip")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("zstd")
}

/// Unpacks in this thread, and with another one.
fn both(layer: &[u8], diff_id: &Digest, limits: &Limits) -> [Result<UnpackSummary>; 2] {
    [false, true].map(|is_ahead| {
        let dir = tempfile::tempdir().expect("directory");
        let consumed = AtomicU64::new(0);
        let job = UnpackJob {
            diff_id,
            staging: dir.path(),
            limits,
            consumed: &consumed,
            unpacked: &|_| {},
            large_window: &|| Ok(Box::new(())),
        };
        let input = Counted(layer, &consumed);
        if is_ahead {
            return unpack(input, &job, &|| {});
        }
        let mut meter = meter(input, &job)?;
        let unpacked = extract(BufReader::new(&mut meter), &job)?;
        diff_id.compare("unpacked layer", meter.into_hasher())?;
        Ok(unpacked)
    })
}

/// The text of an error that both have.
fn failure(layer: &[u8], diff_id: &Digest, limits: &Limits) -> String {
    let [here, ahead] = both(layer, diff_id, limits).map(|result| {
        let error = result.expect_err("an error");
        error.to_string().replace(diff_id.as_str(), "X")
    });
    assert_eq!(here, ahead);
    here
}

#[test]
fn a_large_layer_is_unpacked() {
    let mut tar = archive(24, "last");
    // The diff ID includes what follows the end, however much it is.
    tar.resize(tar.len() + (2 << 20), 0);
    let diff_id = Digest::sha256(&tar);
    for layer in [gzip(&tar), zstd(&tar), tar] {
        let [here, ahead] = both(&layer, &diff_id, &Limits::default()).map(|it| it.expect("it"));
        assert_eq!((here.bytes, here.inodes), (ahead.bytes, ahead.inodes));
        assert_eq!((here.implied, ahead.inodes), (vec!["dir".to_owned()], 26));
    }
}

#[test]
fn errors_of_a_large_layer_keep_their_words() {
    let (tar, any) = (archive(24, "last"), Limits::default());
    let diff_id = Digest::sha256(&tar);
    let other = Digest::sha256(b"other");
    assert!(failure(&tar, &other, &any).contains("wrong digest"));
    let cut = failure(&tar[..tar.len() - 90_000], &diff_id, &any);
    assert!(cut.ends_with("the archive is cut off"), "{cut}");
    for mut layer in [gzip(&tar), zstd(&tar)] {
        // Of the compression, not of the archive.
        let middle = layer.len() * 3 / 4;
        let cut = failure(&layer[..middle], &diff_id, &any);
        assert!(cut.starts_with("layer X: dir/"), "{cut}");
        assert!(!cut.contains("cut off"), "{cut}");
        layer[middle..middle + 64].fill(0xff);
        // Whether the compression notices, or the archive.
        failure(&layer, &diff_id, &any);
    }
    let small = Limits {
        max_unpacked_bytes: 2 << 20,
        ..Limits::default()
    };
    assert!(failure(&gzip(&tar), &diff_id, &small).contains("more than 2097152 bytes"));
    let outside = archive(24, "../out");
    let outside = failure(&zstd(&outside), &Digest::sha256(&outside), &any);
    assert!(
        outside.starts_with("layer X: ../out: its path"),
        "{outside}"
    );
}

/// Returns an archive, and then blocks until it is abandoned, like a registry that sends no more.
struct Stalls<'a>(&'a [u8], std::sync::mpsc::Receiver<()>);

impl Read for Stalls<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            let _ = self.1.recv();
            return Err(io::Error::other("abandoned"));
        }
        self.0.read(buffer)
    }
}

#[test]
fn an_error_is_reported_while_the_input_stalls() {
    let tar = archive(24, "../out");
    let (sender, receiver) = sync_channel::<()>(1);
    let sender = Mutex::new(Some(sender));
    let dir = tempfile::tempdir().expect("directory");
    let job = UnpackJob {
        diff_id: &Digest::sha256(&tar),
        staging: dir.path(),
        limits: &Limits::default(),
        consumed: &AtomicU64::new(1 << 20),
        unpacked: &|_| {},
        large_window: &|| Ok(Box::new(())),
    };
    let abandon = || drop(sender.lock().expect("lock").take());
    let error = unpack(Stalls(&tar, receiver), &job, &abandon).expect_err("an error");
    assert!(error.to_string().contains("../out"), "{error}");
}
