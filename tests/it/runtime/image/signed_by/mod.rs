//! The requirement `signedBy` of signature policies: signatures made by GnuPG and by skopeo, in lookaside stores.

mod gpg;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use criscope_image::PolicyFiles;

use self::gpg::Gpg;
use super::*;

/// Long ago for keys that last a year.
const THEN: &str = "20200101T000000!";

fn document(name: &str, manifest: &Digest) -> Vec<u8> {
    let document = json!({
        "critical": {
            "identity": {"docker-reference": name},
            "image": {"docker-manifest-digest": manifest},
            "type": "atomic container signature",
        },
        "optional": {"creator": "test", "timestamp": 1_700_000_000},
    });
    document.to_string().into_bytes()
}

/// A store with `policy.json` and `registries.d` in its folder.
async fn with_policy() -> Store {
    Store::with(|config| {
        let dir = config.root.parent().expect("a folder").to_owned();
        fs::create_dir(dir.join("registries.d")).expect("a folder");
        config.policy = Some(PolicyFiles {
            default: Some(dir.join("policy.json")),
            registries_d: dir.join("registries.d"),
            namespaces: None,
        });
        config.timeouts.retries = 1;
    })
    .await
}

/// A node with an image in a registry, and a lookaside store in a folder.
struct Setting {
    store: Store,
    registry: Registry,
    name: String,
    manifest: Digest,
}

impl Setting {
    async fn new() -> Self {
        let (store, registry) = (with_policy().await, Registry::start().await);
        let built = with_file(b"x");
        let setting = Self {
            name: registry.push("a", "1", &built),
            manifest: Digest::sha256(&built.manifest),
            store,
            registry,
        };
        let lookaside = setting.path("sigstore").display().to_string();
        setting.stores(&format!(
            "docker:\n  {}:\n    lookaside: file://{lookaside}\n",
            setting.registry.name("a")
        ));
        setting
    }

    fn path(&self, name: &str) -> PathBuf {
        self.store.dir.path().join(name)
    }

    fn stores(&self, yaml: &str) {
        fs::write(self.path("registries.d/a.yaml"), yaml).expect("write");
    }

    fn requires(&self, requirement: &Value) {
        let mut requirement = requirement.clone();
        requirement["type"] = "signedBy".into();
        if requirement.get("keyType").is_none() {
            requirement["keyType"] = "GPGKeys".into();
        }
        let policy = json!({"default": [requirement]});
        fs::write(self.path("policy.json"), policy.to_string()).expect("write");
    }

    /// Replaces the signatures in the store.
    fn signed(&self, signatures: &[&[u8]]) {
        let dir = self.manifest.as_str().replace(':', "=");
        let dir = self.path(&format!("sigstore/a@{dir}"));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a folder");
        for (index, signature) in signatures.iter().enumerate() {
            let path = dir.join(format!("signature-{}", index + 1));
            fs::write(path, signature).expect("write");
        }
    }

    /// Pulls the image, and removes it.
    async fn pulled(&self) -> Result<(), String> {
        match self.store.images.pull(&self.name, None, None).await {
            Ok(id) => {
                let removed = self.store.images.remove(id.as_str()).await;
                assert!(removed.expect("remove"));
                Ok(())
            }
            Err(error) => {
                assert!(
                    matches!(error, Error::SignatureValidationFailed { .. }),
                    "{error}"
                );
                assert!(self.store.images.is_empty());
                Err(error.to_string())
            }
        }
    }

    async fn accepted(&self, what: &str) {
        let pulled = self.pulled().await;
        assert_eq!(pulled, Ok(()), "{what}");
    }

    async fn refused(&self, why: &str) {
        let error = self.pulled().await.expect_err(why);
        assert!(error.contains(why), "{why:?}: {error}");
    }

    fn document(&self) -> Vec<u8> {
        document(&self.name, &self.manifest)
    }
}

#[tokio::test]
async fn one_signature_by_a_trusted_key_is_enough() {
    let (gpg, at) = (Gpg::new(), Setting::new().await);
    let key = gpg.key("one", &["ed25519", "sign", "never"], &[]);
    let rsa = gpg.key("two", &["rsa2048", "sign", "never"], &[]);
    let nist = gpg.key("three", &["nistp256", "sign", "never"], &[]);
    let good = gpg.sign(&key, &at.document(), &[]);
    let files = [("one", &key), ("two", &rsa), ("three", &nist)];
    for (name, key) in files {
        fs::write(at.path(name), gpg.export(key)).expect("write");
    }
    let one = json!({"keyPath": at.path("one")});
    at.requires(&one);
    at.refused("no signature exists").await;
    at.signed(&[&good]);
    at.accepted("compressed").await;
    let plain = gpg.sign(&key, &at.document(), &["--compress-level", "0"]);
    at.signed(&[&plain]);
    at.accepted("not compressed").await;
    at.signed(&[&gpg.sign(&key, &at.document(), &["--armor"])]);
    at.accepted("in letters").await;
    at.signed(&[b"nothing", &gpg.sign(&rsa, &at.document(), &[]), &good]);
    at.accepted("the third of three").await;
    at.signed(&[b"nothing", &gpg.sign(&rsa, &at.document(), &[])]);
    at.refused("none of the signatures is accepted").await;
    for other in [&rsa, &nist] {
        at.signed(&[&gpg.sign(other, &at.document(), &[])]);
        at.refused("not by a trusted key").await;
        at.requires(&json!({"keyPaths": [at.path("one"), at.path("two"), at.path("three")]}));
        at.accepted("by one of three keys").await;
        at.requires(&one);
    }
    at.signed(&[&good]);
    let armored = gpg.run(&["--armor", "--export", &rsa], b"");
    let both = [armored, gpg.run(&["--armor", "--export", &key], b"")].concat();
    for ring in [gpg.run(&["--export"], b""), both] {
        at.requires(&json!({"keyData": STANDARD.encode(ring)}));
        at.accepted("by one of a ring").await;
    }
    for (data, why) in [
        (&b"no key"[..], "public key of OpenPGP"),
        (&good, "public key of OpenPGP"),
    ] {
        at.requires(&json!({"keyData": STANDARD.encode(data)}));
        at.refused(why).await;
    }
    at.requires(&json!({"keyType": "X509Certificates", "keyPath": at.path("one")}));
    at.refused("not supported").await;
}

#[tokio::test]
async fn what_is_signed_must_be_this_image() {
    let (gpg, at) = (Gpg::new(), Setting::new().await);
    let key = gpg.key("one", &["rsa2048", "sign", "never"], &[]);
    fs::write(at.path("one"), gpg.export(&key)).expect("write");
    at.requires(&json!({"keyPath": at.path("one")}));
    let signed = |document: &[u8]| gpg.sign(&key, document, &[]);
    let mut forged = gpg.sign(&key, &at.document(), &["--compress-level", "0"]);
    let place = forged.windows(6).position(|text| text == b"atomic");
    forged[place.expect("the document")] = b'A';
    at.signed(&[&forged]);
    at.refused("not by a trusted key").await;
    for length in [1, 40, forged.len() - 20] {
        at.signed(&[&forged[..length]]);
        at.refused("a signed message").await;
    }
    at.signed(&[&signed(&document(&at.name, &Digest::sha256(b"other")))]);
    at.refused("another manifest").await;
    let cosign = String::from_utf8(at.document()).expect("text");
    let cosign = cosign.replace("atomic container", "cosign container image");
    at.signed(&[&signed(cosign.as_bytes())]);
    at.refused("of type").await;
    at.signed(&[&signed(br#"{"critical": {}}"#)]);
    at.refused("not one of an image").await;
    at.signed(&[&gpg.run(&["--store"], &at.document())]);
    at.refused("it has no signature").await;
    let mut long = at.document();
    long.resize(4 << 20, b' ');
    at.signed(&[&signed(&long)]);
    at.refused("more than 262144 bytes").await;
    let other = gpg.key("two", &["rsa2048", "sign", "never"], &[]);
    let both = ["--local-user", &other];
    at.signed(&[&gpg.sign(&key, &at.document(), &both)]);
    at.refused("more than one signature").await;
    let weak = ["--digest-algo", "SHA1", "--allow-weak-digest-algos"];
    at.signed(&[&gpg.sign(&key, &at.document(), &weak)]);
    at.refused("can be forged").await;
    // Names, as `sigstoreSigned` judges them.
    let other = at.registry.name("a:2");
    at.signed(&[&signed(&document(&other, &at.manifest))]);
    at.refused("is not one for").await;
    let identity = json!({"type": "matchRepository"});
    at.requires(&json!({"keyPath": at.path("one"), "signedIdentity": identity}));
    at.accepted("any name of the repository").await;
    let identity = json!({"type": "exactReference", "dockerReference": other});
    at.requires(&json!({"keyPath": at.path("one"), "signedIdentity": identity}));
    at.accepted("this name").await;
}

#[tokio::test]
async fn keys_must_be_valid_now() {
    let (gpg, at) = (Gpg::new(), Setting::new().await);
    let then = ["--faked-system-time", THEN];
    let check = |key: &str, options: &[&str]| {
        at.signed(&[&gpg.sign(key, &at.document(), options)]);
    };
    let trust = |name: &str| {
        fs::write(at.path("key"), gpg.export(name)).expect("write");
        at.requires(&json!({"keyPath": at.path("key")}));
    };
    // A key of 2020 that lasts, and a signature that does not.
    let old = gpg.key("old", &["ed25519", "sign", "never"], &then);
    trust("old");
    check(&old, &then);
    at.accepted("of 2020").await;
    check(&old, &[&then[..], &["--default-sig-expire", "1d"]].concat());
    at.refused("a signature that has expired").await;
    // It is extended, and expires.
    let expired = gpg.key("expired", &["ed25519", "sign", "1y"], &then);
    trust("expired");
    check(&expired, &then);
    at.refused("which has expired").await;
    gpg.run(&["--quick-set-expire", &expired, "10y"], b"");
    trust("expired");
    at.accepted("extended").await;
    // The certificate of revocation that GnuPG makes with each key.
    let revocation = gpg.home().join(format!("openpgp-revocs.d/{old}.rev"));
    let text = fs::read_to_string(revocation).expect("a certificate");
    check(&old, &[]);
    gpg.run(
        &["--import"],
        text.replace(":-----BEGIN", "-----BEGIN").as_bytes(),
    );
    trust("old");
    at.refused("which is revoked").await;
    // Subkeys.
    let primary = gpg.key("subkeys", &["ed25519", "cert", "never"], &then);
    let add = |expires: &str, options: &[&str]| {
        let add = ["--quick-add-key", &primary, "ed25519", "sign", expires];
        gpg.run(&[options, &add[..]].concat(), b"");
        gpg.fingerprints("subkeys").pop().expect("a subkey")
    };
    let (good, short) = (add("never", &then), add("1y", &then));
    trust("subkeys");
    check(&good, &[]);
    at.accepted("by a subkey").await;
    check(&short, &then);
    at.refused("whose subkey has expired").await;
    let edit = b"key 1\nrevkey\ny\n0\n\ny\nsave\n";
    check(&good, &then);
    gpg.run(
        &["--command-fd", "0", "--no-batch", "--edit-key", &primary],
        edit,
    );
    trust("subkeys");
    at.refused("whose subkey is revoked").await;
}

#[tokio::test]
async fn skopeo_signs_for_a_lookaside_store_and_signatures_are_kept() {
    let (gpg, store) = (Gpg::new(), with_policy().await);
    let dir = store.dir.path();
    let registry = DockerRegistry::start(dir).await;
    let key = gpg.key("one", &["rsa2048", "sign", "never"], &[]);
    fs::write(dir.join("one"), gpg.export(&key)).expect("write");
    // The names of the keys when skopeo 1.9 was made, and before.
    let lookaside = dir.join("sigstore").display().to_string();
    let stores = format!(
        "default-docker:\n  sigstore: file://{lookaside}\n  sigstore-staging: file://{lookaside}\n"
    );
    fs::write(dir.join("registries.d/a.yaml"), stores).expect("write");
    let archive = dir.join("image.tar");
    busybox::write(&archive, "registry.example/any:1");
    let name = format!("{}/team/app:1", registry.address());
    let output = Command::new(program("skopeo", "skopeo"))
        .arg("--registries.d")
        .arg(dir.join("registries.d"))
        .args(["--insecure-policy", "copy", "--quiet", "--sign-by", &key])
        .args(["--dest-tls-verify=false"])
        .arg(format!("docker-archive:{}", archive.display()))
        .arg(format!("docker://{name}"))
        .env("GNUPGHOME", gpg.home())
        .output()
        .expect("started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let policy = |key: &Path| {
        let requirement = json!({"type": "signedBy", "keyType": "GPGKeys", "keyPath": key});
        let policy = json!({"default": [requirement]});
        fs::write(dir.join("policy.json"), policy.to_string()).expect("write");
    };
    policy(&dir.join("one"));
    let id = store.pull(&name).await;
    // What the store has now is enough when a container is created.
    fs::remove_dir_all(dir.join("sigstore")).expect("remove");
    let allowed = store.images.allow(&id, &name, None).await;
    allowed.expect("allowed");
    gpg.key("two", &["rsa2048", "sign", "never"], &[]);
    fs::write(dir.join("two"), gpg.export("two")).expect("write");
    policy(&dir.join("two"));
    let refused = store.images.allow(&id, &name, None).await;
    let error = refused.expect_err("another key").to_string();
    assert!(error.contains("not by a trusted key"), "{error}");
}

#[tokio::test]
async fn stores_are_files_or_on_the_web() {
    let (gpg, at) = (Gpg::new(), Setting::new().await);
    let key = gpg.key("one", &["ed25519", "sign", "never"], &[]);
    fs::write(at.path("one"), gpg.export(&key)).expect("write");
    at.requires(&json!({"keyPath": at.path("one")}));
    let web = Registry::start().await;
    let address = web.name("").trim_end_matches('/').to_owned();
    at.stores(&format!(
        "default-docker:\n  lookaside: http://{address}/v2/store\n"
    ));
    at.refused("no signature exists").await;
    let dir = at.manifest.as_str().replace(':', "=");
    let signature = gpg.sign(&key, &at.document(), &[]);
    let path = format!("store/a@{dir}/signature-1");
    web.put(&path, "application/octet-stream", &signature);
    at.accepted("from the web").await;
    // A store that cannot be asked is no store without signatures.
    web.hook(|asked| asked.path.contains("signature-2").then(|| status(500, "")));
    let error = at.store.images.pull(&at.name, None, None).await;
    let error = error.expect_err("not asked");
    assert!(
        matches!(error, Error::RegistryUnavailable { .. }),
        "{error}"
    );
    web.behave();
    web.put(&path, "application/octet-stream", &vec![0; 300 << 10]);
    let error = at.store.images.pull(&at.name, None, None).await;
    let error = error.expect_err("too large");
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    at.stores("default-docker:\n  lookaside: ftp://example.com/x\n");
    let error = at.store.images.pull(&at.name, None, None).await;
    let error = error.expect_err("no URL of the web");
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    at.stores("docker: [");
    at.refused("a.yaml").await;
    // Signatures are not looked for where the policy requires none.
    fs::write(
        at.path("policy.json"),
        r#"{"default": [{"type": "insecureAcceptAnything"}]}"#,
    )
    .expect("write");
    at.accepted("without a requirement").await;
}
