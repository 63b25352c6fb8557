//! An image made of the machine's static busybox, as an archive of the docker format, which every runtime reads.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use crate::harness::packages::{file, program};

/// Puts the image into the containerd at this socket.
pub(super) fn import(dir: &Path, socket: &Path, reference: &str) {
    let archive = dir.join("image.tar");
    write(&archive, reference);
    let output = Command::new(program("ctr", "containerd"))
        .arg("-a")
        .arg(socket)
        .args(["-n", "k8s.io", "images", "import"])
        .arg(&archive)
        .output()
        .expect("start ctr");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ctr images import: {said}");
}

pub(crate) fn write(archive: &Path, reference: &str) {
    let layer = layer();
    let mut digest = String::from("sha256:");
    for byte in Sha256::digest(&layer) {
        digest.push_str(&format!("{byte:02x}"));
    }
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = serde_json::json!({
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": ["/bin/busybox", "sleep", "1000000"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [digest]},
        "history": [{"created_by": "test"}],
    });
    let manifest = serde_json::json!([
        {"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}
    ]);
    let mut tar = Builder::new(File::create(archive).expect("archive"));
    for (name, content) in [
        ("config.json", config.to_string().into_bytes()),
        ("layer.tar", layer),
        ("manifest.json", manifest.to_string().into_bytes()),
    ] {
        put(&mut tar, name, EntryType::Regular, 0o644, &content);
    }
    tar.finish().expect("archive");
}

fn layer() -> Vec<u8> {
    // `tests/run.sh` names a static one where the machine's own is not.
    let named = std::env::var_os("CRISCOPE_BUSYBOX").map(std::path::PathBuf::from);
    let path = named.unwrap_or_else(|| file("/bin/busybox", "busybox-static"));
    let busybox = fs::read(path).expect("busybox");
    let mut tar = Builder::new(Vec::new());
    for dir in ["bin/", "dev/", "etc/", "proc/", "sys/", "tmp/"] {
        put(&mut tar, dir, EntryType::Directory, 0o755, b"");
    }
    put(&mut tar, "bin/busybox", EntryType::Regular, 0o755, &busybox);
    for name in ["sh", "echo", "sleep", "cat"] {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        let path = format!("bin/{name}");
        tar.append_link(&mut header, path, "busybox").expect("link");
    }
    tar.into_inner().expect("layer")
}

fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size.try_into().expect("size"));
    header
}

fn put<W: std::io::Write>(
    tar: &mut Builder<W>,
    path: &str,
    kind: EntryType,
    mode: u32,
    data: &[u8],
) {
    let mut header = header(kind, mode, data.len());
    tar.append_data(&mut header, path, data).expect("entry");
}
