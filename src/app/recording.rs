//! Builds the dumps of the flight recorder.

use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::lifecycle::process_scanner::Observations;
use crate::lifecycle::recorder::dumps::{self, DumpSources};
use crate::lifecycle::recorder::{DumpWriter, FlightRecorder};
use crate::proxy::instrument::InFlightCalls;
use crate::telemetry::Drops;
use crate::telemetry::process::ConfigHash;

/// How long the last dump may take to be written.
const LAST_DUMP_TIMEOUT: Duration = Duration::from_secs(3);

/// Dumps of the recorder and the calls in flight.
pub(super) fn dumps(
    config: &Config,
    recorder: &Arc<FlightRecorder>,
    in_flight: &Arc<InFlightCalls>,
    observations: &Arc<Observations>,
    hash: &ConfigHash,
    drops: &Arc<Drops>,
) -> Arc<DumpWriter> {
    let (in_flight, hash) = (Arc::clone(in_flight), hash.clone());
    Arc::new(DumpWriter::new(DumpSources {
        recorder: Arc::clone(recorder),
        in_flight: Box::new(move || in_flight.calls()),
        observations: Arc::clone(observations),
        config: Box::new(move || hash.get()),
        drops: Arc::clone(drops),
        state_dir: config.story.state_dir.clone(),
        keep: config.recorder.dumps,
        max_bytes: config.recorder.max_dump_bytes,
    }))
}

/// Dumps on every panic from now on.
pub(super) fn on_panic(dumps: &Arc<DumpWriter>) -> UnfinishedDumpGuard {
    dumps::on_panic(Arc::clone(dumps));
    UnfinishedDumpGuard(Arc::clone(dumps))
}

/// A dump in progress may complete when the process ends, also when it ends by a panic.
pub(super) struct UnfinishedDumpGuard(Arc<DumpWriter>);

impl Drop for UnfinishedDumpGuard {
    fn drop(&mut self) {
        self.0.wait(LAST_DUMP_TIMEOUT);
    }
}
