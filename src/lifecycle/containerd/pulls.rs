//! How far each pull is, from what the content store says.
//!
//! The store does not know pulls. A manifest in it carries labels that name its repository and its layers, so a pull's layers
//! are certain once its manifest is known, and no other pull of the same repository is in flight. Before that, content that
//! began to be written after the only pull is its. Everything else is shared, and said to be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;

use super::messages::{Info, Status, Timestamp};
use crate::lifecycle::process_scanner::{Observation, WorkKind};
use crate::lifecycle::view::{Layer, Progress};
use crate::units;

/// Most layers of an image that are followed.
const LAYERS: usize = 128;

/// Without new bytes for this time, that is said.
const IDLE: Duration = Duration::from_secs(5);

/// The labels of a manifest that name its layers, and of content that name its repository, by host (containerd,
/// `pkg/labels` and the garbage collection labels of images).
const LAYER_LABEL: &str = "containerd.io/gc.ref.content.l.";
const SOURCE_LABEL: &str = "containerd.io/distribution.source.";

/// Content that is being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ingest {
    pub(super) digest: String,
    offset: u64,
    total: u64,
    started: SystemTime,
}

impl Ingest {
    /// A layer; `None` for manifests and configurations, which are small.
    pub(super) fn of(status: &Status) -> Option<Self> {
        let digest = status.reference.strip_prefix("layer-")?;
        let number = |n: i64| u64::try_from(n).unwrap_or_default();
        Some(Self {
            digest: digest.to_owned(),
            offset: number(status.offset),
            total: number(status.total),
            started: status.started_at.map_or(SystemTime::UNIX_EPOCH, time),
        })
    }

    /// Bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.offset
    }
}

fn time(at: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(at.seconds.try_into().unwrap_or_default());
    let nanos = Duration::from_nanos(at.nanos.try_into().unwrap_or_default());
    SystemTime::UNIX_EPOCH + seconds + nanos
}

/// The host and the path of an image's repository, as containerd's labels have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repository {
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
        let fit = |text: &str| {
            text.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-/:".contains(&b))
        };
        (!path.is_empty() && fit(host) && fit(&path)).then(|| Self {
            host: host.to_owned(),
            path,
        })
    }

    /// The filter for its content.
    pub(super) fn filter(&self) -> String {
        let Self { host, path } = self;
        format!("labels.\"{SOURCE_LABEL}{host}\"~=\"(^|,){path}(,|$)\"")
    }

    fn has(&self, info: &Info) -> bool {
        let label = info.labels.get(&format!("{SOURCE_LABEL}{}", self.host));
        label.is_some_and(|it| it.split(',').any(|path| path == self.path))
    }
}

/// A layer of a pull.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    bytes: u64,
    total: u64,
    done: bool,
    /// Whether it was fetched in this pull.
    fetched: bool,
}

/// A pull in flight.
#[derive(Debug)]
pub(super) struct Pulled {
    pub(super) seq: u64,
    image: Arc<str>,
    began: SystemTime,
    pub(super) repository: Option<Repository>,
    /// The digests of its layers in their order, from its manifest.
    order: Option<Vec<String>>,
    parts: BTreeMap<String, Part>,
    /// Bytes that several pulls share, and how many pulls.
    shared: Option<(u64, u64)>,
    /// When bytes last arrived.
    moved: Instant,
    /// When the first layer was seen, and when all were complete.
    first: Option<SystemTime>,
    complete: Option<SystemTime>,
    last: SystemTime,
}

impl Pulled {
    pub(super) fn new(seq: u64, image: Arc<str>, began: SystemTime) -> Self {
        Self {
            seq,
            repository: Repository::of(&image),
            image,
            began,
            order: None,
            parts: BTreeMap::new(),
            shared: None,
            moved: Instant::now(),
            first: None,
            complete: None,
            last: began,
        }
    }

    /// Whether its manifest is known.
    pub(super) fn is_known(&self) -> bool {
        self.order.is_some()
    }

    /// Whether content began to be written after this pull.
    pub(super) fn may_have(&self, ingest: &Ingest) -> bool {
        ingest.started >= self.began
    }

    /// Whether a layer is its.
    pub(super) fn has(&self, digest: &str) -> bool {
        self.parts.contains_key(digest)
    }

    /// Sets the layers of its manifest.
    pub(super) fn know(&mut self, manifest: &[u8]) {
        let Ok(manifest) = serde_json::from_slice::<Manifest>(manifest) else {
            return;
        };
        let layers = manifest.layers.into_iter().take(LAYERS);
        let layers: Vec<_> = layers.map(|it| (it.digest, it.size)).collect();
        if layers.is_empty() {
            return;
        }
        for (digest, size) in &layers {
            self.parts.entry(digest.clone()).or_default().total = *size;
        }
        self.order = Some(layers.into_iter().map(|(digest, _)| digest).collect());
    }

    /// Its layers that are neither complete nor being written: they may be complete by now.
    pub(super) fn unsure(&self, ingests: &[Ingest]) -> Vec<String> {
        let open = self.parts.iter().filter(|(_, part)| !part.done);
        let open = open.filter(|(digest, _)| !ingests.iter().any(|it| it.digest == **digest));
        open.map(|(digest, _)| digest.clone()).collect()
    }

    /// Takes in what is being written, `own` of it being this pull's, and the sizes of layers that are complete.
    pub(super) fn update(&mut self, own: &[&Ingest], complete: &[(String, u64)], now: SystemTime) {
        let bytes = self.bytes();
        self.shared = None;
        self.last = now;
        for ingest in own {
            if self.parts.len() < LAYERS || self.has(&ingest.digest) {
                let part = self.parts.entry(ingest.digest.clone()).or_default();
                part.bytes = ingest.offset;
                part.total = part.total.max(ingest.total);
                part.fetched = true;
                self.first.get_or_insert(now);
            }
        }
        for (digest, size) in complete {
            if let Some(part) = self.parts.get_mut(digest) {
                // Fetched between two looks.
                part.fetched |= self.first.is_some();
                (part.bytes, part.total, part.done) = (*size, *size, true);
            }
        }
        if self.bytes() > bytes {
            self.moved = Instant::now();
        }
        let all = self.is_known() && self.parts.values().all(|part| part.done);
        match all {
            true => _ = self.complete.get_or_insert(now),
            false => self.complete = None,
        }
    }

    /// Says that these bytes belong to several pulls.
    pub(super) fn share(&mut self, bytes: u64, pulls: u64, now: SystemTime) {
        self.shared = Some((bytes, pulls)).filter(|(bytes, _)| *bytes > 0);
        self.last = now;
    }

    fn bytes(&self) -> u64 {
        self.parts.values().map(|part| part.bytes).sum()
    }

    fn total(&self) -> u64 {
        match self.is_known() {
            true => self.parts.values().map(|part| part.total).sum(),
            // There may be more.
            false => 0,
        }
    }

    fn idle(&self) -> Duration {
        match self.complete {
            Some(_) => Duration::ZERO,
            None => self.moved.elapsed(),
        }
    }

    /// For pages.
    pub(super) fn progress(&self) -> Option<Progress> {
        if let Some((bytes, pulls)) = self.shared {
            return Some(Progress {
                image: self.image.to_string(),
                bytes,
                shared_by: pulls,
                ..Progress::default()
            });
        }
        if self.parts.is_empty() {
            return None;
        }
        let digests = match &self.order {
            Some(order) => order.clone(),
            None => self.parts.keys().cloned().collect(),
        };
        let layers = digests.into_iter().filter_map(|digest| {
            let part = self.parts.get(&digest)?;
            let phase = match (part.done, part.bytes) {
                (true, _) if self.complete.is_some() => "unpacking",
                (true, _) => "done",
                (false, 0) => "waiting",
                (false, _) => "fetching",
            };
            Some(Layer {
                digest,
                phase: phase.to_owned(),
                bytes: part.bytes,
                of_bytes: part.total,
                unpacked_bytes: 0,
            })
        });
        Some(Progress {
            image: self.image.to_string(),
            bytes: self.bytes(),
            of_bytes: self.total(),
            idle_ms: self.idle().as_secs_f64() * 1e3,
            layers: layers.collect(),
            shared_by: 0,
        })
    }

    /// For the story: the fetch of the layers, and their unpacking after the last byte.
    pub(super) fn observations(&self) -> Vec<Observation> {
        let fetched = || self.parts.values().filter(|part| part.fetched);
        let mut all = Vec::new();
        if let Some(first) = self.first {
            let bytes: u64 = fetched().map(|part| part.bytes).sum();
            let mut words = format!("{}, {}", layers(fetched().count()), units::bytes(bytes));
            let total: u64 = fetched().map(|part| part.total).sum();
            if self.complete.is_none() && self.is_known() {
                words += &format!(" of {}", units::bytes(total));
            }
            if self.idle() >= IDLE {
                let idle = self.idle().as_secs_f64() * 1e3;
                words += &format!(", no bytes for {}", units::duration(idle));
            }
            // It may have begun up to one look before.
            all.push(observation(
                "fetch",
                words,
                first,
                self.complete.unwrap_or(self.last),
            ));
        }
        if let Some(complete) = self.complete {
            let words = layers(self.parts.len());
            // Without a fetch it may have begun with the call.
            let began = self.first.map_or(self.began, |_| complete);
            all.push(observation("unpack", words, began, self.last));
        }
        all
    }
}

fn layers(count: usize) -> String {
    match count {
        1 => "1 layer".to_owned(),
        n => format!("{n} layers"),
    }
}

fn observation(name: &str, words: String, began: SystemTime, last_seen: SystemTime) -> Observation {
    Observation {
        work: WorkKind::Layers,
        name: name.into(),
        command: None,
        activity: Some(words.into()),
        began,
        last_seen,
    }
}

/// The manifest of a repository that has one of these layers. `None` if there is none, or several that say different things.
pub(super) fn manifest<'a>(
    infos: &'a [Info],
    repository: &Repository,
    ingests: &[Ingest],
) -> Option<&'a str> {
    let names = |info: &Info| {
        let mut layers = info
            .labels
            .iter()
            .filter(|(key, _)| key.starts_with(LAYER_LABEL));
        layers.any(|(_, digest)| ingests.iter().any(|it| it.digest == *digest))
    };
    let mut fitting = infos
        .iter()
        .filter(|info| repository.has(info) && names(info));
    let first = fitting.next()?;
    fitting.next().is_none().then_some(&first.digest)
}

/// A manifest (OCI image specification 1.1, "Image Manifest").
#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
    size: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ingest(digest: &str, offset: u64, total: u64) -> Ingest {
        Ingest {
            digest: digest.to_owned(),
            offset,
            total,
            started: SystemTime::now(),
        }
    }

    #[test]
    fn repositories_are_those_of_containerd() {
        let of = |image: &str| Repository::of(image).map(|it| (it.host, it.path));
        let some = |host: &str, path: &str| Some((host.to_owned(), path.to_owned()));
        assert_eq!(of("busybox"), some("docker.io", "library/busybox"));
        assert_eq!(of("a/b:1"), some("docker.io", "a/b"));
        assert_eq!(
            of("127.0.0.1:5000/x:1@sha256:ab"),
            some("127.0.0.1:5000", "x")
        );
        assert_eq!(of("r.example/a/b"), some("r.example", "a/b"));
        assert_eq!(of("r.example/a\"b"), None);
    }

    #[test]
    fn a_manifest_names_its_layers_and_its_repository() {
        let info = |digest: &str, repository: &str, layer: &str| Info {
            digest: digest.to_owned(),
            size: 1,
            labels: [
                (format!("{SOURCE_LABEL}r.example"), repository.to_owned()),
                (format!("{LAYER_LABEL}0"), layer.to_owned()),
            ]
            .into(),
        };
        let infos = [
            info("m1", "other,app", "a"),
            info("m2", "application", "a"),
            info("m3", "app", "b"),
        ];
        let app = Repository::of("r.example/app:1").expect("a repository");
        let found = |layers: &[Ingest]| manifest(&infos, &app, layers);
        assert_eq!(found(&[ingest("a", 1, 2)]), Some("m1"));
        assert_eq!(found(&[ingest("z", 1, 2)]), None);
        assert_eq!(
            found(&[ingest("a", 1, 2), ingest("b", 1, 2)]),
            None,
            "two of them"
        );
    }

    #[test]
    fn fetch_and_unpacking_are_told_apart() {
        let began = SystemTime::now();
        let at = |secs: u64| began + Duration::from_secs(secs);
        let mut pull = Pulled::new(1, "r.example/app:1".into(), began);
        assert_eq!((pull.progress(), pull.observations()), (None, Vec::new()));
        pull.update(&[&ingest("b", 5, 10)], &[], at(1));
        let progress = pull.progress().expect("progress");
        assert_eq!(
            (progress.bytes, progress.of_bytes),
            (5, 0),
            "there may be more"
        );
        pull.know(br#"{"layers": [{"digest": "a", "size": 20}, {"digest": "b", "size": 10}]}"#);
        assert_eq!(pull.unsure(&[ingest("b", 6, 10)]), ["a"]);
        pull.update(&[&ingest("b", 7, 10)], &[("a".to_owned(), 20)], at(2));
        let progress = pull.progress().expect("progress");
        assert_eq!((progress.bytes, progress.of_bytes), (27, 30));
        let phases: Vec<_> = progress
            .layers
            .iter()
            .map(|it| (&*it.digest, &*it.phase))
            .collect();
        assert_eq!(phases, [("a", "done"), ("b", "fetching")]);
        pull.update(&[], &[("b".to_owned(), 10)], at(3));
        pull.update(&[], &[], at(9));
        let [fetch, unpack] = &pull.observations()[..] else {
            panic!("two");
        };
        assert_eq!((fetch.began, fetch.last_seen), (at(1), at(3)));
        assert_eq!((unpack.began, unpack.last_seen), (at(3), at(9)));
        assert_eq!(fetch.activity.as_deref(), Some("2 layers, 30 B"));
    }

    #[test]
    fn what_several_share_belongs_to_none() {
        let mut pull = Pulled::new(1, "app".into(), SystemTime::now());
        pull.share(120 << 20, 2, SystemTime::now());
        let progress = pull.progress().expect("progress");
        assert_eq!((progress.bytes, progress.shared_by), (120 << 20, 2));
        assert!(progress.layers.is_empty() && pull.observations().is_empty());
    }
}
