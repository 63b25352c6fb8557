//! Layers in flight: one task per layer and registry, regardless of how many pulls wait for it. It is cancelled when the
//! last waiter leaves.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::blocking::lock;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::progress::LayerProgress;
use crate::store::LayerClaim;

/// A layer, the registry it is fetched from, and the proof that was shown for it: a pull with another proof fetches its own blob.
pub(super) type Key = (Digest, Arc<str>, LayerClaim);

type Outcome = Option<Result<()>>;

/// The outcome of a flight, once it has ended.
pub(crate) type Ending = watch::Receiver<Outcome>;

/// All layers in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights(Arc<Mutex<HashMap<Key, Flight>>>);

#[derive(Debug)]
struct Flight {
    waiters: usize,
    cancel: CancellationToken,
    outcome: Ending,
    progress: Arc<LayerProgress>,
}

/// Waits for a flight. Dropping the last waiter cancels the flight.
#[derive(Debug)]
pub(crate) struct Waiter {
    flights: Flights,
    key: Key,
    outcome: Ending,
    pub(super) progress: Arc<LayerProgress>,
    /// True if this waiter began the flight.
    pub(super) is_first: bool,
    finished: bool,
}

/// The result of [`Flights::join`].
#[derive(Debug)]
pub(super) enum Joined {
    Waiter(Waiter),
    /// A flight that all waiters have left. Once it has ended, a new one can begin.
    Ending(Ending),
}

impl Flights {
    /// Joins the flight of a layer, or begins one with `start`.
    pub(super) fn join<F, T>(&self, key: &Key, start: F) -> Joined
    where
        F: FnOnce(CancellationToken) -> (Arc<LayerProgress>, T),
        T: Future<Output = Result<()>> + Send + 'static,
    {
        let mut flights = lock(&self.0);
        if let Some(flight) = flights.get_mut(key) {
            if flight.cancel.is_cancelled() {
                return Joined::Ending(flight.outcome.clone());
            }
            flight.waiters += 1;
            return Joined::Waiter(self.waiter(key, flight, false));
        }
        let cancel = CancellationToken::new();
        let (progress, task) = start(cancel.clone());
        let (sender, outcome) = watch::channel(None);
        let flight = Flight {
            waiters: 1,
            cancel,
            outcome,
            progress,
        };
        let waiter = self.waiter(key, &flight, true);
        flights.insert(key.clone(), flight);
        drop(flights);
        let end = End {
            flights: self.clone(),
            key: key.clone(),
            sender,
        };
        tokio::spawn(async move {
            let result = task.await;
            end.with(result);
        });
        Joined::Waiter(waiter)
    }

    fn waiter(&self, key: &Key, flight: &Flight, is_first: bool) -> Waiter {
        Waiter {
            flights: self.clone(),
            key: key.clone(),
            outcome: flight.outcome.clone(),
            progress: Arc::clone(&flight.progress),
            is_first,
            finished: false,
        }
    }
}

/// Removes a flight when it ends, including when its task is dropped with the async runtime.
struct End {
    flights: Flights,
    key: Key,
    sender: watch::Sender<Outcome>,
}

impl End {
    fn with(self, result: Result<()>) {
        // Removed first: a waiter that requests the layer again after the outcome must start a new flight.
        lock(&self.flights.0).remove(&self.key);
        self.sender.send_replace(Some(result));
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if self.sender.borrow().is_none() {
            lock(&self.flights.0).remove(&self.key);
        }
    }
}

impl Waiter {
    pub(super) async fn wait(mut self) -> Result<()> {
        let outcome = ended(&mut self.outcome).await;
        self.finished = true;
        outcome.unwrap_or_else(|| Err(Error::cancelled(format!("layer {}", self.key.0))))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let mut flights = lock(&self.flights.0);
        if let Some(flight) = flights.get_mut(&self.key)
            // The flight may have ended, and another one begun.
            && flight.outcome.same_channel(&self.outcome)
        {
            flight.waiters -= 1;
            if flight.waiters == 0 {
                flight.cancel.cancel();
            }
        }
    }
}

/// Waits for the outcome of a flight; `None` if its task was dropped.
pub(super) async fn ended(outcome: &mut Ending) -> Outcome {
    let ended = outcome.wait_for(Option::is_some).await;
    ended.map_or(None, |outcome| outcome.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    fn progress(key: &Key) -> Arc<LayerProgress> {
        Arc::new(LayerProgress::new(key.0.clone(), 0))
    }

    fn waiter(joined: Joined) -> Waiter {
        match joined {
            Joined::Waiter(waiter) => waiter,
            Joined::Ending(_) => panic!("it is ending"),
        }
    }

    #[tokio::test]
    async fn several_waiters_share_a_flight() {
        let (flights, layer) = (
            Flights::default(),
            (
                Digest::sha256(b"x"),
                Arc::from("r"),
                LayerClaim::Key([0; 32]),
            ),
        );
        let (count, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let join = || {
            let (count, gate) = (Arc::clone(&count), Arc::clone(&gate));
            waiter(flights.join(&layer, |_| {
                let task = async move {
                    count.fetch_add(1, Ordering::Relaxed);
                    let _open = gate.acquire().await;
                    Ok(())
                };
                (progress(&layer), task)
            }))
        };
        let (first, second, third) = (join(), join(), join());
        assert!(first.is_first && !second.is_first);
        drop(first);
        gate.add_permits(1);
        second.wait().await.expect("the second");
        third.wait().await.expect("the third");
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert!(lock(&flights.0).is_empty());
    }

    #[tokio::test]
    async fn the_last_waiter_cancels_the_flight_and_the_next_waits_for_its_end() {
        let (flights, layer) = (
            Flights::default(),
            (
                Digest::sha256(b"x"),
                Arc::from("r"),
                LayerClaim::Key([0; 32]),
            ),
        );
        let gate = Arc::new(Semaphore::new(0));
        let join = || {
            let gate = Arc::clone(&gate);
            flights.join(&layer, |cancel| {
                let task = async move {
                    cancel.cancelled().await;
                    let _cleaned = gate.acquire().await;
                    Ok(())
                };
                (progress(&layer), task)
            })
        };
        drop(join());
        let Joined::Ending(mut outcome) = join() else {
            panic!("it has no waiters");
        };
        gate.add_permits(1);
        assert!(ended(&mut outcome).await.is_some());
        assert!(waiter(join()).is_first);
    }
}
