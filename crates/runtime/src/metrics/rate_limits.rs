//! The limits of requests that registries tell with their answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use criscope_image::RateLimit;

use super::{OTHER_REGISTRIES, REGISTRIES, RUNTIME_REGISTRY_LIMIT, RUNTIME_REGISTRY_REMAINING};
use criscope_telemetry::computed::ComputedSeries;
use criscope_telemetry::registry::{Registry, RegistryError};

/// How long a limit counts that does not tell its window: that of Docker Hub.
const DEFAULT_WINDOW: Duration = Duration::from_secs(6 * 3600);

/// The latest limit of each registry.
#[derive(Clone, Debug, Default)]
pub struct RateLimits(Arc<Mutex<[Option<ToldLimit>; REGISTRIES.len()]>>);

#[derive(Clone, Debug)]
struct ToldLimit {
    registry: Box<str>,
    remaining: u64,
    limit: Option<u64>,
    /// When a new window has begun in any case.
    until: Instant,
}

impl RateLimits {
    /// Registers the metrics. A registry has series from its first answer with a limit until the window of that is over.
    ///
    /// # Errors
    /// If they are already registered.
    pub(super) fn new(registry: &Registry) -> Result<Self, RegistryError> {
        let limits = Self::default();
        let own = limits.clone();
        registry.computed(&RUNTIME_REGISTRY_REMAINING, move |out| {
            own.put(out, |told| Some(told.remaining));
        })?;
        let own = limits.clone();
        registry.computed(&RUNTIME_REGISTRY_LIMIT, move |out| {
            own.put(out, |told| told.limit);
        })?;
        Ok(limits)
    }

    fn put(&self, out: &mut ComputedSeries, value: fn(&ToldLimit) -> Option<u64>) {
        let now = Instant::now();
        for (name, told) in REGISTRIES.iter().zip(&*self.lock()) {
            let told = told.as_ref().filter(|told| told.until > now);
            if let Some(value) = told.and_then(value) {
                out.put(&[name], value as f64);
            }
        }
    }

    /// Records the limit of a registry. Of registries that share a series, the one with the fewest requests left is shown.
    pub fn set(&self, registry: &str, limit: &RateLimit) {
        let now = Instant::now();
        let told = ToldLimit {
            registry: registry.into(),
            remaining: limit.remaining,
            limit: limit.limit,
            until: now + limit.window.unwrap_or(DEFAULT_WINDOW),
        };
        let place = REGISTRIES.iter().position(|name| *name == registry);
        let place = place.or_else(|| REGISTRIES.iter().position(|name| *name == OTHER_REGISTRIES));
        let mut all = self.lock();
        let Some(shown) = place.and_then(|place| all.get_mut(place)) else {
            return;
        };
        let stays = shown.as_ref().is_some_and(|shown| {
            shown.registry != told.registry && shown.until > now && shown.remaining < told.remaining
        });
        if !stays {
            *shown = Some(told);
        }
    }

    fn lock(&self) -> MutexGuard<'_, [Option<ToldLimit>; REGISTRIES.len()]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(remaining: u64, window: Option<Duration>) -> RateLimit {
        RateLimit {
            remaining,
            limit: Some(100),
            window,
            source: None,
        }
    }

    #[test]
    fn the_number_of_registries_is_bounded_and_the_least_is_shown() {
        let registry = Registry::new(prometheus::Registry::new(), []);
        let limits = RateLimits::new(&registry).expect("registers");
        limits.set("docker.io", &limit(76, None));
        limits.set("docker.io", &limit(80, None));
        for n in 0..50 {
            limits.set(&format!("r{n}.example"), &limit(60 - n, None));
        }
        limits.set("r1.example", &limit(59, None));
        // The window is over at once.
        limits.set("quay.io", &limit(3, Some(Duration::ZERO)));
        let text = String::from_utf8(registry.encode().expect("encodes")).expect("utf-8");
        let remaining = "criscope_runtime_registry_requests_remaining";
        for line in [
            &format!("{remaining}{{registry=\"docker.io\"}} 80"),
            &format!("{remaining}{{registry=\"other\"}} 11"),
            "criscope_runtime_registry_requests_limit{registry=\"other\"} 100",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches(&format!("{remaining}{{")).count(), 2, "{text}");
        // The one that is shown has more again.
        limits.set("r49.example", &limit(90, None));
        let text = String::from_utf8(registry.encode().expect("encodes")).expect("utf-8");
        assert!(
            text.contains(&format!("{remaining}{{registry=\"other\"}} 90")),
            "{text}"
        );
    }
}
