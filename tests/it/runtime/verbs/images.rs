//! Image verbs of the CRI: policies, artifacts as image volumes, credentials.

use crate::harness::image::{OCI, configured, descriptor, gzip, gzipped, layer};
use crate::harness::pki::{Authority, Validity};
use crate::prelude::*;
use crate::runtime::image::encrypted::{self, KEY, provider, secret};

pub(super) fn spec(name: &str) -> Option<v1::ImageSpec> {
    Some(v1::ImageSpec {
        image: name.to_owned(),
        user_specified_image: name.to_owned(),
        ..Default::default()
    })
}

pub(super) async fn pull(kubelet: &Kubelet, name: &str, namespace: &str) -> Result<String, Status> {
    let mut config = kubelet.pod_config("p");
    if let Some(metadata) = &mut config.metadata {
        namespace.clone_into(&mut metadata.namespace);
    }
    let request = requests::pull_for(name, config);
    let pulled = kubelet.images.clone().pull_image(request).await?;
    Ok(pulled.into_inner().image_ref)
}

/// Pushes an artifact with one file, `dir/file`, as `a:1`.
fn push(registry: &Registry, content: &[u8]) -> String {
    for blob in [content, b"{}".as_slice()] {
        registry.put(&format!("a/blobs/{}", Digest::sha256(blob)), "", blob);
    }
    let mut file = descriptor("text/plain", content);
    file["annotations"] = json!({"org.opencontainers.image.title": "dir/file"});
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": OCI,
        "config": descriptor("application/vnd.oci.empty.v1+json", b"{}"),
        "layers": [file],
    });
    registry.put_manifest("a", "1", OCI, manifest.to_string().as_bytes());
    registry.name("a:1")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_is_a_volume_and_not_a_root() {
    let (daemon, kubelet) = node().await;
    let registry = Registry::start().await;
    let name = push(&registry, b"content");
    pull(&kubelet, &name, "default").await.expect("PullImage");
    let pod = kubelet.plain_pod("volumes").await;
    let mount = |path: &str, sub: &str| v1::Mount {
        container_path: path.to_owned(),
        readonly: true,
        image: spec(&name),
        image_sub_path: sub.to_owned(),
        ..Default::default()
    };
    let mut config = idle("main");
    config.mounts = vec![mount("/all", ""), mount("/part", "dir")];
    let id = kubelet.launch(&pod, config).await;
    assert_eq!(
        kubelet.says(&id, "cat /all/dir/file /part/file").await,
        "contentcontent"
    );
    let written = kubelet.exec(&id, "(: > /all/dir/file) 2>/dev/null").await;
    assert_ne!(written.code, 0);
    let mut config = idle("root");
    config.image = spec(&name);
    assert_refused(
        kubelet.try_create(&pod, config).await,
        Code::InvalidArgument,
        "artifact",
    );
    kubelet.end(&pod).await;
    kubelet.remove_image(&name).await;
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_has_the_annotations_of_its_manifest() {
    let (mut daemon, kubelet) = node().await;
    let registry = Registry::start().await;
    let mut image = gzipped(&[layer().file("a", b"a").end()]);
    let mut manifest: Value = serde_json::from_slice(&image.manifest).expect("json");
    manifest["annotations"] = json!({"org.opencontainers.image.revision": "4711"});
    image.manifest = manifest.to_string().into_bytes();
    let name = registry.push("annotated", "1", &image);
    pull(&kubelet, &name, "default").await.expect("PullImage");
    let annotations = |image: v1::Image| image.spec.unwrap_or_default().annotations;
    for when in ["pulled", "restarted"] {
        let kubelet = Kubelet::of(&daemon).await;
        let mut images = kubelet.images.clone();
        let request = requests::image_status(&name);
        let found = images.image_status(request).await.expect("ImageStatus");
        let found = annotations(found.into_inner().image.expect("it is here"));
        let shown = found.get("org.opencontainers.image.revision");
        assert_eq!(shown.map(String::as_str), Some("4711"), "{when}");
        assert_eq!(found.len(), 1, "{when}");
        let request = v1::ListImagesRequest::default();
        let listed = images.list_images(request).await.expect("ListImages");
        for image in listed.into_inner().images {
            assert!(annotations(image).is_empty(), "{when}");
        }
        daemon.restart().await;
    }
}

/// The kubelet with `RuntimeClassInImageCriApi` looks for the images of containers among those of ListImages by id and handler.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_the_same_for_all_handlers() {
    let (daemon, kubelet, pod) = node_with_pod("handlers").await;
    let mut config = idle("main");
    config.image = spec(IMAGE).map(|image| v1::ImageSpec {
        runtime_handler: "second".to_owned(),
        ..image
    });
    let id = kubelet.launch(&pod, config).await;
    let listed = kubelet.containers().await;
    let status = kubelet.status(&id).await;
    for image in [listed[0].image.as_ref(), status.image.as_ref()] {
        let image = image.expect("an image");
        assert_eq!(
            (image.image.as_str(), image.runtime_handler.as_str()),
            (IMAGE, "")
        );
    }
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_certificates_for_registries_is_measured() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let authority = Authority::new();
    let pairs = [Validity::Now, Validity::Over].map(|validity| authority.client("node", validity));
    let dir = daemon.root().join("certs.d");
    for (registry, pair) in ["a.example", "b.example"].iter().zip(&pairs) {
        let dir = dir.join(registry);
        fs::create_dir_all(&dir).expect("a folder");
        let text = format!(
            "[host.\"https://{registry}\"]\nclient = [[{:?}, {:?}]]\n",
            pair.cert, pair.key
        );
        fs::write(dir.join("hosts.toml"), text).expect("write");
    }
    daemon.configure(&format!("\n[runtime.images]\ncerts_dirs = [{dir:?}]\n"));
    daemon.start().await;
    let read = |metric: &'static str| {
        let program = daemon.program();
        until(metric, move || async move {
            let scrape = program.scrape().await;
            let of_registries = scrape.metric(metric).with("endpoint", "registry");
            Some(of_registries.sum()).filter(|value| *value > 0.0)
        })
    };
    let end = read("criscope_tls_certificate_not_after_timestamp_seconds").await;
    // 2020-01-02: the one that has expired.
    assert_eq!(end, 1_577_923_200.0);
    read("criscope_tls_certificate_last_reload_successful").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_applies_to_pulls_and_to_images_that_are_here() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let dir = daemon.root().join("policies");
    fs::create_dir_all(&dir).expect("a folder");
    let accept = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
    let reject = r#"{"default": [{"type": "reject"}]}"#;
    fs::write(dir.join("default"), accept).expect("write");
    daemon.configure(&format!(
        "\n[runtime.images]\nsignature_policy = \"{0}/default\"\nsignature_policy_dir = \"{0}\"\n",
        dir.display()
    ));
    let kubelet = daemon.serve().await;
    let registry = Registry::start().await;
    let name = push(&registry, b"content");
    pull(&kubelet, &name, "open").await.expect("PullImage");
    fs::write(dir.join("closed.json"), reject).expect("write");
    let error = pull(&kubelet, &name, "closed").await.expect_err("rejected");
    // What the kubelet makes its reason of.
    assert_eq!(error.code(), Code::Unknown);
    assert!(
        error.message().starts_with("SignatureValidationFailed: "),
        "{}",
        error.message()
    );
    let pod = kubelet.plain_pod("pod").await;
    let container = |name: &str| {
        let mut config = idle(name);
        config.image = spec(IMAGE);
        config
    };
    kubelet
        .try_create(&pod, container("first"))
        .await
        .expect("CreateContainer");
    fs::write(dir.join("default"), reject).expect("write");
    let namespace = pod
        .config
        .metadata
        .as_ref()
        .expect("metadata")
        .namespace
        .clone();
    fs::write(dir.join(format!("{namespace}.json")), accept).expect("write");
    kubelet
        .try_create(&pod, container("second"))
        .await
        .expect("its own policy");
    fs::write(dir.join(format!("{namespace}.json")), "nonsense").expect("write");
    let error = kubelet
        .try_create(&pod, container("third"))
        .await
        .expect_err("unusable");
    assert!(
        error.message().starts_with("SignatureValidationFailed: "),
        "{}",
        error.message()
    );
    daemon.end(&kubelet, [&pod]).await;
}

/// Its pods run, so it starts; but what refuses every image is not told by the first one only.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_directory_of_verifiers_is_told_at_start() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let dir = daemon.root().join("verifiers");
    daemon.configure(&format!("\n[runtime.images]\nverifier_bin_dir = {dir:?}\n"));
    daemon.start().await;
    let told = daemon.program().wait_event("runtime.images").await;
    assert_eq!(told["what"], "no image can be pulled", "{told}");
    let kubelet = Kubelet::of(&daemon).await;
    let registry = Registry::start().await;
    let name = push(&registry, b"content");
    let error = pull(&kubelet, &name, "default").await.expect_err("refused");
    assert!(error.message().contains("verifiers"), "{error}");
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_credentials_are_no_anonymous_pull() {
    let (daemon, kubelet) = node().await;
    let registry = Registry::start().await;
    let request = v1::PullImageRequest {
        image: spec(&push(&registry, b"content")),
        auth: Some(v1::AuthConfig {
            auth: "%%%".to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let error = kubelet.images.clone().pull_image(request).await;
    let error = error.err().expect("malformed");
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(!error.message().contains("%%%"));
    assert!(registry.asked("").is_empty());
    daemon.assert_clean();
}

/// A container runs from an encrypted image of a registry; without its key provider there is no image.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_runs_from_an_encrypted_image() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let dir = daemon.root().join("encrypted");
    fs::create_dir_all(&dir).expect("a folder");
    let providers = provider(&dir);
    daemon.configure(&format!(
        "\n[runtime.images]\nkeyprovider_config = {providers:?}\n"
    ));
    let kubelet = daemon.serve().await;
    let registry = Registry::start().await;
    let layer = busybox::layer();
    let run = json!({"Entrypoint": ["/bin/busybox", "sleep", "1000000"], "Env": ["PATH=/bin"]});
    let secret = secret(&gzip(&layer), &KEY);
    let config = configured(&run, &[layer]).config;
    let name = encrypted::push(&registry, "1", &config, &secret);

    let (program, away) = (dir.join("provider"), dir.join("away"));
    fs::rename(&program, &away).expect("rename");
    let error = pull(&kubelet, &name, "default").await.expect_err("no key");
    assert_eq!(error.code(), Code::Unavailable);
    let text = error.message();
    assert!(
        text.contains(&name) && text.contains("key provider test"),
        "{text}"
    );
    fs::rename(&away, &program).expect("rename");
    pull(&kubelet, &name, "default").await.expect("PullImage");
    let scrape = daemon.program().scrape().await;
    let keys = scrape.metric("criscope_runtime_phase_duration_seconds_count");
    let keys = keys.with("phase", "layer_key").with("outcome", "ok");
    assert!(keys.sum() >= 1.0);
    let pod = kubelet.plain_pod("pod").await;
    let mut config = idle("main");
    config.image = spec(&name);
    let id = kubelet.launch(&pod, config).await;
    assert_eq!(kubelet.says(&id, "echo decrypted").await, "decrypted");
    kubelet.end(&pod).await;
    kubelet.remove_image(&name).await;
    drop(registry);
    fs::remove_dir_all(&dir).expect("remove");
    daemon.assert_clean();
}
