//! Health checks after an installation: conditions that held before must hold again, for a while.

use std::path::Path;
use std::time::Duration;

use super::journal::AffectedUnits;
use super::machine::{NodeOperations, RuntimeReadiness, UnitState};

/// Between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long the node must be healthy.
const HEALTHY_FOR: Duration = Duration::from_secs(5);

/// The node's health before a change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HealthBaseline {
    pub(super) network: bool,
    pub(super) healthz: bool,
}

impl HealthBaseline {
    pub(super) fn look(machine: &dyn NodeOperations, runtime: &Path) -> Self {
        Self {
            network: machine.runtime(runtime).is_ok_and(|ready| ready.network),
            healthz: machine.healthz(),
        }
    }
}

/// Waits until a condition has held for a while.
///
/// # Errors
/// What was missing at the end, or that the user asked to stop.
pub(super) fn wait(
    machine: &dyn NodeOperations,
    patience: Duration,
    hold: bool,
    mut check: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let (mut waited, mut held) = (Duration::ZERO, Duration::ZERO);
    loop {
        if machine.interrupted() {
            return Err("interrupted".to_owned());
        }
        match check() {
            Ok(()) if !hold || held >= HEALTHY_FOR => return Ok(()),
            Ok(()) => held += CHECK_INTERVAL,
            Err(reason) if waited >= patience => {
                return Err(format!("{reason}, after {} s", waited.as_secs()));
            }
            Err(_) => held = Duration::ZERO,
        }
        machine.pause(CHECK_INTERVAL);
        waited += CHECK_INTERVAL;
    }
}

/// The runtime is as ready as before.
pub(super) fn runtime(
    machine: &dyn NodeOperations,
    socket: &Path,
    before: HealthBaseline,
) -> Result<(), String> {
    let shown = socket.display();
    let RuntimeReadiness { runtime, network } = machine
        .runtime(socket)
        .map_err(|error| format!("the runtime does not answer at {shown}: {error}"))?;
    match (runtime, network) {
        (false, _) => Err(format!("{shown} reports RuntimeReady=false")),
        (true, false) if before.network => Err(format!(
            "{shown} reports NetworkReady=false, which was true before"
        )),
        _ => Ok(()),
    }
}

/// The kubelet runs and uses a socket.
#[derive(Debug)]
pub(super) struct KubeletCheck<'a> {
    machine: &'a dyn NodeOperations,
    units: &'a AffectedUnits,
    socket: &'a Path,
    before: HealthBaseline,
    /// How often it had restarted at the first look.
    restarts: Option<u64>,
}

impl<'a> KubeletCheck<'a> {
    pub(super) fn new(
        machine: &'a dyn NodeOperations,
        units: &'a AffectedUnits,
        socket: &'a Path,
        before: HealthBaseline,
    ) -> Self {
        Self {
            machine,
            units,
            socket,
            before,
            restarts: None,
        }
    }

    pub(super) fn look(&mut self) -> Result<(), String> {
        let unit = &self.units.kubelet;
        let state = UnitState::read(self.machine, unit)?;
        let restarts = *self.restarts.get_or_insert(state.restarts);
        if !state.active {
            return Err(format!("{unit} is not active"));
        }
        if state.restarts > restarts {
            // From here on it counts anew: it may recover within the time.
            self.restarts = Some(state.restarts);
            return Err(format!("{unit} has restarted {} times", state.restarts));
        }
        if !self.machine.connected(unit, self.socket) {
            return Err(format!(
                "{unit} is not connected to {}",
                self.socket.display()
            ));
        }
        if self.before.healthz && !self.machine.healthz() {
            return Err("the kubelet's /healthz does not answer, and did before".to_owned());
        }
        runtime(self.machine, self.socket, self.before)
    }
}
