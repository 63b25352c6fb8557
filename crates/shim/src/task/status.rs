//! The result of a call of the Task service, from the status of its response.

use criscope_wire::ttrpc::{CODE_NOT_FOUND, CODE_UNIMPLEMENTED, Response};

use super::super::protocol::{NOT_FOUND, PRECONDITION, RUNTIME, UNIMPLEMENTED};
use super::super::requests::failure;
use super::calls::Result;
use super::connection::Call;

/// The result of a call.
pub(super) fn result(call: Call, response: Response) -> Result {
    response.into_result().map_err(|status| match status.code {
        CODE_NOT_FOUND if !is_unknown_method(&status.message) => failure(NOT_FOUND, status.message),
        // gVisor's shim does not change resources.
        CODE_NOT_FOUND | CODE_UNIMPLEMENTED => {
            let text = format!("the containerd shim cannot do this: {}", status.message);
            // The daemon does not query statistics again, as of a shim of the pod that does not know the request.
            let kind = match call {
                Call::Stats => UNIMPLEMENTED,
                _ => PRECONDITION,
            };
            failure(kind, text)
        }
        _ => failure(RUNTIME, status.message),
    })
}

/// Returns whether this is what the Rust library of ttrpc says of a method that a shim does not have (runwasi's, for Exec and Update): it
/// is not the container that does not exist.
fn is_unknown_method(message: &str) -> bool {
    message.starts_with('/') && message.ends_with(" is not supported")
}

#[cfg(test)]
mod tests {
    use super::*;
    use criscope_wire::ttrpc::Status;

    fn response(code: i32, message: &str) -> Response {
        Response {
            status: Some(Status {
                code,
                message: message.to_owned(),
            }),
            payload: vec![7],
        }
    }

    #[test]
    fn what_a_shim_does_not_do_is_no_failure_of_the_runtime() {
        let refused = result(Call::Update, response(12, "not implemented")).expect_err("refused");
        assert_eq!(refused.kind, PRECONDITION);
        let text = "the containerd shim cannot do this: not implemented";
        assert_eq!(refused.message, text);
        let unknown = result(Call::Stats, response(12, "no")).expect_err("refused");
        assert_eq!(unknown.kind, UNIMPLEMENTED);
        let unknown = "/containerd.task.v2.Task/Update is not supported";
        let refused = result(Call::Update, response(5, unknown)).expect_err("refused");
        assert_eq!(refused.kind, PRECONDITION);
        let unknown = "/containerd.task.v2.Task/Stats is not supported";
        let refused = result(Call::Stats, response(5, unknown)).expect_err("refused");
        assert_eq!(refused.kind, UNIMPLEMENTED);
        let failed = result(Call::Update, response(2, "no")).expect_err("failed");
        assert_eq!((failed.kind, &*failed.message), (RUNTIME, "no"));
        let gone = result(Call::Update, response(5, "gone")).expect_err("gone");
        assert_eq!(gone.kind, NOT_FOUND);
        assert_eq!(result(Call::Update, response(0, "")).expect("done"), [7]);
    }
}
