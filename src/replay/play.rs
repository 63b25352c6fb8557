//! Plays the plan: each call at its time, and not before the calls that it waits for.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::transport::Channel;

use super::plan::{RecordedStep, SkipReason, id_paths};
use super::stand_ins::{StandInObjects, UnusableRequest};
use super::target::{self, ReplayedResponse};
use super::wire;
use crate::cri::Method;
use crate::cri::redact;

/// Most calls in flight or waiting; more than that are started late.
const MAX_CALLS_UNDER_WAY: usize = 4096;

/// Time limit of a call that removes leftovers.
const CLEANUP_CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Outcome of a step.
#[derive(Clone, Debug)]
pub(super) enum PlayedOutcome {
    /// The call was played.
    Done {
        code: Code,
        /// The target's error, redacted.
        text: Box<str>,
        elapsed: Duration,
    },
    /// The call was not played.
    Skipped(SkipReason),
}

/// The objects on the target.
#[derive(Debug, Default)]
struct TargetObjects {
    /// The target's id by the recorded one.
    ids: HashMap<String, String>,
    /// Sandboxes that have not been removed.
    sandboxes: BTreeSet<String>,
}

#[derive(Debug)]
pub(super) struct CallPlayer {
    channel: Channel,
    stand_ins: StandInObjects,
    objects: Mutex<TargetObjects>,
}

impl CallPlayer {
    pub(super) fn new(channel: Channel, stand_ins: StandInObjects) -> Self {
        Self {
            channel,
            stand_ins,
            objects: Mutex::default(),
        }
    }

    fn objects(&self) -> MutexGuard<'_, TargetObjects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plays all steps, until `stop`. Returns what became of each.
    pub(super) async fn play(
        self: &Arc<Self>,
        steps: &Arc<Vec<RecordedStep>>,
        speed: f64,
        stop: &CancellationToken,
    ) -> Vec<PlayedOutcome> {
        let ended: Arc<Vec<_>> = Arc::new(steps.iter().map(|_| CancellationToken::new()).collect());
        let room = Arc::new(Semaphore::new(MAX_CALLS_UNDER_WAY));
        let mut results = vec![PlayedOutcome::Skipped(SkipReason::Interrupted); steps.len()];
        let mut playing = JoinSet::new();
        let begin = Instant::now();
        for (i, step) in steps.iter().enumerate() {
            if let Some(why) = step.skipped {
                results[i] = PlayedOutcome::Skipped(why);
                ended[i].cancel();
                continue;
            }
            let due = sleep_until(begin + step.at.div_f64(speed));
            if stop.run_until_cancelled(due).await.is_none() {
                break;
            }
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                break;
            };
            let (player, steps, ended) = (Arc::clone(self), Arc::clone(steps), Arc::clone(&ended));
            playing.spawn(async move {
                let _end = ended[i].clone().drop_guard();
                let step = &steps[i];
                for before in &step.waits_for {
                    ended[*before].cancelled().await;
                }
                let played = player.step(step).await;
                drop(permit);
                (i, played)
            });
            while let Some(Ok((i, played))) = playing.try_join_next() {
                results[i] = played;
            }
        }
        // After an interruption, calls under way go on: the objects that they make must be removed.
        while let Some(joined) = playing.join_next().await {
            if let Ok((i, played)) = joined {
                results[i] = played;
            }
        }
        results
    }

    async fn step(&self, step: &RecordedStep) -> PlayedOutcome {
        let call = &step.call;
        let message = match self.translated(call.method, call.request.bytes()) {
            Ok(Some(message)) => message,
            Ok(None) => return PlayedOutcome::Skipped(SkipReason::NotMade),
            Err(UnusableRequest::Damaged(_)) => return PlayedOutcome::Skipped(SkipReason::Damaged),
            Err(error @ UnusableRequest::Io(_)) => {
                return PlayedOutcome::Done {
                    code: Code::Unknown,
                    text: error.to_string().into(),
                    elapsed: Duration::ZERO,
                };
            }
        };
        let message = match call.method {
            Method::CreateContainer => self.with_image(message).await,
            _ => message,
        };
        let target = self.named(call.method, &message);
        let sent = Bytes::from(message);
        let deadline = call.deadline.map(Duration::from_micros);
        let got = target::call(&self.channel, call.method, sent.clone(), deadline).await;
        if got.code == Code::Ok {
            self.learn(step, &got, target);
        }
        PlayedOutcome::Done {
            code: got.code,
            text: redact::error_text(&got.text, Some(&sent), None, None),
            elapsed: got.elapsed,
        }
    }

    /// The request with the target's ids and the stand-ins; `None` if the target has not made an object that it names.
    fn translated(
        &self,
        method: Method,
        message: &[u8],
    ) -> Result<Option<Vec<u8>>, UnusableRequest> {
        let mut message = message.to_vec();
        let mut is_known = true;
        for path in id_paths(method) {
            message = wire::edit(&message, path, &mut |id| {
                let id = String::from_utf8_lossy(id);
                if id.is_empty() {
                    return None;
                }
                let made = self.objects().ids.get(&*id).cloned();
                is_known &= made.is_some();
                made.map(String::into_bytes)
            })?;
        }
        if is_known {
            self.stand_ins.put(method, &message).map(Some)
        } else {
            Ok(None)
        }
    }

    /// A CreateContainer with the target's id of the image that the user named, since the recorded one may be of another
    /// platform or store.
    async fn with_image(&self, message: Vec<u8>) -> Vec<u8> {
        use prost::Message as _;
        let named = wire::texts(&message, &[2, 2, 18]).ok();
        let Some(image) = named.and_then(|mut it| it.pop()) else {
            return message;
        };
        let request = crate::cri::v1::ImageStatusRequest {
            image: Some(crate::cri::v1::ImageSpec {
                image,
                ..Default::default()
            }),
            verbose: false,
        };
        let sent = request.encode_to_vec().into();
        let got = target::call(
            &self.channel,
            Method::ImageStatus,
            sent,
            Some(CLEANUP_CALL_TIMEOUT),
        )
        .await;
        let id = wire::texts(&got.answer, &[1, 1]).unwrap_or_default().pop();
        let Some(id) = id else { return message };
        let put = wire::edit(&message, &[2, 2, 1], &mut |_| Some(id.clone().into_bytes()));
        put.unwrap_or(message)
    }

    /// The target's sandbox that the request is about.
    fn named(&self, method: Method, message: &[u8]) -> Option<String> {
        match method {
            Method::RemovePodSandbox => wire::texts(message, &[1]).ok()?.pop(),
            _ => None,
        }
    }

    /// Notes the objects that a successful call made or removed.
    fn learn(&self, step: &RecordedStep, got: &ReplayedResponse, removed: Option<String>) {
        let mut objects = self.objects();
        if let Some(sandbox) = removed {
            objects.sandboxes.remove(&sandbox);
        }
        let makes = matches!(
            step.call.method,
            Method::RunPodSandbox | Method::CreateContainer
        );
        let made = makes.then(|| wire::texts(&got.answer, &[1]).ok()?.pop());
        let Some(id) = made.flatten() else { return };
        if step.call.method == Method::RunPodSandbox {
            objects.sandboxes.insert(id.clone());
        }
        if let Some(recorded) = &step.call.made {
            objects.ids.insert(recorded.to_string(), id);
        }
    }

    /// Sandboxes on the target that the recording did not remove.
    pub(super) fn left(&self) -> Vec<String> {
        self.objects().sandboxes.iter().cloned().collect()
    }

    /// Removes these sandboxes with their containers, and the stand-ins. Returns what could not be removed.
    pub(super) async fn clean_up(&self) -> Vec<String> {
        use prost::Message as _;
        let mut kept = Vec::new();
        for sandbox in self.left() {
            let request = crate::cri::v1::RemovePodSandboxRequest {
                pod_sandbox_id: sandbox.clone(),
            };
            // Both requests have this one field.
            let request = Bytes::from(request.encode_to_vec());
            for method in [Method::StopPodSandbox, Method::RemovePodSandbox] {
                let got = target::call(
                    &self.channel,
                    method,
                    request.clone(),
                    Some(CLEANUP_CALL_TIMEOUT),
                )
                .await;
                if got.code != Code::Ok && method == Method::RemovePodSandbox {
                    kept.push(format!("sandbox {sandbox}: {}", got.text));
                }
            }
        }
        if let Err(error) = self.stand_ins.remove() {
            kept.push(format!("{}: {error}", self.stand_ins.root().display()));
        }
        kept
    }
}
