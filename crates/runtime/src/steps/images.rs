//! Records the image store's steps like those of the runtime.

use std::path::Path;
use std::sync::Arc;

use criscope_image::{
    ActiveStep, Error, ImportEnd, Observer, Outcome, RateLimit, RequestProgress, Steps, Verdict,
    Verifier,
};
use opentelemetry_semantic_conventions::attribute as key;

use super::{Current, Step, StepRecorder, current, remark_within, server_remark_within};
use crate::error::shown;
use criscope_cri::call::steps::{RuntimeStep, StepOutcome};
use criscope_cri::call::transfer::Transfer;
use criscope_cri::redact;
use criscope_telemetry::BackgroundJob;

impl Observer for StepRecorder {
    fn operation(&self) -> Arc<dyn Steps> {
        let (recorder, within) = (self.clone(), current());
        Arc::new(Within { recorder, within })
    }

    fn import_started(&self, archive: &Path) -> ImportEnd {
        let job = BackgroundJob::ImageImport.begin();
        job.set(key::FILE_PATH, archive.display().to_string());
        Box::new(move |imported| match imported {
            Ok(images) => job.count("criscope.images", images),
            Err(error) => job.failed("import", &shown(error)),
        })
    }

    fn pull_started(&self) {
        if let Some(metrics) = self.metrics() {
            metrics.pulling.add((), 1);
        }
    }

    fn pull_ended(&self, ended: Outcome) {
        if let Some(metrics) = self.metrics() {
            metrics.pull_ended(outcome(ended));
        }
    }

    fn verified(&self, by: Verifier, verdict: Verdict) {
        if let Some(metrics) = self.metrics() {
            metrics.image_verified(by, verdict);
        }
    }

    fn rate_limit(&self, registry: &str, limit: &RateLimit) {
        if let Some(metrics) = self.metrics() {
            metrics.rate_limits().set(registry, limit);
        }
    }

    fn bytes_fetched(&self, bytes: u64) {
        if let Some(metrics) = self.metrics() {
            metrics.pulled_bytes.inc_by((), bytes);
        }
    }

    fn server_words(&self, words: String) -> String {
        redact::server_words(&words).into()
    }

    fn error_text(&self, error: &Error) -> Box<str> {
        shown(error)
    }
}

/// Records steps for one call, within one of its steps, regardless of the task or thread.
#[derive(Clone, Debug)]
struct Within {
    recorder: StepRecorder,
    within: Option<Current>,
}

impl Steps for Within {
    fn start(&self, step: criscope_image::Step, name: Option<&str>) -> Box<dyn ActiveStep> {
        let what = match step {
            criscope_image::Step::Resolve => RuntimeStep::ImageResolve,
            criscope_image::Step::Layer => RuntimeStep::ImageLayer,
            criscope_image::Step::Fetch => RuntimeStep::LayerFetch,
            criscope_image::Step::Unpack => RuntimeStep::LayerUnpack,
            criscope_image::Step::Verify => RuntimeStep::ImageVerify,
            criscope_image::Step::UnwrapKey => RuntimeStep::LayerKey,
            criscope_image::Step::Record => RuntimeStep::ImageRecord,
        };
        Box::new(self.recorder.begin_within(what, name, self.within.clone()))
    }

    fn remark(&self, image: &str, text: &str) {
        remark_within(self.within.as_ref(), image, text);
    }

    fn server_remark(&self, image: &str, text: &str) {
        server_remark_within(self.within.as_ref(), image, text);
    }
}

impl ActiveStep for Step {
    fn steps(&self) -> Arc<dyn Steps> {
        let (recorder, within) = (self.recorder.clone(), self.within());
        Arc::new(Within { recorder, within })
    }

    fn requests(&self) -> Option<Arc<dyn RequestProgress>> {
        let (steps, begun) = self.place.as_ref()?;
        let transfer = steps.transfer(*begun)?;
        Some(Arc::new(StepRequests(transfer)))
    }

    fn end(self: Box<Self>, ended: Outcome) {
        self.end_with(outcome(ended));
    }
}

/// Records the requests of one step.
#[derive(Debug)]
struct StepRequests(Arc<Transfer>);

impl RequestProgress for StepRequests {
    fn asked(&self, server: &str) {
        self.0.asked(server);
    }

    fn received(&self, bytes: u64) {
        self.0.received(bytes);
    }

    fn expects(&self, bytes: u64) {
        self.0.expects(bytes);
    }
}

fn outcome(outcome: Outcome) -> StepOutcome {
    match outcome {
        Outcome::Ok => StepOutcome::Ok,
        Outcome::Error => StepOutcome::Error,
        Outcome::Cancelled => StepOutcome::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    use super::super::in_call;
    use super::*;
    use criscope_cri::call::steps::RuntimeSteps;

    #[tokio::test]
    async fn image_steps_belong_to_their_call_on_other_tasks() {
        let steps = Arc::new(RuntimeSteps::new(None));
        let recorder = StepRecorder::default();
        let pull = async {
            let layer = recorder
                .operation()
                .start(criscope_image::Step::Layer, Some("sha256:0a1b"));
            let inner = layer.steps();
            inner.remark("a.example/b:1", "the registry is old");
            let fetch = async move {
                let fetch = inner.start(criscope_image::Step::Fetch, None);
                let requests = fetch.requests().expect("it is recorded");
                requests.asked("r.example");
                requests.received(3);
                drop(fetch);
            };
            tokio::spawn(fetch).await.expect("the task ends");
            layer.end(Outcome::Error);
        };
        in_call(Some(Arc::clone(&steps)), pull).await;
        let all = steps.read();
        let [layer, fetch] = &all[..] else {
            panic!("two steps");
        };
        assert_eq!((layer.parent, fetch.parent), (steps.root(), layer.span));
        assert_eq!(layer.name.as_deref(), Some("sha256:0a1b"));
        let transfer = fetch.transfer.read().expect("a server");
        assert_eq!((&*transfer.server, transfer.bytes), ("r.example", 3));
        let how = |record: &criscope_cri::call::steps::StepRecord| record.ended.map(|(_, how)| how);
        assert_eq!(how(layer), Some(StepOutcome::Error));
        assert_eq!(how(fetch), Some(StepOutcome::Cancelled));
        steps.redact_remarks(|text| text.into());
        assert_eq!(steps.remarks(), ["the registry is old".into()]);
    }
}
