//! An exported image in containerd.

use super::{export, pulled, run, tree};
use crate::runtime::image::*;

/// A file system that is mounted until this is dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[tokio::test]
async fn containerd_imports_and_mounts_an_exported_image() {
    let store = Store::new().await;
    let dir = store.dir.path();
    let registry = DockerRegistry::start(dir).await;
    let name = pulled(&store, &registry).await;
    let (archive, exported) = export(&store.images, &[&name]).await;
    let file = dir.join("exported.tar");
    fs::write(&file, &archive).expect("write");
    let lease = store.images.layers(&name).expect("layers");
    let (ours, theirs) = (dir.join("ours"), dir.join("theirs"));
    for dir in [&ours, &theirs] {
        fs::create_dir(dir).expect("a folder");
    }
    let mut lower: Vec<String> = Vec::new();
    for path in lease.paths().iter().rev() {
        // Overlayfs takes no directory twice.
        let path = path.display().to_string();
        if !lower.contains(&path) {
            lower.push(path);
        }
    }
    let options = format!("lowerdir={}", lower.join(":"));
    let mount = Path::new("mount");
    let place = ours.display().to_string();
    run(mount, &["-t", "overlay", "overlay", "-o", &options, &place]);
    let ours = Mounted(ours);

    let containerd = Containerd::new().await;
    let ctr = program("ctr", "containerd");
    let socket = containerd.socket().display().to_string();
    let base = ["-a", &socket, "-n", "k8s.io", "images"];
    let (file, place) = (file.display().to_string(), theirs.display().to_string());
    run(&ctr, &[&base[..], &["import", &file]].concat());
    let listed = run(&ctr, &[&base[..], &["ls"]].concat());
    assert!(listed.contains(exported[0].manifest.as_str()), "{listed}");
    run(&ctr, &[&base[..], &["mount", &name, &place]].concat());
    let theirs = Mounted(theirs);
    let (ours, theirs) = (tree(&ours.0), tree(&theirs.0));
    let names = |tree: &BTreeMap<PathBuf, String>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&theirs));
    // containerd does not keep the time of a directory that a layer has no entry for.
    let has_entry = |path: &Path| !["", "usr", "usr/lib"].map(Path::new).contains(&path);
    for (path, text) in ours.iter().filter(|(path, _)| has_entry(path)) {
        assert_eq!(*text, theirs[path], "{}", path.display());
    }
    for path in ["usr", "usr/lib"] {
        let owner = |tree: &BTreeMap<PathBuf, String>| {
            let text = tree[Path::new(path)].clone();
            text.split(' ')
                .take(2)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(owner(&ours), owner(&theirs), "{path}");
    }
    // The image is found by the name it had, and the mount hides what a whiteout hides.
    assert!(!ours.contains_key(Path::new("tmp")) && ours.contains_key(Path::new("usr/lib/b")));
}
