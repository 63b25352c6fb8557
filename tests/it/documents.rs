//! The documents: all are pages of the site (`book.toml`), and their links lead somewhere.

use std::path::Component;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::prelude::*;

/// A document: what its headings are called in links, and where its links lead.
#[derive(Default)]
struct Document {
    anchors: BTreeSet<String>,
    links: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Markdown files below a directory, relative to the repository. Hidden directories and those of cargo aside.
fn markdown(dir: &Path, into: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(root().join(dir)).expect("readable") {
        let entry = entry.expect("readable");
        let name = entry.file_name().into_string().expect("UTF-8");
        let path = dir.join(&name);
        if entry.file_type().expect("a type").is_dir() {
            if !name.starts_with('.') && name != "target" {
                markdown(&path, into);
            }
        } else if path.extension().is_some_and(|it| it == "md") {
            into.insert(path);
        }
    }
}

fn read(path: &Path) -> Document {
    let text = fs::read_to_string(root().join(path)).expect("readable");
    let mut document = Document::default();
    let mut seen = BTreeMap::<String, usize>::new();
    let mut heading = None;
    for event in Parser::new_ext(&text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().unwrap_or_default());
                let count = seen.entry(anchor.clone()).or_default();
                document.anchors.insert(match *count {
                    0 => anchor,
                    n => format!("{anchor}-{n}"),
                });
                *count += 1;
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                document.links.push(dest_url.into_string());
            }
            _ => {}
        }
    }
    document
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading
        .trim()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    let kept: String = kept.collect();
    kept.to_lowercase().replace(' ', "-")
}

/// The file of a link, relative to the repository.
fn target(from: &Path, link: &str) -> PathBuf {
    let mut path = from.parent().expect("a directory").to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{}: {link}", from.display()),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut files = BTreeSet::new();
    markdown(Path::new(""), &mut files);
    let documents: BTreeMap<_, _> = files.iter().map(|path| (path, read(path))).collect();
    let mut checked = 0;
    let mut broken = Vec::new();
    for (path, document) in &documents {
        for link in document.links.iter().filter(|it| !it.contains("://")) {
            checked += 1;
            let (file, heading) = match link.split_once('#') {
                Some((file, heading)) => (file, Some(heading)),
                None => (link.as_str(), None),
            };
            let file = match file {
                "" => (*path).clone(),
                file => target(path, file),
            };
            let has = |heading| {
                documents
                    .get(&file)
                    .is_some_and(|it| it.anchors.contains(heading))
            };
            if !root().join(&file).exists() || heading.is_some_and(|it| !has(it)) {
                broken.push(format!("{}: {link}", path.display()));
            }
            // The site holds docs/ alone.
            if path.starts_with("docs") && !file.starts_with("docs") {
                broken.push(format!("{}: {link} is not on the site", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(checked > 200, "only {checked} links were found");
}

#[test]
fn each_document_is_a_page_of_the_site() {
    let summary = Path::new("docs/SUMMARY.md");
    let mut files = BTreeSet::new();
    markdown(Path::new("docs"), &mut files);
    files.remove(summary);
    let links = read(summary).links;
    let pages: BTreeSet<_> = links.iter().map(|it| target(summary, it)).collect();
    assert_eq!(pages.len(), links.len(), "a page is listed twice");
    assert_eq!(pages, files);
}
