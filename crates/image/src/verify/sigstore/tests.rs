//! Signatures by every kind of key, and what is not one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::*;

/// A folder with keys and certificates by openssl, the reference for all of them.
struct Openssl(tempfile::TempDir);

impl Openssl {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("directory"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, line: &str) -> Vec<u8> {
        let output = Command::new("openssl")
            .args(line.split_ascii_whitespace())
            .current_dir(self.path())
            .output()
            .expect("openssl is installed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {line}: {said}");
        output.stdout
    }

    /// Makes `NAME.key` and `NAME.pub`.
    fn key(&self, name: &str, kind: &str) -> PublicKey {
        self.run(&format!("genpkey {kind} -out {name}.key"));
        let pem = self.run(&format!("pkey -in {name}.key -pubout"));
        fs::write(self.path().join(format!("{name}.pub")), &pem).expect("write");
        PublicKey::from_pem(&pem).expect(kind)
    }

    fn sign(&self, name: &str, message: &[u8]) -> Vec<u8> {
        fs::write(self.path().join("message"), message).expect("write");
        let key = fs::read_to_string(self.path().join(format!("{name}.key"))).expect("key");
        let pem = self.run(&format!("pkey -in {name}.key -text -noout"));
        let is_edwards = String::from_utf8_lossy(&pem).contains("ED25519");
        assert!(key.contains("PRIVATE KEY"));
        if is_edwards {
            self.run(&format!(
                "pkeyutl -sign -inkey {name}.key -rawin -in message"
            ))
        } else {
            self.run(&format!("dgst -sha256 -sign {name}.key message"))
        }
    }
}

const P256: &str = "-algorithm EC -pkeyopt ec_paramgen_curve:prime256v1";

fn payload(manifest: &Digest) -> Vec<u8> {
    let document = json!({
        "critical": {
            "identity": {"docker-reference": "q.io/a/b"},
            "image": {"docker-manifest-digest": manifest},
            "type": PAYLOAD_TYPE,
        },
        "optional": null,
    });
    document.to_string().into_bytes()
}

fn signature(payload: &[u8], raw: &[u8], more: &[(&str, String)]) -> Signature {
    let own = (SIGNATURE.to_owned(), STANDARD.encode(raw));
    let more = more
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone()));
    let annotations: BTreeMap<_, _> = more.chain([own]).collect();
    Signature::new(PAYLOAD.to_owned(), payload, annotations)
}

fn keys(keys: Vec<PublicKey>) -> Trust {
    Trust::Keys { keys, logs: None }
}

#[test]
fn every_kind_of_key_verifies_its_own_signatures_only() {
    let openssl = Openssl::new();
    let manifest = Digest::sha256(b"manifest");
    let payload = payload(&manifest);
    for (name, kind) in [
        ("p256", P256),
        ("p384", "-algorithm EC -pkeyopt ec_paramgen_curve:secp384r1"),
        ("rsa", "-algorithm RSA -pkeyopt rsa_keygen_bits:2048"),
        ("ed", "-algorithm ED25519"),
    ] {
        let other = openssl.key("other", P256);
        let own = openssl.key(name, kind);
        let raw = openssl.sign(name, &payload);
        let signed = signature(&payload, &raw, &[]);
        let refused = check(&signed, &manifest, &keys(vec![other])).expect_err(name);
        assert!(refused.contains("trusted key"), "{refused}");
        let other = openssl.key("other", P256);
        let accepted = check(&signed, &manifest, &keys(vec![other, own]));
        assert_eq!(accepted.as_deref(), Ok("q.io/a/b"), "{name}");
    }
    let pem =
        openssl.run("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:secp521r1 -out p521.key");
    assert!(PublicKey::from_pem(&pem).is_err());
    let pem = openssl.run("pkey -in p521.key -pubout");
    assert!(
        PublicKey::from_pem(&pem).is_err(),
        "unsupported, not ignored"
    );
    assert!(PublicKey::from_pem(b"").is_err());
}

#[test]
fn what_is_signed_is_the_manifest_and_nothing_else() {
    let openssl = Openssl::new();
    openssl.key("k", P256);
    let trust = || {
        let pem = fs::read(openssl.path().join("k.pub")).expect("key");
        keys(vec![PublicKey::from_pem(&pem).expect("key")])
    };
    let manifest = Digest::sha256(b"manifest");
    let good = payload(&manifest);
    let signed = |payload: &[u8]| signature(payload, &openssl.sign("k", payload), &[]);
    assert!(check(&signed(&good), &manifest, &trust()).is_ok());
    assert!(check(&signed(&good), &Digest::sha256(b"other"), &trust()).is_err());
    let text = String::from_utf8(good.clone()).expect("text");
    for wrong in [
        text.replace(PAYLOAD_TYPE, "atomic container signature"),
        text.replace("\"optional\":null", "\"optional\":null,\"more\":1"),
        text.replace(
            "\"identity\":",
            "\"identity\":{\"docker-reference\":\"x\"},\"identity\":",
        ),
        text.replace("docker-reference", "reference"),
        "{}".to_owned(),
    ] {
        let judged = check(&signed(wrong.as_bytes()), &manifest, &trust());
        assert!(judged.is_err(), "{wrong}");
    }
    let mut changed = signed(&good);
    changed.media_type = "application/vnd.dsse.envelope.v1+json".to_owned();
    assert!(check(&changed, &manifest, &trust()).is_err());
    let mut changed = signed(&good);
    changed.annotations.clear();
    assert!(check(&changed, &manifest, &trust()).is_err());
    let raw = openssl.sign("k", &good);
    let swapped = signature(&payload(&Digest::sha256(b"other")), &raw, &[]);
    assert!(check(&swapped, &Digest::sha256(b"other"), &trust()).is_err());
}

/// A log entry as Rekor makes it.
fn entry(openssl: &Openssl, signer_pem: &[u8], raw: &[u8], payload: &[u8], at: i64) -> String {
    use sha2::Digest as _;
    let sum = sha2::Sha256::digest(payload);
    let hex: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    let body = json!({
        "apiVersion": "0.0.1",
        "kind": "hashedrekord",
        "spec": {
            "data": {"hash": {"algorithm": "sha256", "value": hex}},
            "signature": {
                "content": STANDARD.encode(raw),
                "publicKey": {"content": STANDARD.encode(signer_pem)},
            },
        },
    });
    let body = STANDARD.encode(body.to_string());
    let signed =
        format!(r#"{{"body":"{body}","integratedTime":{at},"logID":"c0d2","logIndex":7}}"#);
    let timestamp = STANDARD.encode(openssl.sign("log", signed.as_bytes()));
    // In another order than the one that is signed.
    format!(
        r#"{{"SignedEntryTimestamp":"{timestamp}","Payload":{{"logIndex":7,"body":"{body}","integratedTime":{at},"logID":"c0d2"}}}}"#
    )
}

#[test]
fn a_log_must_have_seen_this_signature_by_this_key() {
    let openssl = Openssl::new();
    openssl.key("k", P256);
    openssl.key("log", P256);
    let public = |name: &str| {
        let pem = fs::read(openssl.path().join(format!("{name}.pub"))).expect("key");
        (PublicKey::from_pem(&pem).expect("key"), pem)
    };
    let trust = |log: &str| Trust::Keys {
        keys: vec![public("k").0],
        logs: Some(vec![public(log).0]),
    };
    let manifest = Digest::sha256(b"manifest");
    let payload = payload(&manifest);
    let raw = openssl.sign("k", &payload);
    let (_, pem) = public("k");
    let judged = |log: &str, entry: Option<String>| {
        let more: Vec<_> = entry.into_iter().map(|entry| (LOG_ENTRY, entry)).collect();
        check(&signature(&payload, &raw, &more), &manifest, &trust(log))
    };
    let good = entry(&openssl, &pem, &raw, &payload, 1_700_000_000);
    assert!(judged("log", Some(good.clone())).is_ok());
    assert!(judged("log", None).is_err());
    assert!(judged("k", Some(good.clone())).is_err(), "another log");
    let later = good.replace("1700000000", "1700000001");
    assert!(judged("log", Some(later)).is_err(), "a changed entry");
    let (_, log) = public("log");
    for wrong in [
        entry(&openssl, &log, &raw, &payload, 1),
        entry(&openssl, &pem, b"another", &payload, 1),
        entry(&openssl, &pem, &raw, b"another", 1),
        entry(&openssl, &pem, &raw, &payload, -1),
        "{}".to_owned(),
    ] {
        assert!(judged("log", Some(wrong.clone())).is_err(), "{wrong}");
    }
}

#[test]
fn a_certificate_counts_for_its_owner_while_it_is_valid() {
    let openssl = Openssl::new();
    openssl.key("log", P256);
    let (_, log) = {
        let pem = fs::read(openssl.path().join("log.pub")).expect("key");
        (PublicKey::from_pem(&pem).expect("key"), pem)
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl.run(&format!(
        "req -x509 {key} -keyout ca.key -out ca.crt -days 30 -subj /CN=ca"
    ));
    openssl.run(&format!(
        "req -x509 {key} -keyout ca2.key -out ca2.crt -days 30 -subj /CN=ca2"
    ));
    openssl.run(&format!(
        "req -new {key} -keyout leaf.key -out leaf.csr -subj /CN=leaf"
    ));
    let extensions = "subjectAltName=critical,email:me@example.com,DNS:build.example.com\n\
        extendedKeyUsage=codeSigning\n1.3.6.1.4.1.57264.1.1=DER:68747470733a2f2f6f\n\
        1.3.6.1.4.1.57264.1.8=ASN1:UTF8String:https://o\n";
    fs::write(openssl.path().join("ext"), extensions).expect("write");
    openssl.run("x509 -req -in leaf.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 1 -extfile ext -out leaf.crt");
    let read = |name: &str| fs::read(openssl.path().join(name)).expect(name);
    let manifest = Digest::sha256(b"manifest");
    let payload = payload(&manifest);
    let raw = openssl.sign("leaf", &payload);
    let leaf = String::from_utf8(read("leaf.crt")).expect("pem");
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    let now = i64::try_from(now).expect("seconds") + 60;
    let judged = |ca: &str, identities: Identities, at: Option<i64>| {
        let mut more = vec![(CERTIFICATE, leaf.clone())];
        more.extend(at.map(|at| {
            (
                LOG_ENTRY,
                entry(&openssl, leaf.as_bytes(), &raw, &payload, at),
            )
        }));
        let logs = at.map(|_| vec![PublicKey::from_pem(&log).expect("key")]);
        let authority = Authority::new(&read(ca), None, identities).expect("authority");
        let trust = Trust::Certificates { authority, logs };
        check(&signature(&payload, &raw, &more), &manifest, &trust)
    };
    let identities =
        |issuer: Option<&str>, email: Option<&str>, hostname: Option<&str>| Identities {
            issuer: issuer.map(str::to_owned),
            email: email.map(str::to_owned),
            hostname: hostname.map(str::to_owned),
        };
    let mine = || identities(Some("https://o"), Some("me@example.com"), None);
    assert_eq!(
        judged("ca.crt", mine(), Some(now)).as_deref(),
        Ok("q.io/a/b")
    );
    assert!(
        judged("ca2.crt", mine(), Some(now)).is_err(),
        "another authority"
    );
    assert!(
        judged("ca.crt", mine(), Some(now + 3 * 86400)).is_err(),
        "signed too late"
    );
    assert!(
        judged("ca.crt", mine(), Some(now - 86400)).is_err(),
        "signed too early"
    );
    let other = identities(Some("https://p"), Some("me@example.com"), None);
    assert!(
        judged("ca.crt", other, Some(now)).is_err(),
        "another issuer"
    );
    let other = identities(Some("https://o"), Some("you@example.com"), None);
    assert!(judged("ca.crt", other, Some(now)).is_err(), "another owner");
    // Without a log, as for an authority of one's own.
    let host = |name| identities(None, None, Some(name));
    assert!(judged("ca.crt", host("build.example.com"), None).is_ok());
    assert!(judged("ca.crt", host("other.example.com"), None).is_err());
}
