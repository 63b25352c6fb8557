//! The progress of each pull, from the content store.
//!
//! The store does not know pulls. The layers of a pull are certain once its manifest is known (see `manifests`). Before that, a
//! pull that is the only one owns all content whose writing began after it. All other content is reported as shared by several
//! pulls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;

use super::manifests::ImageRepository;
use super::time;
use crate::process_scanner::{Observation, WorkKind};
use crate::transfer_words;
use crate::view::{LayerProgress, PullProgressView};
use criscope_cri::units;
use criscope_wire::services::IngestStatus;

/// Upper bound of layers of an image that are followed.
const MAX_LAYERS: usize = 128;

/// The name of the work of a pull that waits for its manifest.
pub(crate) const AWAITED_MANIFEST: &str = "manifest";

/// A pull without new bytes for this time is described as stalled. containerd writes and counts a mebibyte at a time.
const IDLE_REPORTED_AFTER: Duration = Duration::from_secs(5);

/// Content that is being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LayerIngest {
    pub(super) digest: String,
    offset: u64,
    total: u64,
    started: SystemTime,
}

impl LayerIngest {
    /// A layer; `None` for manifests and configurations, which are small.
    pub(super) fn from_status(status: &IngestStatus) -> Option<Self> {
        let digest = status.reference.strip_prefix("layer-")?;
        Some(Self {
            digest: digest.to_owned(),
            offset: status.offset.try_into().unwrap_or_default(),
            total: status.total.try_into().unwrap_or_default(),
            started: status.started_at.map_or(SystemTime::UNIX_EPOCH, time),
        })
    }

    #[cfg(test)]
    pub(super) fn example(digest: &str, offset: u64, total: u64) -> Self {
        Self {
            digest: digest.to_owned(),
            offset,
            total,
            started: SystemTime::now(),
        }
    }

    /// Bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.offset
    }
}

/// A layer of a pull.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PullLayer {
    bytes: u64,
    total: u64,
    done: bool,
    /// Set if the layer was fetched in this pull.
    fetched: bool,
}

/// A pull in flight.
#[derive(Debug)]
pub(super) struct TrackedPull {
    pub(super) seq: u64,
    image: Arc<str>,
    pub(super) began: SystemTime,
    pub(super) repository: Option<ImageRepository>,
    /// The digests of the layers in their order, from the manifest.
    order: Option<Vec<String>>,
    layers: BTreeMap<String, PullLayer>,
    /// Time at which containerd last said that it has nothing of the image.
    awaited: Option<SystemTime>,
    /// Bytes that several pulls share, and the number of pulls.
    shared: Option<(u64, u64)>,
    /// Time of the last progress.
    moved: Instant,
    /// Time at which the first layer was seen, and the bytes that it had then.
    first: Option<(SystemTime, u64)>,
    /// Time at which all layers were complete.
    complete: Option<SystemTime>,
    /// Time of the last update.
    last: SystemTime,
}

impl TrackedPull {
    pub(super) fn new(seq: u64, image: Arc<str>, began: SystemTime) -> Self {
        Self {
            seq,
            repository: ImageRepository::parse(&image),
            image,
            began,
            order: None,
            layers: BTreeMap::new(),
            awaited: None,
            shared: None,
            moved: Instant::now(),
            first: None,
            complete: None,
            last: began,
        }
    }

    /// Returns whether the manifest is known.
    pub(super) fn is_known(&self) -> bool {
        self.order.is_some()
    }

    /// Returns whether the writing of content began after this pull.
    pub(super) fn may_have(&self, ingest: &LayerIngest) -> bool {
        ingest.started >= self.began
    }

    /// Returns whether nothing of the image is known: neither its manifest nor a layer that is being written.
    pub(super) fn has_nothing(&self, ingests: &[LayerIngest]) -> bool {
        let mut ingests = ingests.iter();
        self.layers.is_empty() && !ingests.any(|ingest| self.may_have(ingest))
    }

    /// Notes that containerd has nothing of the image yet.
    pub(super) fn awaits_manifest(&mut self, now: SystemTime) {
        self.awaited = Some(now);
    }

    /// Returns whether this pull has a layer.
    pub(super) fn has(&self, digest: &str) -> bool {
        self.layers.contains_key(digest)
    }

    /// Sets the layers from the manifest.
    pub(super) fn set_manifest(&mut self, manifest: &[u8]) {
        let Ok(manifest) = serde_json::from_slice::<ImageManifest>(manifest) else {
            return;
        };
        let layers = manifest.layers.into_iter().take(MAX_LAYERS);
        let layers: Vec<_> = layers.map(|layer| (layer.digest, layer.size)).collect();
        if layers.is_empty() {
            return;
        }
        for (digest, size) in &layers {
            self.layers.entry(digest.clone()).or_default().total = *size;
        }
        self.order = Some(layers.into_iter().map(|(digest, _)| digest).collect());
    }

    /// The layers that are neither complete nor being written: they may be complete by now.
    pub(super) fn unsure(&self, ingests: &[LayerIngest]) -> Vec<String> {
        let open = self.layers.iter().filter(|(digest, layer)| {
            let mut written = ingests.iter();
            !layer.done && !written.any(|ingest| ingest.digest == **digest)
        });
        open.map(|(digest, _)| digest.clone()).collect()
    }

    /// Takes in the layers of this pull that are being written, and the sizes of layers that are complete.
    pub(super) fn update(
        &mut self,
        own: &[&LayerIngest],
        complete: &[(String, u64)],
        now: SystemTime,
    ) {
        let bytes = self.bytes();
        self.shared = None;
        self.last = now;
        for ingest in own {
            if self.layers.len() < MAX_LAYERS || self.has(&ingest.digest) {
                let layer = self.layers.entry(ingest.digest.clone()).or_default();
                layer.bytes = ingest.offset;
                layer.total = layer.total.max(ingest.total);
                layer.fetched = true;
            }
        }
        if !own.is_empty() {
            self.first.get_or_insert((now, self.fetched_bytes()));
        }
        for (digest, size) in complete {
            if let Some(layer) = self.layers.get_mut(digest) {
                // A small layer may be fetched between two updates.
                layer.fetched |= self.first.is_some();
                (layer.bytes, layer.total, layer.done) = (*size, *size, true);
            }
        }
        if self.bytes() > bytes {
            self.moved = Instant::now();
        }
        if self.is_known() && self.layers.values().all(|layer| layer.done) {
            self.complete.get_or_insert(now);
        } else {
            self.complete = None;
        }
    }

    /// Sets the bytes that belong to several pulls.
    pub(super) fn share(&mut self, bytes: u64, pulls: u64, now: SystemTime) {
        self.shared = Some((bytes, pulls)).filter(|(bytes, _)| *bytes > 0);
        self.last = now;
    }

    fn bytes(&self) -> u64 {
        self.layers.values().map(|layer| layer.bytes).sum()
    }

    /// Bytes of the layers that this pull fetches.
    fn fetched_bytes(&self) -> u64 {
        let fetched = self.layers.values().filter(|layer| layer.fetched);
        fetched.map(|layer| layer.bytes).sum()
    }

    /// Bytes of all layers; 0 while more layers may come.
    fn total(&self) -> u64 {
        if self.is_known() {
            self.layers.values().map(|layer| layer.total).sum()
        } else {
            0
        }
    }

    fn idle(&self) -> Duration {
        match self.complete {
            Some(_) => Duration::ZERO,
            None => self.moved.elapsed(),
        }
    }

    /// The progress for pages.
    pub(super) fn progress(&self) -> Option<PullProgressView> {
        if let Some((bytes, pulls)) = self.shared {
            return Some(PullProgressView {
                image: self.image.to_string(),
                bytes,
                shared_by: pulls,
                ..PullProgressView::default()
            });
        }
        if self.layers.is_empty() {
            return None;
        }
        let digests = match &self.order {
            Some(order) => order.clone(),
            None => self.layers.keys().cloned().collect(),
        };
        let layers = digests.into_iter().filter_map(|digest| {
            let layer = self.layers.get(&digest)?;
            let phase = match (layer.done, layer.fetched) {
                (true, _) if self.complete.is_some() => "unpacking",
                (true, _) => "done",
                (false, false) => "waiting",
                (false, true) => "fetching",
            };
            Some(LayerProgress {
                digest,
                phase: phase.to_owned(),
                bytes: layer.bytes,
                of_bytes: layer.total,
                unpacked_bytes: 0,
            })
        });
        Some(PullProgressView {
            image: self.image.to_string(),
            bytes: self.bytes(),
            of_bytes: self.total(),
            idle_ms: self.idle().as_secs_f64() * 1e3,
            layers: layers.collect(),
            shared_by: 0,
        })
    }

    /// The observations for the story: the fetch of the layers, and their unpacking after the last byte.
    pub(super) fn observations(&self) -> Vec<Observation> {
        let mut all = Vec::new();
        if let (Some(at), Some(repository)) = (self.awaited, &self.repository) {
            let host = repository.host().to_owned();
            all.push(observation(AWAITED_MANIFEST, host, self.began, at));
        }
        if let Some((first, bytes_at_first)) = self.first {
            let fetched = self.layers.values().filter(|layer| layer.fetched);
            let (mut count, mut bytes, mut total) = (0, 0, 0);
            for layer in fetched {
                (count, bytes, total) = (count + 1, bytes + layer.bytes, total + layer.total);
            }
            let mut words = format!("{}, {}", layers(count), units::bytes(bytes));
            if self.complete.is_none() && self.is_known() {
                words += &format!(" of {}", units::bytes(total));
            }
            let last = self.complete.unwrap_or(self.last);
            if let Some(repository) = &self.repository {
                let host = repository.host();
                words += &format!(" from {host} or a mirror");
            }
            if self.idle() < IDLE_REPORTED_AFTER {
                let took = last.duration_since(first).unwrap_or_default();
                let total = if self.is_known() { total } else { bytes };
                let new = bytes.saturating_sub(bytes_at_first);
                let to_come = total.saturating_sub(bytes_at_first);
                words += &transfer_words::rate(new, to_come, took);
            }
            if self.idle() >= IDLE_REPORTED_AFTER {
                let idle = self.idle().as_secs_f64() * 1e3;
                words += &format!(", less than 1 MiB in {}", units::duration(idle));
            }
            // The fetch may have begun up to one update before.
            all.push(observation("fetch", words, first, last));
        }
        if let Some(complete) = self.complete {
            let words = layers(self.layers.len());
            // Without a fetch the unpacking may have begun with the call, or when the manifest came.
            let began = self.awaited.unwrap_or(self.began);
            let began = self.first.map_or(began, |_| complete);
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

/// A manifest (OCI image specification 1.1, "Image Manifest").
#[derive(Deserialize)]
struct ImageManifest {
    #[serde(default)]
    layers: Vec<LayerDescriptor>,
}

#[derive(Deserialize)]
struct LayerDescriptor {
    digest: String,
    size: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetch_and_unpacking_are_told_apart() {
        let began = SystemTime::now();
        let at = |secs: u64| began + Duration::from_secs(secs);
        let mut pull = TrackedPull::new(1, "r.example/app:1".into(), began);
        assert_eq!((pull.progress(), pull.observations()), (None, Vec::new()));
        pull.update(&[&LayerIngest::example("b", 5, 10)], &[], at(1));
        let progress = pull.progress().expect("progress");
        assert_eq!(
            (progress.bytes, progress.of_bytes),
            (5, 0),
            "there may be more"
        );
        pull.set_manifest(
            br#"{"layers": [{"digest": "a", "size": 20}, {"digest": "b", "size": 10}]}"#,
        );
        assert_eq!(pull.unsure(&[LayerIngest::example("b", 6, 10)]), ["a"]);
        pull.update(
            &[&LayerIngest::example("b", 7, 10)],
            &[("a".to_owned(), 20)],
            at(2),
        );
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
        assert_eq!(
            fetch.activity.as_deref(),
            Some("2 layers, 30 B from r.example or a mirror, 12 B/s")
        );
    }

    #[test]
    fn the_wait_for_a_manifest_ends_when_something_arrives() {
        let began = SystemTime::now();
        let at = |secs: u64| began + Duration::from_secs(secs);
        let mut pull = TrackedPull::new(1, "r.example:5000/app:1".into(), began);
        assert!(pull.has_nothing(&[]));
        pull.awaits_manifest(at(7));
        let [wait] = &pull.observations()[..] else {
            panic!("one");
        };
        assert_eq!(
            (&*wait.name, wait.activity.as_deref()),
            (AWAITED_MANIFEST, Some("r.example"))
        );
        assert_eq!((wait.began, wait.last_seen), (began, at(7)));
        assert!(!pull.has_nothing(&[LayerIngest::example("b", 0, 10)]));
        // All layers are there, and are unpacked.
        pull.set_manifest(br#"{"layers": [{"digest": "a", "size": 20}]}"#);
        assert!(!pull.has_nothing(&[]));
        pull.update(&[], &[("a".to_owned(), 20)], at(8));
        pull.update(&[], &[], at(30));
        let [_, unpack] = &pull.observations()[..] else {
            panic!("two");
        };
        assert_eq!((unpack.began, unpack.last_seen), (at(7), at(30)));
    }

    #[test]
    fn what_several_share_belongs_to_none() {
        let mut pull = TrackedPull::new(1, "app".into(), SystemTime::now());
        pull.share(120 << 20, 2, SystemTime::now());
        let progress = pull.progress().expect("progress");
        assert_eq!((progress.bytes, progress.shared_by), (120 << 20, 2));
        assert!(progress.layers.is_empty() && pull.observations().is_empty());
    }
}
