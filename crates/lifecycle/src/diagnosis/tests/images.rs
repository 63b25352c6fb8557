//! Images that are absent, and pulls that wait for others.

use super::*;
use crate::kubelet::images::FailedImageLookup;
use crate::kubelet::pulls::PullInFlight;

#[test]
fn a_pod_that_waits_for_the_pull_of_another() {
    let (web, big, other) = (pod("web"), pod("big"), pod("other"));
    let mut store = store([web.run(0, 500)]);
    let pulling = |pods: &[&ScriptedPod]| {
        let pulls = pods.iter().map(|pod| {
            let pull = pod.pull("r.io/big:1", 0, 30_000).under_way(None);
            PullInFlight::from_call(&pull).expect("in flight")
        });
        pulls.collect::<Vec<_>>()
    };
    let of_web = |store: &EpisodeStore, pods: &[&ScriptedPod]| {
        let node = store.node().with_pulls(pulling(pods));
        let cause = Diagnoser::new(&episodes(store), node, at(30_000)).newest_cause();
        cause.expect("an episode").to_string()
    };
    assert_eq!(
        of_web(&store, &[&big]),
        "kubelet: no call for 29.5 s since the sandbox was made: by default it pulls one image at a time, for 30.0 s now r.io/big:1 (pod shop/big)"
    );
    let silent = "kubelet: no call for 29.5 s since RunPodSandbox ended";
    assert!(of_web(&store, &[&big, &other]).starts_with(silent));
    assert!(of_web(&store, &[&web]).starts_with(silent));
    store.note_no_image(FailedImageLookup::new("r.io/app:9", at(520), None));
    assert_eq!(
        of_web(&store, &[&big]),
        "kubelet: the pull of r.io/app:9 has not begun for 29.5 s: by default it pulls one image at a time, for 30.0 s now r.io/big:1 (pod shop/big)"
    );
    store.note_no_image(FailedImageLookup::new("r.io/app:9", at(12_520), None));
    let absent = "image r.io/app:9 is absent and is not pulled";
    assert!(of_web(&store, &[&big]).starts_with(absent));
}

#[test]
fn an_image_that_is_never_pulled() {
    let web = pod("web");
    let mut store = store([web.run(0, 500)]);
    let of_web = |store: &EpisodeStore| {
        let cause = Diagnoser::new(&episodes(store), store.node(), at(16_500)).newest_cause();
        cause.expect("an episode").to_string()
    };
    assert!(of_web(&store).starts_with("kubelet: no call for 16.0 s since RunPodSandbox"));
    store.note_no_image(FailedImageLookup::new("r.io/app:9", at(520), None));
    assert_eq!(
        of_web(&store),
        "image r.io/app:9 is absent, and its pull has not begun for 16.0 s: imagePullPolicy Never, the kubelet's queue of pulls or its credential provider"
    );
    store.note_no_image(FailedImageLookup::new("r.io/app:9", at(12_520), None));
    assert_eq!(
        of_web(&store),
        "image r.io/app:9 is absent and is not pulled (imagePullPolicy: Never?): the kubelet looked for it twice in 12.0 s, no other call for 16.0 s"
    );
    let refused = Some("INVALID_ARGUMENT the name has capital letters");
    store.note_no_image(FailedImageLookup::new("r.io/app:9", at(14_520), refused));
    assert_eq!(
        of_web(&store),
        "image r.io/app:9 cannot be looked up: INVALID_ARGUMENT the name has capital letters (3 times in 14.0 s)"
    );
    // Another pod that waits for the same image.
    let other = pod("other");
    store.apply(other.run(15_000, 420));
    store.note_no_image(FailedImageLookup::new("r.io/app:9", at(15_430), None));
    let pod_headline = |store: &EpisodeStore, pod: &ScriptedPod| {
        let own: Vec<_> = store.episodes_of(&pod.0).collect();
        let cause = Diagnoser::new(&own, store.node(), at(30_000)).newest_cause();
        cause.expect("an episode").to_string()
    };
    let absent = "image r.io/app:9 is absent and";
    assert!(pod_headline(&store, &web).starts_with(absent));
    assert!(pod_headline(&store, &other).starts_with("image r.io/app:9 is absent, and its pull"));
    // Two pods at once: it may be the image of either.
    let (third, fourth) = (pod("third"), pod("fourth"));
    store.apply(third.run(16_000, 400));
    store.apply(fourth.run(16_000, 410));
    store.note_no_image(FailedImageLookup::new("r.io/b:1", at(16_420), None));
    let said = pod_headline(&store, &third);
    assert!(said.starts_with("kubelet: no call for"), "{said}");
    store.apply(third.pull("r.io/app:9", 600, 100));
    assert_eq!(store.missing_images(), []);
}

#[test]
fn a_pull_that_waits_for_another() {
    let (big, web) = (pod("big"), pod("web"));
    let mut store = store([
        big.run(0, 400),
        web.run(7000, 900),
        big.pull("big:1", 500, 39_500),
    ]);
    let mut pull = web.pull("web:1", 40_010, 1500);
    store.observe(&mut pull);
    store.apply(pull);
    for call in up(&web, 41_600) {
        store.apply(call);
    }
    store.tick(at(90_000), &[]);
    let own: Vec<_> = store.episodes().filter(|e| *e.pod.name == *"web").collect();
    assert_eq!(
        headline(own[0], at(90_000)),
        "kubelet: waited 32.1 s of 34.8 s for the pull of big:1 (pod shop/big): it pulls one image at a time"
    );
}
