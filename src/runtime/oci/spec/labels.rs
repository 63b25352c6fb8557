//! AppArmor profiles and SELinux labels.

use super::error::SpecError;
use super::facts::NodeFacts;
use super::host::Host;
use crate::cri::v1::security_profile::ProfileType;
use crate::cri::v1::{LinuxContainerSecurityContext, SeLinuxOption, SecurityProfile};

/// The names of the profiles the kernel holds, one a line, with their mode behind.
const LOADED_PROFILES: &str = "/sys/kernel/security/apparmor/profiles";

/// A profile as the request says it: the message, or the older string (`runtime/default`, `unconfined`,
/// `localhost/NAME`, empty for none).
pub(super) fn asked(
    profile: Option<&SecurityProfile>,
    older: &str,
) -> Result<Option<(ProfileType, String)>, SpecError> {
    if let Some(profile) = profile {
        let kind = ProfileType::try_from(profile.profile_type).map_err(|_| {
            SpecError::Invalid(format!("unknown profile type {}", profile.profile_type))
        })?;
        if kind == ProfileType::Localhost && profile.localhost_ref.is_empty() {
            return Err(SpecError::Invalid(
                "localhost profile without a name".to_owned(),
            ));
        }
        return Ok(Some((kind, profile.localhost_ref.clone())));
    }
    Ok(match older {
        "" => None,
        "runtime/default" | "docker/default" => Some((ProfileType::RuntimeDefault, String::new())),
        "unconfined" => Some((ProfileType::Unconfined, String::new())),
        name => match name.strip_prefix("localhost/") {
            Some(name) => Some((ProfileType::Localhost, name.to_owned())),
            None => return Err(SpecError::Invalid(format!("unknown profile {name}"))),
        },
    })
}

/// The AppArmor profile of a container. One that is named must be loaded. A privileged container runs unconfined unless it names
/// one.
pub fn apparmor_profile(
    context: &LinuxContainerSecurityContext,
    node: &NodeFacts,
    host: &dyn Host,
) -> Result<Option<String>, SpecError> {
    #[expect(deprecated, reason = "older kubelets send the string")]
    let asked = asked(context.apparmor.as_ref(), &context.apparmor_profile)?;
    match asked.unwrap_or((ProfileType::RuntimeDefault, String::new())) {
        (ProfileType::Unconfined, _) => Ok(None),
        (ProfileType::RuntimeDefault, _) if context.privileged || !node.apparmor => Ok(None),
        (ProfileType::RuntimeDefault, _) => Ok(node.apparmor_default.clone()),
        (ProfileType::Localhost, _) if !node.apparmor => Err(SpecError::Unsupported(
            "apparmor is not supported on this node".to_owned(),
        )),
        (ProfileType::Localhost, name) => {
            let name = name.strip_prefix("localhost/").unwrap_or(&name).to_owned();
            let path = std::path::Path::new(LOADED_PROFILES);
            let loaded = host.read(path).map_err(|source| SpecError::Io {
                path: path.to_owned(),
                source,
            })?;
            let is_loaded = loaded
                .lines()
                .any(|line| line.rsplit_once(" (").map_or(line, |(name, _)| name) == name);
            if !is_loaded {
                return Err(SpecError::NotFound(format!(
                    "apparmor profile {name} is not loaded"
                )));
            }
            Ok(Some(name))
        }
    }
}

/// The SELinux label of a container's processes: the sandbox's, with the parts the request names in their place. `None` on a node
/// without SELinux and for privileged containers that name nothing.
pub fn selinux_label(
    options: Option<&SeLinuxOption>,
    privileged: bool,
    sandbox: Option<&str>,
    node: &NodeFacts,
) -> Result<Option<String>, SpecError> {
    if !node.selinux {
        return Ok(None);
    }
    let named = options.filter(|options| {
        [
            &options.user,
            &options.role,
            &options.r#type,
            &options.level,
        ]
        .iter()
        .any(|part| !part.is_empty())
    });
    let Some(options) = named else {
        return Ok(sandbox.filter(|_| !privileged).map(str::to_owned));
    };
    // The level has colons of its own, so it is all that is left after the third.
    let mut base = sandbox.unwrap_or("").splitn(4, ':');
    let mut label = Vec::new();
    for part in [
        &options.user,
        &options.role,
        &options.r#type,
        &options.level,
    ] {
        let base = base.next().unwrap_or("");
        let part = if part.is_empty() { base } else { part };
        label.push(part);
    }
    if label[..3].iter().any(|part| part.is_empty()) {
        return Err(SpecError::Invalid(
            "selinux options need user, role and type".to_owned(),
        ));
    }
    let parts = if label[3].is_empty() { 3 } else { 4 };
    Ok(Some(label[..parts].join(":")))
}
