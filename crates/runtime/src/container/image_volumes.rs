//! Places of an image's `Volumes`, some of them are refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use criscope_linux::rootfs::{ContainerView, kernel_dir, lexical};

use crate::error::{Error, Result};
use crate::oci::spec::SandboxFacts;
use criscope_cri::v1::Mount;

/// An image's volumes, and all that decides about their places.
pub(super) struct VolumeRequest<'a> {
    /// The name of the image, for errors.
    pub(super) image: &'a str,
    /// The volumes, as in its configuration.
    pub(super) volumes: &'a [String],
    /// The root of the container, mounted and not yet used.
    pub(super) root: &'a Path,
    /// The mounts of the request.
    pub(super) mounts: &'a [Mount],
    /// The files of the pod, and the sources of mounts that the runtime has made.
    pub(super) sandbox: &'a SandboxFacts,
}

/// Returns the container paths of an image's volumes, without links: a link of the image cannot lead a mount elsewhere later. Volumes
/// that a mount of the request, or a file of the pod, replaces are left out.
///
/// # Errors
/// [`Error::Invalid`], with the image and the path, for a volume in the place of the root or of a kernel directory, or below
/// one, unless the request mounts something there itself; and for a mount of the request that links of the image lead to `/proc`.
pub(super) fn volume_places(request: &VolumeRequest<'_>) -> Result<BTreeSet<String>> {
    let mut view = ContainerView::new(request.root)?;
    let covered = mount_places(request, &mut view)?;
    let mut places = BTreeSet::new();
    for volume in request.volumes {
        let place = view.resolve(volume)?;
        if covered.contains(&place) {
            continue;
        }
        if let Some(kernel) = kernel_dir(&place) {
            // Hidden by a mount of the pod in place of the kernel's directory, or in it.
            let is_hidden = covered
                .iter()
                .any(|mount| mount.starts_with(kernel) && place.starts_with(mount));
            if is_hidden {
                continue;
            }
        } else if place != Path::new("/") {
            let image = request.image;
            let place = place.into_os_string().into_string().map_err(|place| {
                Error::invalid(format!(
                    "volume {volume:?} of image {image:?} leads to {}, which is not UTF-8",
                    place.display()
                ))
            })?;
            places.insert(place);
            continue;
        }
        return Err(Error::invalid(format!(
            "volume {volume:?} of image {:?} would be mounted at {}: a volume of an image cannot replace the root, /proc, /sys \
             or /dev, or be below them; a mount of the pod at this path replaces it",
            request.image,
            place.display()
        )));
    }
    Ok(places)
}

/// Adds the mounts of the request and the files of the pod to the view; returns where they are.
fn mount_places(request: &VolumeRequest<'_>, view: &mut ContainerView) -> Result<Vec<PathBuf>> {
    let sandbox = request.sandbox;
    let files = [
        ("/etc/hostname", &sandbox.hostname_path),
        ("/etc/hosts", &sandbox.hosts_path),
        ("/etc/resolv.conf", &sandbox.resolv_path),
    ];
    let files = files.into_iter();
    let mut mounts: Vec<_> = files
        .filter_map(|(path, source)| Some((path, source.as_deref()?)))
        .collect();
    for mount in request.mounts {
        let path = mount.container_path.as_str();
        let made = sandbox.image_mounts.get(path);
        let made = made.or_else(|| sandbox.id_mapped.get(path));
        let source = made.map_or(Path::new(&mount.host_path), PathBuf::as_path);
        mounts.push((path, source));
    }
    // The order of the specification.
    mounts.sort_by_key(|(path, _)| lexical(path).components().count());
    let mut places = Vec::new();
    for (path, source) in mounts {
        let place = view.mount(path, source)?;
        if place.starts_with("/proc") && !lexical(path).starts_with("/proc") {
            return Err(Error::invalid(format!(
                "mount at {path:?}: links of image {:?} lead it to {}",
                request.image,
                place.display()
            )));
        }
        places.push(place);
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Case {
        dir: tempfile::TempDir,
        mounts: Vec<Mount>,
        sandbox: SandboxFacts,
    }

    impl Case {
        /// An image with links, and a pod with its own `/etc/hosts`.
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let root = dir.path().join("root");
            fs::create_dir_all(root.join("real")).expect("a directory");
            fs::create_dir_all(dir.path().join("shared")).expect("a directory");
            for (link, target) in [
                ("v", "/proc"),
                ("s", "real/../sys/fs"),
                ("d", "/dev"),
                ("top", "/"),
                ("alias", "/real"),
                ("hosts", "/etc/hosts"),
            ] {
                symlink(target, root.join(link)).expect("a link");
            }
            symlink("/proc", dir.path().join("shared/planted")).expect("a link");
            Self {
                dir,
                mounts: Vec::new(),
                sandbox: SandboxFacts {
                    hosts_path: Some("/pod/hosts".into()),
                    ..SandboxFacts::default()
                },
            }
        }

        fn mount(mut self, at: &str) -> Self {
            self.mounts.push(Mount {
                container_path: at.to_owned(),
                host_path: self.dir.path().join("shared").display().to_string(),
                ..Mount::default()
            });
            self
        }

        fn places(&self, volumes: &[&str]) -> Result<Vec<String>> {
            let volumes: Vec<_> = volumes.iter().map(|volume| (*volume).to_owned()).collect();
            let places = volume_places(&VolumeRequest {
                image: "evil/image:1",
                volumes: &volumes,
                root: &self.dir.path().join("root"),
                mounts: &self.mounts,
                sandbox: &self.sandbox,
            })?;
            Ok(places.into_iter().collect())
        }
    }

    #[test]
    fn no_volume_of_an_image_replaces_a_directory_of_the_kernel() {
        let case = Case::new();
        for volume in [
            "/proc",
            "/proc/",
            "//proc",
            "proc",
            "/proc/../proc/x",
            "/real/../proc",
            "/../proc/self/attr",
            "/./sys",
            "/sys/firmware",
            "/dev",
            "/dev/shm",
            "/v",
            "v/new",
            "/v/1/../2",
            "/s/cgroup",
            "/d/null",
            "/top/proc",
            "/",
            "",
            "/real/..",
            "/top",
        ] {
            let error = case.places(&["/data", volume]).expect_err(volume);
            assert_eq!(error.code(), tonic::Code::InvalidArgument);
            let text = error.to_string();
            assert!(text.contains("evil/image:1"), "{text}");
            assert!(text.contains(&format!("{volume:?}")), "{text}");
        }
        case.places(&["a\0b"]).expect_err("a zero byte");
        let others = ["/process", "/system", "/device", "/var/proc", "/real/sys"];
        assert_eq!(case.places(&others).expect("places").len(), others.len());
    }

    #[test]
    fn volumes_are_mounted_where_links_of_the_image_lead() {
        let case = Case::new();
        let places = case.places(&["/alias", "/real/", "alias/new", "/top/x", "/hosts"]);
        assert_eq!(places.expect("places"), ["/real", "/real/new", "/x"]);
        assert_eq!(case.places(&["/etc/hosts"]).expect("places"), [""; 0]);
    }

    #[test]
    fn mounts_of_the_pod_replace_volumes_of_the_image() {
        let case = Case::new().mount("/real/").mount("/./sys/fs/cgroup");
        let places = case.places(&["/alias", "/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/x"]);
        assert_eq!(places.expect("places"), ["/x"]);
        case.places(&["/sys/fs"]).expect_err("not covered");
        let privileged = Case::new().mount("/dev").mount("/dev/shm");
        let places = privileged.places(&["/dev/shm", "/dev/mqueue"]);
        assert_eq!(places.expect("places"), [""; 0]);
    }

    #[test]
    fn links_in_a_volume_of_the_pod_are_followed_too() {
        let case = Case::new().mount("/alias");
        assert_eq!(case.places(&["/real/x"]).expect("places"), ["/real/x"]);
        case.places(&["/real/planted"])
            .expect_err("it leads to /proc");
        case.places(&["/alias/planted/sys"]).expect_err("likewise");
    }

    #[test]
    fn links_of_an_image_lead_no_mount_of_the_pod_to_proc() {
        for path in ["/v", "/v/sys", "/top/proc"] {
            let error = Case::new().mount(path).places(&[]).expect_err(path);
            assert!(error.to_string().contains(path), "{error}");
        }
        // The pod itself says so, or it is another directory.
        for path in ["/proc", "/proc/cpuinfo", "/sys/fs/x", "/d/shm"] {
            Case::new().mount(path).places(&[]).expect(path);
        }
    }
}
