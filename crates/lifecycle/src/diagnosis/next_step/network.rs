//! Steps about the network of a pod.

use super::context::{command_word, says};
use super::{NextStep, StepContext};
use crate::diagnosis::failure::error_message;
use crate::diagnosis::fault::{self, FaultClass};
use crate::episode_call::EpisodeCall;

/// CNI plugins that ask a pod on the node, by the beginning of their names, and a word in the name of that pod.
const PLUGIN_AGENTS: [(&str, &str); 11] = [
    ("antrea", "antrea-agent"),
    ("aws-cni", "aws-node"),
    ("calico", "calico-node"),
    ("cilium", "cilium"),
    ("egress-cni", "aws-node"),
    ("flannel", "flannel"),
    ("kube-ovn", "kube-ovn-cni"),
    ("kube-router", "kube-router"),
    ("multus", "multus"),
    ("ovn-k8s-cni-overlay", "ovnkube-node"),
    ("weave-net", "weave-net"),
];

/// Stands before the addresses that host-local assigns, in its errors.
const ADDRESS_RANGE: &str = "range set: ";

impl StepContext<'_> {
    /// A network that could not be set up or taken down. `plugin`: the CNI plugin, if it is known.
    pub(super) fn about_network(
        &self,
        call: &EpisodeCall,
        plugin: Option<&str>,
        fault: Option<FaultClass>,
    ) -> Option<NextStep> {
        let agent = plugin.and_then(agent);
        match fault {
            Some(FaultClass::ApiCertificate | FaultClass::ApiDenied) => {
                Some(NextStep::RestartPluginAgent { agent: agent? })
            }
            Some(FaultClass::ApiAway) => {
                let host = command_word(fault::host(error_message(call))?)?;
                Some(NextStep::CheckApi { host })
            }
            Some(FaultClass::Addresses) => {
                let range = address_range(error_message(call));
                Some(NextStep::FreeAddresses { range })
            }
            Some(FaultClass::PluginMissing) => Some(NextStep::InstallPlugin {
                plugin: command_word(plugin?)?,
            }),
            Some(FaultClass::NetworkUnready) => Some(NextStep::CheckNetworkConfig),
            Some(FaultClass::Interface) => Some(NextStep::CheckInterface),
            Some(FaultClass::Dhcp) => Some(NextStep::CheckDhcp),
            // The kubelet makes a new sandbox, with another namespace.
            Some(FaultClass::NetworkNamespace) => None,
            Some(FaultClass::HostPort) => Some(NextStep::FindHostPort),
            // The address of a local agent says nothing about the plugin that asked it.
            Some(FaultClass::Agent | FaultClass::AgentSocket | FaultClass::AgentBusy) | None => {
                Some(self.check_plugin(call, plugin))
            }
            Some(FaultClass::PluginKilled) => Some(self.check_plugin(call, plugin)),
            Some(fault) => self.about_fault(call, fault, None),
        }
    }

    /// The pod on the node that works for a CNI plugin, or the log of the runtime, which has the plugin's errors.
    pub(super) fn check_plugin(&self, call: &EpisodeCall, plugin: Option<&str>) -> NextStep {
        let text = error_message(call);
        let named = PLUGIN_AGENTS.iter().find(|(name, _)| says(call, name));
        let named = named.filter(|_| !text.is_empty()).map(|(_, agent)| *agent);
        match plugin.and_then(agent).or(named) {
            Some(agent) => NextStep::CheckPluginAgent { agent },
            None => self.runtime_log(call),
        }
    }
}

/// The word in the name of the pod that works for a CNI plugin.
fn agent(plugin: &str) -> Option<&'static str> {
    let mut agents = PLUGIN_AGENTS.iter();
    let (_, agent) = agents.find(|(name, _)| plugin.starts_with(name))?;
    Some(agent)
}

/// The addresses that are used up, as in `10.91.0.1-10.91.255.254`.
fn address_range(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(ADDRESS_RANGE)?;

    let range = rest
        .split(|c: char| !(c.is_ascii_hexdigit() || ".:-/".contains(c)))
        .next()?;
    let range = range.trim_end_matches([':', '.']);
    (range.len() > "::".len()).then(|| range.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_host_local_is_read() {
        let text = "failed to allocate for range 0: no IP addresses available in range set: 10.91.0.1-10.91.255.254 (code 11)";
        assert_eq!(
            address_range(text).as_deref(),
            Some("10.91.0.1-10.91.255.254")
        );
        let six = "no IP addresses available in range set: fd00::1-fd00::ff";
        assert_eq!(address_range(six).as_deref(), Some("fd00::1-fd00::ff"));
        assert_eq!(address_range("in range set: <redacted>"), None);
    }
}
