//! Whether criscope's lists have the jobs and attributes that a collector gets.

use criscope::telemetry::{BackgroundJob, otlp};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::{ScopeSpans, Span};

use super::Collector;
use crate::{lock, until};

impl Collector {
    /// The accepted spans of background jobs.
    pub fn jobs(&self) -> Vec<Span> {
        let jobs = lock(&self.shared.jobs).clone();
        jobs.iter().for_each(assert_listed);
        jobs
    }

    /// Waits for the span of a background job.
    pub async fn wait_job(&self, job: BackgroundJob) -> Span {
        until(job.name(), || async {
            let mut jobs = self.jobs().into_iter();
            jobs.find(|span| span.name == job.name())
        })
        .await
    }
}

fn is_own(scope: &ScopeSpans) -> bool {
    scope
        .scope
        .as_ref()
        .is_some_and(|scope| scope.name == "criscope")
}

/// Asserts that the attributes of criscope's own spans are in its table, and that the schema is that of the table.
pub(super) fn assert_spans_listed(request: &ExportTraceServiceRequest) {
    for resource in &request.resource_spans {
        for scope in resource.scope_spans.iter().filter(|scope| is_own(scope)) {
            assert_eq!(scope.schema_url, otlp::SCHEMA_URL);
            assert_eq!(resource.schema_url, otlp::SCHEMA_URL);
            scope.spans.iter().for_each(assert_listed);
        }
    }
}

/// Asserts that the attributes of log records are criscope's or in its table.
pub(super) fn assert_records_listed(request: &ExportLogsServiceRequest) {
    let scopes = request.resource_logs.iter().flat_map(|r| &r.scope_logs);
    for record in scopes.flat_map(|scope| &scope.log_records) {
        for KeyValue { key, .. } in &record.attributes {
            let is_named = key.starts_with("criscope.") || otlp::stability(key).is_some();
            assert!(is_named, "{key} of {} is not listed", record.event_name);
        }
    }
}

/// Asserts that criscope's table has the attributes of a span.
fn assert_listed(span: &Span) {
    for KeyValue { key, .. } in &span.attributes {
        assert!(
            otlp::stability(key).is_some(),
            "{key} of {} is not listed",
            span.name
        );
    }
}

/// Takes the spans of background jobs out of a request, and what has no spans then.
pub(super) fn take_jobs(request: &mut ExportTraceServiceRequest) -> Vec<Span> {
    let mut jobs = Vec::new();
    for resource in &mut request.resource_spans {
        for scope in &mut resource.scope_spans {
            if is_own(scope) {
                jobs.extend(scope.spans.extract_if(.., |span| is_job(span)));
            }
        }
        resource.scope_spans.retain(|scope| !scope.spans.is_empty());
    }
    request
        .resource_spans
        .retain(|resource| !resource.scope_spans.is_empty());
    jobs
}

fn is_job(span: &Span) -> bool {
    BackgroundJob::ALL.iter().any(|job| job.name() == span.name)
}
