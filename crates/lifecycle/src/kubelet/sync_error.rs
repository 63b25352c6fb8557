//! Errors of the kubelet's syncs of pods: the status of a span, a text that is read and redacted.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use criscope_cri::redact;
use criscope_cri::subject::{ContainerIdentity, PodIdentity, Subject};

/// Longest text that is read, in bytes.
const MAX_STATUS_BYTES: usize = 4096;
/// Longest name of a container, a volume or a reason.
const MAX_NAME_BYTES: usize = 63;
/// Most volumes that are named.
const MAX_NAMED_VOLUMES: usize = 4;

/// Reasons that failed calls or exits of the CRI show better.
const REASONS_SHOWN_BY_CALLS: [&str; 11] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "RegistryUnavailable",
    "CrashLoopBackOff",
    "CreateContainerError",
    "RunContainerError",
    "CreatePodSandboxError",
    "KillPodSandboxError",
    "KillContainerError",
    "PreStartHookError",
    "PreCreateHookError",
];

/// Reasons for which the specification of the pod has to change (`pkg/kubelet/kuberuntime/kuberuntime_container.go`,
/// `pkg/kubelet/images/types.go`).
const REASONS_OF_AUTHOR: [&str; 3] = [
    "CreateContainerConfigError",
    "InvalidImageName",
    "ErrImageNeverPull",
];

/// The error of a sync. Its `Display` is redacted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncError {
    /// The container that could not be started, if the error names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    container: Option<Box<str>>,
    /// The kubelet's reason, such as `CreateContainerConfigError`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Box<str>>,
    /// Volumes that were not mounted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    volumes: Vec<Box<str>>,
    /// The rest, redacted.
    text: Box<str>,
}

impl SyncError {
    /// Reads the status of a span of this pod.
    pub fn read(text: &str, pod: &PodIdentity) -> Self {
        let text = &text[..text.floor_char_boundary(MAX_STATUS_BYTES)];
        let mut results: Vec<_> = results(text).collect();
        // Of several results the one that no call shows.
        results.sort_by_key(|result| REASONS_SHOWN_BY_CALLS.contains(&result.reason));
        let first = results.into_iter().next();
        let message = first.as_ref().map(|result| unquoted(result.message));
        let (volumes, rest) = match &first {
            None => volumes(text),
            Some(_) => (Vec::new(), text),
        };
        let container = first
            .as_ref()
            .filter(|result| result.action.ends_with("Container") && is_label(result.target))
            .map(|result| result.target);
        let subject = Subject {
            pod: Some(Arc::new(pod.clone())),
            container: container.map(|name| {
                Arc::new(ContainerIdentity {
                    name: name.into(),
                    attempt: 0,
                })
            }),
            ..Subject::default()
        };
        let shown = message.as_deref().map_or(rest, without_pod);
        let image = ["image \"", "image tag \"", "image name \""].into_iter();
        let image = image
            .filter_map(|before| quoted_after(shown, before))
            .next();
        let subject = Subject {
            image: image.map(|image| redact::image_reference(image).into()),
            ..subject
        };
        Self {
            container: container.map(Into::into),
            reason: first.map(|result| result.reason.into()),
            volumes,
            text: redact::error_text(shown, None, Some(&subject), None),
        }
    }

    /// The container that could not be started, if the error names one.
    pub(crate) fn container(&self) -> Option<&str> {
        self.container.as_deref()
    }

    /// Returns whether the pod's author caused the error: a reason of the specification, or a ConfigMap or Secret that does not exist.
    pub(crate) fn is_of_author(&self) -> bool {
        let names_object = ["configmap", "secret"]
            .iter()
            .any(|object| self.text.contains(object));
        let reason = self.reason.as_deref();
        names_object && self.text.contains("not found")
            || reason.is_some_and(|reason| REASONS_OF_AUTHOR.contains(&reason))
    }

    /// The kind and the name of the Secret or ConfigMap that does not exist, if the error says so.
    pub(crate) fn missing_object(&self) -> Option<(&'static str, &str)> {
        if !self.text.contains("not found") {
            return None;
        }
        let mut kinds = [("configmap", "configmap \""), ("secret", "secret \"")].into_iter();
        let (kind, name) =
            kinds.find_map(|(kind, before)| Some((kind, quoted_after(&self.text, before)?)))?;
        let is_name = name.bytes().all(is_in_object_name) && !name.is_empty();
        is_name.then_some((kind, name))
    }

    /// Returns whether the container would run as root and must not.
    pub(crate) fn is_about_root(&self) -> bool {
        self.text.contains("runAsNonRoot")
    }

    /// Returns whether the kubelet only waits until it tries again.
    pub(crate) fn is_back_off(&self) -> bool {
        let reason = self.reason.as_deref();
        matches!(reason, Some("CrashLoopBackOff" | "ImagePullBackOff"))
    }

    /// Returns whether failed calls or exits of containers show this error too.
    pub(crate) fn is_shown_by_calls(&self) -> bool {
        let reason = self.reason.as_deref();
        reason.is_some_and(|reason| REASONS_SHOWN_BY_CALLS.contains(&reason))
    }
}

impl Display for SyncError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.volumes[..] {
            [] => {}
            [one] => write!(f, "volume {one} is not mounted: ")?,
            some => {
                let named = some.get(..MAX_NAMED_VOLUMES).unwrap_or(some).join(", ");
                write!(f, "volumes {named}")?;
                match some.len().saturating_sub(MAX_NAMED_VOLUMES) {
                    0 => {}
                    more => write!(f, " and {more} more")?,
                }
                f.write_str(" are not mounted: ")?;
            }
        }
        match (&self.reason, &self.container) {
            (Some(reason), Some(container)) => write!(f, "{reason} of {container}: ")?,
            (Some(reason), None) => write!(f, "{reason}: ")?,
            _ => {}
        }
        f.write_str(&self.text)
    }
}

/// A part of the kubelet's error: `failed to "StartContainer" for "app" with ErrImagePull: "..."`.
struct SyncResult<'a> {
    action: &'a str,
    target: &'a str,
    reason: &'a str,
    /// The message, quoted as Go does, without the quotes.
    message: &'a str,
}

fn results(text: &str) -> impl Iterator<Item = SyncResult<'_>> {
    let parts = text.match_indices("failed to \"");
    parts.filter_map(|(at, _)| {
        let rest = text[at..].strip_prefix("failed to \"")?;
        let (action, rest) = rest.split_once("\" for \"")?;
        let (target, rest) = rest.split_once("\" with ")?;
        let (reason, rest) = rest.split_once(": \"")?;
        (is_name(action) && is_name(reason)).then(|| SyncResult {
            action,
            target,
            reason,
            message: &rest[..end_of_quoted(rest)],
        })
    })
}

/// Returns whether it can be the name of an action or a reason of the kubelet.
fn is_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphabetic())
}

/// The end of a quoted text.
fn end_of_quoted(text: &str) -> usize {
    let mut escaped = false;
    let end = text.char_indices().find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at)
}

fn unquoted(text: &str) -> String {
    text.replace("\\\"", "\"").replace("\\n", " ")
}

/// The kubelet's text without the pod and container that it appends: ` (pod: "NAME_NAMESPACE(UID)", container: NAME)`.
fn without_pod(text: &str) -> &str {
    match text.rsplit_once(" (pod: \"") {
        Some((before, rest)) if rest.ends_with(')') => before,
        _ => text,
    }
}

/// The quoted text after this one.
fn quoted_after<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once('"')?.0)
}

/// The volumes of `unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: REST`, and the rest. If they
/// cannot be read, the whole text is the rest.
fn volumes(text: &str) -> (Vec<Box<str>>, &str) {
    read_volumes(text).unwrap_or((Vec::new(), text))
}

fn read_volumes(text: &str) -> Option<(Vec<Box<str>>, &str)> {
    let (_, list) = text.split_once("unmounted volumes=[")?;
    let (list, rest) = list.split_once(']')?;
    let (_, rest) = rest.rsplit_once("]: ")?;
    let names: Vec<_> = list.split_whitespace().collect();
    let are_labels = !names.is_empty() && names.iter().all(|name| is_label(name));
    are_labels.then(|| (names.into_iter().map(Into::into).collect(), rest))
}

/// Returns whether it can be part of the name of an object (RFC 1123, subdomain).
fn is_in_object_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte)
}

/// Returns whether it can be the name of a container or volume (RFC 1123, label).
fn is_label(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> SyncError {
        let pod = PodIdentity {
            namespace: "shop".into(),
            name: "web".into(),
            uid: "0f3a".into(),
            attempt: 0,
        };
        SyncError::read(text, &pod)
    }

    #[test]
    fn the_reason_and_the_container_are_read() {
        let error = read(
            r#"failed to "StartContainer" for "app" with CreateContainerConfigError: "secret \"hunter2\" not found""#,
        );
        assert_eq!(
            error.to_string(),
            "CreateContainerConfigError of app: secret \"hunter2\" not found"
        );
        assert_eq!(
            (error.container(), error.is_shown_by_calls()),
            (Some("app"), false)
        );
    }

    #[test]
    fn of_several_the_one_that_no_call_shows_counts() {
        let error = read(
            r#"[failed to "StartContainer" for "side" with CrashLoopBackOff: "back-off 10s restarting failed container=side pod=web_shop(0f3a)", failed to "StartContainer" for "app" with ErrImageNeverPull: "Container image \"user:hunter2@x/app:1\" is not present with pull policy of Never"]"#,
        );
        let said = error.to_string();
        assert!(said.starts_with("ErrImageNeverPull of app: "), "{said}");
        assert!(said.contains("x/app:1\" is not present"), "{said}");
        let seen = read(
            r#"failed to "StartContainer" for "app" with ImagePullBackOff: "Back-off pulling image""#,
        );
        assert!(seen.is_shown_by_calls());
    }

    #[test]
    fn a_resize_that_is_refused_is_told() {
        let error = read(
            r#"failed to "ResizePodInPlace" for "web_shop(0f3a)" with ResizePodInPlaceError: "cannot decrease memory limits: attempting to set container \"app\" memory limit (20971520) below current usage (41943040)""#,
        );
        let said = error.to_string();
        let words =
            "ResizePodInPlaceError: cannot decrease memory limits: attempting to set container ";
        assert!(said.starts_with(words), "{said}");
    }

    #[test]
    fn the_image_is_named() {
        let error = read(
            r#"failed to "StartContainer" for "app" with InvalidImageName: "Failed to apply default image tag \"x/Bad:::1\": couldn't parse image name \"x/Bad:::1\": invalid reference format""#,
        );
        let said = error.to_string();
        assert!(said.contains("image name \"x/Bad:::1\": invalid"), "{said}");
    }

    #[test]
    fn the_pod_is_not_repeated() {
        let error = read(
            r#"failed to "StartContainer" for "app" with CreateContainerConfigError: "container has runAsNonRoot and image will run as root (pod: \"web_shop(0f3a)\", container: app)""#,
        );
        let said = error.to_string();
        assert!(
            said.ends_with(" runAsNonRoot and image will run as root"),
            "{said}"
        );
    }

    #[test]
    fn volumes_are_named() {
        let error = read(
            "unmounted volumes=[data tls], unattached volumes=[], failed to process volumes=[]: context deadline exceeded",
        );
        assert_eq!(
            error.to_string(),
            "volumes data, tls are not mounted: context deadline exceeded"
        );
        let old = read(
            "unmounted volumes=[data], unattached volumes=[data tls]: timed out waiting for the condition",
        );
        assert_eq!(
            old.to_string(),
            "volume data is not mounted: timed out waiting for the condition"
        );
    }

    #[test]
    fn what_is_not_understood_is_redacted() {
        for text in [
            "hunter2",
            "unmounted volumes=[hunter2=X]: hunter2",
            "failed to \"hunter2\" for \"hunter2\" with hunter2: \"hunter2",
            "failed to \"StartContainer\" for \"HUNTER2 hunter2\" with Error: \"hunter2\\",
        ] {
            let said = format!("{} {:?}", read(text), read(text));
            assert!(!said.to_lowercase().contains("hunter2"), "{said}");
        }
        let long = format!("é{}", "é failed to \"".repeat(5000));
        assert!(read(&long).to_string().len() < 2000);
    }
}
