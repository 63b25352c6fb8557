//! The file of a capture: a gzipped tar archive.
//!
//! | entry | content |
//! |---|---|
//! | `manifest.json` | format, versions, host, time and origin |
//! | `snapshot.json` | state of the process that its journal lacks |
//! | `journal.1.jsonl`, `journal.jsonl` | the journal, the older file first |
//! | `requests.jsonl` | only with `capture --requests`: calls with their requests, which hold secrets |
//! | `pages/*` | pages of the admin endpoint: metrics, settings, backends, calls in flight, the flight recorder |

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read, Write};
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::requests::RecordedCall;
use super::{ProcessSnapshot, pages};
use criscope_cri::units::times::UnixMicros;

/// Number of the layout. Entries may be added without a new number.
pub const CAPTURE_FORMAT: u32 = 1;

/// The directory in the archive.
const ARCHIVE_DIR: &str = "criscope-capture";

/// Largest size of all entries together, in bytes; a damaged or malicious file must not fill the memory.
const MAX_UNPACKED_LEN: u64 = 256 << 20;

const MANIFEST_ENTRY: &str = "manifest.json";
const SNAPSHOT_ENTRY: &str = "snapshot.json";
const JOURNAL_ENTRIES: [&str; 2] = ["journal.1.jsonl", "journal.jsonl"];
const REQUESTS_ENTRY: &str = "requests.jsonl";
const PAGES_DIR: &str = "pages/";

/// The source of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureOrigin {
    /// A running criscope, and its journal.
    Daemon,
    /// The journal alone: criscope was not running.
    Journal,
}

/// Head of a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureManifest {
    /// [`CAPTURE_FORMAT`].
    pub format: u32,
    /// Version of the program that made the capture.
    pub criscope: String,
    /// Version of the kernel.
    pub kernel: String,
    /// Host name of the node.
    pub host: String,
    /// Time at which the capture was made.
    pub made_unix_us: UnixMicros,
    /// The source of the capture.
    pub origin: CaptureOrigin,
    /// The only pod in the capture, as `NAMESPACE/NAME`; absent if it has all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Head of the recorded requests; absent if the capture has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestsHead>,
}

/// Head of the recorded requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestsHead {
    /// A warning that the requests hold secrets.
    pub warning: String,
    /// Begin of the recording.
    pub from_unix_us: UnixMicros,
    /// End of the recording.
    pub until_unix_us: UnixMicros,
    /// Calls recorded.
    pub calls: u64,
    /// Calls left out because the recording was full.
    pub dropped: u64,
    /// Calls left out because criscope did not read their request.
    pub unread: u64,
}

impl RequestsHead {
    /// The warning.
    pub const WARNING: &str = "requests.jsonl holds secrets: environments, arguments and credentials of the pods, unredacted";
}

/// A capture.
#[derive(Clone, Debug)]
pub struct CaptureBundle {
    /// Head of the capture.
    pub manifest: CaptureManifest,
    /// State of the process that its journal lacks.
    pub snapshot: ProcessSnapshot,
    /// The two files of the journal, the older first.
    pub journal: [Vec<u8>; 2],
    /// Calls with their requests, one per line.
    pub requests: Vec<u8>,
    /// Pages of the admin endpoint by name.
    pub pages: BTreeMap<String, Vec<u8>>,
}

/// The reason why a capture cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The file is unreadable, or not an archive.
    #[error("no readable archive: {0}")]
    Io(#[from] io::Error),
    /// An entry is missing.
    #[error("no capture: it has no {0}")]
    Missing(&'static str),
    /// An entry has another form.
    #[error("{name} has another form: {source}")]
    Json {
        /// The entry.
        name: &'static str,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// A layout of a later version.
    #[error("its format is {0}, and this criscope reads up to {CAPTURE_FORMAT}: use a later one")]
    Later(u32),
    /// The archive is larger than any capture.
    #[error("it unpacks to more than {} MiB", MAX_UNPACKED_LEN >> 20)]
    Large,
}

impl CaptureBundle {
    /// Writes the capture.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::default()));
        let manifest = serde_json::to_vec_pretty(&self.manifest)?;
        let snapshot = serde_json::to_vec(&self.snapshot)?;
        let mut entries: Vec<(&str, &[u8])> =
            vec![(MANIFEST_ENTRY, &manifest), (SNAPSHOT_ENTRY, &snapshot)];
        let journal = JOURNAL_ENTRIES.into_iter().zip(&self.journal);
        entries.extend(journal.map(|(name, lines)| (name, &lines[..])));
        if !self.requests.is_empty() {
            entries.push((REQUESTS_ENTRY, &self.requests));
        }
        for (name, bytes) in entries {
            self.append(&mut archive, name, bytes)?;
        }
        for (name, body) in &self.pages {
            self.append(&mut archive, &format!("{PAGES_DIR}{name}"), body)?;
        }
        archive.into_inner()?.finish()?.flush()
    }

    fn append<W: Write>(
        &self,
        archive: &mut tar::Builder<W>,
        name: &str,
        bytes: &[u8],
    ) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(
            self.manifest
                .made_unix_us
                .since(UnixMicros::EPOCH)
                .as_secs(),
        );
        archive.append_data(&mut header, format!("{ARCHIVE_DIR}/{name}"), bytes)
    }

    /// Reads a capture. Blocks.
    ///
    /// # Errors
    /// If the archive is damaged, too large, or has a later format.
    pub fn read(input: impl Read) -> Result<Self, BundleError> {
        let mut archive = tar::Archive::new(GzDecoder::new(input).take(MAX_UNPACKED_LEN));
        let mut files = BTreeMap::new();
        let mut size = 0;
        for entry in archive.entries()? {
            let mut entry = entry?;
            size += entry.size();
            if size >= MAX_UNPACKED_LEN {
                return Err(BundleError::Large);
            }
            let path = entry.path()?.to_string_lossy().into_owned();
            let Some(name) = path
                .strip_prefix(ARCHIVE_DIR)
                .and_then(|name| name.strip_prefix('/'))
            else {
                continue;
            };
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            files.insert(name.to_owned(), bytes);
        }
        // The rest is padding and the checksum: a file that was cut there is not whole either.
        io::copy(&mut archive.into_inner(), &mut io::sink())?;
        let manifest: CaptureManifest = parse(&files, MANIFEST_ENTRY)?;
        if manifest.format > CAPTURE_FORMAT {
            return Err(BundleError::Later(manifest.format));
        }
        let snapshot = parse(&files, SNAPSHOT_ENTRY)?;
        let journal = JOURNAL_ENTRIES.map(|name| files.remove(name).unwrap_or_default());
        let requests = files.remove(REQUESTS_ENTRY).unwrap_or_default();
        let pages = files.into_iter();
        let pages =
            pages.filter_map(|(name, body)| Some((name.strip_prefix(PAGES_DIR)?.to_owned(), body)));
        Ok(Self {
            manifest,
            snapshot,
            journal,
            requests,
            pages: pages.collect(),
        })
    }

    /// The calls with their requests, in the order in which they began.
    ///
    /// # Errors
    /// If a line has another form.
    pub fn recorded(&self) -> Result<Vec<RecordedCall>, BundleError> {
        let lines = self.requests.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        let calls = lines.map(|line| {
            let name = REQUESTS_ENTRY;
            serde_json::from_slice(line).map_err(|source| BundleError::Json { name, source })
        });
        let mut calls = calls.collect::<Result<Vec<RecordedCall>, _>>()?;
        calls.sort_by_key(|call| (call.began, call.seq));
        Ok(calls)
    }

    /// Adds calls with their requests.
    ///
    /// # Errors
    /// If a call cannot be written as JSON.
    pub fn put_requests(&mut self, head: RequestsHead, calls: &[RecordedCall]) -> io::Result<()> {
        for call in calls {
            serde_json::to_writer(&mut self.requests, call)?;
            self.requests.push(b'\n');
        }
        self.manifest.requests = Some(head);
        Ok(())
    }

    /// Leaves out pods without a line since this time. Blocks.
    pub fn keep_since(&mut self, since: UnixMicros) {
        let mut recent = HashSet::new();
        let mut names = HashSet::new();
        let lines = self.journal.iter();
        let lines = lines.flat_map(|file| file.split(|byte| *byte == b'\n'));
        for body in lines.filter_map(body) {
            let times = ["began", "at"]
                .into_iter()
                .filter_map(|key| body[key].as_u64());
            let took = Duration::from_micros(body["elapsed"].as_u64().unwrap_or_default());
            if let Some(uid) = body["pod"]["uid"].as_str()
                && times
                    .max()
                    .is_some_and(|at| UnixMicros::new(at) + took >= since)
            {
                recent.insert(uid.to_owned());
                let [namespace, name] = ["namespace", "name"]
                    .map(|key| body["pod"][key].as_str().unwrap_or_default().to_owned());
                names.insert((namespace, name));
            }
        }
        self.retain(|body| match body["pod"]["uid"].as_str() {
            Some(uid) => recent.contains(uid),
            None => true,
        });
        self.keep_rows(|namespace, name| names.contains(&(namespace.to_owned(), name.to_owned())));
    }

    /// Leaves out the rows of pages about other pods.
    fn keep_rows(&mut self, is_wanted: impl Fn(&str, &str) -> bool) {
        for page in self.pages.values_mut() {
            pages::keep(page, &is_wanted);
        }
    }

    /// Keeps the lines whose body is wanted. Damaged lines are left out.
    fn retain(&mut self, is_wanted: impl Fn(&Value) -> bool) {
        for lines in &mut self.journal {
            let kept = lines.split_inclusive(|byte| *byte == b'\n');
            let kept = kept.filter(|line| body(line).is_some_and(|body| is_wanted(&body)));
            *lines = kept.collect::<Vec<_>>().concat();
        }
    }

    /// Leaves out other pods; lines about the node stay.
    pub fn keep_pod(&mut self, namespace: &str, name: &str) {
        self.retain(|body| match body.get("pod") {
            Some(pod) => pod["namespace"] == namespace && pod["name"] == name,
            None => true,
        });
        self.snapshot.keep_pod(namespace, name);
        let lines = self.requests.split_inclusive(|byte| *byte == b'\n');
        let of_pod = lines.filter(|line| {
            let call: Option<RecordedCall> = serde_json::from_slice(line).ok();
            let pod = call.and_then(|call| call.pod);
            pod.is_some_and(|pod| *pod.namespace == *namespace && *pod.name == *name)
        });
        self.requests = of_pod.collect::<Vec<_>>().concat();
        let kept = self.requests.iter().filter(|byte| **byte == b'\n').count();
        if let Some(head) = &mut self.manifest.requests {
            head.calls = kept as u64;
        }
        self.keep_rows(|row_namespace, pod| (row_namespace, pod) == (namespace, name));
        self.manifest.pod = Some(format!("{namespace}/{name}"));
    }
}

fn parse<T: for<'de> Deserialize<'de>>(
    files: &BTreeMap<String, Vec<u8>>,
    name: &'static str,
) -> Result<T, BundleError> {
    let bytes = files.get(name).ok_or(BundleError::Missing(name))?;
    serde_json::from_slice(bytes).map_err(|source| BundleError::Json { name, source })
}

/// The content of a line of the journal, without the word for its kind.
fn body(line: &[u8]) -> Option<Value> {
    let line: serde_json::Map<String, Value> = serde_json::from_slice(line).ok()?;
    line.into_iter().next().map(|(_, body)| body)
}
