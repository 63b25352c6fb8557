//! Which calls become spans: the settings as a table with a row per method, so that a decision is a look-up.
//!
//! A decision falls twice. When a call enters, it is chosen or not, and the backend is told. When it ends, what failed,
//! was cancelled, stuck or slow is kept also if it was not chosen.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use opentelemetry::trace::TraceId;

use super::settings::{OnUnsampledParent, Sampling};
use crate::call::trace::{Joining, Share};
use crate::cri::Method;
use crate::cri::method::Class;

/// Share of its deadline, in percent, from which on a call counts as stuck.
pub const STUCK: u32 = 50;

/// The table.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    methods: [Rule; Method::COUNT],
    episodes: Share,
    respects: bool,
}

/// A row of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rule {
    /// Calls that are no part of an episode.
    outside: Share,
    /// Calls that are, beside those of chosen episodes.
    within: Share,
    /// From when on a call is slow; `None` if never.
    slow: Option<Duration>,
}

impl Rules {
    /// The table of these settings.
    pub fn new(settings: &Sampling) -> Self {
        let mut methods = Method::ALL.map(|method| {
            let (ratio, slow) = match method.class() {
                Class::Mutating => (settings.mutating, Some(settings.slow)),
                Class::Poll => (settings.polls, Some(settings.slow)),
                // It takes as long as its caller listens.
                Class::Watch => (settings.polls, None),
            };
            Rule {
                outside: Share::of(ratio),
                within: Share::NONE,
                slow,
            }
        });
        for row in &settings.methods {
            let rule = &mut methods[row.method.index()];
            if let Some(ratio) = row.ratio {
                rule.outside = Share::of(ratio);
                rule.within = Share::of(ratio);
            }
            rule.slow = row.slow.or(rule.slow);
        }
        Self {
            methods,
            episodes: Share::of(settings.episodes),
            respects: settings.on_unsampled_parent == OnUnsampledParent::Respect,
        }
    }

    /// Whether a call that took so long is slow.
    pub fn is_slow(&self, method: Method, elapsed: Duration) -> bool {
        let slow = self.methods[method.index()].slow;
        slow.is_some_and(|slow| elapsed >= slow)
    }

    /// Whether a call that is no part of an episode is chosen. `sampled` is what its caller says, if it has a trace.
    pub fn chooses(&self, method: Method, trace_id: TraceId, sampled: Option<bool>) -> bool {
        match sampled {
            Some(true) => true,
            Some(false) if self.respects => false,
            _ => self.methods[method.index()].outside.has(trace_id),
        }
    }

    /// Whether an episode is chosen, with all its calls.
    pub fn chooses_episode(&self, trace_id: TraceId) -> bool {
        self.episodes.has(trace_id)
    }

    /// What holds for a call that turns out to be part of an episode.
    pub fn joining(&self, method: Method) -> Joining {
        Joining {
            episodes: self.episodes,
            method: self.methods[method.index()].within,
            respects: self.respects,
        }
    }
}

/// The table in force. Clones share it.
#[derive(Clone, Debug)]
pub struct Live(Arc<ArcSwap<Rules>>);

impl Live {
    /// Begins with these settings.
    pub fn new(settings: &Sampling) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(Rules::new(settings))))
    }

    /// Takes over other settings.
    pub fn set(&self, settings: &Sampling) {
        self.0.store(Arc::new(Rules::new(settings)));
    }

    /// The table; to be held for a moment only.
    pub fn load(&self) -> Guard<Arc<Rules>> {
        self.0.load()
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Settings with these shares.
    pub(crate) fn sampling(mutating: f64, polls: f64) -> Sampling {
        Sampling {
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
    use crate::telemetry::settings::MethodSampling;

    const ID: TraceId = TraceId::from_bytes([0x7f; 16]);

    #[test]
    fn a_method_may_have_settings_of_its_own() {
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
        let rules = Rules::new(&settings);
        // Method, whether it is chosen, and from how many seconds on it is slow.
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
        assert_eq!(rules.joining(Method::Version).method, Share::of(1.0));
        assert_eq!(rules.joining(Method::RunPodSandbox).method, Share::NONE);
        let day = Duration::from_secs(86400);
        let plain = Rules::new(&sampling(1.0, 1.0));
        assert!(!plain.is_slow(Method::GetContainerEvents, day));
    }

    #[test]
    fn the_callers_word() {
        let mut settings = sampling(1.0, 0.0);
        let chosen = |settings: &Sampling, method| {
            let rules = Rules::new(settings);
            [None, Some(false), Some(true)].map(|caller| rules.chooses(method, ID, caller))
        };
        assert_eq!(chosen(&settings, Method::ExecSync), [true, true, true]);
        assert_eq!(chosen(&settings, Method::Version), [false, false, true]);
        settings.on_unsampled_parent = OnUnsampledParent::Respect;
        assert_eq!(chosen(&settings, Method::ExecSync), [true, false, true]);
    }

    #[test]
    fn other_settings_are_seen_by_all() {
        let live = Live::new(&sampling(1.0, 0.0));
        let other = live.clone();
        let mut settings = sampling(1.0, 0.0);
        settings.episodes = 0.0;
        assert!(other.load().chooses_episode(ID));
        live.set(&settings);
        assert!(!other.load().chooses_episode(ID));
    }
}
