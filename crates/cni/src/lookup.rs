//! Finds entries of the cache, and files in their place that are none: empty or cut off, of another type, named like another entry,
//! directories. A damaged file names its network, container and interface, and no more, so a DEL needs the configuration from elsewhere.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cache::{Cache, Entry, KIND, make_dir};
use super::error::Error;

/// Maximum size of an entry, in bytes.
const MAX_ENTRY: u64 = 4 << 20;

/// A temporary file of this age was left by a killed daemon.
const TEMPORARY_IS_LEFT_AFTER: Duration = Duration::from_secs(3600);

/// An entry with its file and the copies of that file.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(crate) entry: Entry,
    pub(crate) files: Vec<PathBuf>,
}

/// A file in the cache that cannot be used as an entry.
#[derive(Clone, Debug)]
pub(crate) struct DamagedFile {
    pub(crate) path: PathBuf,
    /// Its name in the directory of entries.
    pub(crate) name: String,
    pub(crate) why: String,
    /// Whether it was moved aside, and reported, before.
    pub(crate) is_aside: bool,
}

/// What the cache has about a container, or about all.
#[derive(Default)]
pub(crate) struct Found {
    /// By the names of their files; one for each attachment.
    pub(crate) entries: Vec<Stored>,
    pub(crate) damaged: Vec<DamagedFile>,
    /// Why the directory cannot be read.
    pub(crate) unreadable: Option<Error>,
}

impl Found {
    fn push(&mut self, entry: Entry, file: PathBuf) {
        let mut known = self.entries.iter_mut();
        match known.find(|known| known.entry.is_same_attachment(&entry)) {
            Some(known) => {
                known.files.push(file);
                if known.entry.result.is_none() {
                    known.entry = entry;
                }
            }
            None => self.entries.push(Stored {
                entry,
                files: vec![file],
            }),
        }
    }
}

impl DamagedFile {
    /// The network and the interface in the name of a file of a container.
    pub(crate) fn attachment(&self, container: &str) -> Option<(&str, &str)> {
        self.name.split_once(&*format!("-{container}-"))
    }

    /// The first id after this directory in the text of the file, such as the id of the sandbox whose namespace is below it.
    pub(crate) fn container_below(&self, namespaces: &Path) -> Option<String> {
        let text = read_start(&self.path).ok()?;
        let text = String::from_utf8_lossy(&text);
        let (_, rest) = text.split_once(&format!("{}/", namespaces.display()))?;
        let end = rest.find(['/', '"']).unwrap_or(rest.len());
        let container = &rest[..end];
        self.attachment(container).map(|_| container.to_owned())
    }
}

impl Cache {
    /// Returns what there is about one container, or about all. Temporary files that a killed daemon left for this container are
    /// removed: verbs on one container do not overlap, so no other task writes them.
    pub(crate) fn find(&self, container: Option<&str>) -> Found {
        let mut found = Found::default();
        let names = match names(&self.dir) {
            Ok(names) => names,
            Err(error) => {
                found.unreadable = Some(Error::cache("read", &self.dir, error));
                Vec::new()
            }
        };
        for name in names.into_iter().filter(|name| is_about(name, container)) {
            let path = self.dir.join(&name);
            if name.starts_with('.') {
                if container.is_some() && name.ends_with(".tmp") {
                    let _gone = fs::remove_file(path);
                }
                continue;
            }
            match read(&path, &name) {
                Ok(entry) if container.is_none_or(|id| id == entry.container_id) => {
                    found.push(entry, path);
                }
                Ok(_) => {}
                // It was removed meanwhile.
                Err(Fault::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound => {}
                Err(fault) => found.damaged.push(DamagedFile {
                    path,
                    name,
                    why: fault.to_string(),
                    is_aside: false,
                }),
            }
        }
        let aside = names_of(&self.damaged_dir).into_iter();
        found
            .damaged
            .extend(
                aside
                    .filter(|name| is_about(name, container))
                    .map(|name| DamagedFile {
                        path: self.damaged_dir.join(&name),
                        name,
                        why: "it was damaged".to_owned(),
                        is_aside: true,
                    }),
            );
        found
    }

    /// Returns the entries of one container that can be read, by name. Unlike [`Self::find`], it changes nothing, so it may run
    /// next to a verb on that container.
    pub(crate) fn peek(&self, container: &str) -> Result<Vec<Entry>, Error> {
        let names = names(&self.dir).map_err(|error| Error::cache("read", &self.dir, error))?;
        let ours = names
            .iter()
            .filter(|name| is_about(name, Some(container)) && !name.starts_with('.'));
        let entries = ours.filter_map(|name| read(&self.dir.join(name), name).ok());
        Ok(entries
            .filter(|entry| entry.container_id == container)
            .collect())
    }

    /// Removes a file, or moves a directory in its place aside. Succeeds if it does not exist.
    pub(crate) fn remove(&self, path: &Path) -> Result<(), Error> {
        let removed = match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(_) if path.is_dir() => match fs::remove_dir(path) {
                Err(_) if path.parent() != Some(&self.damaged_dir) => {
                    self.move_aside(path).map(drop)
                }
                // What somebody has put there stays.
                _ => Ok(()),
            },
            done => done,
        };
        removed.map_err(|error| Error::cache("remove", path, error))
    }

    /// Moves a file to the directory of damaged ones; returns its path there.
    pub(super) fn move_aside(&self, path: &Path) -> io::Result<PathBuf> {
        let aside = self.damaged_dir.join(path.file_name().unwrap_or_default());
        match fs::rename(path, &aside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_dir(&self.damaged_dir)?;
                fs::rename(path, &aside)?;
            }
            done => done?,
        }
        Ok(aside)
    }

    /// Moves damaged files of these containers aside, and removes temporary files that are left. Each file is reported once: later
    /// it is not in the directory of entries.
    ///
    /// Damaged files of others stay: they may belong to another runtime.
    pub(crate) fn tidy(&self, is_ours: impl Fn(&str) -> bool) {
        if self.dir.exists() && !self.dir.is_dir() {
            self.report_aside(&self.dir, "it is no directory");
        }
        for file in self.find(None).damaged {
            if file.is_aside {
                continue;
            }
            // Ids of sandboxes have no dashes, names of networks and interfaces may.
            if file.name.split('-').any(&is_ours) {
                self.report_aside(&file.path, &file.why);
            } else {
                tracing::debug!(file.path = %file.path.display(), why = file.why, "a file in the CNI cache is no entry and belongs to no pod");
            }
        }
        for name in names_of(&self.dir) {
            let path = self.dir.join(&name);
            if name.starts_with('.') && name.ends_with(".tmp") && is_left(&path) {
                let _gone = fs::remove_file(path);
            }
        }
    }

    fn report_aside(&self, path: &Path, why: &str) {
        match self.move_aside(path) {
            Ok(aside) => {
                tracing::warn!(file.path = %path.display(), why, to = %aside.display(), "a damaged file of the CNI cache was moved aside; its address is released with its pod");
            }
            Err(error) => {
                tracing::warn!(file.path = %path.display(), why, error.message = %error, "a damaged file of the CNI cache cannot be moved aside");
            }
        }
    }
}

fn is_left(path: &Path) -> bool {
    let changed = fs::metadata(path).and_then(|found| found.modified());
    let age = changed.ok().and_then(|changed| changed.elapsed().ok());
    age.is_some_and(|age| age > TEMPORARY_IS_LEFT_AFTER)
}

fn is_about(name: &str, container: Option<&str>) -> bool {
    container.is_none_or(|id| name.contains(&*format!("-{id}-")))
}

/// The names in a directory, in order; none if it does not exist.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    match fs::read_dir(dir) {
        Ok(listing) => {
            for file in listing {
                names.extend(file?.file_name().into_string());
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    names.sort_unstable();
    Ok(names)
}

fn names_of(dir: &Path) -> Vec<String> {
    names(dir).unwrap_or_default()
}

/// Why a file is not a valid entry.
#[derive(Debug, thiserror::Error)]
enum Fault {
    /// The content of the file is unknown.
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    #[error("{0}")]
    Damaged(String),
}

fn read(path: &Path, name: &str) -> Result<Entry, Fault> {
    let size = fs::metadata(path)?.len();
    if size > MAX_ENTRY {
        return Err(Fault::Damaged(format!("{size} bytes exceed the limit")));
    }
    let text = fs::read(path)?;
    let entry: Entry =
        serde_json::from_slice(&text).map_err(|error| Fault::Damaged(error.to_string()))?;
    if entry.kind != KIND {
        return Err(Fault::Damaged("unknown kind".to_owned()));
    }
    if !name.contains(&*format!("-{}-", entry.container_id)) {
        return Err(Fault::Damaged("it is that of another container".to_owned()));
    }
    Ok(entry)
}

fn read_start(path: &Path) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let mut text = Vec::new();
    fs::File::open(path)?
        .take(MAX_ENTRY)
        .read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    /// A cache with entries of these containers.
    fn cache(containers: &[&str]) -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().expect("dir");
        let cache = Cache::new(dir.path());
        for container in containers {
            let entry = serde_json::from_str(&text(container)).expect("an entry");
            cache.write(&entry).expect("written");
        }
        (dir, cache)
    }

    fn text(container: &str) -> String {
        let list = r#"{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"x"}]}"#;
        let list = STANDARD.encode(list);
        format!(
            r#"{{"kind":"cniCacheV1","containerId":"{container}","config":"{list}","ifName":"eth0","networkName":"a","netns":"/run/ns/{container}/net"}}"#
        )
    }

    fn put(dir: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
        let path = dir.path().join("results").join(name);
        fs::write(&path, text).expect("file");
        path
    }

    #[test]
    fn files_that_are_no_entries_are_found_by_their_names() {
        let (dir, cache) = cache(&["c1", "c2"]);
        let text = text("c3");
        let cut = &text[..text.len() - 1];
        let wrong = text.replace("eyJ", "W10");
        for (name, content) in [
            ("a-c3-eth0", ""),
            ("a-c3-eth1", cut),
            ("a-c3-eth2", "[1]"),
            ("a-c3-eth3", &*wrong),
            ("a-c3-eth4", &*text.replace("cniCacheV1", "other")),
            ("a-c3-eth5", &*text.replace("c3", "c4")),
        ] {
            put(&dir, name, content);
        }
        fs::create_dir(dir.path().join("results/a-c3-eth6")).expect("directory");
        let found = cache.find(Some("c3"));
        assert!(found.entries.is_empty() && found.unreadable.is_none());
        let all: Vec<_> = found
            .damaged
            .iter()
            .filter_map(|file| file.attachment("c3"))
            .collect();
        let wanted: Vec<_> = (0..7).map(|number| format!("eth{number}")).collect();
        assert_eq!(
            all,
            wanted.iter().map(|one| ("a", &**one)).collect::<Vec<_>>()
        );
        assert_eq!(cache.find(Some("c1")).entries.len(), 1);
        assert!(cache.find(Some("c")).entries.is_empty());
        assert_eq!(cache.find(None).entries.len(), 2);
        assert_eq!(cache.peek("c2").expect("read").len(), 1);
        for file in found.damaged {
            cache.remove(&file.path).expect("removed");
            cache.remove(&file.path).expect("again");
        }
        assert!(cache.find(None).damaged.is_empty());
    }

    #[test]
    fn copies_of_an_entry_are_one() {
        let (dir, cache) = cache(&["c1"]);
        let copy = put(&dir, "a-c1-eth0.bak", &text("c1"));
        let found = cache.find(Some("c1"));
        assert_eq!(found.entries.len(), 1);
        assert_eq!(
            found.entries[0].files,
            [dir.path().join("results/a-c1-eth0"), copy]
        );
    }

    #[test]
    fn a_damaged_file_is_moved_aside_if_it_is_ours() {
        let (dir, cache) = cache(&[]);
        fs::create_dir(dir.path().join("results")).expect("directory");
        let ours = put(&dir, "a-c1-eth0", "{");
        let other = put(&dir, "a-c2-eth0", "{");
        cache.tidy(|id| id == "c1");
        assert!(!ours.exists() && other.exists());
        let found = cache.find(Some("c1"));
        assert!(found.damaged[0].is_aside);
        assert_eq!(found.damaged[0].attachment("c1"), Some(("a", "eth0")));
        cache.remove(&found.damaged[0].path).expect("removed");
        assert!(cache.find(Some("c1")).damaged.is_empty());
        assert_eq!(cache.find(None).damaged.len(), 1);
    }

    #[test]
    fn the_text_of_a_damaged_file_tells_whose_it_is() {
        let (dir, cache) = cache(&[]);
        fs::create_dir(dir.path().join("results")).expect("directory");
        let text = text("c1");
        put(&dir, "a-c1-eth0", &text[..text.len() - 2]);
        let file = cache.find(None).damaged.remove(0);
        let below = |dir: &str| file.container_below(Path::new(dir));
        assert_eq!(below("/run/ns").as_deref(), Some("c1"));
        assert_eq!(below("/run/other"), None);
    }

    #[test]
    fn temporary_files_of_a_killed_daemon_are_removed() {
        let (dir, cache) = cache(&["c1"]);
        let (own, other) = (
            put(&dir, ".a-c1-eth0.tmp", "{"),
            put(&dir, ".a-c2-eth0.tmp", "{"),
        );
        cache.find(None);
        cache.tidy(|_| true);
        assert!(own.exists(), "a running ADD may write it");
        cache.find(Some("c1"));
        assert!(!own.exists() && other.exists());
        let old = std::time::SystemTime::now() - 2 * TEMPORARY_IS_LEFT_AFTER;
        let file = fs::File::options().write(true).open(&other).expect("file");
        file.set_modified(old).expect("older");
        cache.tidy(|_| false);
        assert!(!other.exists());
    }

    #[test]
    fn a_directory_that_cannot_be_read_is_told() {
        let dir = tempfile::tempdir().expect("dir");
        fs::write(dir.path().join("results"), "").expect("file");
        let cache = Cache::new(dir.path());
        assert!(cache.find(None).unreadable.is_some());
        cache.tidy(|_| false);
        assert!(cache.find(None).unreadable.is_none());
    }
}
