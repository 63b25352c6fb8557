//! `criscope explain`: why was this pod slow, or never up?

use std::io::{self, Write};

use super::CommandFailure;
use super::ask::{StateSourceArgs, block_on, encoded, print_json};
use super::format::{self, OutputFormat};
use super::output;
use super::render::explain::story;
use crate::cri::visible::visible;
use crate::lifecycle::view::{PodStory, UnknownPod};

/// Width of the output without a terminal.
const DEFAULT_COLUMNS: usize = 80;

/// The default namespace.
const DEFAULT_NAMESPACE: &str = "default";

/// Explain why a pod is slow or will not start
///
/// The first line names the failure, or the step that took the most time; the calls follow as a waterfall. Reads from the
/// running criscope. Exits with 1 if criscope does not know the pod.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The pod: NAMESPACE/POD, POD (of the namespace default), or pod/POD with -n
    #[arg(value_name = "POD")]
    pod: String,
    #[command(flatten)]
    admin: StateSourceArgs,
    /// The pod's namespace
    #[arg(long, short, value_name = "NS")]
    namespace: Option<String>,
    /// Only the pod with this uid, of several with the same name
    #[arg(long, value_name = "UID")]
    uid: Option<String>,
    /// Show all episodes in memory, not only the one that matters most
    #[arg(long)]
    all: bool,
    /// Output format, instead of text
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<OutputFormat>,
    /// Short for -o json
    #[arg(long, hide = true, conflicts_with = "output")]
    json: bool,
}

/// Why a pod cannot be explained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The argument is not a pod.
    #[error("{0:?} is not a pod: write NAMESPACE/POD, or POD with -n NAMESPACE")]
    NoPod(String),
    /// Two namespaces.
    #[error("two namespaces, {0:?} (-n) and {1:?}: remove one")]
    Namespaces(String, String),
    /// The pod is unknown.
    #[error("{}", what(.0))]
    Unknown(Box<UnknownPod>),
}

impl Error {
    /// Returns whether it is a usage error.
    pub(super) const fn is_usage(&self) -> bool {
        matches!(self, Self::NoPod(_) | Self::Namespaces(..))
    }

    /// Pods with similar names.
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::NoPod(_) | Self::Namespaces(..) => None,
            Self::Unknown(unknown) if unknown.near.is_empty() => Some(
                "only pods whose calls went through this criscope are known: see criscope pods"
                    .to_owned(),
            ),
            Self::Unknown(unknown) => {
                let more = unknown.more.map(|n| format!(" ({n} more are similar)"));
                let near = unknown.near.join(", ");
                Some(format!("did you mean {near}?{}", more.unwrap_or_default()))
            }
        }
    }
}

/// The headline, then its possible causes and the state of the node.
fn what(unknown: &UnknownPod) -> String {
    let notes = unknown.notes.iter();
    notes.fold(unknown.error.clone(), |text, note| {
        format!("{text}\n  - {}", visible(note))
    })
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let (namespace, name) = pod(&args.pod, args.namespace.as_deref())?;
    let endpoint = args.admin.endpoint()?;
    let mut path = format!(
        "/debug/pods/{}/{}?format=json",
        encoded(&namespace),
        encoded(&name)
    );
    if let Some(uid) = &args.uid {
        path.push_str(&format!("&uid={}", encoded(uid)));
    }
    let found = block_on(async { Ok(endpoint.or_else::<UnknownPod>(&path).await?) })?;
    let bytes = found.map_err(|unknown| Error::Unknown(Box::new(unknown)))?;
    if args.json {
        return Ok(print_json(&bytes)?);
    }
    let pod_story: PodStory = endpoint.parse(&path, &bytes)?;
    if let Some(format) = args.output {
        return Ok(format::print(format, &pod_story)?);
    }
    let mut out = io::stdout().lock();
    out.write_all(story(&pod_story, args.all, output::look(DEFAULT_COLUMNS)).as_bytes())?;
    Ok(out.flush()?)
}

/// Namespace and name from `NAMESPACE/POD`, `POD` or, as in kubectl, `pod/POD`.
///
/// # Errors
/// If the text has another form, or the two namespaces differ.
pub(super) fn pod(text: &str, namespace: Option<&str>) -> Result<(String, String), Error> {
    let parts: Vec<_> = text.split('/').collect();
    let (said, name) = match parts[..] {
        [name] => (None, name),
        ["pod" | "pods" | "po", name] => (None, name),
        [namespace, name] => (Some(namespace), name),
        _ => return Err(Error::NoPod(text.to_owned())),
    };
    if name.is_empty() || said == Some("") {
        return Err(Error::NoPod(text.to_owned()));
    }
    match (said, namespace) {
        (Some(a), Some(b)) if a != b => Err(Error::Namespaces(b.to_owned(), a.to_owned())),
        (a, b) => Ok((
            a.or(b).unwrap_or(DEFAULT_NAMESPACE).to_owned(),
            name.to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_named_as_kubectl_names_them() {
        let read = |text, namespace| pod(text, namespace).map(|(a, b)| format!("{a} {b}")).ok();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read("shop/web", None), some("shop web"));
        assert_eq!(read("web", None), some("default web"));
        assert_eq!(read("web", Some("shop")), some("shop web"));
        assert_eq!(read("pod/web", Some("shop")), some("shop web"));
        assert_eq!(read("pod/web", None), some("default web"));
        assert_eq!(read("shop/web", Some("shop")), some("shop web"));
        for (bad, namespace) in [
            ("", None),
            ("a/b/c", None),
            ("/b", None),
            ("a/", None),
            ("a/b", Some("c")),
        ] {
            assert!(pod(bad, namespace).is_err(), "{bad:?} {namespace:?}");
        }
    }

    #[test]
    fn who_is_not_known_may_have_near_names() {
        let mut unknown = UnknownPod {
            error: "nothing is known".to_owned(),
            ..UnknownPod::default()
        };
        let hint = |unknown: &UnknownPod| {
            Error::Unknown(Box::new(unknown.clone()))
                .hint()
                .expect("a hint")
        };
        assert!(hint(&unknown).contains("criscope pods"));
        unknown.notes = vec!["NetworkReady of main has been false for 3m 00s: no CNI".to_owned()];
        assert_eq!(
            Error::Unknown(Box::new(unknown.clone())).to_string(),
            "nothing is known\n  - NetworkReady of main has been false for 3m 00s: no CNI"
        );
        unknown.near = vec!["shop/web".to_owned(), "shop/db".to_owned()];
        assert_eq!(hint(&unknown), "did you mean shop/web, shop/db?");
    }
}
