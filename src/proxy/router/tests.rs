//! Calls that go to two backends.

use std::future::ready;

use prost::Message;
use tower::service_fn;

use super::*;
use crate::call::{Client, Peer};
use crate::cri::v1;
use crate::grpc::status::Status;
use crate::grpc::{Body, CallHandler, frame, unary};

/// A fake backend's behaviour.
#[derive(Debug)]
enum Fake {
    /// A list of one sandbox with this id.
    Lists(&'static str),
    /// An error among the headers.
    Fails,
    /// Data, but no end.
    BreaksOff(&'static str),
}

impl CallHandler for Fake {
    fn answer(&self, _: Request) -> ResponseFuture {
        Box::pin(ready(self.play()))
    }
}

impl Fake {
    fn play(&self) -> Result<Response, BoxError> {
        match self {
            Self::Lists(id) => Ok(join::single(http::HeaderMap::new(), &list(id).into())),
            Self::Fails => Ok(Status::unavailable("restarting").into_response()),
            Self::BreaksOff(id) => Ok(Response::new(Body::full(frame::frame(&list(id))?))),
        }
    }
}

fn list(id: &str) -> Vec<u8> {
    let sandbox = v1::PodSandbox {
        id: id.to_owned(),
        ..Default::default()
    };
    let items = vec![sandbox];
    v1::ListPodSandboxResponse { items }.encode_to_vec()
}

/// Lists the sandboxes of both; returns the ids, or the error.
async fn sandboxes(backends: [Fake; 2]) -> Result<Vec<String>, Status> {
    let rules = RoutingRules {
        backends: 2,
        default: 0,
        images: 0,
        handlers: Default::default(),
    };
    let index = Arc::new(PodIndex::new(8, 8));
    let table = Arc::new(RoutingTable::new(
        rules,
        index,
        vec!["one".into(), "two".into()],
    ));
    let services = backends.map(CriService::new);
    let router = CallRouter::new(table, services.to_vec());
    // Stands in for the layers above: the record of the call, and errors as statuses.
    let mut path = service_fn(move |mut request: Request| {
        let mut router = router.clone();
        async move {
            let (method, api) = Method::from_path(request.uri().path()).expect("a call");
            let peer = Arc::new(Peer {
                client: Client::Other,
                pid: None,
                comm: None,
            });
            let call = Call::new(0, method, api, None, peer, None);
            request.extensions_mut().insert(Arc::new(call));
            match router.call(request).await {
                Ok(response) => Ok(response),
                Err(error) => error
                    .downcast::<Status>()
                    .map(|status| status.into_response()),
            }
        }
    });
    let answer: v1::ListPodSandboxResponse = unary::call(
        &mut path,
        "/runtime.v1.RuntimeService/ListPodSandbox",
        &v1::ListPodSandboxRequest::default(),
    )
    .await?;
    Ok(answer.items.into_iter().map(|item| item.id).collect())
}

#[tokio::test]
async fn a_list_joins_those_of_all_backends() {
    let ids = sandboxes([Fake::Lists("a"), Fake::Lists("b")]).await;
    assert_eq!(ids.expect("a list"), ["a", "b"]);
}

#[tokio::test]
async fn a_list_fails_if_one_backend_cannot_answer() {
    let cases = [
        ([Fake::Lists("a"), Fake::Fails], "backend two"),
        ([Fake::Fails, Fake::Lists("b")], "backend one"),
        ([Fake::Lists("a"), Fake::BreaksOff("b")], "backend two"),
        ([Fake::BreaksOff("a"), Fake::Lists("b")], "backend one"),
    ];
    for (backends, who) in cases {
        let status = sandboxes(backends).await.expect_err("a shorter list");
        assert!(
            status.message.contains(who),
            "{:?}: {}",
            status.code,
            status.message
        );
    }
}
