//! Our server, asked by h2.

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{moves, pattern, pipe, serve, soon, trailers};

async fn connect_with(window: u32) -> (SendRequest<Bytes>, CancellationToken) {
    let (near, far) = pipe();
    let leave = CancellationToken::new();
    serve(far, leave.clone());
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size(window)
        .initial_connection_window_size(window.max(65_535));
    let (sender, connection) = builder.handshake(near).await.expect("handshake");
    tokio::spawn(connection);
    (sender, leave)
}

fn request(path: &str) -> Request<()> {
    let uri = format!("http://localhost{path}");
    let request = Request::post(uri)
        .header("x-a", "1")
        .header("x-b", "2")
        .header("x-a", "3");
    request.body(()).expect("a request")
}

async fn read(mut body: RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        moves();
        body.flow_control().release_capacity(data.len())?;
        all.extend_from_slice(&data);
    }
    Ok((all, body.trailers().await?))
}

/// Sends `body` as the window allows, with trailers, and gives all that comes back.
async fn echo(
    sender: SendRequest<Bytes>,
    path: &str,
    mut body: Bytes,
) -> Result<(HeaderMap, Vec<u8>, Option<HeaderMap>), h2::Error> {
    let (response, mut stream) = sender.ready().await?.send_request(request(path), false)?;
    let sending = async move {
        while !body.is_empty() {
            stream.reserve_capacity(body.len());
            let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
            let Some(Ok(room)) = room else { return };
            if stream
                .send_data(body.split_to(room.min(body.len())), false)
                .is_err()
            {
                return;
            }
        }
        let _ = stream.send_trailers(trailers("5"));
    };
    let receiving = async {
        let response = response.await?;
        let headers = response.headers().clone();
        let (data, trailers) = read(response.into_body()).await?;
        Ok((headers, data, trailers))
    };
    let ((), received) = tokio::join!(sending, receiving);
    received
}

#[tokio::test]
async fn bodies_of_all_sizes_through_windows_of_all_sizes() {
    for window in [1, 1000, 65_535, 3 << 20] {
        let (sender, _leave) = connect_with(window).await;
        let sizes: &[usize] = match window {
            1 => &[0, 1, 100],
            1000 => &[999, 1000, 1001, 100_000],
            _ => &[16_384, 16_385, 3_000_000, 9_000_000],
        };
        for size in sizes {
            let body = pattern(*size);
            let echoed = soon("an echo", echo(sender.clone(), "/x", body.clone())).await;
            let (headers, data, got) = echoed.expect("an answer");
            let values: Vec<_> = headers.get_all("x-a").iter().collect();
            assert_eq!(values, ["1", "3"]);
            assert!(data == body, "{size} bytes, window {window}");
            assert_eq!(got, Some(trailers("5")));
        }
    }
}

#[tokio::test]
async fn a_thousand_streams_at_once() {
    let (sender, _leave) = connect_with(65_535).await;
    let mut calls = JoinSet::new();
    for n in 0..1000 {
        let sender = sender.clone();
        let path = if n % 9 == 0 { "/large" } else { "/x" };
        calls.spawn(async move { (n, echo(sender, path, pattern(n)).await) });
    }
    let mut large = 0;
    for (n, echoed) in soon("all answers", calls.join_all()).await {
        let (_, data, got) = echoed.expect("an answer");
        assert!(got.is_some());
        match n % 9 {
            0 => large += usize::from(data.len() == 2_990_000),
            _ => assert!(data == pattern(n), "answer {n}"),
        }
    }
    assert_eq!(large, 112);
}

#[tokio::test]
async fn answers_that_end_early_or_badly() {
    let (sender, _leave) = connect_with(65_535).await;
    let failed = echo(sender.clone(), "/fails", pattern(3)).await;
    assert_eq!(
        failed.expect_err("a reset").reason(),
        Some(Reason::REFUSED_STREAM)
    );

    // The head is all there is.
    let ready = sender.clone().ready().await;
    let (response, _stream) = ready
        .expect("ready")
        .send_request(request("/only"), false)
        .expect("sent");
    assert!(response.await.expect("a head").body().is_end_stream());

    // An answer does not wait for a request that does not end, which is then not wanted.
    let ready = sender.clone().ready().await;
    let (response, mut stream) = ready
        .expect("ready")
        .send_request(request("/ignores"), false)
        .expect("sent");
    let body = response.await.expect("a head").into_body();
    let (data, _) = read(body).await.expect("a body");
    assert_eq!(data, pattern(10));
    let reset = std::future::poll_fn(|cx| stream.poll_reset(cx));
    assert_eq!(
        soon("a reset", reset).await.expect("a reason"),
        Reason::NO_ERROR
    );
    let (_, data, _) = echo(sender, "/x", pattern(5)).await.expect("all is well");
    assert_eq!(data, pattern(5));
}

#[tokio::test]
async fn a_caller_that_does_not_read_holds_up_only_its_own_stream() {
    let (sender, _leave) = connect_with(1 << 20).await;
    let ready = sender.clone().ready().await;
    let (response, _stream) = ready
        .expect("ready")
        .send_request(request("/large"), true)
        .expect("sent");
    let mut stalled = response.await.expect("a head").into_body();
    stalled.data().await.expect("data").expect("data");
    // The connection's window is used up too; small answers need none of it.
    let (_, data, got) = echo(sender.clone(), "/x", Bytes::new())
        .await
        .expect("an answer");
    assert_eq!((data.len(), got), (0, Some(trailers("5"))));
    // Credit for what was read, and all the rest comes.
    stalled
        .flow_control()
        .release_capacity(10_000)
        .expect("credit");
    let (rest, got) = soon("the rest", read(stalled)).await.expect("the rest");
    assert_eq!((rest.len(), got), (2_980_000, Some(trailers("0"))));
}

#[tokio::test]
async fn leaving_loses_nothing() {
    let (near, far) = pipe();
    let leave = CancellationToken::new();
    let served = serve(far, leave.clone());
    let (sender, connection) = h2::client::handshake(near).await.expect("handshake");
    let client = tokio::spawn(connection);
    let ready = sender.clone().ready().await;
    let (response, mut stream) = ready
        .expect("ready")
        .send_request(request("/x"), false)
        .expect("sent");
    let body = response.await.expect("a head").into_body();
    leave.cancel();
    // New calls are turned away once the word is here; this one goes on.
    while sender.clone().ready().await.is_ok() {
        tokio::task::yield_now().await;
    }
    stream.send_data(pattern(100), true).expect("sent");
    assert_eq!(read(body).await.expect("a body").0, pattern(100));
    drop((sender, stream));
    soon("the end", served)
        .await
        .expect("joined")
        .expect("a good end");
    soon("the end", client)
        .await
        .expect("joined")
        .expect("a good end");
}
