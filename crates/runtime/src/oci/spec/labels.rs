//! AppArmor profiles and SELinux labels.

use super::error::SpecError;
use super::facts::NodeFacts;
use super::host::Host;
use criscope_cri::v1::security_profile::ProfileType;
use criscope_cri::v1::{LinuxContainerSecurityContext, SeLinuxOption, SecurityProfile};

/// The loaded profiles, one per line, followed by their mode.
const LOADED_PROFILES: &str = "/sys/kernel/security/apparmor/profiles";

/// The profile of a request: the message, or the older string (`runtime/default`, `unconfined`, `localhost/NAME`, empty for
/// none).
pub(super) fn requested_profile(
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

/// The AppArmor profile of a container. A requested profile must be loaded; without a request the default is used if it is
/// loaded. A privileged container runs unconfined unless it names a profile.
pub fn apparmor_profile(
    context: &LinuxContainerSecurityContext,
    node: &NodeFacts,
    host: &dyn Host,
) -> Result<Option<String>, SpecError> {
    #[expect(deprecated, reason = "older kubelets send the string")]
    let requested = requested_profile(context.apparmor.as_ref(), &context.apparmor_profile)?;
    match requested {
        Some((ProfileType::Unconfined, _)) => Ok(None),
        None | Some((ProfileType::RuntimeDefault, _)) if context.privileged => Ok(None),
        None => Ok(node.apparmor_default.clone().ok().filter(|_| node.apparmor)),
        Some(_) if !node.apparmor => Err(SpecError::Unsupported(
            "apparmor is not supported on this node".to_owned(),
        )),
        Some((ProfileType::RuntimeDefault, _)) => match &node.apparmor_default {
            Ok(name) => Ok(Some(name.clone())),
            Err(reason) => Err(SpecError::Unsupported(format!(
                "the default apparmor profile cannot be loaded: {reason}"
            ))),
        },
        Some((ProfileType::Localhost, name)) => {
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

/// Checks the SELinux options of a request. They become labels in mount options, where a quote, or a comma outside a level,
/// would inject another option.
///
/// # Errors
/// [`SpecError::Invalid`], naming the part.
pub fn check_selinux_options(options: Option<&SeLinuxOption>) -> Result<(), SpecError> {
    let Some(options) = options else {
        return Ok(());
    };
    for (what, part) in [
        ("user", &options.user),
        ("role", &options.role),
        ("type", &options.r#type),
    ] {
        let is_identifier = part.len() <= 255
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
        if !is_identifier {
            return Err(SpecError::Invalid(format!(
                "SELinux {what}: not an identifier"
            )));
        }
    }
    if options.level.is_empty() || is_level(&options.level) {
        return Ok(());
    }
    Err(SpecError::Invalid("SELinux level: not a level".to_owned()))
}

/// Returns whether a text is a level or a range of levels: `s0`, `s0:c1,c5.c9`, `s0-s0:c0.c1023`. As in containerd, numbers
/// have at most four digits.
fn is_level(text: &str) -> bool {
    match text.split_once('-') {
        Some((low, high)) => is_single_level(low) && is_single_level(high),
        None => is_single_level(text),
    }
}

fn is_single_level(text: &str) -> bool {
    match text.split_once(':') {
        Some((sensitivity, categories)) => {
            is_numbered(sensitivity, 's') && categories.split(',').all(is_category_range)
        }
        None => is_numbered(text, 's'),
    }
}

/// Returns whether a text is a category or a range of categories: `c1`, `c5.c9`.
fn is_category_range(text: &str) -> bool {
    match text.split_once('.') {
        Some((first, last)) => is_numbered(first, 'c') && is_numbered(last, 'c'),
        None => is_numbered(text, 'c'),
    }
}

/// Returns whether a text is a letter and a number.
fn is_numbered(text: &str, letter: char) -> bool {
    let digits = text.strip_prefix(letter).unwrap_or("");
    (1..=4).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The SELinux label of a container's processes: the sandbox's, with the requested parts replaced. `None` on a node
/// without SELinux and for privileged containers without SELinux options.
pub fn selinux_label(
    options: Option<&SeLinuxOption>,
    privileged: bool,
    sandbox: Option<&str>,
    node: &NodeFacts,
) -> Result<Option<String>, SpecError> {
    check_selinux_options(options)?;
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
    // The level itself contains colons: it is everything after the third one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_follow_the_syntax_of_selinux() {
        for (level, expected) in [
            ("s0", true),
            ("s15:c0.c1023", true),
            ("s0:c1,c2", true),
            ("s0:c1,c5.c9,c12", true),
            ("s0-s0:c0.c1023", true),
            ("s0:c1-s3:c1.c5", true),
            ("s0:", false),
            ("s", false),
            ("s00000", false),
            ("c1", false),
            ("s0:c1,", false),
            ("s0:c1;c2", false),
            ("s0:c1,lowerdir=/etc", false),
            ("s0\",lowerdir=/etc,x=\"", false),
            ("s0\n", false),
            ("s0 ", false),
        ] {
            let options = SeLinuxOption {
                level: level.to_owned(),
                ..Default::default()
            };
            let taken = check_selinux_options(Some(&options)).is_ok();
            assert_eq!(taken, expected, "{level:?}");
        }
    }

    #[test]
    fn users_roles_and_types_are_identifiers() {
        for (part, expected) in [
            ("", true),
            ("container_t", true),
            ("my-role.r", true),
            ("a:b", false),
            ("a,b", false),
            ("a\"b", false),
            ("a\0", false),
            ("a b", false),
            ("é", false),
        ] {
            let mut all = [(); 3].map(|()| SeLinuxOption::default());
            all[0].user = part.to_owned();
            all[1].role = part.to_owned();
            all[2].r#type = part.to_owned();
            for options in all {
                let taken = check_selinux_options(Some(&options)).is_ok();
                assert_eq!(taken, expected, "{part:?}");
            }
        }
    }
}
