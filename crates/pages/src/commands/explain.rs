//! `criscope explain`: why was this pod slow, or never up?

use std::io::{self, Write};

use bytes::Bytes;

use criscope_cri::visible::visible;

use super::{PageCommandError, PodName, PodNameError};
use crate::source::{PageError, PageSource, encoded};
use crate::terminal::format::{self, OutputFormat};
use crate::terminal::render::explain::story;
use crate::terminal::{WaterfallStyle, look};
use crate::view::{PodList, PodStory, UnknownPod};

/// Width of the output without a terminal.
const DEFAULT_COLUMNS: usize = 80;

/// The default namespace.
const DEFAULT_NAMESPACE: &str = "default";

/// The pod to explain, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct ExplainArgs {
    /// The pod: POD, if one namespace has a pod of this name, or NAMESPACE/POD; also as kubectl writes it, pod/POD or pod POD
    #[arg(value_name = "POD", required = true, num_args = 1..=2)]
    pod: Vec<String>,
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
}

impl ExplainArgs {
    /// The pod.
    ///
    /// # Errors
    /// If the arguments are not a pod.
    pub fn pod_name(&self) -> Result<PodName, PodNameError> {
        PodName::parse(&self.pod, self.namespace.as_deref())
    }

    /// Prints the story of a pod. Without a namespace, the pod is the only one of its name.
    ///
    /// # Errors
    /// If the pod is unknown, or its page could not be read.
    pub async fn run(
        &self,
        pod: &PodName,
        source: &(impl PageSource + Sync),
    ) -> Result<(), PageCommandError> {
        let path = self.path(pod, source).await?;
        let bytes = read(source, &path).await?;
        let pod_story: PodStory = source.parse(&path, &bytes)?;
        if let Some(format) = self.output {
            return Ok(format::print(format, &pod_story)?);
        }
        let mut out = io::stdout().lock();
        out.write_all(story(&pod_story, self.all, look(DEFAULT_COLUMNS)).as_bytes())?;
        Ok(out.flush()?)
    }

    /// Prints the page of a pod unchanged.
    ///
    /// # Errors
    /// If the pod is unknown, or its page could not be read.
    pub async fn print_page(
        &self,
        pod: &PodName,
        source: &(impl PageSource + Sync),
    ) -> Result<(), PageCommandError> {
        let path = self.path(pod, source).await?;
        Ok(format::print_json(&read(source, &path).await?)?)
    }

    async fn path(
        &self,
        pod: &PodName,
        source: &(impl PageSource + Sync),
    ) -> Result<String, PageCommandError> {
        let namespace = match &pod.namespace {
            Some(namespace) => namespace.clone(),
            None => only_namespace(source, &pod.name).await?,
        };
        Ok(path(&namespace, &pod.name, self.uid.as_deref()))
    }
}

/// Why a pod cannot be explained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments are not a pod.
    #[error(transparent)]
    Name(#[from] PodNameError),
    /// Several namespaces have a pod of this name.
    #[error("{} namespaces have a pod {name}: {}", .namespaces.len(), .namespaces.join(", "))]
    Ambiguous {
        /// The name of the pods.
        name: String,
        /// Their namespaces.
        namespaces: Vec<String>,
    },
    /// The pod is unknown.
    #[error("{}", what(.0))]
    Unknown(Box<UnknownPod>),
}

impl Error {
    /// Returns whether it is a usage error.
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Name(_) | Self::Ambiguous { .. })
    }

    /// Pods with similar names.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Name(_) => None,
            Self::Ambiguous { name, namespaces } => {
                let first = namespaces.first()?;
                Some(format!("criscope explain {first}/{name}"))
            }
            Self::Unknown(unknown) if unknown.near.is_empty() => Some(
                "criscope knows pods whose calls it has seen, and pods that the runtime lists: see criscope pods"
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
    notes.fold(visible(&unknown.error), |text, note| {
        format!("{text}\n  - {}", visible(note))
    })
}

/// The page of a pod.
fn path(namespace: &str, name: &str, uid: Option<&str>) -> String {
    let page = format!("/debug/pods/{}/{}", encoded(namespace), encoded(name));
    match uid {
        Some(uid) => format!("{page}?format=json&uid={}", encoded(uid)),
        None => format!("{page}?format=json"),
    }
}

/// The page, if the pod is known.
async fn read(source: &(impl PageSource + Sync), path: &str) -> Result<Bytes, PageCommandError> {
    let found = source.or_else::<UnknownPod>(path).await?;
    Ok(found.map_err(|unknown| Error::Unknown(Box::new(unknown)))?)
}

/// The text on one pod, for other commands.
///
/// # Errors
/// If criscope does not answer, or does not know the pod.
pub async fn text(
    source: &(impl PageSource + Sync),
    namespace: &str,
    name: &str,
    uid: &str,
    look: WaterfallStyle,
) -> Result<String, PageCommandError> {
    let path = path(namespace, name, Some(uid));
    let bytes = read(source, &path).await?;
    Ok(story(&source.parse(&path, &bytes)?, false, look))
}

/// The namespace of the pod with this name; the default one if no pod has it, or the pages below `/debug` are turned off.
///
/// # Errors
/// If several namespaces have a pod of this name.
async fn only_namespace(
    source: &(impl PageSource + Sync),
    name: &str,
) -> Result<String, PageCommandError> {
    let path = format!("/debug/pods?format=json&by=pod&name={}", encoded(name));
    let pods = match source.json::<PodList>(&path).await {
        Ok(pods) => pods.pods,
        Err(PageError::NoPage { .. }) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    // The page has every pod whose name contains this one.
    let same = pods.into_iter().filter(|pod| pod.name == name);
    let mut namespaces: Vec<_> = same.map(|pod| pod.namespace).collect();
    namespaces.sort();
    namespaces.dedup();
    match &mut *namespaces {
        [] => Ok(DEFAULT_NAMESPACE.to_owned()),
        [only] => Ok(std::mem::take(only)),
        _ => Err(Error::Ambiguous {
            name: name.to_owned(),
            namespaces,
        }
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_several_namespaces_needs_one() {
        let error = Error::Ambiguous {
            name: "web".to_owned(),
            namespaces: vec!["shop".to_owned(), "test".to_owned()],
        };
        assert_eq!(error.to_string(), "2 namespaces have a pod web: shop, test");
        assert_eq!(error.hint().as_deref(), Some("criscope explain shop/web"));
        assert!(error.is_usage());
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
