//! Pods with user namespaces: their namespaces, root file systems and containers, with real runc. Needs root, runc and
//! busybox-static.

mod containers;
mod layers;
mod namespaces;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use criscope_linux::idmap::{Mappings, Range};
use criscope_linux::namespace::{Kind, Pins, Request};
use criscope_linux::sysctl::Sysctl;

use super::Scratch;
use crate::harness::executable::copy_program;
use crate::harness::packages::file;
use crate::prelude::*;

const SHIM: &str = crate::SHIM;
const HOST: u32 = 2_000_000;
const LENGTH: u32 = 65_536;

/// A directory that every user can traverse, as these pods require of the daemon's data directory.
fn scratch() -> Scratch {
    assert!(nix::unistd::geteuid().is_root(), "this test needs root");
    let dir = Scratch::new();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).expect("mode");
    dir
}

fn pins(dir: &Scratch) -> Pins {
    Pins::new(dir.path().join("pins")).with_helper(SHIM)
}

fn mappings() -> Mappings {
    let range = Range {
        container_id: 0,
        host_id: HOST,
        length: LENGTH,
    };
    Mappings::new(vec![range], vec![range]).expect("valid")
}

fn request() -> Request {
    Request {
        kinds: vec![Kind::Net, Kind::Ipc, Kind::Uts],
        hostname: Some("inside".to_owned()),
        sysctls: [
            ("net.ipv4.ip_unprivileged_port_start", "0"),
            ("kernel.shm_rmid_forced", "1"),
            ("kernel.domainname", "pods"),
        ]
        .map(|(name, value)| Sysctl::new(name, value).expect("valid"))
        .into(),
        user: Some(mappings()),
    }
}

/// A layer with busybox, owned by root, and a directory of another user.
fn layer(dir: &Path) -> PathBuf {
    let layer = dir.join("layer");
    for name in ["bin", "proc", "sys", "dev", "etc", "theirs"] {
        fs::create_dir_all(layer.join(name)).expect("dir");
    }
    let busybox = file("/bin/busybox", "busybox-static");
    copy_program(&busybox, &layer.join("bin/busybox"));
    fs::write(layer.join("theirs/file"), "old").expect("file");
    chown(layer.join("theirs/file"), Some(33), Some(34)).expect("owner");
    fs::write(layer.join("unmapped"), "").expect("file");
    chown(layer.join("unmapped"), Some(LENGTH + 1), Some(0)).expect("owner");
    layer
}

fn owner(path: &Path) -> (u32, u32) {
    let stat = fs::symlink_metadata(path).expect("there");
    (stat.uid(), stat.gid())
}
