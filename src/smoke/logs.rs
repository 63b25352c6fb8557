//! Parses container logs: the CRI log format, one line `TIME STREAM TAGS MESSAGE` per write (Kubernetes,
//! `kubelet-cri-logging`). The tag `P` marks a partial line, `F` its last part. The kubelet also reads the format of docker's
//! `json-file` driver, which cri-dockerd leaves in place: an object with `log`, `stream` and `time` per line.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use serde::Deserialize;
use tokio::time::{Instant, sleep};

/// Source of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStreamName {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A complete line, joined from its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedLogLine {
    /// Source.
    pub stream: LogStreamName,
    /// Without the newline.
    pub message: String,
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogReadError {
    /// A line violates the format.
    #[error("line {number} of the log is not in the CRI format: {reason}")]
    Format {
        /// Counted from 1.
        number: usize,
        /// The violation.
        reason: &'static str,
    },
    /// The file cannot be read.
    #[error("cannot read the log {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The expected lines did not appear.
    #[error("the log {path} does not have {missing:?} after {waited:?}")]
    Missing {
        /// The file.
        path: String,
        /// The message.
        missing: String,
        /// The timeout.
        waited: Duration,
    },
}

/// The complete lines of a log. An unfinished last line, which is still being written, is omitted.
pub fn parse(log: &str) -> Result<Vec<JoinedLogLine>, LogReadError> {
    let mut lines = Vec::new();
    let mut parts: [String; 2] = Default::default();
    for (index, raw) in log.split_inclusive('\n').enumerate() {
        let Some(raw) = raw.strip_suffix('\n') else {
            break;
        };
        let entry = if raw.starts_with('{') {
            docker_entry(raw)
        } else {
            entry(raw).map(|(stream, whole, message)| (stream, whole, message.into()))
        };
        let (stream, whole, message): (_, _, Cow<'_, str>) =
            entry.map_err(|reason| LogReadError::Format {
                number: index + 1,
                reason,
            })?;
        let part = &mut parts[stream as usize];
        part.push_str(&message);
        if whole {
            lines.push(JoinedLogLine {
                stream,
                message: std::mem::take(part),
            });
        }
    }
    Ok(lines)
}

/// A line of docker's `json-file` driver. A message without a newline at its end is partial.
#[derive(Deserialize)]
struct DockerLogLine {
    log: String,
    stream: String,
    time: String,
}

fn docker_entry(raw: &str) -> Result<(LogStreamName, bool, Cow<'_, str>), &'static str> {
    let line: DockerLogLine = serde_json::from_str(raw)
        .map_err(|_| "neither the CRI format nor docker's with `log`, `stream` and `time`")?;
    if !is_rfc3339_nano(&line.time) {
        return Err("no RFC 3339 time");
    }
    let stream = match &*line.stream {
        "stdout" => LogStreamName::Stdout,
        "stderr" => LogStreamName::Stderr,
        _ => return Err("the stream is neither stdout nor stderr"),
    };
    let message = line.log.strip_suffix('\n');
    let whole = message.is_some();
    let message = message.unwrap_or(&line.log).to_owned();
    Ok((stream, whole, message.into()))
}

/// Stream, whether the line is complete, and the message.
fn entry(raw: &str) -> Result<(LogStreamName, bool, &str), &'static str> {
    let mut fields = raw.splitn(4, ' ');
    let time = fields.next().unwrap_or_default();
    if !is_rfc3339_nano(time) {
        return Err("no RFC 3339 time at its start");
    }
    let stream = match fields.next() {
        Some("stdout") => LogStreamName::Stdout,
        Some("stderr") => LogStreamName::Stderr,
        _ => return Err("the stream is neither stdout nor stderr"),
    };
    // Tags are separated by colons; the first one marks a partial or complete line.
    let whole = match fields.next().and_then(|tags| tags.split(':').next()) {
        Some("F") => true,
        Some("P") => false,
        _ => return Err("the tag is neither P nor F"),
    };
    let message = fields.next().ok_or("no message")?;
    Ok((stream, whole, message))
}

/// Returns whether it has the form of Go's `time.RFC3339Nano`, which trims trailing zeros of the fraction:
/// `2026-01-02T03:04:05.6789+01:00`.
fn is_rfc3339_nano(text: &str) -> bool {
    let (Some(date), Some(rest)) = (text.get(..19), text.get(19..)) else {
        return false;
    };
    let digits = rest.strip_prefix('.').map_or(0, |fraction| {
        fraction.bytes().take_while(u8::is_ascii_digit).count()
    });
    if rest.starts_with('.') && !(1..=9).contains(&digits) {
        return false;
    }
    let zone = &rest[if digits > 0 { digits + 1 } else { 0 }..];
    has_shape(date, "0000-00-00T00:00:00")
        && (zone == "Z" || has_shape(zone, "+00:00") || has_shape(zone, "-00:00"))
}

/// Compares bytes with a shape, in which `0` stands for any digit.
fn has_shape(text: &str, shape: &str) -> bool {
    text.len() == shape.len()
        && text
            .bytes()
            .zip(shape.bytes())
            .all(|(byte, want)| match want {
                b'0' => byte.is_ascii_digit(),
                want => byte == want,
            })
}

/// Waits until the log at `path` has all of `wanted`, and returns its number of lines. Runtimes write it asynchronously, so
/// a line may be late.
pub async fn wait_for(
    path: &Path,
    wanted: &[JoinedLogLine],
    patience: Duration,
) -> Result<usize, LogReadError> {
    let start = Instant::now();
    loop {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => {
                return Err(LogReadError::Read {
                    path: path.display().to_string(),
                    source,
                });
            }
        };
        let lines = parse(&text)?;
        let Some(missing) = wanted.iter().find(|line| !lines.contains(line)) else {
            return Ok(lines.len());
        };
        if start.elapsed() >= patience {
            return Err(LogReadError::Missing {
                path: path.display().to_string(),
                missing: missing.message.clone(),
                waited: patience,
            });
        }
        sleep(Duration::from_millis(5)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(stream: LogStreamName, message: &str) -> JoinedLogLine {
        JoinedLogLine {
            stream,
            message: message.to_owned(),
        }
    }

    #[test]
    fn parts_are_joined_per_stream_and_an_unfinished_line_waits() {
        let log = "\
2026-01-02T03:04:05.678901234Z stdout P one \n\
2026-01-02T03:04:05.6789+02:00 stderr F oops\n\
2026-01-02T03:04:06Z stdout F two\n\
2026-01-02T03:04:06.1-11:00 stdout F \n\
2026-01-02T03:04:07Z stdout F:tag three  x\n\
2026-01-02T03:04:08Z stdo";
        assert_eq!(
            parse(log).expect("a log"),
            [
                line(LogStreamName::Stderr, "oops"),
                line(LogStreamName::Stdout, "one two"),
                line(LogStreamName::Stdout, ""),
                line(LogStreamName::Stdout, "three  x"),
            ]
        );
        assert_eq!(parse("").expect("empty"), []);
    }

    #[test]
    fn the_format_of_docker_is_parsed_too() {
        let log = r#"{"log":"one ","stream":"stdout","time":"2026-01-02T03:04:05.678901234Z"}
{"log":"oops\n","stream":"stderr","time":"2026-01-02T03:04:05Z"}
{"log":"two\n","stream":"stdout","time":"2026-01-02T03:04:06Z"}
"#;
        assert_eq!(
            parse(log).expect("a log"),
            [
                line(LogStreamName::Stderr, "oops"),
                line(LogStreamName::Stdout, "one two")
            ]
        );
    }

    #[test]
    fn format_errors_name_the_line() {
        let good = "2026-01-02T03:04:05Z stdout F x\n";
        for bad in [
            "{\"log\":\"docker's own format\"}",
            "2026-01-02 03:04:05Z stdout F x",
            "2026-01-02T03:04:05.Z stdout F x",
            "2026-01-02T03:04:05.0123456789Z stdout F x",
            "2026-01-02T03:04:05 stdout F x",
            "2026-01-02T03:04:05Z stdin F x",
            "2026-01-02T03:04:05Z stdout X x",
            "2026-01-02T03:04:05Z stdout F",
            "é",
        ] {
            let error = parse(&format!("{good}{bad}\n")).expect_err(bad);
            assert!(error.to_string().starts_with("line 2 "), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn late_lines_are_awaited_and_missing_ones_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log");
        let wanted = [line(LogStreamName::Stdout, "hello")];
        let late = path.clone();
        let writer = tokio::spawn(async move {
            sleep(Duration::from_millis(50)).await;
            fs::write(late, "2026-01-02T03:04:05Z stdout F hello\n").expect("write");
        });
        let patience = Duration::from_secs(5);
        assert_eq!(wait_for(&path, &wanted, patience).await.expect("found"), 1);
        writer.await.expect("written");

        let never = [line(LogStreamName::Stderr, "hello")];
        let error = wait_for(&path, &never, patience).await;
        assert!(matches!(error, Err(LogReadError::Missing { .. })));
    }
}
