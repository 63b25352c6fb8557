//! Decides which calls become spans. The settings become a table with a row per method, so that a decision is a lookup.
//!
//! There are two decisions. The first is made when a call is received, and is passed to the backend. The second is made at its
//! end: a call that failed, was cancelled, stuck or slow is kept even if it was not chosen before.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use opentelemetry::trace::TraceId;

use super::settings::{OnUnsampledParent, SamplingSettings};
use criscope_cri::Method;
use criscope_cri::call::trace::{Joining, Share};
use criscope_cri::method::Class;

/// Share of its deadline, in percent, at which a call counts as stuck.
pub const STUCK_PERCENT: u32 = 50;

/// The sampling rules of all methods.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingRules {
    methods: [MethodRule; Method::COUNT],
    episodes: Share,
    respects: bool,
}

/// The rules of one method.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MethodRule {
    /// Share of calls outside of episodes.
    outside: Share,
    /// Share of calls within episodes, in addition to sampled episodes.
    within: Share,
    /// Duration from which a call is slow; `None` if never.
    slow: Option<Duration>,
}

impl SamplingRules {
    /// Builds the rules from the settings.
    pub fn new(settings: &SamplingSettings) -> Self {
        let mut methods = Method::ALL.map(|method| {
            let (ratio, slow) = match method.class() {
                Class::Mutating => (settings.mutating, Some(settings.slow)),
                Class::Poll => (settings.polls, Some(settings.slow)),
                // A watch lasts as long as its caller likes.
                Class::Watch => (settings.polls, None),
            };
            MethodRule {
                outside: Share::from_ratio(ratio),
                within: Share::NONE,
                slow,
            }
        });
        for row in &settings.methods {
            let rule = &mut methods[row.method.index()];
            if let Some(ratio) = row.ratio {
                rule.outside = Share::from_ratio(ratio);
                rule.within = Share::from_ratio(ratio);
            }
            rule.slow = row.slow.or(rule.slow);
        }
        Self {
            methods,
            episodes: Share::from_ratio(settings.episodes),
            respects: settings.on_unsampled_parent == OnUnsampledParent::Respect,
        }
    }

    /// Returns whether a call of this duration is slow.
    pub fn is_slow(&self, method: Method, elapsed: Duration) -> bool {
        let slow = self.methods[method.index()].slow;
        slow.is_some_and(|slow| elapsed >= slow)
    }

    /// Returns whether a call outside of episodes is chosen. `sampled` is the caller's decision, if it has a trace.
    pub fn chooses(&self, method: Method, trace_id: TraceId, sampled: Option<bool>) -> bool {
        match sampled {
            Some(true) => true,
            Some(false) if self.respects => false,
            _ => self.methods[method.index()].outside.has(trace_id),
        }
    }

    /// Returns whether an episode is chosen, with all its calls.
    pub fn chooses_episode(&self, trace_id: TraceId) -> bool {
        self.episodes.has(trace_id)
    }

    /// Returns the rules for a call of an episode.
    pub fn joining(&self, method: Method) -> Joining {
        Joining {
            episodes: self.episodes,
            method: self.methods[method.index()].within,
            respects: self.respects,
        }
    }
}

/// The rules in force. Clones share them.
#[derive(Clone, Debug)]
pub struct LiveSamplingRules(Arc<ArcSwap<SamplingRules>>);

impl LiveSamplingRules {
    /// Creates the rules from the settings.
    pub fn new(settings: &SamplingSettings) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(SamplingRules::new(
            settings,
        ))))
    }

    /// Applies other settings.
    pub fn set(&self, settings: &SamplingSettings) {
        self.0.store(Arc::new(SamplingRules::new(settings)));
    }

    /// Returns the rules. Hold the guard only briefly.
    pub fn load(&self) -> Guard<Arc<SamplingRules>> {
        self.0.load()
    }
}

/// Settings for tests.
#[cfg(any(test, feature = "test-util"))]
pub mod testing {
    use super::*;

    /// Settings with these ratios.
    pub fn sampling(mutating: f64, polls: f64) -> SamplingSettings {
        SamplingSettings {
            mutating,
            polls,
            slow: Duration::from_secs(1),
            episodes: 1.0,
            on_unsampled_parent: OnUnsampledParent::Episode,
            methods: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::sampling;
    use super::*;
    use crate::settings::MethodSampling;

    const ID: TraceId = TraceId::from_bytes([0x7f; 16]);

    #[test]
    fn methods_may_override_settings() {
        let mut settings = sampling(1.0, 0.0);
        let row = |method, ratio, slow: Option<u64>| MethodSampling {
            method,
            ratio,
            slow: slow.map(Duration::from_secs),
        };
        settings.methods = vec![
            row(Method::PullImage, Some(0.0), Some(30)),
            row(Method::Version, Some(1.0), None),
            row(Method::GetContainerEvents, None, Some(60)),
        ];
        let rules = SamplingRules::new(&settings);
        // Method, whether it is chosen, and the seconds from which it is slow.
        let table = [
            (Method::PullImage, false, Some(30)),
            (Method::RunPodSandbox, true, Some(1)),
            (Method::Version, true, Some(1)),
            (Method::Status, false, Some(1)),
            (Method::GetContainerEvents, false, Some(60)),
            (Method::Other, true, Some(1)),
        ];
        for (method, chosen, slow) in table {
            assert_eq!(rules.chooses(method, ID, None), chosen, "{method}");
            let slow = slow.map(Duration::from_secs).expect("given");
            assert!(rules.is_slow(method, slow), "{method}");
            let less = slow - Duration::from_nanos(1);
            assert!(!rules.is_slow(method, less), "{method}");
        }
        assert_eq!(
            rules.joining(Method::Version).method,
            Share::from_ratio(1.0)
        );
        assert_eq!(rules.joining(Method::RunPodSandbox).method, Share::NONE);
        let day = Duration::from_secs(86400);
        let plain = SamplingRules::new(&sampling(1.0, 1.0));
        assert!(!plain.is_slow(Method::GetContainerEvents, day));
    }

    #[test]
    fn the_callers_decision_counts() {
        let mut settings = sampling(1.0, 0.0);
        let chosen = |settings: &SamplingSettings, method| {
            let rules = SamplingRules::new(settings);
            [None, Some(false), Some(true)].map(|caller| rules.chooses(method, ID, caller))
        };
        assert_eq!(chosen(&settings, Method::ExecSync), [true, true, true]);
        assert_eq!(chosen(&settings, Method::Version), [false, false, true]);
        settings.on_unsampled_parent = OnUnsampledParent::Respect;
        assert_eq!(chosen(&settings, Method::ExecSync), [true, false, true]);
    }

    #[test]
    fn clones_see_changed_settings() {
        let live = LiveSamplingRules::new(&sampling(1.0, 0.0));
        let other = live.clone();
        let mut settings = sampling(1.0, 0.0);
        settings.episodes = 0.0;
        assert!(other.load().chooses_episode(ID));
        live.set(&settings);
        assert!(!other.load().chooses_episode(ID));
    }
}
