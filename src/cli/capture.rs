//! `criscope capture`: what this node knows, in one file.

mod requests;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::requests::MAX_RECORDING_LEN;
use super::CommandFailure;
use super::ask::{AdminEndpoint, AdminEndpointArgs, block_on};
use super::output;
use crate::app::captured::PAGES;
use crate::lifecycle::capture::{
    self, CAPTURE_FORMAT, CaptureBundle, CaptureManifest, CaptureOrigin, ProcessSnapshot,
};
use crate::pages::commands::duration;
use crate::pages::source::{PageError, PageSource as _};
use crate::units;
use crate::units::times::UnixMicros;
use crate::version;

/// The page that only root gets.
const CAPTURE_PAGE: &str = "/debug/capture";

/// Write criscope's records of this node to a file, to explain its pods on another machine
///
/// The file is a .tar.gz with the journal of the stories, the last calls, the state of runtimes and node, metrics, settings and
/// versions. It contains names of pods, images and hosts, but no requests, environments, arguments or credentials. Read it
/// with criscope explain --from FILE, pods --from FILE or view FILE. If criscope is not running, the file has its journal
/// only, and says so. Needs root.
///
/// With --requests, criscope first records the calls of the given time with their requests, for criscope replay. Such a file
/// holds secrets: environments, arguments and registry credentials of pods, unredacted. Keep it as safe as the node itself.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    admin: AdminEndpointArgs,
    /// The file to write, - for standard output [default: criscope-HOST-TIME.tar.gz in the working directory]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only this pod, as NAMESPACE/POD. Its headline may lack causes in other pods
    #[arg(long, value_name = "POD", value_parser = pod)]
    pod: Option<(String, String)>,
    /// Only pods with calls in this time until now (30m, 2h)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    since: Option<Duration>,
    /// Record calls with their requests, for criscope replay. THE FILE THEN HOLDS SECRETS. Ctrl-C ends the recording early
    #[arg(long, requires = "lasts")]
    requests: bool,
    /// How long requests are recorded, at most 1h (30s, 10m)
    #[arg(long = "for", value_name = "TIME", value_parser = duration, requires = "requests")]
    lasts: Option<Duration>,
    /// Limit of the recorded requests in MiB; calls beyond it are left out and counted
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=MAX_RECORDING_LEN >> 20), requires = "requests")]
    max_mib: u64,
}

fn pod(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if ![namespace, name].contains(&"") && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("expected NAMESPACE/POD".to_owned()),
    }
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let endpoint = args.admin.endpoint()?;
    let recorded = match args.lasts {
        Some(lasts) => Some(block_on(requests::record(
            &endpoint,
            lasts,
            args.max_mib << 20,
        ))?),
        None => None,
    };
    let mut bundle = match block_on(async { Ok(running(&endpoint).await?) }) {
        Ok((snapshot, pages)) => {
            let journal = journal(&snapshot.state_dir)?;
            bundle(snapshot, journal, pages, CaptureOrigin::Daemon)
        }
        Err(CommandFailure::Ask(PageError::Connect { .. } | PageError::Off(_))) => {
            let story = args.admin.config()?.story;
            let journal = journal(&story.state_dir)?;
            let [older, newer] = &journal;
            let snapshot = ProcessSnapshot::from_ended_process(&story, [older, newer]);
            output::hint(format_args!(
                "criscope is not running: the capture has its journal in {} only",
                story.state_dir.display()
            ));
            bundle(snapshot, journal, BTreeMap::new(), CaptureOrigin::Journal)
        }
        Err(error) => return Err(error),
    };
    if let Some((head, calls)) = &recorded {
        bundle.put_requests(head.clone(), calls)?;
        output::hint(format_args!(
            "the capture holds secrets: {} calls with their requests",
            head.calls
        ));
    }
    if let Some(time) = args.since {
        bundle.keep_since(bundle.snapshot.now_unix_us - time);
    }
    if let Some((namespace, name)) = &args.pod {
        bundle.keep_pod(namespace, name);
    }
    let path = args.output.clone();
    let path = path.unwrap_or_else(|| default_name(&bundle.manifest).into());
    if path == Path::new("-") {
        let mut out = io::BufWriter::new(io::stdout().lock());
        bundle.write(&mut out)?;
        return Ok(out.flush()?);
    }
    write(&bundle, &path)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", path.display())?;
    Ok(out.flush()?)
}

/// Pages of the running criscope.
async fn running(
    endpoint: &AdminEndpoint,
) -> Result<(ProcessSnapshot, BTreeMap<String, Vec<u8>>), PageError> {
    let snapshot = match endpoint.json(CAPTURE_PAGE).await {
        // The port does not have it.
        Err(PageError::NoPage { address, .. }) => {
            let text = "captures are made over the socket of admin.socket only: run this as root";
            let text = text.to_owned();
            return Err(PageError::Refused { address, text });
        }
        snapshot => snapshot?,
    };
    let mut pages = BTreeMap::new();
    for (name, _, path) in PAGES {
        // Each page is worth having without the others.
        if let Ok(body) = endpoint.bytes(path).await {
            pages.insert((*name).to_owned(), body.to_vec());
        }
    }
    Ok((snapshot, pages))
}

fn journal(dir: &Path) -> io::Result<[Vec<u8>; 2]> {
    capture::journal(dir).map_err(|error| named(&format!("journal in {}", dir.display()), &error))
}

/// The error with the subject in front of it.
fn named(subject: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{subject}: {error}"))
}

fn bundle(
    snapshot: ProcessSnapshot,
    journal: [Vec<u8>; 2],
    pages: BTreeMap<String, Vec<u8>>,
    origin: CaptureOrigin,
) -> CaptureBundle {
    let manifest = CaptureManifest {
        format: CAPTURE_FORMAT,
        criscope: version::with_commit().to_owned(),
        kernel: kernel_setting("osrelease"),
        host: kernel_setting("hostname"),
        made_unix_us: UnixMicros::now(),
        origin,
        pod: None,
        requests: None,
    };
    CaptureBundle {
        manifest,
        snapshot,
        journal,
        requests: Vec::new(),
        pages,
    }
}

fn kernel_setting(name: &str) -> String {
    let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(name));
    text.unwrap_or_default().trim().to_owned()
}

/// `criscope-node-1-20250615T150640Z.tar.gz`
fn default_name(manifest: &CaptureManifest) -> String {
    let time = units::rfc3339(manifest.made_unix_us);
    let (time, _) = time
        .split_once('.')
        .unwrap_or((time.trim_end_matches('Z'), ""));
    let time = time.replace(['-', ':'], "");
    format!(
        "criscope-{}-{time}Z.tar.gz",
        manifest.host.replace('/', "-")
    )
}

/// For its owner only, and never half.
fn write(bundle: &CaptureBundle, path: &Path) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".part");
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let shown = Path::new(&new).display().to_string();
    let file = options.open(&new).map_err(|error| named(&shown, &error))?;
    let written = bundle.write(io::BufWriter::new(file));
    let written = written.map_err(|error| named(&shown, &error));
    let written = written.and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // The first error is reported.
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_after_node_and_time() {
        let manifest = CaptureManifest {
            format: CAPTURE_FORMAT,
            criscope: String::new(),
            kernel: String::new(),
            host: "node-1".to_owned(),
            made_unix_us: UnixMicros::new(1_750_000_000_000_000),
            origin: CaptureOrigin::Daemon,
            pod: None,
            requests: None,
        };
        assert_eq!(
            default_name(&manifest),
            "criscope-node-1-20250615T150640Z.tar.gz"
        );
        assert!(pod("shop/web").is_ok());
        for bad in ["web", "/web", "shop/", "a/b/c"] {
            assert!(pod(bad).is_err(), "{bad}");
        }
    }
}
