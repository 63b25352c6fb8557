//! Image verifier plugins of containerd (`docs/image-verification.md`): every program in a directory is asked, and all must
//! accept the image.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use serde_json::json;
use tokio::process::Command;

use crate::blocking::blocking;
use crate::config::VerifierPlugins;
use crate::descriptor::Descriptor;
use crate::files::listed;
use crate::program::{self, line};
use crate::reference::Reference;
use crate::verify::evidence::VerifyResult;

/// The media type of a verifier's standard input.
const MEDIA_TYPE: &str = "application/vnd.oci.descriptor.v1+json";

impl VerifierPlugins {
    /// Asks all verifiers, in the order of their names. The error is the reason of the refusal.
    pub(super) async fn judge(&self, reference: &Reference, top: &Descriptor) -> VerifyResult<()> {
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

    async fn programs(&self) -> VerifyResult<Vec<PathBuf>> {
        let this = self.clone();
        let listing = blocking(move || Ok(this.listed()));
        listing.await.map_err(|e| e.to_string())?
    }

    /// Checks that the directory has verifiers that can be executed. Blocks. The error is the reason why not.
    pub(crate) fn check(&self) -> VerifyResult<()> {
        for program in self.listed()? {
            let shown = program.display();
            let found = fs::metadata(&program).map_err(|e| format!("verifier {shown}: {e}"))?;
            if !found.is_file() || found.permissions().mode() & 0o111 == 0 {
                return Err(format!("verifier {shown}: it cannot be executed"));
            }
        }
        Ok(())
    }

    fn listed(&self) -> VerifyResult<Vec<PathBuf>> {
        let dir = self.bin_dir.display();
        let programs = listed(&self.bin_dir).map_err(|e| format!("verifiers in {dir}: {e}"))?;
        match programs.len() {
            0 => Err(format!("verifiers in {dir}: there are none")),
            count if count > self.max_verifiers => Err(format!(
                "verifiers in {dir}: {count} files, more than the {} that are allowed",
                self.max_verifiers
            )),
            _ => Ok(programs),
        }
    }

    async fn run(
        &self,
        program: &Path,
        reference: &Reference,
        top: &Descriptor,
    ) -> VerifyResult<(ExitStatus, String)> {
        let descriptor =
            json!({"mediaType": top.media_type, "digest": top.digest, "size": top.size});
        let mut command = Command::new(program);
        command
            .args(["-name", &reference.to_string()])
            .args(["-digest", top.digest.as_str()])
            .args(["-stdin-media-type", MEDIA_TYPE]);
        let input = descriptor.to_string();
        let ended = program::run(&mut command, input.as_bytes(), self.per_verifier_timeout).await?;
        if !ended.messages.is_empty() {
            tracing::debug!(output = %ended.messages, "messages of an image verifier");
        }
        Ok((ended.status, line(&ended.stdout)))
    }
}
