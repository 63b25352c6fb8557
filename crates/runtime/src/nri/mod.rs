//! Plugins of the Node Resource Interface: the events that they receive about pods and containers, and how their adjustments are applied. The
//! interface itself is `crates/nri`.
//!
//! An event is sent where containerd sends it: a plugin's error fails RunPodSandbox, CreateContainer, StartContainer and updates,
//! and is logged for everything that cannot be refused any more. Events may be sent while a container's lock is held; updates that
//! plugins ask for are applied outside of any event, see `docs/adr/0071-updates-of-plugins-wait-for-no-event.md`.

mod adjust;
mod apply;
mod events;
mod evict;
mod host;
mod message;
mod observe;
mod resources;

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use criscope_nri::api::Event;
use criscope_nri::{Adaptation, SyncBlock};

use super::steps::StepRecorder;
use criscope_cri::call::steps::RuntimeStep;

pub(crate) use self::adjust::{adjust, confinement_changes};

/// The plugins, once the runtime has started them; none if the interface is off.
#[derive(Debug, Default)]
pub(crate) struct Nri(OnceLock<Arc<Adaptation>>);

impl Nri {
    /// The plugins, if any of them has subscribed to the event.
    fn wanting(&self, event: Event) -> Option<&Adaptation> {
        let plugins = self.0.get()?;
        plugins.wants(event).then_some(&**plugins)
    }

    /// True if any plugin has subscribed to the end or the removal of containers.
    fn wants_ends(&self) -> bool {
        let ends = [Event::StopContainer, Event::RemoveContainer];
        ends.iter().any(|event| self.wanting(*event).is_some())
    }

    /// Holds back the synchronization of plugins until an object is in the store. Waiting for one is a step of the call.
    pub(crate) async fn block_sync(&self, steps: &StepRecorder) -> Option<SyncBlock> {
        let plugins = self.0.get()?;
        if let Some(block) = plugins.try_block_sync() {
            return Some(block);
        }
        let waiting = async { Ok::<_, Infallible>(plugins.block_sync().await) };
        steps.step(RuntimeStep::Nri, None, waiting).await.ok()
    }
}
