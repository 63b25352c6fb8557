//! Responses joined from both runtimes.

use prost::Message;

use super::Pair;
use crate::harness::client::{read, read_some};
use crate::harness::script::{head, status};
use crate::prelude::*;

const LISTS: [&str; 6] = [
    "RuntimeService/ListPodSandbox",
    "RuntimeService/ListContainers",
    "RuntimeService/ListContainerStats",
    "RuntimeService/ListPodSandboxStats",
    "RuntimeService/ListPodSandboxMetrics",
    "ImageService/ListImages",
];

fn list(name: &str) -> Call {
    // A filter, which both must receive.
    Call::new(
        &format!("/runtime.v1.{name}"),
        message(b"\x0a\x03\x0a\x01x"),
    )
    .with("grpc-timeout", "60S")
}

#[tokio::test]
async fn lists_are_concatenated_byte_for_byte() {
    let pair = Pair::new().await;
    let client = pair.proxy.client().await;
    // Unknown fields, split at arbitrary offsets.
    let first: Vec<u8> = (0..70_000u32)
        .flat_map(|i| [0x0a, 2, i as u8, (i >> 8) as u8])
        .collect();
    let second: Vec<u8> = (0..3u8).flat_map(|i| [0xfa, 0x7f, 1, i]).collect();
    let whole = message(&first);
    let mut steps = vec![Step::Read, head()];
    for piece in [0..3, 3..7, 7..100_000, 100_000..whole.len()] {
        steps.push(Step::Data(whole.slice(piece)));
    }
    steps.push(Step::Trailers(status(0, "")));
    pair.one.always(steps);
    pair.two.always(script::ok(&[message(&second)]));
    for name in LISTS {
        let got = client.call(list(name)).await;
        assert_eq!(
            (got.code(), &got.broken),
            (0, &None),
            "{name}: {:?}",
            got.trailers
        );
        assert!(got.data == message(&[&*first, &second].concat()), "{name}");
        for fake in [&pair.one, &pair.two] {
            let seen = fake.seen().pop().expect("a call");
            assert_eq!(seen.body, message(b"\x0a\x03\x0a\x01x"), "{name}");
            assert_eq!(seen.headers["grpc-timeout"], "60S", "{name}");
        }
    }
    // Empty lists are valid.
    pair.one.always(script::empty());
    let got = client.call(list(LISTS[1])).await;
    assert_eq!(got.data, message(&second));
}

/// Failures of one runtime, by name.
fn failures() -> Vec<(&'static str, Vec<Step>)> {
    let whole = message(&[9; 300]);
    let half = whole.slice(..100);
    let after_head = |steps: &[Step]| [vec![Step::Read, head()], steps.to_vec()].concat();
    vec![
        ("error at once", script::error(13, "boom")),
        (
            "error after the head",
            after_head(&[Step::Trailers(status(13, "boom"))]),
        ),
        (
            "error after the message",
            after_head(&[
                Step::Data(whole.clone()),
                Step::Trailers(status(13, "boom")),
            ]),
        ),
        (
            "error in the message",
            after_head(&[Step::Data(half.clone()), Step::Trailers(status(13, "boom"))]),
        ),
        (
            "short message",
            after_head(&[Step::Data(half.clone()), Step::Trailers(status(0, ""))]),
        ),
        ("no message", after_head(&[Step::Trailers(status(0, ""))])),
        ("ok without a message", script::error(0, "")),
        ("two messages", script::ok(&[whole.clone(), whole.clone()])),
        (
            "no status",
            after_head(&[Step::Data(whole.clone()), Step::End]),
        ),
        ("dies before the head", vec![Step::Read, Step::Close]),
        ("dies after the head", after_head(&[Step::Close])),
        (
            "dies in the message",
            after_head(&[Step::Data(half.clone()), Step::Close]),
        ),
        (
            "dies after the message",
            after_head(&[Step::Data(whole.clone()), Step::Close]),
        ),
        (
            "reset before the head",
            vec![Step::Read, Step::Reset(h2::Reason::INTERNAL_ERROR)],
        ),
        (
            "reset in the message",
            after_head(&[Step::Data(half), Step::Reset(h2::Reason::CANCEL)]),
        ),
        ("compressed", script::ok(&[message_with(1, &[9; 300])])),
        (
            "http error",
            vec![
                Step::Read,
                Step::HeadOnly(503, crate::harness::headers(&[])),
            ],
        ),
    ]
}

#[tokio::test]
async fn a_list_of_one_runtime_is_never_passed_off_as_whole() {
    let pair = Pair::new().await;
    let client = pair.proxy.client().await;
    let mut entered = 0;
    for (broken, name) in [(&pair.one, "one"), (&pair.two, "two")] {
        for (what, steps) in failures() {
            broken.always(steps);
            for list_name in LISTS {
                let got = client.call(list(list_name)).await;
                entered += 1;
                assert!(got.code() > 0, "{name}, {what}, {list_name}: {got:?}");
                assert_eq!(got.broken, None, "{name}, {what}, {list_name}");
                assert!(
                    got.text().contains(&format!("backend {name}")),
                    "{name}, {what}: {:?}",
                    got.text()
                );
            }
        }
        broken.stop();
        for list_name in LISTS {
            let got = client.call(list(list_name)).await;
            entered += 1;
            assert_eq!(got.code(), 14, "{name} absent: {got:?}");
            assert!(
                got.text().contains(&format!("backend {name}")),
                "{:?}",
                got.text()
            );
        }
        broken.start();
        broken.always(script::empty());
        assert_eq!(
            client.call(list(LISTS[0])).await.code(),
            0,
            "{name} is back"
        );
        entered += 1;
    }
    pair.proxy.wait_balanced(entered).await;
}

fn stream_of(fake: &Fake, messages: &[Bytes]) {
    fake.always(script::ok(messages));
}

#[tokio::test]
async fn streamed_lists_are_concatenated() {
    let pair = Pair::new().await;
    let client = pair.proxy.client().await;
    let parts: Vec<Bytes> = (1..=4u8).map(|i| message(&[i; 20])).collect();
    stream_of(&pair.one, &parts[..2]);
    stream_of(&pair.two, &parts[2..]);
    let got = client.call(Call::plain("StreamContainers")).await;
    assert_eq!((got.code(), got.data), (0, parts.concat()));
    stream_of(&pair.one, &[]);
    let got = client.call(Call::plain("StreamPodSandboxes")).await;
    assert_eq!(
        (got.code(), got.data),
        (0, parts[2..].concat()),
        "an empty stream is a valid list"
    );
    pair.two.always(vec![
        Step::Read,
        head(),
        Step::Data(parts[2].clone()),
        Step::Close,
    ]);
    let got = client.call(Call::plain("StreamContainers")).await;
    assert_eq!(got.code(), 14, "{got:?}");
    pair.two.stop();
    let got = client.call(Call::plain("StreamContainers")).await;
    assert_eq!(got.code(), 14, "{got:?}");
}

#[tokio::test]
async fn events_of_both_are_passed_on_as_they_happen() {
    let pair = Pair::new().await;
    let client = pair.proxy.client().await;
    let gates: Vec<_> = (0..5).map(|_| CancellationToken::new()).collect();
    let wait = |n: usize| Step::Wait(gates[n].clone());
    let event = |n: u8| Step::Data(message(&[n; 10]));
    pair.one.always(vec![
        Step::Read,
        head(),
        wait(0),
        event(0),
        wait(2),
        event(2),
        Step::Hang,
    ]);
    let end = Step::Trailers(status(0, ""));
    pair.two.always(vec![
        Step::Read,
        head(),
        wait(1),
        event(1),
        wait(3),
        event(3),
        wait(4),
        end,
    ]);
    let mut call = client.start(Call::plain("GetContainerEvents")).await;
    let (mut got, body) = call.head().await;
    let mut body = body.expect("a body");
    for (n, gate) in gates[..4].iter().enumerate() {
        gate.cancel();
        read_some(&mut got, &mut body, 15 * (n + 1)).await;
    }
    let want: Vec<u8> = (0..4u8).flat_map(|n| message(&[n; 10])).collect();
    assert_eq!(got.data, want);
    // When one stream ends, both end, so that the caller subscribes again.
    gates[4].cancel();
    soon("end", read(&mut got, body)).await;
    assert_eq!(got.code(), 0);
    pair.one
        .wait("the end of the other stream", |seen| seen.done)
        .await;
    pair.proxy.wait_balanced(1).await;
}

#[tokio::test]
async fn the_node_is_ready_if_both_are() {
    let pair = Pair::new().await;
    let client = pair.proxy.client().await;
    let answer = |ready: bool, handlers: &[&str]| v1::StatusResponse {
        status: Some(v1::RuntimeStatus {
            conditions: vec![v1::RuntimeCondition {
                r#type: "NetworkReady".into(),
                status: ready,
                reason: "because".into(),
                message: "no network".into(),
            }],
        }),
        runtime_handlers: handlers
            .iter()
            .map(|name| v1::RuntimeHandler {
                name: (*name).into(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    for (one, two) in [(true, true), (true, false), (false, true)] {
        pair.one
            .always(script::ok(&[encode(&answer(one, &["", "runc", "kata"]))]));
        pair.two
            .always(script::ok(&[encode(&answer(two, &["", "kata"]))]));
        let got = client.call(Call::plain("Status")).await;
        assert_eq!(got.code(), 0, "{got:?}");
        let joined = v1::StatusResponse::decode(&got.data[5..]).expect("a status");
        let conditions = joined.status.expect("status").conditions;
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0].status, one && two);
        let names: Vec<_> = joined.runtime_handlers.iter().map(|h| &*h.name).collect();
        assert_eq!(
            names,
            ["", "runc", "kata"],
            "each from the runtime that serves it"
        );
    }
    pair.two.stop();
    let got = client.call(Call::plain("Status")).await;
    assert_eq!(got.code(), 14, "{got:?}");
}
