//! A one-layer image with the machine's static busybox, as an archive in the docker format, which every runtime reads.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use tar::{Builder, EntryType, Header};

use crate::image::{architecture, digest};
use crate::packages::{busybox, program};

/// The name under which daemons import it.
pub const NAME: &str = "registry.example/criscope/busybox:1";

/// Symbolic links to busybox.
const APPLETS: [&str; 14] = [
    "cat", "dd", "echo", "grep", "hostname", "id", "ls", "nc", "ps", "sh", "sleep", "sysctl",
    "touch", "wget",
];

/// Imports the image into the containerd at this socket.
pub fn import(dir: &Path, socket: &Path, reference: &str) {
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

/// Writes the archive.
pub fn write(archive: &Path, reference: &str) {
    write_with(archive, reference, &serde_json::json!({}));
}

/// Writes the archive with additional fields in the image configuration, such as `{"Volumes": {"/v": {}}}`.
pub fn write_with(archive: &Path, reference: &str, more: &serde_json::Value) {
    let layer = layer();
    let mut run = serde_json::json!({
        "Entrypoint": ["/bin/busybox", "sleep", "1000000"], "Env": ["PATH=/bin"],
    });
    for (key, value) in more.as_object().expect("a table") {
        run[key] = value.clone();
    }
    let config = serde_json::json!({
        "architecture": architecture(),
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
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

/// The uncompressed layer.
pub fn layer() -> Vec<u8> {
    let busybox = fs::read(busybox()).expect("busybox");
    let mut tar = Builder::new(Vec::new());
    for dir in ["bin/", "dev/", "etc/", "proc/", "sys/", "tmp/"] {
        put(&mut tar, dir, EntryType::Directory, 0o755, b"");
    }
    put(&mut tar, "bin/busybox", EntryType::Regular, 0o755, &busybox);
    let users = b"root:x:0:0::/:/bin/sh\nplain:x:1000:1000::/:/bin/sh\n";
    put(&mut tar, "etc/passwd", EntryType::Regular, 0o644, users);
    let groups = b"root:x:0:\nplain:x:1000:\nextra:x:2000:plain\n";
    put(&mut tar, "etc/group", EntryType::Regular, 0o644, groups);
    for name in APPLETS {
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
