//! Programs and services as key providers.

use criscope_image::KeyFailure;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;

use super::{KEY, push, refused, secret, tar, with_provider};
use crate::runtime::image::*;

#[tokio::test]
async fn a_provider_that_fails_is_named_with_the_image() {
    let store = with_provider(Duration::from_millis(300)).await;
    let registry = Registry::start().await;
    let image = gzipped(&[tar()]);
    let name = push(&registry, "1", &image.config, &secret(&gzip(&tar()), &KEY));
    let provider = store.dir.path().join("provider");
    for (script, part) in [
        (
            "#!/bin/sh\nsleep 1000000 & wait\n",
            "no answer within 0.3 s",
        ),
        (
            "#!/bin/sh\ncat > /dev/null; echo no such key >&2; exit 3\n",
            "exit status: 3: no such key",
        ),
        (
            "#!/bin/sh\ncat > /dev/null; echo garbage\n",
            "no unwrapped key",
        ),
        (
            "#!/bin/sh\ncat > /dev/null; echo '{\"keyunwrapresults\":{\"optsdata\":\"\"}}'\n",
            "no unwrapped key",
        ),
        (
            "#!/bin/sh\ncat > /dev/null; head -c 100000 /dev/zero\n",
            "more than 32768 bytes",
        ),
    ] {
        executable(&provider, script);
        let (cause, code, text) = refused(&store, &name).await;
        // The time is up for a shell that starts slowly, too.
        let late = text.contains("no answer");
        assert_eq!(
            (cause, code),
            (Some(KeyFailure::Provider), Code::Unavailable),
            "{text}"
        );
        assert!(text.contains(part) || late, "{text}");
        assert!(
            text.contains("key provider test") && text.contains(&name),
            "{text}"
        );
        assert!(!text.contains("garbage"), "{text}");
    }
    fs::remove_file(&provider).expect("remove");
    let (cause, _, text) = refused(&store, &name).await;
    assert_eq!(cause, Some(KeyFailure::Provider), "{text}");
    let others = json!({"key-providers": {"another": {"grpc": "localhost:1"}}});
    fs::write(store.dir.path().join("providers.json"), others.to_string()).expect("write");
    let (cause, code, text) = refused(&store, &name).await;
    assert_eq!(
        (cause, code),
        (Some(KeyFailure::NotConfigured), Code::FailedPrecondition)
    );
    assert!(
        text.contains("key provider test is not configured"),
        "{text}"
    );
    fs::write(store.dir.path().join("providers.json"), "{").expect("write");
    let (_, code, text) = refused(&store, &name).await;
    assert_eq!(code, Code::FailedPrecondition);
    assert!(text.contains("providers.json"), "{text}");
}

/// Answers one call of `UnWrapKey` with what it is asked to unwrap, on a unix socket.
async fn serve(listener: UnixListener) {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Document {
        #[prost(bytes = "vec", tag = "1")]
        json: Vec<u8>,
    }
    let (stream, _) = listener.accept().await.expect("a caller");
    let answer = service_fn(
        |request: hyper::Request<hyper::body::Incoming>| async move {
            assert_eq!(
                request.uri().path(),
                "/keyprovider.KeyProviderService/UnWrapKey"
            );
            let body = request
                .into_body()
                .collect()
                .await
                .expect("a body")
                .to_bytes();
            let asked: Document = prost::Message::decode(&body[5..]).expect("a message");
            let asked: Value = serde_json::from_slice(&asked.json).expect("JSON");
            assert_eq!(asked["op"], "keyunwrap");
            let wrapped = &asked["keyunwrapparams"]["annotation"];
            let json = json!({"keyunwrapresults": {"optsdata": wrapped}})
                .to_string()
                .into_bytes();
            let trailers = headers(&[("grpc-status", "0")]);
            let body = Full::new(encode(&Document { json }));
            let body = body.with_trailers(async { Some(Ok(trailers)) });
            hyper::Response::builder()
                .header("content-type", "application/grpc")
                .body(body)
        },
    );
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
}

#[tokio::test]
async fn a_service_is_a_key_provider() {
    let store = with_provider(Duration::from_secs(30)).await;
    let socket = store.dir.path().join("provider.sock");
    let providers =
        json!({"key-providers": {"test": {"grpc": format!("unix://{}", socket.display())}}});
    fs::write(
        store.dir.path().join("providers.json"),
        providers.to_string(),
    )
    .expect("write");
    let registry = Registry::start().await;
    let image = gzipped(&[tar()]);
    let name = push(&registry, "1", &image.config, &secret(&gzip(&tar()), &KEY));
    let (cause, _, text) = refused(&store, &name).await;
    assert_eq!(cause, Some(KeyFailure::Provider), "{text}");
    assert!(text.contains("provider.sock"), "{text}");
    let server = tokio::spawn(serve(UnixListener::bind(&socket).expect("bind")));
    store.pull(&name).await;
    server.await.expect("the server saw what it should");
}
