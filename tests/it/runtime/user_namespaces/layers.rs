//! Root file systems: ownership in the pod and on the node.

use std::os::unix::fs::MetadataExt as _;

use criscope_linux::namespace::Kind;
use criscope_linux::rootfs::{IdMapped, MountRequest, Rootfs, list_mounts_below, prepare_volumes};

use super::super::rootfs::volume_limits;
use super::{HOST, layer, mappings, owner, pins, request, scratch};
use crate::prelude::*;

#[tokio::test]
async fn layers_have_the_pods_id_mapping() {
    let dir = scratch();
    let pins = pins(&dir);
    pins.make("a", request()).await.expect("make");
    let base = layer(dir.path());
    let mut request = MountRequest {
        // Many layers with long names: their total length must not matter.
        layers: vec![base.clone()],
        ids: Some(IdMapped {
            namespace: pins.path("a", Kind::User),
            mappings: mappings(),
        }),
        ..MountRequest::default()
    };
    for number in 0..100 {
        let layer = dir.path().join(format!("layers/{number:0>100}"));
        fs::create_dir_all(&layer).expect("layer");
        fs::write(layer.join(format!("own-{number}")), "").expect("file");
        request.layers.push(layer);
    }
    // The kernel refuses a layer that occurs twice.
    request.layers.insert(60, request.layers[50].clone());
    let rootfs = Rootfs::new(dir.path().join("c"));
    let before = list_mounts_below(dir.path()).expect("table").len();
    let root = rootfs.mount(&request).expect("mounted");
    let after = list_mounts_below(dir.path()).expect("table").len();
    assert_eq!(
        after,
        before + 1,
        "idmapped layers are not mounted on their own"
    );
    assert_eq!(owner(&root), (HOST, HOST));
    assert_eq!(owner(&root.join("bin/busybox")), (HOST, HOST));
    assert_eq!(owner(&root.join("own-99")), (HOST, HOST));
    assert_eq!(owner(&root.join("theirs/file")), (HOST + 33, HOST + 34));
    assert_eq!(owner(&base.join("theirs/file")), (33, 34));
    // Copy-up preserves the mapped owner.
    fs::write(root.join("theirs/file"), "new").expect("write");
    let up = rootfs.upper().join("theirs/file");
    assert_eq!(owner(&up), (HOST + 33, HOST + 34));
    assert_eq!(fs::read(base.join("theirs/file")).expect("layer"), b"old");
    // Volumes of the image are owned by the pod too, including empty ones.
    let volumes = prepare_volumes(
        &root,
        ["/theirs", "/none"],
        &dir.path().join("c"),
        &volume_limits(),
    );
    let volumes = volumes.expect("prepared");
    assert_eq!(
        owner(&volumes["/theirs"].join("file")),
        (HOST + 33, HOST + 34)
    );
    assert_eq!(owner(&volumes["/none"]), (HOST, HOST));
    // Only the pod's root can traverse the directory.
    let stat = fs::metadata(dir.path().join("c")).expect("there");
    assert_eq!((stat.gid(), stat.mode() & 0o7777), (HOST, 0o710));
    rootfs.remove().expect("removed");
    request.read_only = true;
    let root = rootfs.mount(&request).expect("mounted");
    assert_eq!(owner(&root.join("bin/busybox")), (HOST, HOST));
    rootfs.remove().expect("removed");
    // A removed namespace cannot be used.
    pins.remove("a").await.expect("remove");
    rootfs
        .mount(&request)
        .expect_err("the namespace is removed");
    rootfs.remove().expect("removed");
    assert!(list_mounts_below(dir.path()).expect("table").is_empty());
}
