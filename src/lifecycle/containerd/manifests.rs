//! Which manifest a pull is about, from the labels of content.
//!
//! The labels of a manifest name its layers and its configuration; they are set before the layers are fetched. The labels of
//! configurations and layers name the repositories that they came from. So a manifest with a layer that is being written is that
//! of the only pull, or of the only one whose repository its configuration came from.

use super::messages::Info;
use super::pulls::Ingest;

/// The filter for manifests.
pub(super) const MANIFESTS: &str = "labels.\"containerd.io/gc.ref.content.l.0\"";

/// The labels of a manifest (containerd, garbage collection labels of images), and of content with its repositories by host
/// (containerd, `pkg/labels`).
const LAYER: &str = "containerd.io/gc.ref.content.l.";
const CONFIG: &str = "containerd.io/gc.ref.content.config";
const SOURCE: &str = "containerd.io/distribution.source.";

/// The host and the path of an image's repository, as containerd's labels have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repository {
    /// Without a port.
    host: String,
    path: String,
}

impl Repository {
    /// That of an image reference. Names without a host are Docker's.
    pub(super) fn of(image: &str) -> Option<Self> {
        let name = image.split_once('@').map_or(image, |(name, _)| name);
        let name = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => name,
            _ => name,
        };
        let is_host = |part: &str| part.contains(['.', ':']) || part == "localhost";
        let (host, path) = match name.split_once('/') {
            Some((host, path)) if is_host(host) => (host, path.to_owned()),
            Some(_) => ("docker.io", name.to_owned()),
            None => ("docker.io", format!("library/{name}")),
        };
        let host = match host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
            _ => host,
        };
        (!path.is_empty()).then(|| Self {
            host: host.to_owned(),
            path,
        })
    }

    /// Returns whether content came from it.
    pub(super) fn has(&self, info: &Info) -> bool {
        let label = info.labels.get(&format!("{SOURCE}{}", self.host));
        label.is_some_and(|it| it.split(',').any(|path| path == self.path))
    }
}

/// The manifests with a layer that is being written.
pub(super) fn fitting<'a>(
    manifests: &'a [Info],
    ingests: &[&Ingest],
) -> impl Iterator<Item = &'a Info> {
    let layers: Vec<_> = ingests.iter().map(|it| it.digest.clone()).collect();
    manifests.iter().filter(move |info| {
        let mut labels = info.labels.iter().filter(|(key, _)| key.starts_with(LAYER));
        labels.any(|(_, digest)| layers.contains(digest))
    })
}

/// The configuration of a manifest.
pub(super) fn config(manifest: &Info) -> Option<&str> {
    manifest.labels.get(CONFIG).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(digest: &str, labels: &[(&str, &str)]) -> Info {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Info {
            digest: digest.to_owned(),
            size: 1,
            labels: labels.collect(),
        }
    }

    #[test]
    fn repositories_are_those_of_containerd() {
        let of = |image: &str| Repository::of(image).map(|it| (it.host, it.path));
        let some = |host: &str, path: &str| Some((host.to_owned(), path.to_owned()));
        assert_eq!(of("busybox"), some("docker.io", "library/busybox"));
        assert_eq!(of("a/b:1"), some("docker.io", "a/b"));
        assert_eq!(of("127.0.0.1:5000/x:1@sha256:ab"), some("127.0.0.1", "x"));
        assert_eq!(of("r.example/a/b"), some("r.example", "a/b"));
        let repository = Repository::of("r.example/app:1").expect("a repository");
        let key = "containerd.io/distribution.source.r.example";
        assert!(repository.has(&info("c", &[(key, "other,app")])));
        assert!(!repository.has(&info("c", &[(key, "application")])));
    }

    #[test]
    fn a_manifest_names_its_layers_and_its_configuration() {
        let layer = |n: u32| format!("containerd.io/gc.ref.content.l.{n}");
        let (first, second) = (layer(0), layer(1));
        let manifests = [
            info("m1", &[(&first, "a"), (&second, "b"), (CONFIG, "c1")]),
            info("m2", &[(&first, "x"), (CONFIG, "c2")]),
        ];
        let ingest = Ingest::example("b", 1, 2);
        let found: Vec<_> = fitting(&manifests, &[&ingest]).collect();
        assert_eq!(found, [&manifests[0]]);
        assert_eq!(config(found[0]), Some("c1"));
    }
}
