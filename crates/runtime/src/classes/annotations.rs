//! The annotations that name the class of a container.

use criscope_cri::v1::{ContainerConfig, PodSandboxConfig};

/// Where a class was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// In an annotation of the container, which only the kubelet or its device plugins set.
    Container,
    /// In an annotation of the pod.
    Pod,
}

/// The annotations of one kind of classes.
pub(super) struct Keys {
    container: &'static str,
    pod: &'static str,
    of_one: &'static str,
}

impl Keys {
    pub(super) const BLOCKIO: Self = Self {
        container: "io.kubernetes.cri.blockio-class",
        pod: "blockio.resources.beta.kubernetes.io/pod",
        of_one: "blockio.resources.beta.kubernetes.io/container.",
    };
    pub(super) const RDT: Self = Self {
        container: "io.kubernetes.cri.rdt-class",
        pod: "rdt.resources.beta.kubernetes.io/pod",
        of_one: "rdt.resources.beta.kubernetes.io/container.",
    };

    /// Returns the class of a container. The annotation of the container precedes the pod's annotation for it, which precedes the one for the
    /// whole pod; an empty one is no class.
    pub(super) fn class<'a>(
        &self,
        pod: &'a PodSandboxConfig,
        container: &'a ContainerConfig,
    ) -> Option<(&'a str, Origin)> {
        let name = container.metadata.as_ref();
        let name = name.map_or("", |metadata| metadata.name.as_str());
        let (class, origin) = match container.annotations.get(self.container) {
            Some(class) => (class, Origin::Container),
            None => {
                let for_container = pod.annotations.get(&format!("{}{name}", self.of_one));
                let class = for_container.or_else(|| pod.annotations.get(self.pod))?;
                (class, Origin::Pod)
            }
        };
        (!class.is_empty()).then_some((class.as_str(), origin))
    }
}
