//! Bundles of sigstore, which are found and not accepted: they do not say under which name an image was signed.

use criscope_image::PolicyFiles;

use super::real::openssl;
use super::*;

#[tokio::test]
async fn an_image_with_a_bundle_is_refused_with_the_reason() {
    let store = Store::with(|config| {
        let dir = config.root.parent().expect("a folder").to_owned();
        config.policy = Some(PolicyFiles {
            default: Some(dir.join("policy.json")),
            ..PolicyFiles::default()
        });
    })
    .await;
    let dir = store.dir.path();
    let curve = "-algorithm EC -pkeyopt ec_paramgen_curve:prime256v1";
    openssl(dir, &format!("genpkey {curve} -out own.key"));
    openssl(dir, "pkey -in own.key -pubout -out own.pub");
    let policy = json!({"default": [{
        "type": "sigstoreSigned",
        "keyPath": dir.join("own.pub"),
        "signedIdentity": {"type": "matchRepository"},
    }]});
    fs::write(dir.join("policy.json"), policy.to_string()).expect("write");
    let registry = Registry::start().await;
    let built = with_file(b"x");
    let name = registry.push("a", "1", &built);
    let bundle = json!({"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json"});
    let mut entry = descriptor(OCI, bundle.to_string().as_bytes());
    entry["artifactType"] = bundle["mediaType"].clone();
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]});
    let of = Digest::sha256(&built.manifest);
    // The endpoint of the distribution-spec, and what stands for it at older registries.
    let tag = of.as_str().replace(':', "-");
    for path in [format!("a/referrers/{of}"), format!("a/manifests/{tag}")] {
        registry.put(&path, INDEX, index.to_string().as_bytes());
        let error = store.refuses(&name).await;
        assert!(
            matches!(error, Error::SignatureValidationFailed { .. }),
            "{error}"
        );
        let text = error.to_string();
        assert!(text.contains("--new-bundle-format=false"), "{text}");
    }
}
