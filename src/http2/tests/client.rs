//! Our client, and an h2 server.

use std::future::poll_fn;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason as TheirReason, RecvStream};
use http::{Request, Response, request};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::io::DuplexStream;
use tokio::task::JoinSet;

use super::{pattern, pipe, serve, soon, trailers};
use crate::http2::client::{Sender, connect};
use crate::http2::{Error, Incoming, Outgoing, Reason};

type Theirs = Connection<DuplexStream, Bytes>;

/// A connection whose other end is theirs.
async fn open(window: u32, streams: u32) -> (Sender, Theirs) {
    let (near, far) = pipe();
    let (sender, connection) = connect(near);
    tokio::spawn(connection);
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(window)
        .initial_connection_window_size(window.max(65_535))
        .max_concurrent_streams(streams);
    (sender, builder.handshake(far).await.expect("handshake"))
}

fn head(path: &str) -> request::Parts {
    let request = Request::post(format!("http://localhost{path}")).header("x-a", "1");
    request.body(()).expect("a request").into_parts().0
}

async fn send(mut out: Outgoing, mut data: Bytes) -> Result<(), Error> {
    poll_fn(|cx| out.poll_data(cx, &mut data, false)).await?;
    out.trailers(&trailers("5"));
    Ok(())
}

/// Sends a call and reads all of its answer.
async fn call(
    sender: &Sender,
    path: &str,
    data: Bytes,
) -> Result<(Bytes, Option<http::HeaderMap>), Error> {
    let mut started = sender.start(&head(path), false).await?;
    let out = started.outgoing.take().expect("a body");
    let (sent, answer) = tokio::join!(send(out, data), async {
        started.answer().await?.into_body().collect().await
    });
    let answer = answer?;
    sent?;
    let got = answer.trailers().cloned();
    Ok((answer.to_bytes(), got))
}

async fn echo(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let mut body = request.into_body();
    let mut stream = respond.send_response(Response::new(()), false)?;
    while let Some(data) = body.data().await {
        let mut data = data?;
        body.flow_control().release_capacity(data.len())?;
        while !data.is_empty() {
            stream.reserve_capacity(data.len());
            let Some(room) = poll_fn(|cx| stream.poll_capacity(cx)).await else {
                return Ok(());
            };
            let room = room?.min(data.len());
            stream.send_data(data.split_to(room), false)?;
        }
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    stream.send_trailers(trailers)
}

/// Echoes until nobody asks any more.
async fn echo_all(mut theirs: Theirs) {
    while let Some(accepted) = theirs.accept().await {
        let (request, respond) = accepted.expect("a request");
        tokio::spawn(echo(request, respond));
    }
}

#[tokio::test]
async fn bodies_of_all_sizes_through_windows_of_all_sizes() {
    for window in [1, 1000, 65_535, 3 << 20] {
        let (sender, theirs) = open(window, 100).await;
        let theirs = tokio::spawn(echo_all(theirs));
        let sizes: &[usize] = match window {
            1 => &[0, 1, 100],
            1000 => &[999, 1000, 1001, 100_000],
            _ => &[16_384, 16_385, 3_000_000, 9_000_000],
        };
        for size in sizes {
            let body = pattern(*size);
            let echoed = soon("an echo", call(&sender, "/x", body.clone())).await;
            assert!(
                echoed.expect("an answer") == (body, Some(trailers("5"))),
                "{size}"
            );
        }
        // With its last holder the connection goes.
        drop(sender);
        soon("the end", theirs).await.expect("a good end");
    }
}

#[tokio::test]
async fn more_calls_than_the_server_takes_at_once() {
    let (sender, theirs) = open(65_535, 7).await;
    tokio::spawn(echo_all(theirs));
    let mut calls = JoinSet::new();
    for n in 0..1000 {
        let sender = sender.clone();
        calls.spawn(async move { call(&sender, "/x", pattern(n)).await.expect("an answer").0 });
    }
    let mut all = soon("all answers", calls.join_all()).await;
    all.sort_by_key(Bytes::len);
    assert!(all.iter().enumerate().all(|(n, data)| *data == pattern(n)));
}

#[tokio::test]
async fn our_two_ends_understand_each_other() {
    let (near, far) = pipe();
    serve(far, tokio_util::sync::CancellationToken::new());
    let (sender, connection) = connect(near);
    let connection = tokio::spawn(connection);
    for size in [0, 1, 20_000, 12_000_000] {
        let echoed = soon("an echo", call(&sender, "/x", pattern(size))).await;
        assert!(echoed.expect("an answer") == (pattern(size), Some(trailers("5"))));
    }
    let failed = call(&sender, "/fails", pattern(1)).await;
    assert!(
        matches!(failed, Err(Error::Reset(Reason::REFUSED_STREAM))),
        "{failed:?}"
    );
    drop(sender);
    soon("the end", connection)
        .await
        .expect("joined")
        .expect("a good end");
}

#[tokio::test]
async fn resets_have_their_reason_both_ways() {
    let (sender, mut theirs) = open(65_535, 100).await;
    let started = sender.start(&head("/x"), true).await.expect("started");
    let other = sender.start(&head("/y"), true).await.expect("started");
    let (_, mut respond) = theirs.accept().await.expect("a call").expect("a request");
    let (_, mut kept) = theirs.accept().await.expect("a call").expect("a request");
    let theirs = tokio::spawn(echo_all(theirs));
    let mut stream = respond
        .send_response(Response::new(()), false)
        .expect("sent");
    let mut body: Incoming = started.answer().await.expect("a head").into_body();
    stream.send_data(pattern(5), false).expect("sent");
    stream.send_reset(TheirReason::from(77));
    assert!(!body.is_end_stream());
    let mut last = body.frame().await.expect("a frame");
    if last.is_ok() {
        last = body.frame().await.expect("an end");
    }
    assert!(matches!(last, Err(Error::Reset(Reason(77)))), "{last:?}");

    drop(other);
    let reset = soon("a reset", poll_fn(|cx| kept.poll_reset(cx))).await;
    assert_eq!(reset.expect("a reason"), TheirReason::CANCEL);
    drop((sender, body, stream, kept, respond));
    soon("the end", theirs).await.expect("a good end");
}

#[tokio::test]
async fn what_a_leaving_server_did_not_look_at_may_be_sent_again() {
    let (sender, mut theirs) = open(65_535, 100).await;
    let first = sender.start(&head("/x"), true).await.expect("started");
    let (_, _respond) = theirs.accept().await.expect("a call").expect("a request");
    // It says so before it has read the second.
    theirs.abrupt_shutdown(TheirReason::NO_ERROR);
    let second = sender.start(&head("/y"), true).await.expect("started");
    let end = poll_fn(|cx| theirs.poll_closed(cx));
    let (second, _) = tokio::join!(second.answer(), end);
    assert!(
        matches!(second, Err(Error::NotTaken(Reason::NO_ERROR))),
        "{second:?}"
    );
    drop(first);
    let third = sender.start(&head("/z"), true).await;
    assert!(
        matches!(third, Err(Error::NotTaken(_) | Error::Closed)),
        "{third:?}"
    );
}

#[tokio::test]
async fn what_never_left_may_be_sent_again() {
    let (near, far) = pipe();
    let (sender, connection) = connect(near);
    let started = sender.start(&head("/x"), true).await.expect("started");
    drop(far);
    assert!(connection.await.is_err());
    let answer = started.answer().await;
    assert!(matches!(answer, Err(Error::NotTaken(_))), "{answer:?}");
}
