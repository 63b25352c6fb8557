//! Faults that are injected on purpose: delays, errors and hangs of calls of one method, for a namespace or a pod.
//!
//! Off unless `faults.enabled`: then [`FaultInjection`] is in the stack, and root adds faults over the admin socket.
//! Every fault has an end, at which calls that it holds go on.

mod layer;
pub mod metrics;
mod rule;
pub mod settings;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub use self::layer::FaultInjection;
use self::metrics::InjectedFaultMetrics;
pub use self::rule::{FaultEffect, FaultRule, FaultRuleError, FaultView};
use crate::call::Call;
use crate::telemetry::registry::{Registry, RegistryError};
use crate::units::times::UnixMicros;

/// Most faults at a time.
pub const MAX_FAULTS: usize = 16;

/// A fault in effect.
#[derive(Debug)]
struct ActiveFault {
    number: u64,
    rule: FaultRule,
    until: Instant,
    until_at: SystemTime,
    /// Calls that it was injected into.
    calls: AtomicU64,
    /// Cancelled at its end.
    ended: CancellationToken,
}

/// The faults in effect.
#[derive(Debug)]
pub struct ActiveFaults {
    /// In the order in which they were added; the first that fits a call counts.
    active: ArcSwap<Vec<Arc<ActiveFault>>>,
    /// Held while the list is replaced.
    changes: Mutex<u64>,
    metrics: InjectedFaultMetrics,
}

impl ActiveFaults {
    /// None yet.
    ///
    /// # Errors
    /// If the metrics are registered already.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        Ok(Self {
            active: ArcSwap::default(),
            changes: Mutex::default(),
            metrics: InjectedFaultMetrics::new(registry)?,
        })
    }

    /// Adds a fault, which ends by itself. Must be called within an async runtime, which counts its time.
    ///
    /// # Errors
    /// If the rule is invalid, or there are too many faults.
    pub fn add(self: &Arc<Self>, rule: FaultRule) -> Result<FaultView, FaultRuleError> {
        rule.check()?;
        let lasts = rule.lasts();
        let fault = {
            let mut last = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
            let mut active = Vec::clone(&self.active.load());
            if active.len() >= MAX_FAULTS {
                return Err(FaultRuleError::TooMany);
            }
            *last += 1;
            let fault = Arc::new(ActiveFault {
                number: *last,
                rule,
                until: Instant::now() + lasts,
                until_at: SystemTime::now() + lasts,
                calls: AtomicU64::new(0),
                ended: CancellationToken::new(),
            });
            active.push(Arc::clone(&fault));
            self.replace(active);
            fault
        };
        let (faults, ended) = (Arc::clone(self), fault.ended.clone());
        let number = fault.number;
        tokio::spawn(async move {
            if ended.run_until_cancelled(sleep(lasts)).await.is_some() {
                faults.clear(Some(number));
            }
        });
        Ok(fault.view())
    }

    /// Ends the fault with this number, or all. Returns the faults that ended.
    pub fn clear(&self, number: Option<u64>) -> Vec<FaultView> {
        let _changing = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let active = self.active.load();
        let (ended, rest): (Vec<_>, Vec<_>) = active
            .iter()
            .cloned()
            .partition(|fault| number.is_none_or(|number| number == fault.number));
        self.replace(rest);
        for fault in &ended {
            fault.ended.cancel();
            tracing::info!(
                event = "fault.ended",
                fault = fault.number,
                rpc.method = fault.rule.method.full_name(),
                calls = fault.calls.load(Ordering::Relaxed),
                "no more faults are injected: {}",
                fault.rule
            );
        }
        ended.iter().map(|fault| fault.view()).collect()
    }

    /// The faults in effect.
    pub fn list(&self) -> Vec<FaultView> {
        let active = self.active.load();
        active.iter().map(|fault| fault.view()).collect()
    }

    fn replace(&self, active: Vec<Arc<ActiveFault>>) {
        self.metrics.active(active.len());
        self.active.store(Arc::new(active));
    }

    /// The fault for this call.
    fn matching(&self, call: &Call) -> Option<Arc<ActiveFault>> {
        let active = self.active.load();
        if active.is_empty() {
            return None;
        }
        let now = Instant::now();
        let mut active = active.iter();
        let fault = active.find(|fault| fault.until > now && fault.rule.fits(call))?;
        fault.calls.fetch_add(1, Ordering::Relaxed);
        self.metrics.injected(call.method, fault.rule.effect.kind());
        Some(Arc::clone(fault))
    }
}

impl ActiveFault {
    /// Waits as long as the call is to be held.
    async fn hold(&self) {
        let rest = self.until.saturating_duration_since(Instant::now());
        let time = match self.rule.effect {
            FaultEffect::Delay { ms } => Duration::from_millis(ms).min(rest),
            FaultEffect::Hang => rest,
            FaultEffect::Fail { .. } => return,
        };
        let _ = self.ended.run_until_cancelled(sleep(time)).await;
    }

    fn view(&self) -> FaultView {
        FaultView {
            number: self.number,
            rule: self.rule.clone(),
            until_unix_us: UnixMicros::from(self.until_at),
            calls: self.calls.load(Ordering::Relaxed),
        }
    }
}
