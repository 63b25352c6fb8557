//! Renewals as they happen on nodes.

use std::os::unix::fs::symlink;

use criscope_testkit::pki::{Authority, Validity};
use tempfile::TempDir;

use super::*;
use crate::telemetry::registry::Registry;

/// A directory as the kubelet mounts a secret: the names lead through `..data`, which is swapped.
struct Mount(TempDir);

impl Mount {
    fn new(pair: &criscope_testkit::pki::Pair) -> Self {
        let mount = Self(tempfile::tempdir().expect("a directory"));
        mount.swap("one", pair);
        for name in ["tls.crt", "tls.key"] {
            symlink(Path::new("..data").join(name), mount.file(name)).expect("a link");
        }
        mount
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn swap(&self, generation: &str, pair: &criscope_testkit::pki::Pair) {
        let dir = self.file(generation);
        fs::create_dir(&dir).expect("a directory");
        fs::copy(&pair.cert, dir.join("tls.crt")).expect("copied");
        fs::copy(&pair.key, dir.join("tls.key")).expect("copied");
        symlink(generation, self.file("..next")).expect("a link");
        fs::rename(self.file("..next"), self.file("..data")).expect("swapped");
    }

    fn open(&self) -> TlsCertificate {
        TlsCertificate::open("metrics", &self.file("tls.crt"), &self.file("tls.key"))
            .expect("a pair")
    }
}

fn leaf(pair: &TlsCertificate) -> Vec<u8> {
    let state = pair.state();
    state.served.as_ref().expect("served").key.cert[0].to_vec()
}

fn leaf_of(pair: &criscope_testkit::pki::Pair) -> Vec<u8> {
    CertificateDer::from_pem_file(&pair.cert)
        .expect("PEM")
        .to_vec()
}

#[test]
fn a_swapped_link_is_followed() {
    let authority = Authority::new();
    let (one, two) = (authority.server("one"), authority.server("two"));
    let mount = Mount::new(&one);
    let pair = mount.open();
    assert_eq!(leaf(&pair), leaf_of(&one));
    mount.swap("two", &two);
    pair.refresh();
    assert_eq!(leaf(&pair), leaf_of(&two));
    // Back to what was before: the content counts, not the time.
    mount.swap("three", &one);
    pair.refresh();
    assert_eq!(leaf(&pair), leaf_of(&one));
}

#[test]
fn the_last_usable_pair_is_kept_at_every_point_of_a_rewrite() {
    let authority = Authority::new();
    let (one, two) = (authority.server("one"), authority.server("two"));
    let mount = Mount::new(&one);
    let pair = mount.open();
    let (cert, key) = (mount.file("tls.crt"), mount.file("tls.key"));
    let (new_cert, new_key) = (
        fs::read(&two.cert).expect("read"),
        fs::read(&two.key).expect("read"),
    );
    let kept = |what: &str| {
        pair.refresh();
        assert_eq!(leaf(&pair), leaf_of(&one), "{what}");
        assert!(!pair.is_fresh(), "{what}");
    };
    for length in [0, 1, new_cert.len() / 2, new_cert.len() - 10] {
        fs::write(&cert, &new_cert[..length]).expect("written");
        kept(&format!("{length} bytes of the certificate"));
    }
    fs::write(&cert, &new_cert).expect("written");
    kept("the old key");
    for length in [0, new_key.len() / 2] {
        fs::write(&key, &new_key[..length]).expect("written");
        kept(&format!("{length} bytes of the key"));
    }
    fs::remove_file(&key).expect("removed");
    kept("no key");
    fs::create_dir(&key).expect("a directory");
    kept("a directory");
    fs::remove_dir(&key).expect("removed");
    fs::write(&key, vec![b'a'; 2 << 20]).expect("written");
    kept("an endless file");
    fs::write(&key, &new_key).expect("written");
    pair.refresh();
    assert_eq!(leaf(&pair), leaf_of(&two));
    assert!(pair.is_fresh());
}

#[test]
fn the_earliest_end_of_the_chain_counts() {
    let authority = Authority::new();
    let (long, short) = (
        authority.client("long", Validity::Now),
        authority.client("short", Validity::Over),
    );
    let mount = Mount::new(&long);
    let chain = [&long.cert, &short.cert].map(|path| fs::read(path).expect("read"));
    fs::write(mount.file("tls.crt"), chain.concat()).expect("written");
    let pair = mount.open();
    // 2020-01-02.
    assert_eq!(pair.not_after(), Some(1_577_923_200));
}

#[test]
fn a_client_may_start_before_its_certificate_is_there() {
    let authority = Authority::new();
    let pair = authority.client("late", Validity::Over);
    let dir = tempfile::tempdir().expect("a directory");
    let (cert, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    let late = TlsCertificate::for_client("otlp", &cert, &key);
    assert_eq!((late.not_after(), late.is_fresh()), (None, false));
    fs::copy(&pair.cert, &cert).expect("copied");
    fs::copy(&pair.key, &key).expect("copied");
    late.refresh();
    assert_eq!(
        (late.not_after(), late.is_fresh()),
        (Some(1_577_923_200), true)
    );
}

#[test]
fn of_several_clients_the_earliest_end_and_the_worst_file_count() {
    let authority = Authority::new();
    let (long, short) = (
        authority.client("long", Validity::Now),
        authority.client("short", Validity::Over),
    );
    let registry = Registry::new(prometheus::Registry::new(), []);
    let certificates = CertificateMetrics::register(&registry).expect("once");
    let clients = Arc::new(ClientCertificates::new("registry"));
    certificates.measure_clients(Arc::clone(&clients));
    let read = || {
        let families = registry.gather();
        let values = families.iter().flat_map(|family| family.get_metric());
        let mut values: Vec<_> = values.map(|it| it.get_gauge().get_value()).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    assert_eq!(read(), [0.0; 0], "no registry has one");
    let files = |pair: &criscope_testkit::pki::Pair| (pair.cert.clone(), pair.key.clone());
    clients.refresh(&[files(&long), files(&short)]);
    assert_eq!(read(), [1.0, 1_577_923_200.0]);
    let missing = (long.cert.with_extension("none"), long.key.clone());
    clients.refresh(&[files(&long), missing]);
    assert!(matches!(read()[..], [0.0, end] if end > 1_577_923_200.0));
    clients.refresh(&[]);
    assert_eq!(read(), [0.0; 0]);
}

#[test]
fn metrics_are_of_the_pair_in_use() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.client("over", Validity::Over));
    let registry = Registry::new(prometheus::Registry::new(), []);
    let certificates = CertificateMetrics::register(&registry).expect("once");
    let read = || {
        let families = registry.gather();
        let values = families.iter().flat_map(|family| family.get_metric());
        values
            .map(|it| it.get_gauge().get_value())
            .collect::<Vec<_>>()
    };
    assert_eq!(read(), [0.0; 0]);
    let pair = Arc::new(mount.open());
    certificates.measure(Arc::clone(&pair));
    certificates.measure(Arc::clone(&pair));
    let mut values = read();
    values.sort_by(f64::total_cmp);
    assert_eq!(values, [1.0, 1_577_923_200.0]);
    fs::remove_file(mount.file("tls.key")).expect("removed");
    pair.refresh();
    assert!(read().contains(&0.0));
    certificates.forget("metrics");
    assert_eq!(read(), [0.0; 0]);
}
