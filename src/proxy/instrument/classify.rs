//! Classifies headers, trailers, errors and drops as an outcome. Pure functions.

use std::time::Duration;

use h2::Reason;
use http::HeaderMap;
use tonic::Code;

use crate::call::{Ending, Source, reached_deadline};
use crate::grpc::{BoxError, frame};

/// The ending of a call, before the error text is scrubbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallOutcome {
    /// How.
    pub ending: Ending,
    /// The status.
    pub code: Code,
    /// Who set the status.
    pub source: Source,
    /// The error text that the caller gets.
    pub message: Option<String>,
}

/// The status in the headers of a trailers-only response, or in trailers. `None` without one.
pub fn status(headers: &HeaderMap, source: Source) -> Option<CallOutcome> {
    let (code, message) = frame::status(headers)?;
    let ending = match code {
        Code::Ok => Ending::Ok,
        Code::Cancelled => Ending::Cancelled,
        Code::DeadlineExceeded => Ending::Deadline,
        _ => Ending::Error,
    };
    Some(CallOutcome {
        ending,
        code,
        source,
        message,
    })
}

/// The response ended without a status. How a caller reads that depends on the HTTP status.
pub fn no_status(http: http::StatusCode, source: Source) -> CallOutcome {
    CallOutcome {
        ending: Ending::Error,
        code: frame::code_of_http(http),
        source,
        message: Some(format!(
            "the answer ended without grpc-status (http status {http})"
        )),
    }
}

/// The stream was reset, and so is the caller's (gRPC over HTTP/2, "Errors"). A server resets the stream of a call whose deadline has
/// passed with CANCEL, as those of grpc-go do, and clients read that as the deadline.
pub fn broken(error: &BoxError, elapsed: Duration, deadline: Option<Duration>) -> CallOutcome {
    let reason = reset_reason(error);
    let (ending, code) = match reason {
        Some(Reason::CANCEL) => given_up(elapsed, deadline),
        Some(Reason::REFUSED_STREAM) => (Ending::Error, Code::Unavailable),
        Some(Reason::ENHANCE_YOUR_CALM) => (Ending::Error, Code::ResourceExhausted),
        Some(Reason::INADEQUATE_SECURITY) => (Ending::Error, Code::PermissionDenied),
        _ => (Ending::Error, Code::Internal),
    };
    let message = match reason {
        _ if ending == Ending::Deadline => None,
        Some(reason) => Some(format!("the stream was reset: {reason}")),
        None => Some("the answer broke off".to_owned()),
    };
    CallOutcome {
        ending,
        code,
        source: Source::Backend,
        message,
    }
}

/// How a call ended that one side gave up: at its deadline, or because it was cancelled.
fn given_up(elapsed: Duration, deadline: Option<Duration>) -> (Ending, Code) {
    if reached_deadline(elapsed, deadline) {
        (Ending::Deadline, Code::DeadlineExceeded)
    } else {
        (Ending::Cancelled, Code::Cancelled)
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
pub fn dropped(elapsed: Duration, deadline: Option<Duration>) -> CallOutcome {
    let (ending, code) = given_up(elapsed, deadline);
    CallOutcome {
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
            let end = broken(&error, Duration::from_secs(1), None);
            assert_eq!(end.code, want, "{reason}");
            let end = broken(&error, Duration::from_secs(1), Some(Duration::from_secs(2)));
            assert_eq!(end.code, want, "{reason}");
        }
    }

    /// containerd 2 resets the stream of a RunPodSandbox at the kubelet's deadline, mostly before the kubelet does.
    #[test]
    fn a_server_that_cancels_at_the_deadline_is_late() {
        let ms = Duration::from_millis;
        let error: BoxError = Box::new(h2::Error::from(Reason::CANCEL));
        let end = broken(&error, ms(2990), Some(ms(3000)));
        assert_eq!(
            (end.ending, end.code, end.source, end.message),
            (
                Ending::Deadline,
                Code::DeadlineExceeded,
                Source::Backend,
                None
            )
        );
        let error: BoxError = Box::new(h2::Error::from(Reason::PROTOCOL_ERROR));
        let end = broken(&error, ms(3000), Some(ms(3000)));
        assert_eq!(end.code, Code::Internal);
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
