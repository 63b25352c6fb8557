//! Classifies headers, trailers, errors and drops as an outcome. Pure functions.

use std::time::Duration;

use h2::Reason;
use http::HeaderMap;
use tonic::Code;

use crate::call::{Ending, Source};
use crate::grpc::{BoxError, frame};

/// The ending of a call, before the error text is scrubbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// How.
    pub ending: Ending,
    /// The status.
    pub code: Code,
    /// Who set the status.
    pub source: Source,
    /// The error text that the caller gets.
    pub message: Option<String>,
}

/// A caller's clock starts before ours, and `grpc-timeout` is rounded: a call dropped this close to its deadline ran into
/// it.
const DEADLINE_SLACK: Duration = Duration::from_millis(20);

/// The status in the headers of a trailers-only response, or in trailers. `None` without one.
pub fn status(headers: &HeaderMap, source: Source) -> Option<End> {
    let (code, message) = frame::status(headers)?;
    let ending = match code {
        Code::Ok => Ending::Ok,
        Code::Cancelled => Ending::Cancelled,
        Code::DeadlineExceeded => Ending::Deadline,
        _ => Ending::Error,
    };
    Some(End {
        ending,
        code,
        source,
        message,
    })
}

/// The response ended without a status. How a caller reads that depends on the HTTP status.
pub fn no_status(http: http::StatusCode, source: Source) -> End {
    End {
        ending: Ending::Error,
        code: frame::code_of_http(http),
        source,
        message: Some(format!(
            "the answer ended without grpc-status (http status {http})"
        )),
    }
}

/// The stream was reset, and so is the caller's (gRPC over HTTP/2, "Errors").
pub fn broken(error: &BoxError) -> End {
    let reason = reset_reason(error);
    let code = match reason {
        Some(Reason::REFUSED_STREAM) => Code::Unavailable,
        Some(Reason::CANCEL) => Code::Cancelled,
        Some(Reason::ENHANCE_YOUR_CALM) => Code::ResourceExhausted,
        Some(Reason::INADEQUATE_SECURITY) => Code::PermissionDenied,
        _ => Code::Internal,
    };
    End {
        ending: if code == Code::Cancelled {
            Ending::Cancelled
        } else {
            Ending::Error
        },
        code,
        source: Source::Backend,
        message: Some(match reason {
            Some(reason) => format!("the stream was reset: {reason}"),
            None => "the answer broke off".to_owned(),
        }),
    }
}

/// The reason of a stream reset somewhere in a chain of errors.
pub fn reset_reason(error: &BoxError) -> Option<Reason> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&**error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return error.reason();
        }
        cause = error.source();
    }
    None
}

/// The caller dropped the call.
pub fn dropped(elapsed: Duration, deadline: Option<Duration>) -> End {
    let late = deadline.is_some_and(|d| elapsed + DEADLINE_SLACK.min(d / 10) >= d);
    let (ending, code) = if late {
        (Ending::Deadline, Code::DeadlineExceeded)
    } else {
        (Ending::Cancelled, Code::Cancelled)
    };
    End {
        ending,
        code,
        source: Source::Caller,
        message: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_call_is_cancelled_or_late() {
        let s = Duration::from_secs;
        let ms = Duration::from_millis;
        let cases = [
            (s(1), None, Ending::Cancelled),
            (s(1), Some(s(2)), Ending::Cancelled),
            (ms(1990), Some(s(2)), Ending::Deadline),
            (s(3), Some(s(2)), Ending::Deadline),
            (ms(0), Some(ms(0)), Ending::Deadline),
            (ms(2), Some(ms(10)), Ending::Cancelled),
        ];
        for (elapsed, deadline, want) in cases {
            assert_eq!(
                dropped(elapsed, deadline).ending,
                want,
                "{elapsed:?} of {deadline:?}"
            );
        }
    }

    #[test]
    fn codes_of_resets() {
        let cases = [
            (Reason::REFUSED_STREAM, Code::Unavailable),
            (Reason::CANCEL, Code::Cancelled),
            (Reason::PROTOCOL_ERROR, Code::Internal),
        ];
        for (reason, want) in cases {
            let error: BoxError = Box::new(h2::Error::from(reason));
            assert_eq!(broken(&error).code, want, "{reason}");
        }
    }

    #[test]
    fn statuses() {
        let mut headers = HeaderMap::new();
        assert_eq!(status(&headers, Source::Backend), None);
        for (number, ending) in [
            (0, Ending::Ok),
            (1, Ending::Cancelled),
            (4, Ending::Deadline),
            (5, Ending::Error),
        ] {
            headers.insert("grpc-status", http::HeaderValue::from(number));
            let end = status(&headers, Source::Backend).expect("status");
            assert_eq!(end.ending, ending, "{number}");
        }
    }
}
