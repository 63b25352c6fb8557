//! A real registry and a real client, with an image of the machine's busybox.

use super::*;
use crate::harness::docker_registry::skopeo;
use crate::harness::packages::busybox;

#[tokio::test]
async fn pushed_by_skopeo_and_pulled_from_docker_registry() {
    let store = Store::new().await;
    let dir = store.dir.path();
    let busybox = fs::read(busybox()).expect("busybox");
    let rootfs = layer()
        .dir("bin/", 0o755)
        .file("bin/busybox", &busybox)
        .link("bin/sh", "busybox")
        .end();
    let more = layer().dir("etc/", 0o755).file("etc/motd", b"hello").end();
    let built = image(&[(rootfs.clone(), rootfs), (more.clone(), more)]);
    let archive = dir.join("image.tar");
    fs::write(&archive, docker_archive("busybox:1", &built)).expect("write");
    let from = format!("docker-archive:{}", archive.display());
    let registry = DockerRegistry::start(dir).await;
    let mut ids = Vec::new();
    // Docker and OCI manifests; skopeo compresses layers when pushing.
    for (tag, format) in [("docker", "v2s2"), ("oci", "oci")] {
        let name = format!("{}/busybox:{tag}", registry.address());
        skopeo(&["--format", format, &from, &format!("docker://{name}")]);
        ids.push(store.pull(&name).await);
    }
    let oci = dir.join("oci.tar");
    skopeo(&[
        &from,
        &format!("oci-archive:{}:quay.io/busybox:archive", oci.display()),
    ]);
    let imported = store.images.import(&oci).await.expect("import");
    assert_eq!(imported[0].names, ["quay.io/busybox:archive"]);
    ids.push(imported[0].id.clone());
    let layers = store.images.layers(ids[0].as_str()).expect("layers");
    assert_eq!(
        fs::read(layers.paths()[0].join("bin/busybox")).expect("busybox"),
        busybox
    );
    assert_eq!(
        fs::read(layers.paths()[1].join("etc/motd")).expect("motd"),
        b"hello"
    );
    drop(layers);
    for id in ids {
        store.images.remove(id.as_str()).await.expect("remove");
    }
    fs::remove_file(oci).expect("remove");
    store.assert_empty().await;
}

pub(super) fn openssl(dir: &Path, line: &str) {
    let output = Command::new(program("openssl", "openssl"))
        .args(line.split_ascii_whitespace())
        .current_dir(dir)
        .output()
        .expect("start openssl");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {line}: {said}");
}

/// A registry whose certificate is from a private CA, and which requires client certificates.
#[tokio::test]
async fn certificates_are_checked_both_ways() {
    const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    let store = Store::new().await;
    let dir = store.dir.path();
    openssl(
        dir,
        &format!("req -x509 {KEY} -keyout ca.key -out ca.crt -subj /CN=test"),
    );
    openssl(
        dir,
        &format!("req -new {KEY} -keyout own.key -out own.csr -subj /CN=127.0.0.1"),
    );
    fs::write(dir.join("names"), "subjectAltName=IP:127.0.0.1").expect("write");
    openssl(
        dir,
        "x509 -req -in own.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out own.crt",
    );
    let at = |file: &str| dir.join(file).display().to_string();
    let tls = format!(
        ", tls: {{certificate: {}, key: {}, clientcas: [{}]}}",
        at("own.crt"),
        at("own.key"),
        at("ca.crt")
    );
    let registry = DockerRegistry::with(dir, &tls).await;
    let archive = dir.join("image.tar");
    let plain = layer().file("f", b"x").end();
    fs::write(
        &archive,
        docker_archive("a:1", &image(&[(plain.clone(), plain)])),
    )
    .expect("write");
    let client = dir.join("client");
    fs::create_dir(&client).expect("a folder");
    for (from, to) in [
        ("own.crt", "c.cert"),
        ("own.key", "c.key"),
        ("ca.crt", "ca.crt"),
    ] {
        fs::copy(dir.join(from), client.join(to)).expect("copy");
    }
    let name = format!("{}/a:1", registry.address());
    let certificates = format!("--dest-cert-dir={}", client.display());
    let from = format!("docker-archive:{}", archive.display());
    skopeo(&[&certificates, &from, &format!("docker://{name}")]);
    let hosts = dir.join("certs.d").join(registry.address());
    fs::create_dir_all(&hosts).expect("a folder");
    let ours = format!("client = [[\"{}\", \"{}\"]]", at("own.crt"), at("own.key"));
    let known = format!("ca = \"{}\"", at("ca.crt"));
    let server = format!("server = \"https://{}\"", registry.address());
    for (lines, works) in [
        (vec![&server], false),
        (vec![&server, &known], false),
        (vec![&server, &ours], false),
        (vec![&server, &known, &ours], true),
        (vec![&server, &ours, &"skip_verify = true".to_owned()], true),
    ] {
        let text: Vec<_> = lines.iter().map(|line| line.as_str()).collect();
        fs::write(hosts.join("hosts.toml"), text.join("\n")).expect("write");
        let pulled = store.images.pull(&name, None, None).await;
        assert_eq!(pulled.is_ok(), works, "{text:?}: {pulled:?}");
        if let Err(error) = pulled {
            assert!(
                error.to_string().to_lowercase().contains("certificate"),
                "{error}"
            );
        }
    }
}
