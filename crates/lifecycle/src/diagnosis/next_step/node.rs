//! Steps about the node: its programs, and facts about them.

use super::{NextStep, StepContext};
use crate::node::{NodeFact, NodeFactKind, NodePrograms};

/// The condition of a runtime that its CNI configuration decides.
const NETWORK_READY: &str = "NetworkReady";

impl StepContext<'_> {
    pub(super) fn check_kubelet(&self) -> NextStep {
        NextStep::check_kubelet(self.programs)
    }

    /// A fact that holds, or held.
    pub(super) fn about_fact(&self, fact: &NodeFact) -> Option<NextStep> {
        NextStep::from_fact(fact, self.programs)
    }
}

impl NextStep {
    fn check_kubelet(programs: &NodePrograms) -> Self {
        Self::CheckKubelet {
            unit: programs.kubelet_unit().to_owned(),
        }
    }

    /// What to do about a fact that holds, or held. The state of a program that is back says nothing; its log does.
    pub(crate) fn from_fact(fact: &NodeFact, programs: &NodePrograms) -> Option<Self> {
        Some(match &fact.kind {
            NodeFactKind::BackendDown { backend } | NodeFactKind::BackendHangs { backend } => {
                let unit = programs.runtime_unit(Some(backend)).to_owned();
                if fact.holds() {
                    Self::CheckRuntime { unit }
                } else {
                    Self::ReadRuntimeLog { unit }
                }
            }
            NodeFactKind::NotReady { condition, .. } if condition == NETWORK_READY => {
                Self::CheckNetworkConfig
            }
            NodeFactKind::NotReady { backend, .. } => Self::ReadRuntimeLog {
                unit: programs.runtime_unit(Some(backend)).to_owned(),
            },
            NodeFactKind::NoKubelet if fact.holds() => Self::check_kubelet(programs),
            NodeFactKind::NoKubelet | NodeFactKind::KubeletSilent => Self::ReadKubeletLog {
                unit: programs.kubelet_unit().to_owned(),
            },
            NodeFactKind::CriscopeDown
            | NodeFactKind::CriscopeBypassed
            | NodeFactKind::CriscopeStalled => Self::ReadCriscopeLog {
                unit: programs.criscope_unit().to_owned(),
            },
            NodeFactKind::ImageFsFull { .. } => Self::FreeDisk,
            // A node that was started again goes on by itself.
            NodeFactKind::NodeRestarted { .. } => return None,
        })
    }
}
