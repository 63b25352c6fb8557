//! Spans of background jobs: work that no call waits for, such as a reload or the recovery at the start.
//!
//! The spans reach the collector through [`otlp::layer`](crate::otlp::layer). Without a collector they record nothing.

use std::fmt::Display;

use opentelemetry::trace::Status;
use opentelemetry::{StringValue, Value};
use opentelemetry_semantic_conventions::attribute as key;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Target of the spans of jobs. No other span is exported through `tracing`.
pub(crate) const JOB_TARGET: &str = "criscope::job";

/// Longest error text, in bytes.
const MAX_ERROR_BYTES: usize = 256;

/// A background job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundJob {
    /// Connecting to a backend, until the backend answers.
    BackendConnect,
    /// Taking over a changed configuration.
    ConfigReload,
    /// Writing a dump of the flight recorder.
    DumpWrite,
    /// Removing layers and content that no image uses.
    ImageCollect,
    /// Writing images to the pipe of a client.
    ImageExport,
    /// Importing an archive of images.
    ImageImport,
    /// Filling the index of pods from the lists of a backend.
    IndexResync,
    /// Reading the journal of stories at the start.
    JournalReplay,
    /// Releasing what network plugins hold for pods that are gone.
    NetworkCollect,
    /// Ending a checkpoint of the previous daemon.
    RuntimeCheckpointEnd,
    /// Recovering the objects of the previous daemon.
    RuntimeRecovery,
    /// Retrying records that the recovery could not read.
    RuntimeReread,
    /// Reading a renewed certificate.
    TlsReload,
}

impl BackgroundJob {
    /// All jobs.
    pub const ALL: [Self; 13] = [
        Self::BackendConnect,
        Self::ConfigReload,
        Self::DumpWrite,
        Self::ImageCollect,
        Self::ImageExport,
        Self::ImageImport,
        Self::IndexResync,
        Self::JournalReplay,
        Self::NetworkCollect,
        Self::RuntimeCheckpointEnd,
        Self::RuntimeRecovery,
        Self::RuntimeReread,
        Self::TlsReload,
    ];

    /// The name of the span.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BackendConnect => "backend.connect",
            Self::ConfigReload => "config.reload",
            Self::DumpWrite => "dump.write",
            Self::ImageCollect => "image.collect",
            Self::ImageExport => "image.export",
            Self::ImageImport => "image.import",
            Self::IndexResync => "index.resync",
            Self::JournalReplay => "journal.replay",
            Self::NetworkCollect => "network.collect",
            Self::RuntimeCheckpointEnd => "runtime.checkpoint_end",
            Self::RuntimeRecovery => "runtime.recovery",
            Self::RuntimeReread => "runtime.reread",
            Self::TlsReload => "tls.reload",
        }
    }

    /// Begins a span, the root of a trace.
    pub fn begin(self) -> JobSpan {
        let name = self.name();
        JobSpan(tracing::info_span!(target: JOB_TARGET, parent: None, "job", otel.name = name))
    }
}

/// The span of a running job. The job ends when the span is dropped.
#[derive(Debug)]
#[must_use = "the job ends when its span is dropped"]
pub struct JobSpan(Span);

impl JobSpan {
    /// Sets an attribute, which must be in [`ATTRIBUTES`](crate::otlp::ATTRIBUTES).
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        self.0.set_attribute(key, value);
    }

    /// Sets an attribute to a number of things.
    pub fn count(&self, key: &'static str, number: usize) {
        self.set(key, i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// Sets an attribute to a list of texts.
    pub fn list(&self, key: &'static str, texts: &[String]) {
        let texts: Vec<_> = texts.iter().cloned().map(StringValue::from).collect();
        self.set(key, Value::Array(texts.into()));
    }

    /// Marks the job as failed. `class` is one of few names; `error` may go into a log.
    pub fn failed(&self, class: &'static str, error: &dyn Display) {
        self.set(key::ERROR_TYPE, class);
        let mut text = error.to_string();
        text.truncate(text.floor_char_boundary(MAX_ERROR_BYTES));
        self.0.set_status(Status::error(text));
    }
}
