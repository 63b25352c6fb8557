//! Root file systems: who owns what, in the pod and on the node.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use criscope_linux::namespace::Kind;
use criscope_linux::rootfs::{IdMapped, MountRequest, Rootfs, list_mounts_below, prepare_volumes};

use super::{HOST, layer, mappings, owner, pins, request, scratch};

#[tokio::test]
async fn layers_are_seen_with_the_eyes_of_the_pod() {
    let dir = scratch();
    let pins = pins(&dir);
    pins.make("a", request()).await.expect("make");
    let base = layer(dir.path());
    let mut request = MountRequest {
        // So many that their names do not matter.
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
    let rootfs = Rootfs::new(dir.path().join("c"));
    let before = list_mounts_below(dir.path()).expect("table").len();
    let root = rootfs.mount(&request).expect("mounted");
    let after = list_mounts_below(dir.path()).expect("table").len();
    assert_eq!(after, before + 1, "the layers are nowhere");
    assert_eq!(owner(&root), (HOST, HOST));
    assert_eq!(owner(&root.join("bin/busybox")), (HOST, HOST));
    assert_eq!(owner(&root.join("own-99")), (HOST, HOST));
    assert_eq!(owner(&root.join("theirs/file")), (HOST + 33, HOST + 34));
    assert_eq!(owner(&base.join("theirs/file")), (33, 34));
    // Who changes a file takes it up as who owns it.
    fs::write(root.join("theirs/file"), "new").expect("write");
    let up = rootfs.upper().join("theirs/file");
    assert_eq!(owner(&up), (HOST + 33, HOST + 34));
    assert_eq!(fs::read(base.join("theirs/file")).expect("layer"), b"old");
    // Volumes of the image are the pod's too, also those that begin empty.
    let volumes = prepare_volumes(&root, ["/theirs", "/none"], &dir.path().join("c"));
    let volumes = volumes.expect("prepared");
    assert_eq!(
        owner(&volumes["/theirs"].join("file")),
        (HOST + 33, HOST + 34)
    );
    assert_eq!(owner(&volumes["/none"]), (HOST, HOST));
    // The directory lets root of the pod pass, and nobody else.
    let stat = fs::metadata(dir.path().join("c")).expect("there");
    assert_eq!((stat.gid(), stat.mode() & 0o7777), (HOST, 0o710));
    rootfs.remove().expect("removed");
    request.read_only = true;
    let root = rootfs.mount(&request).expect("mounted");
    assert_eq!(owner(&root.join("bin/busybox")), (HOST, HOST));
    rootfs.remove().expect("removed");
    // A namespace that is gone is no namespace.
    pins.remove("a").await.expect("remove");
    rootfs.mount(&request).expect_err("whose eyes?");
    rootfs.remove().expect("removed");
    assert!(list_mounts_below(dir.path()).expect("table").is_empty());
}
