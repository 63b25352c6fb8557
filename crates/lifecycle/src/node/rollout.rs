//! The metric of a rollout over a cluster. criscope-agent reports it, because a node on which criscope does not run has it too.

use criscope_telemetry::metric::{Metric, Unit, label, metrics};

criscope_cri::named! {
    /// The state of an installation in a cluster.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum InstallState {
        /// The installer waits for its turn.
        Waiting = "waiting",
        /// The node is changed.
        Working = "working",
        /// The node is healthy and keeps its turn for the soak time.
        Soaking = "soaking",
        /// The node is as wanted.
        Done = "done",
        /// The node is not healthy, which stops the rollout.
        Failed = "failed",
        /// The installer disappeared during its turn.
        Lost = "lost",
        /// A person has decided to go on without the node.
        Skipped = "skipped",
    }
}

metrics! {
    INSTALL_STATE = Metric::gauge("install_state", Unit::Flag, &[label::<InstallState>("state")],
        "1 for the state of this node in the rollout over the cluster, 0 for the others. criscope-agent reports it, not the daemon.");
}
