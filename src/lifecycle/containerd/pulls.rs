//! How far each pull is, from what the content store says.
//!
//! The store does not know pulls. A pull's layers are certain once its manifest is known (see `manifests`). Before that, content
//! that began to be written after the only pull is its. Everything else is shared, and said to be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;

use super::manifests::Repository;
use super::messages::{Status, Timestamp};
use crate::lifecycle::process_scanner::{Observation, WorkKind};
use crate::lifecycle::view::{LayerProgress, PullProgressView};
use crate::units;

/// Most layers of an image that are followed.
const LAYERS: usize = 128;

/// Without new bytes for this time, that is said. containerd writes and counts a mebibyte at a time.
const IDLE: Duration = Duration::from_secs(5);

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

fn time(at: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(at.seconds.try_into().unwrap_or_default());
    let nanos = Duration::from_nanos(at.nanos.try_into().unwrap_or_default());
    SystemTime::UNIX_EPOCH + seconds + nanos
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
    pub(super) fn progress(&self) -> Option<PullProgressView> {
        if let Some((bytes, pulls)) = self.shared {
            return Some(PullProgressView {
                image: self.image.to_string(),
                bytes,
                shared_by: pulls,
                ..PullProgressView::default()
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
            let phase = match (part.done, part.fetched) {
                (true, _) if self.complete.is_some() => "unpacking",
                (true, _) => "done",
                (false, false) => "waiting",
                (false, true) => "fetching",
            };
            Some(LayerProgress {
                digest,
                phase: phase.to_owned(),
                bytes: part.bytes,
                of_bytes: part.total,
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
                words += &format!(", less than 1 MiB in {}", units::duration(idle));
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

    #[test]
    fn fetch_and_unpacking_are_told_apart() {
        let began = SystemTime::now();
        let at = |secs: u64| began + Duration::from_secs(secs);
        let mut pull = Pulled::new(1, "r.example/app:1".into(), began);
        assert_eq!((pull.progress(), pull.observations()), (None, Vec::new()));
        pull.update(&[&Ingest::example("b", 5, 10)], &[], at(1));
        let progress = pull.progress().expect("progress");
        assert_eq!(
            (progress.bytes, progress.of_bytes),
            (5, 0),
            "there may be more"
        );
        pull.know(br#"{"layers": [{"digest": "a", "size": 20}, {"digest": "b", "size": 10}]}"#);
        assert_eq!(pull.unsure(&[Ingest::example("b", 6, 10)]), ["a"]);
        pull.update(
            &[&Ingest::example("b", 7, 10)],
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
