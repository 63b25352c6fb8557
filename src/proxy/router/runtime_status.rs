//! The joined response to Status: the node is ready if every runtime is.
//!
//! The only response that is decoded and encoded again, and only with several backends: then it is a statement of criscope
//! about them, not of one runtime.

use prost::Message;
use tonic::Code;

use super::RoutingTable;
use super::fan_out::BackendResponse;
use super::join;
use crate::cri::v1;
use crate::grpc::status::Status;
use crate::grpc::{BoxError, Response};

/// Joins. A condition holds if it holds on every backend; handlers come from the backend they are routed to; features, and
/// the additions of `verbose`, from the default backend.
///
/// # Errors
/// The first error of a backend; `INTERNAL` if a response is not a StatusResponse.
pub async fn join(
    answers: Vec<BackendResponse>,
    table: &RoutingTable,
) -> Result<Response, BoxError> {
    let names: Vec<_> = answers.iter().map(|a| a.backend.clone()).collect();
    let mut joined: Option<(http::HeaderMap, v1::StatusResponse)> = None;
    for ((headers, message), name) in join::messages(answers).await?.into_iter().zip(names) {
        let answer = v1::StatusResponse::decode(message)
            .map_err(|e| Status::new(Code::Internal, format!("backend {name}: {e}")))?;
        match &mut joined {
            None => joined = Some((headers, own_handlers(answer, &name, table, true))),
            Some((_, joined)) => add(joined, own_handlers(answer, &name, table, false), &name),
        }
    }
    let (headers, answer) =
        joined.ok_or_else(|| Status::new(Code::Internal, "there is no backend"))?;
    Ok(join::single(headers, &answer.encode_to_vec().into()))
}

/// Keeps the handlers that are routed to this backend.
fn own_handlers(
    mut answer: v1::StatusResponse,
    backend: &str,
    table: &RoutingTable,
    is_default: bool,
) -> v1::StatusResponse {
    answer.runtime_handlers.retain(|handler| {
        match table.rules.handlers.get(handler.name.as_str()) {
            Some(id) => *table.names[*id] == *backend,
            None => is_default,
        }
    });
    answer
}

fn add(joined: &mut v1::StatusResponse, other: v1::StatusResponse, backend: &str) {
    joined.runtime_handlers.extend(other.runtime_handlers);
    let conditions = &mut joined.status.get_or_insert_default().conditions;
    for mut condition in other.status.unwrap_or_default().conditions {
        condition.message = format!("backend {backend}: {}", condition.message);
        match conditions.iter_mut().find(|c| c.r#type == condition.r#type) {
            Some(known) if known.status && !condition.status => *known = condition,
            Some(_) => {}
            None => conditions.push(condition),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(ready: bool) -> v1::StatusResponse {
        v1::StatusResponse {
            status: Some(v1::RuntimeStatus {
                conditions: vec![v1::RuntimeCondition {
                    r#type: "RuntimeReady".into(),
                    status: ready,
                    reason: String::new(),
                    message: "because".into(),
                }],
            }),
            ..Default::default()
        }
    }

    #[test]
    fn one_unready_runtime_makes_the_node_unready() {
        for (a, b, want) in [
            (true, true, true),
            (true, false, false),
            (false, true, false),
        ] {
            let mut joined = status(a);
            add(&mut joined, status(b), "kata");
            let conditions = joined.status.expect("status").conditions;
            assert_eq!(conditions.len(), 1);
            assert_eq!(conditions[0].status, want);
            if a && !b {
                assert_eq!(conditions[0].message, "backend kata: because");
            }
        }
    }
}
