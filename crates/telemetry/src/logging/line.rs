//! Formats an event as one line: a flat JSON object, or human-readable text.

use std::fmt::{self, Write as _};

use serde::ser::{SerializeMap, Serializer as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::limit::LogRateLimit;
use super::record::record;
use crate::otlp::LogRecordQueue;
use criscope_cri::visible::visible;

/// Longest field, in bytes: messages of plugins, registries and upstreams have no bound of their own.
const MAX_FIELD_LEN: usize = 8 << 10;

/// Formats events as lines.
#[derive(Debug)]
pub(super) struct LineFormat {
    pub(super) limit: LogRateLimit,
    /// The text format of `tracing-subscriber`; else JSON,
    /// `{"ts":...,"level":...,"target":...,...}`: fields of the event at the top level, its message as `msg`.
    pub(super) text: Option<Format>,
    /// The queue of the export, if lines are exported.
    pub(super) export: Option<LogRecordQueue>,
}

/// Returns whether lines of a target are exported. Lines of libraries are not: an export makes the HTTP/2 client write some, and
/// each would cause another export. Lines about exports are not exported either.
fn is_exported(target: &str) -> bool {
    let ours = target == "criscope" || target.starts_with("criscope::");
    ours && !target.starts_with("criscope::telemetry")
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let meta = event.metadata();
        // An error makes the subscriber write nothing. A filter that rejects single events would leave its bit set for
        // the next one.
        let suppressed = self.limit.admit(meta).ok_or(fmt::Error)?;
        if let Some(export) = self.export.as_ref().filter(|_| is_exported(meta.target())) {
            export.put(meta.target(), record(event, suppressed));
        }
        let Some(format) = &self.text else {
            let line = json(event, suppressed).map_err(|_| fmt::Error)?;
            return writer.write_str(&line);
        };
        if suppressed > 0 {
            write!(writer, "({suppressed} similar lines were suppressed) ")?;
        }
        format.format_event(ctx, writer, event)
    }
}

fn json(event: &Event<'_>, suppressed: u64) -> serde_json::Result<String> {
    let meta = event.metadata();
    let mut ts = String::with_capacity(32);
    let _ = SystemTime.format_time(&mut Writer::new(&mut ts));

    let mut line = Vec::with_capacity(512);
    let mut serializer = serde_json::Serializer::new(&mut line);
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("ts", &ts)?;
    map.serialize_entry("level", level(*meta.level()))?;
    map.serialize_entry("target", meta.target())?;
    let mut fields = JsonFieldVisitor {
        map,
        result: Ok(()),
    };
    event.record(&mut fields);
    let JsonFieldVisitor { mut map, result } = fields;
    result?;
    if suppressed > 0 {
        map.serialize_entry("suppressed", &suppressed)?;
    }
    map.end()?;
    line.push(b'\n');
    // serde_json writes UTF-8 only.
    String::from_utf8(line).map_err(serde::ser::Error::custom)
}

const fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

struct JsonFieldVisitor<M: SerializeMap> {
    map: M,
    result: Result<(), M::Error>,
}

impl<M: SerializeMap> JsonFieldVisitor<M> {
    fn put_shown(&mut self, field: &Field, text: fmt::Arguments<'_>) {
        self.put(field, &TruncatedText::format(text));
    }

    fn put<V: serde::Serialize + ?Sized>(&mut self, field: &Field, value: &V) {
        if self.result.is_ok() {
            let key = match field.name() {
                "message" => "msg",
                name => name,
            };
            self.result = self.map.serialize_entry(key, value);
        }
    }
}

impl<M: SerializeMap> Visit for JsonFieldVisitor<M> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_shown(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if value.len() > MAX_FIELD_LEN {
            self.put_shown(field, format_args!("{value}"));
        } else {
            self.put(field, value);
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, &value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put_shown(field, format_args!("{value}"));
    }
}

/// Text truncated at a limit. The rest is neither stored nor escaped.
pub(super) struct TruncatedText {
    text: String,
    limit: usize,
    is_cut: bool,
}

impl TruncatedText {
    pub(super) fn format(text: fmt::Arguments<'_>) -> String {
        let mut short = Self {
            text: String::new(),
            limit: MAX_FIELD_LEN,
            is_cut: false,
        };
        // Fails once the limit is reached.
        let _ = short.write_fmt(text);
        if short.is_cut {
            short.text.push('…');
        }
        short.text
    }
}

impl fmt::Write for TruncatedText {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = self.limit - self.text.len();
        if part.len() <= room {
            self.text.push_str(part);
            return Ok(());
        }
        self.text.push_str(&part[..part.floor_char_boundary(room)]);
        self.is_cut = true;
        Err(fmt::Error)
    }
}

/// Fields of the text format, with the same limit, and without characters that move the cursor or start a line.
#[derive(Debug)]
pub(super) struct TextFields;

impl<'w> FormatFields<'w> for TextFields {
    fn format_fields<R: tracing_subscriber::field::RecordFields>(
        &self,
        mut writer: Writer<'w>,
        fields: R,
    ) -> fmt::Result {
        let mut words = TextFieldVisitor {
            writer: &mut writer,
            is_first: true,
            result: Ok(()),
        };
        fields.record(&mut words);
        words.result
    }
}

struct TextFieldVisitor<'a, 'w> {
    writer: &'a mut Writer<'w>,
    is_first: bool,
    result: fmt::Result,
}

impl Visit for TextFieldVisitor<'_, '_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.record_debug(field, &format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if self.result.is_err() {
            return;
        }
        let gap = if self.is_first { "" } else { " " };
        self.is_first = false;
        let text = TruncatedText::format(format_args!("{value:?}"));
        let text = visible(&text);
        self.result = match field.name() {
            "message" => write!(self.writer, "{gap}{text}"),
            name => write!(self.writer, "{gap}{name}={text}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(TruncatedText::format(format_args!("short")), "short");
        let text = TruncatedText::format(format_args!("{}{}", "ü".repeat(MAX_FIELD_LEN), "behind"));
        assert_eq!(text.len(), MAX_FIELD_LEN + '…'.len_utf8());
        assert!(text.ends_with("ü…"), "cut between characters");
        let text = TruncatedText::format(format_args!("a{}", "ü".repeat(MAX_FIELD_LEN)));
        assert!(text.len() < MAX_FIELD_LEN + '…'.len_utf8() && text.ends_with("ü…"));
    }
}
