//! Divides the time of an episode into phases. Each instant is in exactly one phase, so the phases add up to the duration.

use std::collections::BTreeSet;
use std::time::Duration;

use criscope_cri::Method;
use criscope_cri::units::times::UnixMicros;

criscope_cri::named! {
    /// A part of an episode. A metric label.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum EpisodePhase {
        /// RunPodSandbox, without observed CNI plugins.
        Sandbox = "sandbox",
        /// RestorePod: the sandbox and its containers, from a checkpoint.
        Restore = "restore",
        /// CNI plugins.
        Network = "network",
        /// PullImage.
        ImagePull = "image_pull",
        /// CreateContainer.
        ContainerCreate = "container_create",
        /// StartContainer.
        ContainerStart = "container_start",
        /// No call in flight, while a container ran to its end before the next call: an init container.
        InitContainer = "init_container",
        /// ExecSync of a postStart or preStop hook.
        Hook = "hook",
        /// No call of the episode in flight, while CheckpointPod or CheckpointContainer had frozen containers.
        Checkpoint = "checkpoint",
        /// StopContainer: mostly the container's grace period.
        ContainerStop = "container_stop",
        /// StopPodSandbox, without observed CNI plugins.
        SandboxStop = "sandbox_stop",
        /// RemoveContainer.
        ContainerRemove = "container_remove",
        /// RemovePodSandbox.
        SandboxRemove = "sandbox_remove",
        /// No call in flight: the kubelet's own time, volumes, back-off.
        OutsideCri = "outside_cri",
    }
}

impl EpisodePhase {
    /// The phase of a call without further observations.
    pub const fn from_method(method: Method) -> Self {
        match method {
            Method::RunPodSandbox => Self::Sandbox,
            Method::RestorePod => Self::Restore,
            Method::PullImage => Self::ImagePull,
            Method::CreateContainer => Self::ContainerCreate,
            Method::StartContainer => Self::ContainerStart,
            Method::ExecSync => Self::Hook,
            Method::CheckpointPod | Method::CheckpointContainer => Self::Checkpoint,
            Method::StopContainer => Self::ContainerStop,
            Method::StopPodSandbox => Self::SandboxStop,
            Method::RemoveContainer => Self::ContainerRemove,
            Method::RemovePodSandbox => Self::SandboxRemove,
            _ => Self::OutsideCri,
        }
    }
}

/// Time per phase, indexed by [`EpisodePhase`].
pub(super) type PhaseShares = [Duration; EpisodePhase::ALL.len()];

/// A part of an episode that one phase takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PhaseInterval {
    pub(super) begin: UnixMicros,
    pub(super) end: UnixMicros,
    pub(super) phase: EpisodePhase,
}

/// Divides the time from `from` to `to` among phases. At each instant the network precedes its call, and a call precedes a
/// running container and a checkpoint; among several calls the first to begin counts.
pub(super) fn divide(from: UnixMicros, to: UnixMicros, intervals: &[PhaseInterval]) -> PhaseShares {
    let mut shares = PhaseShares::default();
    let mut edges = edges(from, to, intervals);
    edges.sort_unstable();
    let mut active = BTreeSet::new();
    let mut at = from;
    for (time, begins, rank) in edges {
        shares[current(&active) as usize] += time.since(at);
        at = time;
        if begins {
            active.insert(rank);
        } else {
            active.remove(&rank);
        }
    }
    shares[current(&active) as usize] += to.since(at);
    shares
}

/// Order of the intervals at one instant: the smallest counts.
type IntervalRank = (u8, UnixMicros, usize, EpisodePhase);

fn current(active: &BTreeSet<IntervalRank>) -> EpisodePhase {
    active
        .first()
        .map_or(EpisodePhase::OutsideCri, |(.., phase)| *phase)
}

fn edges(
    from: UnixMicros,
    to: UnixMicros,
    intervals: &[PhaseInterval],
) -> Vec<(UnixMicros, bool, IntervalRank)> {
    let mut edges = Vec::with_capacity(2 * intervals.len());
    for (i, interval) in intervals.iter().enumerate() {
        let (begin, end) = (interval.begin.max(from), interval.end.min(to));
        if begin < end {
            let order = match interval.phase {
                EpisodePhase::Network => 0,
                EpisodePhase::InitContainer | EpisodePhase::Checkpoint => 2,
                _ => 1,
            };
            let rank = (order, interval.begin, i, interval.phase);
            edges.push((begin, true, rank));
            edges.push((end, false, rank));
        }
    }
    edges
}

/// Subtracts the time of calls that were dropped from the time between calls.
pub(super) fn add_forgotten(shares: &mut PhaseShares, forgotten: &PhaseShares) {
    let outside = EpisodePhase::OutsideCri as usize;
    for (i, time) in forgotten.iter().enumerate() {
        let time = (*time).min(shares[outside]);
        shares[outside] -= time;
        shares[i] += time;
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;
    use criscope_cri::units::times::{micros_of, millis};

    const fn at(micros: u64) -> UnixMicros {
        UnixMicros::new(micros)
    }

    fn interval(begin: u64, end: u64, phase: EpisodePhase) -> PhaseInterval {
        let (begin, end) = (at(begin), at(end));
        PhaseInterval { begin, end, phase }
    }

    fn share(shares: &PhaseShares, phase: EpisodePhase) -> u64 {
        micros_of(shares[phase as usize])
    }

    #[test]
    fn one_after_the_other() {
        let shares = divide(
            at(100),
            at(1000),
            &[
                interval(100, 400, EpisodePhase::Sandbox),
                interval(150, 350, EpisodePhase::Network),
                interval(500, 700, EpisodePhase::ImagePull),
                interval(700, 1000, EpisodePhase::ContainerStart),
            ],
        );
        assert_eq!(share(&shares, EpisodePhase::Sandbox), 100);
        assert_eq!(share(&shares, EpisodePhase::Network), 200);
        assert_eq!(share(&shares, EpisodePhase::OutsideCri), 100);
        assert_eq!(share(&shares, EpisodePhase::ImagePull), 200);
        assert_eq!(share(&shares, EpisodePhase::ContainerStart), 300);
    }

    #[test]
    fn of_calls_at_the_same_time_the_first_counts() {
        let shares = divide(
            at(0),
            at(100),
            &[
                interval(20, 60, EpisodePhase::ContainerStop),
                interval(0, 40, EpisodePhase::ImagePull),
            ],
        );
        assert_eq!(share(&shares, EpisodePhase::ImagePull), 40);
        assert_eq!(share(&shares, EpisodePhase::ContainerStop), 20);
        assert_eq!(share(&shares, EpisodePhase::OutsideCri), 40);
    }

    #[test]
    fn the_same_interval_twice_is_no_trouble() {
        let same = [interval(0, 10, EpisodePhase::Network); 3];
        assert_eq!(
            share(&divide(at(0), at(10), &same), EpisodePhase::Network),
            10
        );
    }

    #[test]
    fn random_intervals_add_up() {
        let mut random = StdRng::seed_from_u64(3);
        for _ in 0..2000 {
            let from = random.random_range(0..1_000_000);
            let to = from + random.random_range(0..2_000_000);
            let intervals: Vec<_> = (0..random.random_range(0..40))
                .map(|_| {
                    let begin = random.random_range(0..4_000_000);
                    let end = begin + random.random_range(0..1_000_000);
                    let phase = EpisodePhase::ALL[random.random_range(0..EpisodePhase::ALL.len())];
                    interval(begin, end, phase)
                })
                .collect();
            let mut shares = divide(at(from), at(to), &intervals);
            assert_eq!(
                shares.iter().sum::<Duration>(),
                at(to).since(at(from)),
                "{intervals:?}"
            );
            let mut forgotten = PhaseShares::default();
            forgotten[random.random_range(0..9)] =
                Duration::from_micros(random.random_range(0..3_000_000));
            add_forgotten(&mut shares, &forgotten);
            assert_eq!(shares.iter().sum::<Duration>(), at(to).since(at(from)));
            // As in the view.
            let ms: f64 = shares.iter().map(|share| millis(*share)).sum();
            assert!((ms - (to - from) as f64 / 1000.0).abs() < 1e-6);
        }
    }
}
