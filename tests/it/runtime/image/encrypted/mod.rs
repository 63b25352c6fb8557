//! Encrypted images for key providers: encrypted here by openssl, and once by skopeo.

mod providers;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use criscope_image::{Decryption, KeyFailure};

use super::*;

const ENCRYPTED: &str = "application/vnd.oci.image.layer.v1.tar+gzip+encrypted";
pub(in super::super) const KEY: [u8; 32] = [7; 32];
/// A recipient of [`push`].
const PROVIDER: &str = "provider.test";

async fn refused(store: &Store, name: &str) -> (Option<KeyFailure>, Code, String) {
    let error = store.refuses(name).await;
    let cause = match &error {
        Error::NoLayerKey { cause, .. } => Some(*cause),
        _ => None,
    };
    (cause, error.code(), error.to_string())
}

/// Runs openssl with this input.
fn filter(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut child = Command::new(program("openssl", "openssl"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start openssl");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input).expect("write"));
    let output = child.wait_with_output().expect("openssl");
    writer.join().expect("written");
    assert!(output.status.success());
    output.stdout
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A layer as ocicrypt encrypts it, whose key is wrapped for the provider `test` by not being wrapped.
pub(in super::super) struct Secret {
    blob: Vec<u8>,
    private: Value,
    public: Value,
}

/// Encrypts a compressed layer.
pub(in super::super) fn secret(plain: &[u8], key: &[u8; 32]) -> Secret {
    let nonce = [9; 16];
    let (k, n) = (hex(key), hex(&nonce));
    let blob = filter(&["enc", "-aes-256-ctr", "-K", &k, "-iv", &n], plain);
    let option = format!("hexkey:{k}");
    let hmac = [
        "dgst", "-sha256", "-mac", "HMAC", "-macopt", &option, "-binary",
    ];
    let hmac = filter(&hmac, &blob);
    Secret {
        blob,
        private: json!({"symkey": STANDARD.encode(key), "digest": Digest::sha256(plain),
            "cipheroptions": {"nonce": STANDARD.encode(nonce)}}),
        public: json!({"cipher": "AES_256_CTR_HMAC_SHA256", "hmac": STANDARD.encode(hmac), "cipheroptions": {}}),
    }
}

/// Pushes an image with this configuration whose only layer is the secret, for the provider `test`.
pub(in super::super) fn push(
    registry: &Registry,
    tag: &str,
    config: &[u8],
    secret: &Secret,
) -> String {
    push_for(&[PROVIDER], registry, tag, config, secret)
}

/// Pushes an image like [`push`], for these recipients.
fn push_for(
    recipients: &[&str],
    registry: &Registry,
    tag: &str,
    config: &[u8],
    secret: &Secret,
) -> String {
    let mut layer = descriptor(ENCRYPTED, &secret.blob);
    layer["annotations"] = json!({
        "org.opencontainers.image.enc.pubopts": STANDARD.encode(secret.public.to_string()),
    });
    for recipient in recipients {
        let wrapped = STANDARD.encode(secret.private.to_string());
        layer["annotations"][format!("org.opencontainers.image.enc.keys.{recipient}")] =
            wrapped.into();
    }
    let manifest = json!({
        "schemaVersion": 2, "mediaType": OCI, "layers": [layer],
        "config": descriptor("application/vnd.oci.image.config.v1+json", config),
    });
    let image = Image {
        manifest: manifest.to_string().into_bytes(),
        media_type: OCI,
        config: config.to_vec(),
        layers: vec![secret.blob.clone()],
    };
    registry.push("secret", tag, &image)
}

/// A program that is the provider: what it is asked to unwrap is the answer.
const UNWRAPS: &str = "#!/bin/sh\nsed 's/.*\"annotation\":\"\\([^\"]*\\)\".*/{\"keyunwrapresults\":{\"optsdata\":\"\\1\"}}/'\n";

/// Makes the key provider `test`, the program `provider`, in this folder. Returns the configuration that names it.
pub(in super::super) fn provider(dir: &Path) -> PathBuf {
    let config = dir.join("providers.json");
    let providers =
        json!({"key-providers": {"test": {"cmd": {"path": dir.join("provider"), "args": []}}}});
    fs::write(&config, providers.to_string()).expect("write");
    executable(&dir.join("provider"), UNWRAPS);
    config
}

/// A store whose provider `test` is the program `provider` in its folder.
pub(super) async fn with_provider(timeout: Duration) -> Store {
    Store::with(|config| {
        let dir = config.root.parent().expect("a folder");
        config.decryption = Decryption {
            key_providers: Some(provider(dir)),
            provider_timeout: timeout,
        };
    })
    .await
}

fn tar() -> Vec<u8> {
    layer().file("secret", b"hush").end()
}

#[tokio::test]
async fn a_program_is_a_key_provider() {
    let store = with_provider(Duration::from_secs(30)).await;
    let registry = Registry::start().await;
    let plain = gzipped(&[tar()]);
    let name = push(&registry, "1", &plain.config, &secret(&gzip(&tar()), &KEY));
    let id = store.pull(&name).await;
    let layers = store.images.layers(id.as_str()).expect("layers");
    assert_eq!(
        fs::read(layers.paths()[0].join("secret")).expect("file"),
        b"hush"
    );
    // Nothing on disk contains the key.
    let root = store.dir.path().join("store");
    for file in store.files() {
        let content = fs::read(root.join(&file)).unwrap_or_default();
        let text = String::from_utf8_lossy(&content);
        let manifest = text.contains("enc.pubopts");
        assert!(
            manifest || !text.contains(&STANDARD.encode(KEY)),
            "{}",
            file.display()
        );
        assert!(
            !content.windows(32).any(|part| part == KEY),
            "{}",
            file.display()
        );
    }
}

/// `skopeo.json` is an image that skopeo 1.9.3 has encrypted, with the options of its cipher as they were before it wrapped them.
#[tokio::test]
async fn skopeo_encrypts_a_layer() {
    let made: Value = serde_json::from_str(include_str!("skopeo.json")).expect("JSON");
    assert_eq!(made["mediaType"], ENCRYPTED);
    let blob = made["blob"].as_str().expect("base64");
    let made_by_skopeo = Secret {
        blob: STANDARD.decode(blob).expect("base64"),
        private: made["private"].clone(),
        public: made["public"].clone(),
    };
    let config = made["config"].as_str().expect("a configuration");
    let config = config.replace("amd64", architecture());
    let store = with_provider(Duration::from_secs(30)).await;
    let registry = Registry::start().await;
    let name = push(&registry, "skopeo", config.as_bytes(), &made_by_skopeo);
    let id = store.pull(&name).await;
    let layers = store.images.layers(id.as_str()).expect("layers");
    let secret = fs::read(layers.paths()[0].join("etc/secret")).expect("decrypted");
    assert_eq!(secret, b"hush");
    drop(layers);
    store.images.remove(&name).await.expect("remove");
    store.assert_empty().await;
}

#[tokio::test]
async fn an_image_for_private_keys_only_is_refused_with_its_recipients() {
    let store = with_provider(Duration::from_secs(30)).await;
    let bare = Store::new().await;
    let registry = Registry::start().await;
    let plain = gzipped(&[tar()]);
    let secret = secret(&gzip(&tar()), &KEY);
    let push =
        |tag, recipients: &[&str]| push_for(recipients, &registry, tag, &plain.config, &secret);
    let name = push("private", &["jwe", "pkcs7"]);
    for store in [&store, &bare] {
        let (cause, code, text) = refused(store, &name).await;
        assert_eq!(
            (cause, code),
            (Some(KeyFailure::Unsupported), Code::FailedPrecondition)
        );
        let part = "its key is wrapped for jwe, pkcs7; only key providers are supported";
        assert!(text.contains(part) && text.contains(&name), "{text}");
    }
    let name = push("both", &["jwe", PROVIDER]);
    let (cause, code, text) = refused(&bare, &name).await;
    assert_eq!(
        (cause, code),
        (Some(KeyFailure::NotConfigured), Code::FailedPrecondition)
    );
    let part = "wrapped for jwe, provider.test; key provider test is not configured";
    assert!(text.contains(part), "{text}");
    store.pull(&name).await;
    // The image is here, and its key is not any more.
    fs::remove_file(store.dir.path().join("provider")).expect("remove");
    let (cause, ..) = refused(&store, &name).await;
    assert_eq!(cause, Some(KeyFailure::Provider));
    store.images.remove(&name).await.expect("remove");
    store.assert_empty().await;
}

#[tokio::test]
async fn a_layer_that_was_decrypted_is_only_for_those_who_have_its_key_or_its_content() {
    let store = with_provider(Duration::from_secs(30)).await;
    let registry = Registry::start().await;
    let image = gzipped(&[tar()]);
    let real = secret(&gzip(&tar()), &KEY);
    let name = push(&registry, "real", &image.config, &real);
    store.pull(&name).await;
    registry.forget();
    store.pull(&name).await;
    assert!(
        registry
            .asked("blobs/")
            .iter()
            .all(|asked| !format!("{asked:?}").contains(Digest::sha256(&real.blob).hex()))
    );

    // A manifest that claims the layer with another key, one with the right blob and another key, and one that says it is not encrypted.
    let forged = secret(b"anything", &[1; 32]);
    let name = push(&registry, "forged", &image.config, &forged);
    assert!(store.images.pull(&name, None, None).await.is_err());
    let rewrapped = Secret {
        blob: real.blob.clone(),
        ..forged
    };
    let name = push(&registry, "rewrapped", &image.config, &rewrapped);
    assert!(store.images.pull(&name, None, None).await.is_err());
    let bogus = gzipped(&[layer().file("other", b"x").end()]);
    let claimed = json!({
        "schemaVersion": 2, "mediaType": OCI,
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &bogus.layers[0])],
        "config": descriptor("application/vnd.oci.image.config.v1+json", &image.config),
    });
    let claimed = Image {
        manifest: claimed.to_string().into_bytes(),
        config: image.config.clone(),
        ..bogus
    };
    let name = registry.push("claimed", "1", &claimed);
    assert!(store.images.pull(&name, None, None).await.is_err());

    // Who has the content needs no key, and then finds the layer like any other.
    let name = registry.push("plain", "1", &image);
    store.pull(&name).await;
    registry.forget();
    store.pull(&name).await;
    assert!(
        registry
            .asked(Digest::sha256(&image.layers[0]).as_str())
            .is_empty()
    );
}

#[tokio::test]
async fn changed_content_is_never_a_layer() {
    let store = with_provider(Duration::from_secs(30)).await;
    let registry = Registry::start().await;
    let image = gzipped(&[tar()]);
    let right = || secret(&gzip(&tar()), &KEY);
    let mut flipped = right();
    *flipped.blob.last_mut().expect("a byte") ^= 1;
    let mut short = right();
    short.blob.truncate(short.blob.len() - 9);
    let mut wrong_key = right();
    wrong_key.private["symkey"] = STANDARD.encode([8; 32]).into();
    let mut other_hmac = right();
    other_hmac.public["hmac"] = STANDARD.encode([0; 32]).into();
    for (tag, secret) in [
        ("flipped", flipped),
        ("short", short),
        ("key", wrong_key),
        ("hmac", other_hmac),
    ] {
        let name = push(&registry, tag, &image.config, &secret);
        let (_, code, text) = refused(&store, &name).await;
        assert_eq!(code, Code::FailedPrecondition, "{tag}: {text}");
        assert!(text.contains("wrong HMAC"), "{tag}: {text}");
    }
    let mut digest = right();
    digest.private["digest"] = json!(Digest::sha256(b"other"));
    let name = push(&registry, "digest", &image.config, &digest);
    let (_, code, text) = refused(&store, &name).await;
    assert_eq!(code, Code::DataLoss, "{text}");
    let mut cipher = right();
    cipher.public["cipher"] = "ROT13".into();
    let mut no_hmac = right();
    no_hmac.public["hmac"] = Value::Null;
    let mut key = right();
    key.private["symkey"] = "c2hvcnQ=".into();
    for (tag, secret, part) in [
        ("c", cipher, "cipher"),
        ("h", no_hmac, "no HMAC"),
        ("k", key, "32 bytes"),
    ] {
        let name = push(&registry, tag, &image.config, &secret);
        let (_, code, text) = refused(&store, &name).await;
        assert_eq!(code, Code::FailedPrecondition, "{text}");
        assert!(text.contains(part) && !text.contains("c2hvcnQ="), "{text}");
    }
    assert!(store.images.is_empty());
    store.assert_empty().await;
}
