//! Signature policies at CreateContainer, for images that are on the node: what a pod calls an image is not what it is judged by.

use super::images::pull;
use crate::harness::image::{gzipped, layer};
use crate::prelude::*;

/// A pod on a node with a policy, and the image that it is about.
struct Stage {
    kubelet: Kubelet,
    pod: Pod,
    policy: PathBuf,
    id: String,
}

impl Stage {
    fn accepts_only(&self, scope: &str) {
        let accept = json!([{"type": "insecureAcceptAnything"}]);
        self.write(
            &json!({"default": [{"type": "reject"}], "transports": {"docker": {scope: accept}}}),
        );
    }

    fn write(&self, policy: &Value) {
        fs::write(&self.policy, policy.to_string()).expect("write");
    }

    /// Creates a container as the kubelet does: with the ID of the image, and what the pod calls it; with the image as its own or as a
    /// volume.
    async fn create(&self, image: &str, written: &str, volume: bool) -> Result<(), Status> {
        let spec = |image: &str| {
            Some(v1::ImageSpec {
                image: image.to_owned(),
                user_specified_image: written.to_owned(),
                ..Default::default()
            })
        };
        let mut config = idle("main");
        match volume {
            false => config.image = spec(image),
            true => config.mounts.push(v1::Mount {
                container_path: "/volume".to_owned(),
                readonly: true,
                image: spec(image),
                ..Default::default()
            }),
        }
        let id = self.kubelet.try_create(&self.pod, config).await?;
        self.kubelet.remove(&id).await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_refused_is_created_under_no_other_name() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let registry = Registry::start().await;
    let host = registry.address.to_string();
    let policy = daemon.root().join("policy.json");
    let conf = daemon.root().join("registries.conf");
    let aliases = format!("[aliases]\n\"corpapp\" = \"{host}/ok/bb\"\n");
    fs::write(
        &conf,
        format!("unqualified-search-registries = [\"{host}\"]\n{aliases}"),
    )
    .expect("write");
    fs::write(
        &policy,
        r#"{"default": [{"type": "insecureAcceptAnything"}]}"#,
    )
    .expect("write");
    daemon.configure(&format!(
        "\n[runtime.images]\nsignature_policy = {policy:?}\nregistries_conf = {conf:?}\n"
    ));
    let kubelet = daemon.serve().await;
    let image = gzipped(&[layer().dir("etc/", 0o755).end()]);
    let name = registry.push("ok/bb", "1", &image);
    let id = pull(&kubelet, &name, "default").await.expect("PullImage");
    let pod = kubelet.plain_pod("pod").await;
    let stage = Stage {
        kubelet,
        pod,
        policy,
        id,
    };
    let digest = criscope_image::Digest::sha256(&image.manifest);
    let texts = [
        stage.id.clone(),
        stage.id["sha256:".len()..].to_owned(),
        stage.id[..20].to_owned(),
        stage.id["sha256:".len()..][..12].to_owned(),
        "corpapp:1".to_owned(),
        "ok/bb:1".to_owned(),
        name.clone(),
        format!("{host}/ok/bb@{digest}"),
        format!("{name}@{digest}"),
        String::new(),
    ];
    let others = ["docker.io/library/busybox:1", "corpapp:2", "not//a name"];
    // What it is called as an image of Docker Hub is accepted, the image is not.
    stage.accepts_only("docker.io/library");
    for written in texts.iter().map(String::as_str).chain(others) {
        for image in [&stage.id, &name] {
            let error = stage.create(image, written, false).await;
            let error = error.expect_err(written);
            assert_eq!(error.code(), Code::Unknown, "{written:?}: {error}");
            let message = error.message();
            assert!(
                message.starts_with("SignatureValidationFailed: "),
                "{written:?}: {message}"
            );
        }
    }
    // The image of the container is accepted, that of the volume is not.
    let own = "registry.example/criscope/busybox";
    stage.accepts_only(own);
    for written in &texts {
        let error = stage.create(&stage.id, written, true).await;
        let error = error.expect_err(written);
        assert!(
            error.message().starts_with("SignatureValidationFailed: "),
            "{written:?}: {error}"
        );
        assert!(!error.message().contains(own), "{written:?}: {error}");
    }
    // With its name accepted, all that it may be called is.
    stage.accepts_only(&format!("{host}/ok"));
    for written in &texts {
        stage
            .create(&stage.id, written, false)
            .await
            .expect(written);
    }
    for written in ["corpapp:2", "not//a name"] {
        let created = stage.create(&stage.id, written, false).await;
        created.expect("all names of the image are accepted");
    }
    let error = stage.create(&stage.id, others[0], false).await;
    error.expect_err("not a name of the image, nor an accepted one");
    // The name is that of the image.
    let mut config = idle("named");
    config.image = Some(v1::ImageSpec {
        image: stage.id.clone(),
        user_specified_image: "corpapp:1".to_owned(),
        ..Default::default()
    });
    let created = stage
        .kubelet
        .try_create(&stage.pod, config)
        .await
        .expect("CreateContainer");
    let status = stage.kubelet.status(&created).await;
    assert_eq!(status.image.map(|image| image.image), Some(name.clone()));
    stage.kubelet.end(&stage.pod).await;
    daemon.assert_clean();
}
