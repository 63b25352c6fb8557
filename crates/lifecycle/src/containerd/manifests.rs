//! Finds the manifest of a pull by the labels of content.
//!
//! The labels of a manifest name its layers and its configuration; they are set before the layers are fetched. The labels of
//! configurations and layers name the repositories that they came from. A manifest with a layer that is being written belongs
//! to the only pull, or to the only pull from the repository that its configuration came from.

use std::time::SystemTime;

use super::pulls::LayerIngest;
use super::time;
use criscope_wire::services::ContentInfo;

/// The filter for manifests.
pub(super) const MANIFEST_FILTER: &str = "labels.\"containerd.io/gc.ref.content.l.0\"";

/// Prefix of a manifest's labels for its layers (containerd, garbage collection labels of images).
const LAYER_LABEL: &str = "containerd.io/gc.ref.content.l.";

/// The label of a manifest for its configuration.
const CONFIG_LABEL: &str = "containerd.io/gc.ref.content.config";

/// Prefix of the labels of content for its repositories, by host (containerd, `pkg/labels`).
const SOURCE_LABEL: &str = "containerd.io/distribution.source.";

/// The host and the path of an image's repository, as containerd's labels have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImageRepository {
    /// The host, without a port.
    host: String,
    path: String,
}

impl ImageRepository {
    /// The repository of an image reference. Names without a host are Docker's.
    pub(super) fn parse(image: &str) -> Option<Self> {
        let name = image.split_once('@').map_or(image, |(name, _)| name);
        let name = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => name,
            _ => name,
        };
        let (host, path) = match name.split_once('/') {
            Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => {
                (host, path.to_owned())
            }
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

    /// The host, without a port.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns whether content came from this repository.
    pub(super) fn is_source_of(&self, info: &ContentInfo) -> bool {
        let label = info.labels.get(&format!("{SOURCE_LABEL}{}", self.host));
        label.is_some_and(|paths| paths.split(',').any(|path| path == self.path))
    }
}

/// The manifests with a layer that is being written.
pub(super) fn with_open_layer<'a>(
    manifests: &'a [ContentInfo],
    ingests: &[&LayerIngest],
) -> impl Iterator<Item = &'a ContentInfo> {
    let layers: Vec<_> = ingests.iter().map(|layer| layer.digest.clone()).collect();
    manifests.iter().filter(move |info| {
        let mut labels = info
            .labels
            .iter()
            .filter(|(key, _)| key.starts_with(LAYER_LABEL));
        labels.any(|(_, digest)| layers.contains(digest))
    })
}

/// The manifests of a repository that a pull which began at this time has fetched or found: containerd then notes the repository in
/// their labels, also if they were there before.
pub(super) fn arrived_since<'a>(
    manifests: &'a [ContentInfo],
    repository: &ImageRepository,
    began: SystemTime,
) -> impl Iterator<Item = &'a ContentInfo> {
    manifests.iter().filter(move |info| {
        let updated = info.updated_at.map(time);
        updated.is_some_and(|updated| updated >= began) && repository.is_source_of(info)
    })
}

/// The configuration of a manifest.
pub(super) fn config(manifest: &ContentInfo) -> Option<&str> {
    manifest.labels.get(CONFIG_LABEL).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(digest: &str, labels: &[(&str, &str)]) -> ContentInfo {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        ContentInfo {
            digest: digest.to_owned(),
            size: 1,
            updated_at: None,
            labels: labels.collect(),
        }
    }

    #[test]
    fn repositories_are_those_of_containerd() {
        let of = |image: &str| ImageRepository::parse(image).map(|it| (it.host, it.path));
        let some = |host: &str, path: &str| Some((host.to_owned(), path.to_owned()));
        assert_eq!(of("busybox"), some("docker.io", "library/busybox"));
        assert_eq!(of("a/b:1"), some("docker.io", "a/b"));
        assert_eq!(of("127.0.0.1:5000/x:1@sha256:ab"), some("127.0.0.1", "x"));
        assert_eq!(of("r.example/a/b"), some("r.example", "a/b"));
        let repository = ImageRepository::parse("r.example/app:1").expect("a repository");
        let key = "containerd.io/distribution.source.r.example";
        assert!(repository.is_source_of(&info("c", &[(key, "other,app")])));
        assert!(!repository.is_source_of(&info("c", &[(key, "application")])));
    }

    #[test]
    fn a_manifest_names_its_layers_and_its_configuration() {
        let layer = |n: u32| format!("containerd.io/gc.ref.content.l.{n}");
        let (first, second) = (layer(0), layer(1));
        let manifests = [
            info("m1", &[(&first, "a"), (&second, "b"), (CONFIG_LABEL, "c1")]),
            info("m2", &[(&first, "x"), (CONFIG_LABEL, "c2")]),
        ];
        let ingest = LayerIngest::example("b", 1, 2);
        let found: Vec<_> = with_open_layer(&manifests, &[&ingest]).collect();
        assert_eq!(found, [&manifests[0]]);
        assert_eq!(config(found[0]), Some("c1"));
    }

    #[test]
    fn a_manifest_that_arrived_in_a_pull_is_new_and_of_its_repository() {
        let began = SystemTime::now();
        let key = "containerd.io/distribution.source.r.example";
        let manifest = |digest: &str, path: &str, after: i64| {
            let since = began.duration_since(SystemTime::UNIX_EPOCH);
            let seconds = since.expect("after 1970").as_secs() as i64 + after;
            ContentInfo {
                updated_at: Some(criscope_wire::Timestamp { seconds, nanos: 0 }),
                ..info(digest, &[(key, path)])
            }
        };
        let manifests = [
            manifest("before", "app", -60),
            manifest("other", "db", 5),
            manifest("own", "app", 5),
            info("undated", &[(key, "app")]),
        ];
        let repository = ImageRepository::parse("r.example:5000/app:1").expect("a repository");
        let found = arrived_since(&manifests, &repository, began);
        let digests: Vec<_> = found.map(|info| &*info.digest).collect();
        assert_eq!(digests, ["own"]);
    }
}
