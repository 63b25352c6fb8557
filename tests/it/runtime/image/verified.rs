//! Verification before an image is recorded: programs as containerd runs them, and signature policies as CRI-O reads them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use criscope_image::{PolicyFiles, PullOptions, VerifierPlugins};

use super::real::openssl;
use super::*;
use crate::harness::docker_registry::skopeo;

const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// Makes a key pair, `NAME.key` and `NAME.pub`.
fn key(dir: &Path, name: &str) -> PathBuf {
    let curve = "-algorithm EC -pkeyopt ec_paramgen_curve:prime256v1";
    openssl(dir, &format!("genpkey {curve} -out {name}.key"));
    openssl(dir, &format!("pkey -in {name}.key -pubout -out {name}.pub"));
    dir.join(format!("{name}.pub"))
}

/// What cosign pushes beside an image: a manifest whose layer is the signed document; here with its blobs.
struct Signed {
    manifest: Vec<u8>,
    config: Vec<u8>,
    payload: Vec<u8>,
}

impl Signed {
    fn new(dir: &Path, key: &str, of: &Digest, name: &str) -> Self {
        let payload = json!({
            "critical": {
                "identity": {"docker-reference": name},
                "image": {"docker-manifest-digest": of},
                "type": "cosign container image signature",
            },
            "optional": null,
        });
        let payload = payload.to_string().into_bytes();
        fs::write(dir.join("payload"), &payload).expect("write");
        openssl(
            dir,
            &format!("dgst -sha256 -sign {key}.key -out signature payload"),
        );
        let signature = STANDARD.encode(fs::read(dir.join("signature")).expect("signature"));
        let mut layer = descriptor(PAYLOAD, &payload);
        layer["annotations"] = json!({"dev.cosignproject.cosign/signature": signature});
        let config = json!({"architecture": "", "os": "", "config": {},
            "rootfs": {"type": "layers", "diff_ids": [Digest::sha256(&payload)]}});
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": OCI,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [layer],
        });
        Self {
            manifest: manifest.to_string().into_bytes(),
            config,
            payload,
        }
    }

    fn push(&self, registry: &Registry, repository: &str, tag: &str) {
        for blob in [&self.config, &self.payload] {
            let path = format!("{repository}/blobs/{}", Digest::sha256(blob));
            registry.put(&path, "application/octet-stream", blob);
        }
        registry.put_manifest(repository, tag, OCI, &self.manifest);
    }

    /// Writes it as an OCI layout, for skopeo.
    fn layout(&self, dir: &Path) {
        let blobs = dir.join("blobs/sha256");
        fs::create_dir_all(&blobs).expect("a folder");
        for blob in [&self.manifest, &self.config, &self.payload] {
            fs::write(blobs.join(Digest::sha256(blob).hex()), blob).expect("write");
        }
        let index = json!({"schemaVersion": 2, "manifests": [descriptor(OCI, &self.manifest)]});
        fs::write(dir.join("index.json"), index.to_string()).expect("write");
        fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("write");
    }
}

fn tag_of(manifest: &Digest) -> String {
    format!("{}.sig", manifest.as_str().replace(':', "-"))
}

/// A policy that requires signatures by a key in one repository, and accepts everything else.
fn requires(scope: &str, key: &Path) -> Value {
    json!({
        "default": [{"type": "insecureAcceptAnything"}],
        "transports": {"docker": {scope: [{
            "type": "sigstoreSigned",
            "keyPath": key,
            "signedIdentity": {"type": "matchRepository"},
        }]}},
    })
}

/// A store with a policy in `policy.json`, and a folder for those of namespaces.
async fn with_policy() -> Store {
    Store::with(|config| {
        let dir = config.root.parent().expect("a folder").to_owned();
        fs::create_dir(dir.join("policies")).expect("a folder");
        config.policy = Some(PolicyFiles {
            default: Some(dir.join("policy.json")),
            namespaces: Some(dir.join("policies")),
            ..PolicyFiles::default()
        });
    })
    .await
}

fn write(store: &Store, file: &str, policy: &Value) {
    fs::write(store.dir.path().join(file), policy.to_string()).expect("write");
}

async fn refused(store: &Store, name: &str) -> String {
    let error = store.refuses(name).await;
    assert!(
        matches!(error, Error::SignatureValidationFailed { .. }),
        "{error}"
    );
    // The kubelet strips `rpc error` and finds the word only for this code.
    assert_eq!(error.code(), Code::Unknown);
    assert!(error.to_string().starts_with("SignatureValidationFailed: "));
    assert!(store.images.is_empty());
    error.to_string()
}

#[tokio::test]
async fn a_signed_image_is_pulled_from_docker_registry_and_an_unsigned_one_is_not() {
    let store = with_policy().await;
    let dir = store.dir.path();
    let registry = DockerRegistry::start(dir).await;
    registry.push("signed:1");
    registry.push("unsigned:1");
    let repository = format!("{}/signed", registry.address());
    let own = key(dir, "own");
    write(&store, "policy.json", &requires(&registry.address(), &own));
    let name = format!("{repository}:1");
    let why = refused(&store, &name).await;
    assert!(why.contains("no signature exists"), "{why}");
    // Signed by digest, as cosign does.
    fs::remove_file(dir.join("policy.json")).expect("remove");
    write(
        &store,
        "policy.json",
        &json!({"default": [{"type": "insecureAcceptAnything"}]}),
    );
    let id = store.pull(&name).await;
    let image = store.image(id.as_str());
    let (_, digest) = image.digests[0].split_once('@').expect("a digest");
    let manifest = Digest::parse(digest).expect("a digest");
    store.images.remove(id.as_str()).await.expect("remove");
    write(&store, "policy.json", &requires(&registry.address(), &own));
    let layout = dir.join("signature.oci");
    Signed::new(dir, "own", &manifest, &repository).layout(&layout);
    let to = format!("docker://{repository}:{}", tag_of(&manifest));
    skopeo(&[&format!("oci:{}", layout.display()), &to]);
    store.pull(&name).await;
    let by_digest = format!("{repository}@{manifest}");
    store.pull(&by_digest).await;
    // The same content, but a signature is for a repository.
    let other = format!("{}/unsigned:1", registry.address());
    let error = store.images.pull(&other, None, None).await;
    assert!(matches!(
        error,
        Err(Error::SignatureValidationFailed { .. })
    ));
    let allow = async |name: &str| store.images.allow(&id, name, None).await;
    allow(&name).await.expect("signed");
    allow(&by_digest).await.expect("signed");
    allow(&other).await.expect_err("for another repository");
}

#[tokio::test]
async fn nothing_of_a_refused_image_is_fetched() {
    let (store, registry) = (with_policy().await, Registry::start().await);
    let (name, built) = (registry.name("a:1"), with_file(b"x"));
    registry.push("a", "1", &built);
    let missing = refused(&store, &name).await;
    assert!(missing.contains("policy.json"), "{missing}");
    let dir = store.dir.path();
    let own = key(dir, "own");
    key(dir, "other");
    for policy in [
        json!({"default": [{"type": "reject"}]}),
        json!({"default": [{"type": "signedBy", "keyType": "GPGKeys", "keyPath": "/k"}]}),
        json!({"default": [{"type": "insecureAcceptAnything"}, {"type": "reject"}]}),
        json!({"default": [{"type": "insecureAcceptAnything"}], "unknown": 1}),
        json!("nonsense"),
        requires(&registry.address.to_string(), &own),
    ] {
        write(&store, "policy.json", &policy);
        refused(&store, &name).await;
    }
    let manifest = Digest::sha256(&built.manifest);
    let repository = registry.name("a");
    for (key, of, name_signed) in [
        ("other", &manifest, repository.as_str()),
        ("own", &Digest::sha256(b"another"), &repository),
        ("own", &manifest, "quay.io/another"),
    ] {
        let signed = Signed::new(dir, key, of, name_signed);
        signed.push(&registry, "a", &tag_of(&manifest));
        refused(&store, &name).await;
    }
    assert!(registry.asked("blobs").iter().all(|asked| {
        let of_image = built.layers.iter().chain([&built.config]);
        !of_image
            .into_iter()
            .any(|blob| asked.path.contains(Digest::sha256(blob).hex()))
    }));
    // An error of the registry is no verdict, and no image either.
    registry.hook(|asked| asked.path.ends_with(".sig").then(|| status(403, "")));
    let error = store.refuses(&name).await;
    assert_eq!(error.code(), Code::PermissionDenied, "{error}");
    registry.behave();
    Signed::new(dir, "own", &manifest, &repository).push(&registry, "a", &tag_of(&manifest));
    store.pull(&name).await;
}

#[tokio::test]
async fn an_index_or_its_manifest_is_signed_and_referrers_are_found() {
    let registry = Registry::start().await;
    let built = with_file(b"x");
    for blob in built.layers.iter().chain([&built.config]) {
        for repository in ["index", "manifest", "referrers", "fallback"] {
            registry.put(
                &format!("{repository}/blobs/{}", Digest::sha256(blob)),
                "",
                blob,
            );
        }
    }
    let mut entry = descriptor(OCI, &built.manifest);
    entry["platform"] = json!({"os": "linux", "architecture": make::architecture()});
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).to_string();
    let (index, manifest) = (index.as_bytes(), Digest::sha256(&built.manifest));
    let store = with_policy().await;
    let dir = store.dir.path();
    let own = key(dir, "own");
    write(
        &store,
        "policy.json",
        &requires(&registry.address.to_string(), &own),
    );
    for repository in ["index", "manifest", "referrers", "fallback"] {
        registry.put_manifest(repository, "1", INDEX, index);
        registry.put_manifest(repository, "instance", OCI, &built.manifest);
        let name = registry.name(repository);
        let top = Digest::sha256(index);
        let of = if repository == "index" {
            &top
        } else {
            &manifest
        };
        let signed = Signed::new(dir, "own", of, &name);
        match repository {
            "index" | "manifest" => signed.push(&registry, repository, &tag_of(of)),
            other => {
                signed.push(&registry, other, "x");
                let mut entry = descriptor(OCI, &signed.manifest);
                entry["artifactType"] = json!("application/vnd.dev.cosign.artifact.sig.v1+json");
                let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]});
                let path = match other {
                    "referrers" => format!("{other}/referrers/{of}"),
                    _ => format!("{other}/manifests/{}", of.as_str().replace(':', "-")),
                };
                registry.put(&path, INDEX, index.to_string().as_bytes());
            }
        }
        let id = store.images.pull(&format!("{name}:1"), None, None).await;
        let id = id.unwrap_or_else(|error| panic!("{repository}: {error}"));
        store
            .images
            .allow(&id, &format!("{name}:1"), None)
            .await
            .expect(repository);
    }
}

#[tokio::test]
async fn a_namespace_has_its_own_policy_also_for_images_that_are_here() {
    let (store, registry) = (with_policy().await, Registry::start().await);
    let built = with_file(b"x");
    let name = registry.push("a", "1", &built);
    let dir = store.dir.path().to_owned();
    let own = key(&dir, "own");
    let host = registry.address.to_string();
    write(
        &store,
        "policy.json",
        &json!({"default": [{"type": "insecureAcceptAnything"}]}),
    );
    write(&store, "policies/strict.json", &requires(&host, &own));
    write(
        &store,
        "policies/closed.json",
        &json!({"default": [{"type": "reject"}]}),
    );
    let pull = async |namespace: &str| {
        let options = PullOptions {
            namespace: Some(namespace.to_owned()),
            ..PullOptions::default()
        };
        store.images.pull_with(&name, &options).await
    };
    pull("strict").await.expect_err("unsigned");
    let id = pull("open").await.expect("no policy of its own");
    let allow = async |images: &criscope_image::ImageStore, namespace: &str| {
        images.allow(&id, &name, Some(namespace)).await
    };
    allow(&store.images, "open").await.expect("open");
    allow(&store.images, "strict").await.expect_err("unsigned");
    // Pulled for a namespace that needs no signature, used by one that does.
    let manifest = Digest::sha256(&built.manifest);
    let signed = Signed::new(&dir, "own", &manifest, &registry.name("a"));
    signed.push(&registry, "a", &tag_of(&manifest));
    pull("open").await.expect("pull");
    allow(&store.images, "strict").await.expect("signed");
    allow(&store.images, "closed").await.expect_err("rejects");
    // The signatures outlive a restart, and go with the image.
    let Store { images, dir } = store;
    images.settled().await.expect("on disk");
    let config = criscope_image::ImageStoreConfig {
        policy: Some(PolicyFiles {
            default: Some(dir.path().join("policy.json")),
            namespaces: Some(dir.path().join("policies")),
            ..PolicyFiles::default()
        }),
        ..super::config(dir.path())
    };
    drop(images);
    let images = image_store::open(&config).await;
    registry.hook(|_| Some(status(500, "")));
    allow(&images, "strict").await.expect("signed");
    images.remove(id.as_str()).await.expect("remove");
    images.settled().await.expect("on disk");
    let store = Store { images, dir };
    store.assert_empty().await;
}

/// A store whose verifiers are these shell scripts.
async fn with_verifiers(scripts: &[(&str, &str)], most: usize) -> (Store, PathBuf) {
    let store = Store::with(|config| {
        let bin_dir = config.root.parent().expect("a folder").join("bin");
        fs::create_dir(&bin_dir).expect("a folder");
        config.verifiers = Some(VerifierPlugins {
            bin_dir,
            max_verifiers: most,
            per_verifier_timeout: Duration::from_secs(5),
        });
    })
    .await;
    let dir = store.dir.path().join("bin");
    for (name, script) in scripts {
        executable(&dir.join(name), &format!("#!/bin/sh\n{script}\n"));
    }
    (store, dir)
}

#[tokio::test]
async fn all_verifiers_must_accept_an_image() {
    let registry = Registry::start().await;
    let built = with_file(b"x");
    let name = registry.push("a", "1", &built);
    let digest = Digest::sha256(&built.manifest);
    let size = built.manifest.len();
    // Each checks what it is told: arguments and standard input.
    let checks = format!(
        r#"[ "$1 $2 $3 $4 $5 $6" = "-name {name} -digest {digest} -stdin-media-type application/vnd.oci.descriptor.v1+json" ] || {{ echo "$@"; exit 3; }}
        read -r line; case $line in *'"digest":"{digest}"'*) ;; *) echo "$line"; exit 4;; esac
        case $line in *'"size":{size}'*) ;; *) echo "$line"; exit 5;; esac; echo fine"#
    );
    let (store, _) = with_verifiers(&[("a", &checks), ("b", "exit 0")], 2).await;
    store.pull(&name).await;
    let (store, _) = with_verifiers(&[("a", "exit 0"), ("b", "echo not today; exit 7")], 2).await;
    let why = refused(&store, &name).await;
    assert!(
        why.contains("verifier b rejected it (exit code 7): not today"),
        "{why}"
    );
    assert!(
        registry.asked("blobs").len() <= built.layers.len() + 1,
        "once only"
    );
    for (scripts, most, part) in [
        (&[][..], 2, "there are none"),
        (&[("a", "exit 0"), ("b", "exit 0")][..], 1, "2 files"),
        (&[("a", "kill -9 $$")][..], 1, "killed"),
        // The pull does not wait for processes that a verifier leaves behind.
        (&[("a", "sleep 600 & sleep 600")][..], 1, "no answer"),
        (
            &[("a", "head -c 1000000 /dev/zero; echo; exit 1")][..],
            1,
            "exit code 1",
        ),
    ] {
        let (store, _) = with_verifiers(scripts, most).await;
        let why = refused(&store, &name).await;
        assert!(why.contains(part), "{why}");
    }
    let (store, gone) = with_verifiers(&[], 1).await;
    fs::remove_dir(gone).expect("remove");
    refused(&store, &name).await;
}
