//! A log line as a log record of OpenTelemetry ("Logs Data Model"), with the same fields and bounds.

use std::fmt;
use std::time::SystemTime;

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

use super::line::TruncatedText;
use crate::otlp::record_attribute;
use crate::otlp::records::{attribute, nanos};

/// The record of an event. `suppressed` is the number of similar events that were suppressed before it.
pub(super) fn record(event: &Event<'_>, suppressed: u64) -> LogRecord {
    let level = *event.metadata().level();
    let now = nanos(SystemTime::now());
    let mut fields = RecordFieldVisitor(LogRecord {
        time_unix_nano: now,
        observed_time_unix_nano: now,
        severity_number: severity(level).into(),
        severity_text: level.to_string(),
        ..LogRecord::default()
    });
    event.record(&mut fields);
    let RecordFieldVisitor(mut record) = fields;
    if suppressed > 0 {
        let count = i64::try_from(suppressed).unwrap_or(i64::MAX);
        let attributes = &mut record.attributes;
        attributes.push(attribute(
            &record_attribute("suppressed"),
            Value::IntValue(count),
        ));
    }
    record
}

fn severity(level: Level) -> SeverityNumber {
    match level {
        Level::ERROR => SeverityNumber::Error,
        Level::WARN => SeverityNumber::Warn,
        Level::INFO => SeverityNumber::Info,
        Level::DEBUG => SeverityNumber::Debug,
        Level::TRACE => SeverityNumber::Trace,
    }
}

struct RecordFieldVisitor(LogRecord);

impl RecordFieldVisitor {
    fn put(&mut self, field: &Field, value: Value) {
        let Self(record) = self;
        match (field.name(), &value) {
            ("message", _) => {
                record.body = Some(AnyValue { value: Some(value) });
                return;
            }
            ("event", Value::StringValue(name)) => record.event_name.clone_from(name),
            ("trace_id", Value::StringValue(id)) => {
                if let Ok(id) = u128::from_str_radix(id, 16) {
                    record.trace_id = id.to_be_bytes().to_vec();
                    return;
                }
            }
            ("span_id", Value::StringValue(id)) => {
                if let Ok(id) = u64::from_str_radix(id, 16) {
                    record.span_id = id.to_be_bytes().to_vec();
                    return;
                }
            }
            _ => {}
        }
        record
            .attributes
            .push(attribute(&record_attribute(field.name()), value));
    }

    fn put_shown(&mut self, field: &Field, text: fmt::Arguments<'_>) {
        self.put(field, Value::StringValue(TruncatedText::format(text)));
    }
}

impl Visit for RecordFieldVisitor {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_shown(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_shown(field, format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::BoolValue(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Value::IntValue(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match i64::try_from(value) {
            Ok(value) => self.put(field, Value::IntValue(value)),
            Err(_) => self.put_shown(field, format_args!("{value}")),
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Value::DoubleValue(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put_shown(field, format_args!("{value}"));
    }
}
