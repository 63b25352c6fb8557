//! A registry with TLS that redirects to a store without.

use axum::response::Response;

use super::*;
use crate::harness::pki::Authority;

/// A registry with TLS whose requests for `part` are redirected to a store of blobs without TLS.
struct Redirecting {
    authority: Authority,
    front: TlsFront,
    _registry: Registry,
    blobs: Registry,
    image: Image,
}

fn redirect(to: &str) -> Response {
    let mut answer = status(307, "");
    let to = to.parse().expect("a header");
    answer.headers_mut().insert("location", to);
    answer
}

impl Redirecting {
    async fn start(part: &'static str) -> Self {
        let (registry, blobs) = (Registry::start().await, Registry::start().await);
        let authority = Authority::new();
        let front = TlsFront::start(&registry, &authority.server("127.0.0.1")).await;
        let image = with_file(b"x");
        registry.push("a", "1", &image);
        blobs.push("a", "1", &image);
        let to = blobs.address;
        registry.hook(move |asked| {
            let is_part = asked.path.contains(part);
            is_part.then(|| redirect(&format!("http://{to}{}?X-Signature=hush", asked.path)))
        });
        Self {
            authority,
            front,
            _registry: registry,
            blobs,
            image,
        }
    }

    fn name(&self) -> String {
        format!("{}/a:1", self.front.address)
    }

    /// A store that trusts the registry.
    async fn store(&self, change: impl FnOnce(&mut ImageStoreConfig)) -> Store {
        let store = Store::with(change).await;
        let own = self.front.address;
        let ca = self.authority.ca();
        let hosts = format!("server = \"https://{own}\"\nca = {ca:?}\n");
        store.set_hosts(&own.to_string(), &hosts);
        store
    }
}

/// The error names both servers and the setting, and no signature.
fn assert_refused(error: &Error, servers: [String; 2], words: &str) {
    let text = error.to_string();
    assert_eq!(error.code(), Code::Unknown, "{text}");
    for server in servers {
        assert!(text.contains(&server), "{server} in {text}");
    }
    assert!(text.contains(words) && !text.contains("hush"), "{text}");
}

#[tokio::test]
async fn blobs_without_tls_need_a_switch() {
    let there = Redirecting::start("/blobs/").await;
    let servers = [
        format!("https://{}", there.front.address),
        format!("http://{}", there.blobs.address),
    ];
    let other = "other.example".to_owned();
    for allowed in [Vec::new(), vec![other, "127.0.0.1:1".to_owned()]] {
        let store = there
            .store(|config| config.insecure_redirect_hosts = allowed)
            .await;
        let error = store.refuses(&there.name()).await;
        assert_refused(&error, servers.clone(), "insecure_redirect_hosts");
        assert!(
            there.blobs.asked("").is_empty(),
            "nothing was asked without TLS"
        );
    }
    for allowed in ["127.0.0.1".to_owned(), there.blobs.address.to_string()] {
        let store = there
            .store(|config| config.insecure_redirect_hosts = vec![allowed])
            .await;
        let id = store.images.pull(&there.name(), None, None).await;
        assert_eq!(id.expect("pull"), there.image.id());
    }
}

/// What comes from there is checked as ever.
#[tokio::test]
async fn wrong_blobs_without_tls_are_refused() {
    let there = Redirecting::start("/blobs/").await;
    let config = Digest::sha256(&there.image.config);
    there.blobs.put(&format!("a/blobs/{config}"), "", b"{}");
    let allowed = vec!["127.0.0.1".to_owned()];
    let store = there
        .store(|config| config.insecure_redirect_hosts = allowed)
        .await;
    let error = store.refuses(&there.name()).await;
    assert!(matches!(error, Error::WrongDigest { .. }), "{error}");
}

/// Nothing tells whether the manifest of a tag is right.
#[tokio::test]
async fn a_tag_is_never_resolved_without_tls() {
    let there = Redirecting::start("/manifests/1").await;
    let allowed = vec!["127.0.0.1".to_owned()];
    let store = there
        .store(|config| config.insecure_redirect_hosts = allowed)
        .await;
    let error = store.refuses(&there.name()).await;
    let servers = [&there.front.address, &there.blobs.address].map(ToString::to_string);
    assert_refused(&error, servers, "nothing checks the answer");
    assert!(there.blobs.asked("").is_empty());
}

/// With `insecure` the registry itself may be asked without TLS.
#[tokio::test]
async fn an_insecure_registry_needs_no_switch() {
    let there = Redirecting::start("/").await;
    let own = there.front.address;
    let store = Store::with(|config| {
        let path = config
            .root
            .parent()
            .expect("a folder")
            .join("registries.conf");
        let text = format!("[[registry]]\nlocation = \"{own}\"\ninsecure = true\n");
        fs::write(&path, text).expect("write");
        config.registries_conf = Some(path);
    })
    .await;
    let id = store.images.pull(&there.name(), None, None).await;
    assert_eq!(id.expect("pull"), there.image.id());
}
