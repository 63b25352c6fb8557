//! Finds the container that the arguments name.

use crate::cri::v1;

/// Why the target cannot be resolved.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// None that runs.
    #[error("no running container {0:?}")]
    NotFound(String),
    /// The container is not running.
    #[error("container {0} is not running")]
    NotRunning(String),
    /// Several of them.
    #[error("{name:?} may be any of {}", .candidates.join(", "))]
    Ambiguous {
        /// The name as the user typed it.
        name: String,
        /// Names and ids.
        candidates: Vec<String>,
    },
}

impl Error {
    /// A recommendation for the user.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound(_) => Some("criscope pods shows pods, crictl ps containers"),
            Self::NotRunning(_) | Self::Ambiguous { .. } => None,
        }
    }
}

/// What the arguments say of a container.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExecTarget<'a> {
    /// Its id or the beginning of it, `namespace/pod/container`, `namespace/pod`, `pod/NAME` or the name of its pod.
    pub(super) text: &'a str,
    /// The value of `-n`.
    pub(super) namespace: Option<&'a str>,
    /// The value of `-c`.
    pub(super) container: Option<&'a str>,
}

impl ExecTarget<'_> {
    /// Finds the running container. A whole id precedes others that begin with it.
    pub(super) fn find<'a>(
        &self,
        sandboxes: &[v1::PodSandbox],
        containers: &'a [v1::Container],
    ) -> Result<&'a str, Error> {
        if let Some(exact) = containers
            .iter()
            .find(|container| container.id == self.text)
        {
            return if is_running(exact) {
                Ok(&exact.id)
            } else {
                Err(Error::NotRunning(exact.id.clone()))
            };
        }
        let containers = containers.iter();
        let meant: Vec<_> = containers
            .filter(|container| self.means(container, sandboxes))
            .collect();
        let running: Vec<_> = meant
            .iter()
            .filter(|container| is_running(container))
            .collect();
        match (running.as_slice(), meant.as_slice()) {
            ([one], _) => Ok(&one.id),
            ([], [one]) => Err(Error::NotRunning(one.id.clone())),
            ([], _) => Err(Error::NotFound(self.text.to_owned())),
            (several, _) => Err(Error::Ambiguous {
                name: self.text.to_owned(),
                candidates: several
                    .iter()
                    .map(|container| shown(container, sandboxes))
                    .collect(),
            }),
        }
    }

    fn means(&self, container: &v1::Container, sandboxes: &[v1::PodSandbox]) -> bool {
        let pod = pod_of(container, sandboxes);
        let is_chosen = self.container.is_none_or(|name| name_of(container) == name)
            && self
                .namespace
                .is_none_or(|name| pod.is_some_and(|(namespace, _)| namespace == name));
        let parts: Vec<_> = self.text.split('/').collect();
        is_chosen
            && match *parts {
                [""] => false,
                [name] | ["pod" | "pods" | "po", name]
                    if pod.is_some_and(|(_, pod)| pod == name) =>
                {
                    true
                }
                [id] => container.id.starts_with(id),
                [namespace, name] => pod == Some((namespace, name)),
                [namespace, name, own] => {
                    pod == Some((namespace, name)) && name_of(container) == own
                }
                _ => false,
            }
    }
}

fn is_running(container: &v1::Container) -> bool {
    container.state() == v1::ContainerState::ContainerRunning
}

fn name_of(container: &v1::Container) -> &str {
    container
        .metadata
        .as_ref()
        .map_or("", |metadata| &metadata.name)
}

/// Namespace and name.
fn pod_of<'a>(
    container: &v1::Container,
    sandboxes: &'a [v1::PodSandbox],
) -> Option<(&'a str, &'a str)> {
    let mut sandboxes = sandboxes.iter();
    let sandbox = sandboxes.find(|sandbox| sandbox.id == container.pod_sandbox_id)?;
    let pod = sandbox.metadata.as_ref()?;
    Some((&pod.namespace, &pod.name))
}

fn shown(container: &v1::Container, sandboxes: &[v1::PodSandbox]) -> String {
    match pod_of(container, sandboxes) {
        Some((namespace, pod)) => {
            let id: String = container.id.chars().take(13).collect();
            format!("{namespace}/{pod}/{} ({id})", name_of(container))
        }
        None => container.id.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(id: &str, sandbox: &str, name: &str, is_running: bool) -> v1::Container {
        let mut container = v1::Container {
            id: id.to_owned(),
            pod_sandbox_id: sandbox.to_owned(),
            metadata: Some(v1::ContainerMetadata {
                name: name.to_owned(),
                attempt: 0,
            }),
            ..v1::Container::default()
        };
        container.set_state(if is_running {
            v1::ContainerState::ContainerRunning
        } else {
            v1::ContainerState::ContainerExited
        });
        container
    }

    fn sandbox(id: &str, name: &str) -> v1::PodSandbox {
        v1::PodSandbox {
            id: id.to_owned(),
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_owned(),
                namespace: "shop".to_owned(),
                ..v1::PodSandboxMetadata::default()
            }),
            ..v1::PodSandbox::default()
        }
    }

    #[test]
    fn containers_are_found_by_all_their_names() {
        let sandboxes = [
            sandbox("p1", "web"),
            sandbox("p2", "db"),
            sandbox("p3", "db"),
        ];
        let containers = [
            container("abc1", "p1", "app", true),
            container("abc2", "p1", "proxy", true),
            container("abc", "p9", "lone", true),
            // The one before a restart.
            container("dead", "p2", "main", false),
            container("f00d", "p2", "main", true),
            container("done", "p1", "setup", false),
        ];
        let find = |target: ExecTarget<'_>| target.find(&sandboxes, &containers);
        let found = |text| {
            find(ExecTarget {
                text,
                ..ExecTarget::default()
            })
        };
        assert_eq!(found("abc1"), Ok("abc1"));
        assert_eq!(found("abc"), Ok("abc"), "a whole id");
        assert_eq!(found("f"), Ok("f00d"));
        assert_eq!(found("shop/web/app"), Ok("abc1"));
        assert_eq!(found("shop/db/main"), Ok("f00d"));
        assert_eq!(found("shop/db"), Ok("f00d"));
        assert_eq!(found("db"), Ok("f00d"));
        assert_eq!(found("pod/db"), Ok("f00d"));
        let chosen = ExecTarget {
            text: "web",
            namespace: Some("shop"),
            container: Some("proxy"),
        };
        assert_eq!(find(chosen), Ok("abc2"));
        let elsewhere = ExecTarget {
            namespace: Some("test"),
            ..chosen
        };
        assert_eq!(find(elsewhere), Err(Error::NotFound("web".into())));
        for stopped in ["dead", "dea"] {
            assert_eq!(found(stopped), Err(Error::NotRunning("dead".into())));
        }
        let setup = found("shop/web/setup");
        assert_eq!(setup, Err(Error::NotRunning("done".into())));
        for none in [
            "",
            "x",
            "shop/web/app/x",
            "web/app",
            "shop/",
            "/",
            "shop/web/",
            "//",
        ] {
            assert_eq!(found(none), Err(Error::NotFound(none.into())), "{none}");
        }
        for (several, one) in [("ab", "abc"), ("shop/web", "shop/web/proxy (abc2)")] {
            let error = found(several).expect_err("several").to_string();
            assert!(error.contains(one), "{error}");
        }
    }
}
