//! Image verifier plugins of containerd (`docs/image-verification.md`): every program in a directory is asked, and all must
//! accept the image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use crate::layer::blocking;
use crate::manifest::Descriptor;
use crate::reference::Reference;

/// Limit of the reason that a verifier prints, and of its messages; the rest is read and dropped.
const MAX_OUTPUT: usize = 32 << 10;
/// Characters of a reason in an error.
const MAX_SHOWN: usize = 1000;
/// The media type of what a verifier reads from its standard input.
const MEDIA_TYPE: &str = "application/vnd.oci.descriptor.v1+json";

/// A directory of verifiers. Unlike in containerd, one that does not exist, is empty, or has more files than allowed refuses
/// all images: somebody has asked for verification.
#[derive(Clone, Debug)]
pub struct VerifierPlugins {
    /// The directory. Every file in it must be executable.
    pub bin_dir: PathBuf,
    /// The most files in it.
    pub max_verifiers: usize,
    /// How long one verifier may take for one image.
    pub per_verifier_timeout: Duration,
}

type Judged<T> = std::result::Result<T, String>;

impl VerifierPlugins {
    /// Asks all verifiers, in the order of their names. The error is the reason of the refusal.
    pub(super) async fn judge(&self, reference: &Reference, top: &Descriptor) -> Judged<()> {
        for program in self.programs().await? {
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            let run = self.run(&program, reference, top);
            let (status, said) = run.await.map_err(|e| format!("verifier {name}: {e}"))?;
            if status.success() {
                tracing::debug!(verifier = %name, reason = %said, "an image verifier accepts an image");
                continue;
            }
            return Err(match status.code() {
                Some(code) => format!("verifier {name} rejected it (exit code {code}): {said}"),
                None => format!("verifier {name} was killed: {status}"),
            });
        }
        Ok(())
    }

    async fn programs(&self) -> Judged<Vec<PathBuf>> {
        let dir = self.bin_dir.clone();
        let read = blocking(move || Ok(files(&dir)));
        let listed = read.await.map_err(|e| e.to_string())?;
        let fault = |reason: &str| format!("verifiers in {}: {reason}", self.bin_dir.display());
        let programs = listed.map_err(|e| fault(&e.to_string()))?;
        match programs.len() {
            0 => Err(fault("there are none")),
            count if count > self.max_verifiers => Err(fault(&format!(
                "{count} files, more than the {} that are allowed",
                self.max_verifiers
            ))),
            _ => Ok(programs),
        }
    }

    async fn run(
        &self,
        program: &Path,
        reference: &Reference,
        top: &Descriptor,
    ) -> Judged<(ExitStatus, String)> {
        let mut child = Command::new(program)
            .args(["-name", &reference.to_string()])
            .args(["-digest", top.digest.as_str()])
            .args(["-stdin-media-type", MEDIA_TYPE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| error.to_string())?;
        // Also those that a verifier started, which hold its pipes open.
        let group = Group::of(&child);
        let descriptor =
            json!({"mediaType": top.media_type, "digest": top.digest, "size": top.size});
        let talk = converse(&mut child, descriptor.to_string());
        match tokio::time::timeout(self.per_verifier_timeout, talk).await {
            Ok(ended) => {
                group.ended();
                ended.map_err(|error| error.to_string())
            }
            Err(_) => Err(format!(
                "no answer within {} s",
                self.per_verifier_timeout.as_secs_f32()
            )),
        }
    }
}

fn files(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path()));
    let mut programs = entries.collect::<std::io::Result<Vec<_>>>()?;
    programs.sort();
    Ok(programs)
}

/// Writes the descriptor, reads the output, and waits for the end.
async fn converse(child: &mut Child, descriptor: String) -> std::io::Result<(ExitStatus, String)> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async move {
        if let Some(mut stdin) = stdin {
            // A verifier may exit without reading it; only its exit code matters.
            let _ = stdin.write_all(descriptor.as_bytes()).await;
        }
    };
    let ((), said, messages, status) =
        tokio::join!(write, text(stdout), text(stderr), child.wait());
    let messages = messages?;
    if !messages.is_empty() {
        tracing::debug!(output = %messages, "messages of an image verifier");
    }
    Ok((status?, said?))
}

/// Reads everything and returns the beginning, on one line.
async fn text(pipe: Option<impl AsyncRead + Unpin>) -> std::io::Result<String> {
    let Some(mut pipe) = pipe else {
        return Ok(String::new());
    };
    let (mut kept, mut buffer) = (Vec::new(), vec![0; 8 << 10]);
    loop {
        let length = pipe.read(&mut buffer).await?;
        if length == 0 {
            break;
        }
        let room = MAX_OUTPUT - kept.len();
        kept.extend_from_slice(&buffer[..length.min(room)]);
    }
    let text = String::from_utf8_lossy(&kept);
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    Ok(text.trim().chars().take(MAX_SHOWN).map(clean).collect())
}

/// Kills a process group when dropped.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        Self(pid.and_then(Pid::from_raw))
    }

    /// Nothing is left that holds the pipes. The number may now belong to others.
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended just now.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
