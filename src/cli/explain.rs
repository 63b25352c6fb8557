//! `criscope explain`: why was this pod slow, or never up?

use http::StatusCode;

use super::CommandFailure;
use super::ask::{AdminEndpoint, StateSourceArgs, block_on};
use super::kubelet_log::LoggedPod;
use crate::pages::commands::explain::ExplainArgs;
use crate::pages::source::{PageError, PageReply, PageSource, encoded};
use crate::pages::view::{PodStory, UnknownPod};

/// Stands for the namespace of a pod whose namespace criscope does not know.
const UNKNOWN_NAMESPACE: &str = "-";

/// Explain why a pod is slow or will not start
///
/// The first line names the failure, or the step that took the most time; the calls follow as a waterfall. Reads from the
/// running criscope, and of a pod that no call has named, from the kubelet's log. Exits with 1 if criscope does not know the pod.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    explain: ExplainArgs,
    #[command(flatten)]
    admin: StateSourceArgs,
    /// Short for -o json
    #[arg(long, hide = true, conflicts_with = "output")]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let pod = args.explain.pod_name()?;
    let source = WithKubeletLog(args.admin.endpoint()?);
    block_on(async {
        if args.json {
            return Ok(args.explain.print_page(&pod, &source).await?);
        }
        Ok(args.explain.run(&pod, &source).await?)
    })
}

/// The running criscope, and for a pod that it does not know by name the kubelet's log of this node.
struct WithKubeletLog(AdminEndpoint);

impl PageSource for WithKubeletLog {
    fn address(&self) -> &str {
        self.0.address()
    }

    async fn get(&self, path: &str) -> Result<PageReply, PageError> {
        let reply = self.0.get(path).await?;
        if reply.status != StatusCode::NOT_FOUND || !self.0.is_of_this_node() {
            return Ok(reply);
        }
        let Ok(mut unknown) = serde_json::from_slice::<UnknownPod>(&reply.body) else {
            return Ok(reply);
        };
        let Some(logged) = LoggedPod::find(&unknown.namespace, &unknown.name) else {
            return Ok(reply);
        };
        if let Some(mut story) = self.story_of_uid(&unknown, &logged).await? {
            add_log(&mut story, &unknown, &logged);
            return Ok(page(StatusCode::OK, &story).unwrap_or(reply));
        }
        tell(&mut unknown, &logged);
        Ok(page(StatusCode::NOT_FOUND, &unknown).unwrap_or(reply))
    }
}

impl WithKubeletLog {
    /// The story of a pod that criscope knows by its uid only.
    async fn story_of_uid(
        &self,
        unknown: &UnknownPod,
        logged: &LoggedPod,
    ) -> Result<Option<PodStory>, PageError> {
        let Some(uid) = &logged.uid else {
            return Ok(None);
        };
        for namespace in [&*unknown.namespace, UNKNOWN_NAMESPACE] {
            let (namespace, name) = (encoded(namespace), encoded(uid));
            let path = format!("/debug/pods/{namespace}/{name}?format=json");
            let reply = self.0.get(&path).await?;
            if reply.status == StatusCode::OK {
                return Ok(serde_json::from_slice(&reply.body).ok());
            }
        }
        Ok(None)
    }
}

fn page(status: StatusCode, value: &impl serde::Serialize) -> Option<PageReply> {
    let body = serde_json::to_vec(value).ok()?.into();
    Some(PageReply { status, body })
}

/// Adds the name and the newest trouble that the kubelet has logged.
fn add_log(story: &mut PodStory, unknown: &UnknownPod, logged: &LoggedPod) {
    story.namespace.clone_from(&unknown.namespace);
    story.name.clone_from(&unknown.name);
    if let Some(trouble) = &logged.trouble {
        story.headline += &format!("; the kubelet's log: {trouble}");
    }
}

/// Tells what the kubelet has logged of a pod that criscope does not know; what criscope says of it becomes a note.
fn tell(unknown: &mut UnknownPod, logged: &LoggedPod) {
    let UnknownPod {
        namespace, name, ..
    } = &*unknown;
    let known = format!("no call has named pod {namespace}/{name}; the kubelet's log");
    let error = match &logged.trouble {
        Some(trouble) => format!("{known}: {trouble}"),
        None => format!("{known} names it, and no trouble with it"),
    };
    let before = std::mem::replace(&mut unknown.error, error);
    unknown.notes.insert(0, before);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown() -> UnknownPod {
        UnknownPod {
            error: "no record of pod shop/big; 2 other pods are recorded".to_owned(),
            namespace: "shop".to_owned(),
            name: "big".to_owned(),
            ..UnknownPod::default()
        }
    }

    #[test]
    fn a_refused_pod_is_told_with_the_words_of_the_kubelet() {
        let mut unknown = unknown();
        let trouble = Some("09:17:00 Pod admission denied (OutOfcpu): no CPU".to_owned());
        tell(&mut unknown, &LoggedPod { uid: None, trouble });
        assert_eq!(
            unknown.error,
            "no call has named pod shop/big; the kubelet's log: 09:17:00 Pod admission denied (OutOfcpu): no CPU"
        );
        assert_eq!(
            unknown.notes,
            ["no record of pod shop/big; 2 other pods are recorded"]
        );
    }

    #[test]
    fn a_pod_that_is_known_by_its_uid_gets_its_name() {
        let mut story = PodStory {
            headline: "the kubelet has known the pod for 3 min".to_owned(),
            namespace: UNKNOWN_NAMESPACE.to_owned(),
            name: "0b5e2f6c".to_owned(),
            ..PodStory::default()
        };
        let trouble =
            Some("09:16:04 Error syncing pod, skipping: unmounted volumes=[data]".to_owned());
        add_log(&mut story, &unknown(), &LoggedPod { uid: None, trouble });
        assert_eq!((&*story.namespace, &*story.name), ("shop", "big"));
        assert_eq!(
            story.headline,
            "the kubelet has known the pod for 3 min; the kubelet's log: 09:16:04 Error syncing pod, skipping: unmounted volumes=[data]"
        );
    }
}
