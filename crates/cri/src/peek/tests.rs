//! Requests and responses of the generated types, and what is read of them.

use super::super::v1;
use super::*;

fn sandbox_config() -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "web".into(),
            uid: "u-1".into(),
            namespace: "shop".into(),
            attempt: 2,
        }),
        hostname: "secret-host".into(),
        annotations: [("kubernetes.io/config.seen", "2025-06-15T15:06:40Z")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..Default::default()
    }
}

#[test]
fn a_sandbox_is_named_by_its_metadata() {
    let message = v1::RunPodSandboxRequest {
        config: Some(sandbox_config()),
        runtime_handler: "kata".into(),
    };
    let subject = request(Method::RunPodSandbox, &message.encode_to_vec());
    let pod = subject.pod.expect("pod");
    assert_eq!(
        (&*pod.namespace, &*pod.name, &*pod.uid, pod.attempt),
        ("shop", "web", "u-1", 2)
    );
    assert_eq!(subject.handler.as_deref(), Some("kata"));
    let origin = subject.origin.expect("an origin");
    assert_eq!(origin.seen_us, 1_750_000_000_000_000);
}

#[test]
fn a_container_is_named_by_its_metadata_and_image() {
    let message = v1::CreateContainerRequest {
        pod_sandbox_id: "s1".into(),
        config: Some(v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: "app".into(),
                attempt: 1,
            }),
            image: Some(v1::ImageSpec {
                image: "https://me:pw@registry.example/app?token=x".into(),
                ..Default::default()
            }),
            annotations: [("io.kubernetes.pod.terminationGracePeriod", "45")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..Default::default()
        }),
        sandbox_config: Some(sandbox_config()),
    };
    let subject = request(Method::CreateContainer, &message.encode_to_vec());
    let pod_grace = subject.request.and_then(|request| request.pod_grace);
    assert_eq!(pod_grace, Some(45));
    assert_eq!(subject.sandbox_id.as_deref(), Some("s1"));
    assert_eq!(
        subject.container.map(|c| c.name.clone()).as_deref(),
        Some("app")
    );
    assert_eq!(
        subject.image.as_deref(),
        Some("https://registry.example/app")
    );
}

#[test]
fn every_call_that_carries_an_id_gives_it() {
    let message = v1::StopContainerRequest {
        container_id: "c1".into(),
        timeout: 3,
    };
    let subject = request(Method::StopContainer, &message.encode_to_vec());
    assert_eq!(subject.container_id.as_deref(), Some("c1"));
    assert_eq!(subject.timeout, Some(3));
    let message = v1::ExecSyncRequest {
        container_id: "c1".into(),
        cmd: vec!["secret".into()],
        timeout: 5,
    };
    let subject = request(Method::ExecSync, &message.encode_to_vec());
    assert_eq!(subject.container_id.as_deref(), Some("c1"));
    assert_eq!(subject.timeout, Some(5));

    let message = v1::ListContainersRequest {
        filter: Some(v1::ContainerFilter {
            id: "c2".into(),
            ..Default::default()
        }),
    };
    let subject = request(Method::ListContainers, &message.encode_to_vec());
    assert_eq!(subject.container_id.as_deref(), Some("c2"));
}

#[test]
fn nonsense_gives_nothing() {
    for method in Method::ALL {
        assert_eq!(request(method, b"\xff\xff\xff\xff").pod, None, "{method}");
        let _ = answer(method, b"\x0a\xff");
    }
}

#[test]
fn long_names_are_cut() {
    let message = v1::StopContainerRequest {
        container_id: "é".repeat(1000),
        timeout: 0,
    };
    let subject = request(Method::StopContainer, &message.encode_to_vec());
    assert_eq!(subject.container_id.map(|id| id.len()), Some(MAX));
}

#[test]
fn a_restored_pod_has_the_ids_of_the_answer() {
    let named = |name: &str, attempt| v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: name.into(),
            attempt,
        }),
        ..Default::default()
    };
    let message = v1::RestorePodRequest {
        checkpoint_path: "/secret".into(),
        config: Some(v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "cart".into(),
                uid: "u2".into(),
                namespace: "shop".into(),
                attempt: 0,
            }),
            annotations: [(
                "kubernetes.io/config.seen".into(),
                "2026-11-28T09:00:00Z".into(),
            )]
            .into(),
            ..Default::default()
        }),
        runtime_handler: "kata".into(),
        container_configs: vec![named("app", 2), named("side", 0)],
        ..Default::default()
    };
    let message = message.encode_to_vec();
    let subject = request(Method::RestorePod, &message);
    assert_eq!(
        subject.pod.map(|pod| pod.uid.clone()).as_deref(),
        Some("u2")
    );
    assert_eq!(subject.handler.as_deref(), Some("kata"));
    assert!(subject.origin.is_some() && subject.sandbox_id.is_none());
    let attempts = restored_containers(&message);
    let attempts: Vec<_> = attempts.iter().map(|c| (&*c.name, c.attempt)).collect();
    assert_eq!(attempts, [("app", 2), ("side", 0)]);

    let restored = |name: &str, id: &str| v1::RestoredContainer {
        name: name.into(),
        container_id: id.into(),
    };
    let message = v1::RestorePodResponse {
        pod_sandbox_id: "s1".into(),
        restored_containers: vec![restored("app", "c1"), restored("side", "")],
    };
    let answer = answer(Method::RestorePod, &message.encode_to_vec());
    assert_eq!(answer.sandbox_id.as_deref(), Some("s1"));
    let made: Vec<_> = answer.restored.iter().map(|c| (&*c.name, &*c.id)).collect();
    assert_eq!(made, [("app", "c1")]);
}

#[test]
fn answers() {
    let message = v1::ExecSyncResponse {
        stdout: b"secret".as_slice().into(),
        stderr: Default::default(),
        exit_code: 7,
    };
    assert_eq!(
        answer(Method::ExecSync, &message.encode_to_vec()).exit_code,
        Some(7)
    );
    let mut status = v1::ContainerStatus {
        state: v1::ContainerState::ContainerRunning.into(),
        started_at: 5,
        finished_at: 9,
        exit_code: 137,
        reason: "OOMKilled".into(),
        ..Default::default()
    };
    let state = |status: &v1::ContainerStatus| {
        let message = v1::ContainerStatusResponse {
            status: Some(status.clone()),
            ..Default::default()
        };
        let answer = answer(Method::ContainerStatus, &message.encode_to_vec());
        answer.state.expect("a state")
    };
    assert_eq!((state(&status).started_at, state(&status).exit), (5, None));
    status.state = v1::ContainerState::ContainerExited.into();
    let exit = state(&status).exit.expect("an exit");
    assert_eq!(
        (exit.at, exit.code, exit.reason),
        (9, 137, ExitReason::OomKilled)
    );
    for (word, reason) in [
        ("Completed", ExitReason::Completed),
        ("Error", ExitReason::Error),
        ("Unknown", ExitReason::Unknown),
        ("StartError", ExitReason::Other),
        ("", ExitReason::Other),
    ] {
        status.reason = word.into();
        assert_eq!(
            state(&status).exit.map(|e| e.reason),
            Some(reason),
            "{word}"
        );
    }

    let message = v1::StatusResponse {
        status: Some(v1::RuntimeStatus {
            conditions: vec![v1::RuntimeCondition {
                r#type: "NetworkReady".into(),
                status: false,
                reason: "NetworkPluginNotReady".into(),
                message: "secret path".into(),
            }],
        }),
        ..Default::default()
    };
    let details = answer(Method::Status, &message.encode_to_vec());
    let conditions = details.conditions.as_deref().expect("conditions");
    assert_eq!(conditions[0].message.text(), "secret path");
    assert!(!format!("{details:?}").contains("secret"));

    let message = v1::RunPodSandboxResponse {
        pod_sandbox_id: "s9".into(),
    };
    let answer = answer(Method::RunPodSandbox, &message.encode_to_vec());
    assert_eq!(answer.sandbox_id.as_deref(), Some("s9"));
}
