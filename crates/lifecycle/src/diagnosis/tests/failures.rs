//! Failed calls, and failures that were resolved.

use super::*;

#[test]
fn an_image_that_is_not_there() {
    let pod = pod("web");
    let image = "registry.x/app:1";
    let pull = |from| {
        pod.pull(image, from, 1000)
            .fails(Code::NotFound, "image not found")
    };
    let calls = [
        pod.run(0, 100),
        pull(1000),
        pull(12_000),
        pull(33_000),
        pull(87_000),
    ];
    assert_eq!(
        says(calls, 100_000),
        "image registry.x/app:1 cannot be pulled: the registry has no such image: NOT_FOUND image not found (4 tries, the last 12 s ago)"
    );
    // After the deadline of the start the sentence is the same.
    let calls = [pod.run(0, 100), pull(1000)];
    assert_eq!(
        says(calls, 1_802_000),
        "image registry.x/app:1 cannot be pulled: the registry has no such image: NOT_FOUND image not found (30 min ago)"
    );
}

#[test]
fn an_image_that_came_late() {
    let pod = pod("web");
    let pull = |from| {
        pod.pull("app:1", from, 100)
            .fails(Code::Unavailable, "no route to host")
    };
    let calls = chain(
        [
            pod.run(0, 100),
            pull(1000),
            pull(12_000),
            pod.pull("app:1", 33_000, 100),
        ],
        up(&pod, 33_100),
    );
    assert_eq!(
        says(calls, 60_000),
        "image app:1 could not be pulled: no route to the registry: UNAVAILABLE no route to host (2 tries failed first); up after 33.3 s"
    );
}

#[test]
fn a_deadline_that_passes() {
    let pod = pod("web");
    let run = |from| pod.run(from, 2000).late();
    let slow = |call: EpisodeCall| call.seen(WorkKind::Cni, "slow", "", 0, 2000);
    let calls = [
        slow(run(0)),
        run(15_000).seen(WorkKind::Cni, "slow", "", 0, 9500),
    ];
    assert_eq!(
        says(calls, 40_000),
        "RunPodSandbox passed the kubelet's deadline of 2.00 s twice; 11.5 s in the CNI plugin slow"
    );
}

#[test]
fn a_retry_that_is_refused() {
    let pod = pod("web");
    let reserved = "failed to reserve sandbox name: name is reserved";
    let refused = |from| pod.run(from, 10).fails(Code::Unknown, reserved);
    let late = pod
        .run(0, 240_000)
        .late()
        .seen(WorkKind::Cni, "slow", "", 100, 240_000);
    assert_eq!(
        says([late, refused(250_000), refused(260_000)], 270_000),
        "RunPodSandbox passed the kubelet's deadline of 4m 00s, and 2 more tries were refused since: the runtime \
         still holds its name (name is reserved); 4m 00s in the CNI plugin slow"
    );
    assert_eq!(
        says([refused(0)], 1000),
        "RunPodSandbox is refused once: an earlier try still holds the name (name is reserved)"
    );
}

#[test]
fn a_caller_that_hangs_up() {
    let pod = pod("web");
    assert_eq!(
        says([pod.pull("app:1", 0, 31_000).cancelled()], 60_000),
        "PullImage of app:1 was broken off by the kubelet once after 31.0 s"
    );
}

#[test]
fn a_network_that_fails() {
    let pod = pod("web");
    let error =
        r#"failed to setup network for sandbox: plugin type="bridge" failed (add): no addresses"#;
    let text = says([pod.run(0, 500).fails(Code::Unknown, error)], 5500);
    assert_eq!(
        text,
        "network: the CNI plugin bridge fails: UNKNOWN no addresses (5 s ago)"
    );
    let text = says(
        [pod.run(0, 500)
            .fails(Code::Unknown, "cni plugin not initialized")],
        5500,
    );
    assert_eq!(
        text,
        "network: it cannot be set up: no CNI configuration is loaded: UNKNOWN cni plugin not initialized (5 s ago)"
    );
}

#[test]
fn a_container_that_cannot_start() {
    let pod = pod("web");
    let error = "exec: \"/srv\": stat /srv: no such file or directory";
    let calls = [
        pod.run(0, 100),
        pod.create(("app", 0), 100, 100),
        pod.start(("app", 0), 200, 100).fails(Code::Unknown, error),
        pod.create(("app", 1), 15_000, 100),
        pod.start(("app", 1), 15_200, 100)
            .fails(Code::Unknown, error),
    ];
    assert_eq!(
        says(calls, 17_000),
        "container app cannot be started: its command, or its interpreter, is not in the image: UNKNOWN exec: \"/srv\": stat /srv: no such file or directory (2 tries, the last 1 s ago)"
    );
}

/// The handlers that there are may have any names.
#[test]
fn a_handler_that_there_is_not_is_no_matter_of_the_network() {
    let text = "there is no runtime handler \"gvisor\"; there are: no-ipam, own-cni, runc";
    let run = pod("web").run(0, 10).fails(Code::InvalidArgument, text);
    let said = says([run], 1000);
    assert!(
        said.starts_with("the sandbox cannot be made: the runtime has no such runtime handler"),
        "{said}"
    );
}
