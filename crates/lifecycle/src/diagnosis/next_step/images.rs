//! Steps about images and registries.

use super::context::command_word;
use super::{NextStep, StepContext};
use crate::diagnosis::failure::error_message;
use crate::diagnosis::fault::{self, FaultClass};
use crate::diagnosis::origin::FaultOrigin;
use crate::episode_call::EpisodeCall;

/// The name by which references mean Docker Hub, and its host.
const DOCKER_HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");

impl StepContext<'_> {
    /// A pull that fails with this class of faults; `None` for classes that are not about images.
    pub(super) fn about_image(&self, call: &EpisodeCall, fault: FaultClass) -> Option<NextStep> {
        let image = command_word(call.image.as_deref()?)?;
        let registry = fault::registry(&image).to_owned();
        Some(match fault {
            FaultClass::Unauthorized | FaultClass::NoLogin => {
                NextStep::AddPullSecret { host: registry }
            }
            FaultClass::RateLimited => NextStep::RaisePullLimit { host: registry },
            FaultClass::NoAccess | FaultClass::Denied => NextStep::CheckImageAccess { image },
            FaultClass::ImageMissing => list_tags(image),
            FaultClass::Reference => NextStep::CorrectImageName { image },
            FaultClass::Platform => NextStep::BuildForPlatform { image },
            FaultClass::PartMissing | FaultClass::ManifestBroken | FaultClass::OldManifest => {
                NextStep::PushImageAgain { image }
            }
            FaultClass::LayerBroken | FaultClass::Digest => NextStep::CopyImageElsewhere { image },
            FaultClass::Verifier | FaultClass::Signature => NextStep::SignImage { image },
            FaultClass::LayerKey => NextStep::ProvideImageKey { image },
            FaultClass::StoreBroken => NextStep::RemoveBrokenImage { image },
            FaultClass::Proxy => NextStep::CheckProxy {
                unit: self.runtime_unit(call),
            },
            FaultClass::Dns => NextStep::ResolveHost {
                host: host_alone(&server(call)?).to_owned(),
            },
            FaultClass::Certificate => NextStep::CheckCertificate { url: url(call)? },
            FaultClass::PlainHttp | FaultClass::PlainRedirect => NextStep::AllowPlainHttp {
                host: server(call)?,
                runtime: self.runtime(call),
            },
            FaultClass::NoRegistry
            | FaultClass::Refused
            | FaultClass::Unreachable
            | FaultClass::NoAnswer
            | FaultClass::Stalled
            | FaultClass::Tls
            | FaultClass::Broke
            | FaultClass::RegistryFails
            | FaultClass::BadRequest => try_registry(call)?,
            FaultClass::VerifierFails | FaultClass::KeyProvider => self.runtime_log(call),
            _ => return None,
        })
    }

    /// The image of the sandbox's own container, which is the node's: only the node's administrator can change it.
    pub(super) fn about_pause_image(
        &self,
        call: &EpisodeCall,
        fault: Option<FaultClass>,
    ) -> NextStep {
        let step = fault.and_then(|fault| match fault.origin() {
            FaultOrigin::Registry => {
                let host = command_word(fault::host(error_message(call))?)?;
                let url = format!("https://{host}/v2/");
                Some(NextStep::TryRegistry { url })
            }
            FaultOrigin::Node => self.about_fault(call, fault, None),
            FaultOrigin::Pod | FaultOrigin::Cluster => None,
        });
        step.unwrap_or_else(|| NextStep::CheckPauseImage {
            runtime: self.runtime(call),
        })
    }
}

/// Lists the tags of an image that the registry lacks. A digest is no tag.
fn list_tags(image: String) -> NextStep {
    if image.contains('@') {
        return NextStep::InspectImage { image };
    }
    let name = image.rfind('/').map_or(0, |at| at + 1);
    let end = image[name..].find(':').map_or(image.len(), |at| name + at);
    NextStep::ListTags {
        repository: image[..end].to_owned(),
    }
}

/// Asks the server of a pull.
pub(super) fn try_registry(call: &EpisodeCall) -> Option<NextStep> {
    Some(NextStep::TryRegistry { url: url(call)? })
}

/// The address of the API of the server that a pull failed at.
fn url(call: &EpisodeCall) -> Option<String> {
    let server = server(call)?;
    let is_plain = error_message(call).contains(&format!("http://{server}/"));
    let scheme = if is_plain { "http" } else { "https" };
    Some(format!("{scheme}://{server}/v2/"))
}

/// The server that the text of a failed pull is about, else the registry of the image.
fn server(call: &EpisodeCall) -> Option<String> {
    let image = call.image.as_deref()?;
    let named = fault::host(error_message(call));
    let (short, host) = DOCKER_HUB;
    let server = match named.unwrap_or_else(|| fault::registry(image)) {
        server if server == short => host,
        server => server,
    };
    command_word(server).filter(|server| !server.starts_with('\''))
}

/// A server without its port.
fn host_alone(server: &str) -> &str {
    match server.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => server,
    }
}
