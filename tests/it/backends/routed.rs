//! Routing of calls to one of two runtimes.

use prost::Message;

use super::Pair;
use crate::harness::client::Got;
use crate::prelude::*;

impl Pair {
    /// Makes a call; returns which of the two received it.
    async fn ask(&self, call: Call) -> (Got, bool, bool) {
        let before = (self.one.count(), self.two.count());
        let client = self.proxy.client().await;
        let got = client.call(call).await;
        (
            got,
            self.one.count() > before.0,
            self.two.count() > before.1,
        )
    }

    async fn goes_to(&self, call: Call, one: bool, two: bool) -> Got {
        let what = call.uri.clone();
        let (got, at_one, at_two) = self.ask(call).await;
        assert_eq!((at_one, at_two), (one, two), "{what}: {got:?}");
        got
    }
}

fn stop_container(id: &str) -> Call {
    let request = requests::stop(id, 1);
    Call::runtime("StopContainer", encode(&request))
}

fn sandbox_status(id: &str) -> Call {
    let request = requests::pod_status(id, false);
    Call::runtime("PodSandboxStatus", encode(&request))
}

fn pod(uid: &str) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "pod".into(),
            namespace: "shop".into(),
            uid: uid.into(),
            attempt: 0,
        }),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_call_goes_to_the_owner_of_its_id() {
    let pair = Pair::new().await;
    pair.goes_to(stop_container("container-1"), true, false)
        .await;
    pair.goes_to(stop_container("container-2"), false, true)
        .await;
    pair.goes_to(sandbox_status("sandbox-1"), true, false).await;
    pair.goes_to(sandbox_status("sandbox-2"), false, true).await;
    // An id prefix is enough, as for a runtime.
    pair.two
        .node()
        .add_pod("late", "beef-sandbox", "beef-container");
    pair.goes_to(stop_container("beef"), false, true).await;
}

#[tokio::test]
async fn an_unknown_owner_is_looked_up() {
    let pair = Pair::new().await;
    pair.two.node().add_pod("late", "sandbox-9", "container-9");
    pair.goes_to(stop_container("container-9"), false, true)
        .await;
    pair.goes_to(sandbox_status("sandbox-9"), false, true).await;

    // For an unknown id the default backend's own error is returned.
    pair.one.always(script::error(5, "no such container"));
    let got = pair.goes_to(stop_container("nowhere"), true, false).await;
    assert_eq!((got.code(), &*got.text()), (5, "no such container"));
}

#[tokio::test]
async fn an_owner_that_cannot_be_found_out_is_no_guess() {
    let pair = Pair::new().await;
    pair.two.stop();
    let got = pair.goes_to(stop_container("nowhere"), false, false).await;
    assert_eq!(got.code(), 14, "{got:?}");
    assert!(
        got.text().contains("cannot tell which backend has nowhere"),
        "{}",
        got.text()
    );
    assert!(got.text().contains("backend two"), "{}", got.text());
    // A known id needs no lookup.
    let got = pair
        .goes_to(stop_container("container-1"), true, false)
        .await;
    assert_eq!(got.code(), 0);
    let got = pair
        .goes_to(stop_container("container-2"), false, false)
        .await;
    assert_eq!(got.code(), 14);
}

#[tokio::test]
async fn a_pod_is_created_at_the_backend_of_its_handler_and_found_there_again() {
    let pair = Pair::new().await;
    let made = v1::RunPodSandboxResponse {
        pod_sandbox_id: "new-sandbox".into(),
    };
    pair.two.always(script::ok(&[encode(&made)]));
    let request = requests::run_pod(pod("new-pod"), "kata");
    let got = pair
        .goes_to(
            Call::runtime("RunPodSandbox", encode(&request)),
            false,
            true,
        )
        .await;
    assert_eq!(got.data, encode(&made));

    let made = v1::CreateContainerResponse {
        container_id: "new-container".into(),
    };
    pair.two.always(script::ok(&[encode(&made)]));
    let request = requests::create(
        "new-sandbox",
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: "app".into(),
                attempt: 0,
            }),
            ..Default::default()
        },
        pod("new-pod"),
    );
    pair.goes_to(
        Call::runtime("CreateContainer", encode(&request)),
        false,
        true,
    )
    .await;

    let (asked, since) = (pair.one.own() + pair.two.own(), Instant::now());
    pair.goes_to(stop_container("new-container"), false, true)
        .await;
    pair.goes_to(sandbox_status("new-sandbox"), false, true)
        .await;
    let now = pair.one.own() + pair.two.own();
    // Each is probed every five seconds.
    let probes = 2 * (1 + since.elapsed().as_secs() as usize / 5);
    assert!(now <= asked + probes, "no lookup was needed");

    let plain = requests::run_pod(pod("plain"), "");
    pair.goes_to(Call::runtime("RunPodSandbox", encode(&plain)), true, false)
        .await;
}

#[tokio::test]
async fn an_image_is_pulled_by_the_backend_of_its_pod() {
    let pair = Pair::new().await;
    let pull = |uid: &str, handler: &str| {
        let request = v1::PullImageRequest {
            image: Some(v1::ImageSpec {
                image: "registry.example/app:1".into(),
                runtime_handler: handler.into(),
                ..Default::default()
            }),
            sandbox_config: Some(pod(uid)),
            ..Default::default()
        };
        Call::image("PullImage", encode(&request))
    };
    pair.goes_to(pull("uid-web", ""), true, false).await;
    pair.goes_to(pull("uid-vm", ""), false, true).await;
    pair.goes_to(pull("unknown", ""), true, false).await;
    pair.goes_to(pull("unknown", "kata"), false, true).await;
    pair.goes_to(Call::image("RemoveImage", message(b"")), true, true)
        .await;
    pair.goes_to(
        Call::runtime("UpdateRuntimeConfig", message(b"")),
        true,
        true,
    )
    .await;
    pair.goes_to(Call::plain("Version"), true, false).await;
    pair.goes_to(Call::new("/x.Y/Z", message(b"")), true, false)
        .await;

    let scrape = pair.proxy.wait_balanced(8).await;
    let reasons = |r: &str| {
        scrape
            .metric("criscope_route_decisions_total")
            .with("reason", r)
            .sum()
    };
    assert_eq!(reasons("owner"), 2.0);
    assert_eq!(reasons("handler"), 1.0);
    assert_eq!(reasons("images"), 1.0);
    assert_eq!(reasons("all"), 2.0);
    assert_eq!(reasons("default"), 2.0);
}

#[tokio::test]
async fn a_call_for_one_backend_is_passed_on_unchanged() {
    let pair = Pair::new().await;
    let strange = {
        let mut bytes = requests::stop("container-2", 3).encode_to_vec();
        // Field 4000 is unknown.
        bytes.extend([0x82, 0xfa, 0x01, 3, 1, 2, 3]);
        message(&bytes)
    };
    let answer = Bytes::from_static(b"\x01\0\0\0\x03xyz\0\0\0\0\0");
    pair.two.always(script::ok(std::slice::from_ref(&answer)));
    let call = Call::runtime("StopContainer", strange.clone()).with("x-bin", "AAE=");
    let got = pair.goes_to(call, false, true).await;
    assert_eq!(got.data, answer);
    let seen = pair.two.seen().pop().expect("a call");
    assert_eq!(seen.body, strange);
    assert_eq!(seen.headers["x-bin"], "AAE=");
}

#[tokio::test]
async fn two_runtimes_may_speak_different_versions() {
    let (one, two) = (Fake::new(), Fake::new());
    one.node().v1alpha2 = false;
    two.node().v1 = false;
    two.node().add_pod("vm", "sandbox-2", "container-2");
    let config = super::config(&one, &two);
    let proxy = crate::harness::proxy::Start::new(crate::CRISCOPE)
        .config(&config)
        .ready()
        .await;
    let client = proxy.client().await;
    for version in ["v1", "v1alpha2"] {
        let path = format!("/runtime.{version}.RuntimeService/ListContainers");
        let got = client.call(Call::new(&path, message(b""))).await;
        assert_eq!(got.code(), 0, "{got:?}");
    }
    // Pods created after the index was filled are looked up, in the backend's version of the API.
    proxy
        .wait_scrape("the identity index is filled", |scrape| {
            scrape.metric("criscope_identity_entries").sum() == 2.0
        })
        .await;
    two.node().add_pod("late", "sandbox-9", "container-9");
    for id in ["container-2", "container-9"] {
        let got = client.call(stop_container(id)).await;
        assert_eq!(got.code(), 0, "{got:?}");
        let seen = two.seen().pop().expect("a call");
        assert_eq!(
            seen.uri.path(),
            "/runtime.v1alpha2.RuntimeService/StopContainer"
        );
    }
}
