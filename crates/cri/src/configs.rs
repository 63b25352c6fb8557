//! The parts of the configurations of pods and containers that are optional on several levels.

use crate::v1::{
    ContainerConfig, LinuxContainerResources, LinuxContainerSecurityContext,
    LinuxSandboxSecurityContext, NamespaceOption, PodSandboxConfig,
};

impl ContainerConfig {
    /// The security context, if the request has one.
    pub fn security_context(&self) -> Option<&LinuxContainerSecurityContext> {
        self.linux.as_ref()?.security_context.as_ref()
    }

    /// The resources, if the request has any.
    pub fn resources(&self) -> Option<&LinuxContainerResources> {
        self.linux.as_ref()?.resources.as_ref()
    }
}

impl PodSandboxConfig {
    /// The security context, if the request has one.
    pub fn security_context(&self) -> Option<&LinuxSandboxSecurityContext> {
        self.linux.as_ref()?.security_context.as_ref()
    }

    /// The options of the namespaces, if the request has any.
    pub fn namespace_options(&self) -> Option<&NamespaceOption> {
        self.security_context()?.namespace_options.as_ref()
    }
}
