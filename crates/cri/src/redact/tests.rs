//! Texts that must stay readable, and texts that must not.

mod causes;
mod harmless;

use std::sync::Arc;

use super::super::subject::{ContainerIdentity, PodIdentity};
use super::*;

const ID: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee49044b825dc642cb6eb9a060e54b";

fn shown(text: &str) -> String {
    error_text(text, Some(b""), None, None).into()
}

fn subject() -> Subject {
    Subject {
        pod: Some(Arc::new(PodIdentity {
            namespace: "shop".into(),
            name: "web-7d4f".into(),
            uid: "9a1c".into(),
            attempt: 0,
        })),
        container: Some(Arc::new(ContainerIdentity {
            name: "app".into(),
            attempt: 0,
        })),
        sandbox_id: Some("abc".into()),
        image: Some("registry.example/team/app:1.2".into()),
        ..Subject::default()
    }
}

#[test]
fn image_references_lose_credentials_and_query() {
    let cases = [
        ("registry.example/app:1", "registry.example/app:1"),
        ("app@sha256:abc", "app@sha256:abc"),
        ("library/app@sha256:abc", "library/app@sha256:abc"),
        ("me:pw@registry.example/app:1", "registry.example/app:1"),
        (
            "https://me:pw@registry.example/app",
            "https://registry.example/app",
        ),
        ("me:p/w@registry.example/app:1", "registry.example/app:1"),
        ("me:p@w@registry.example/app:1", "registry.example/app:1"),
        ("me:pw@localhost:5000", "localhost:5000"),
        (
            "me:pw@registry.example/app@sha256:ab",
            "registry.example/app@sha256:ab",
        ),
        ("registry.example/app?sig=1", "registry.example/app"),
        ("", ""),
    ];
    for (reference, want) in cases {
        assert_eq!(image_reference(reference), want, "{reference}");
    }
}

/// Texts of containerd, CRI-O, runc, CNI plugins and gRPC that must not be redacted.
#[test]
fn what_runtimes_say_stays_readable() {
    let texts = [
        "context deadline exceeded",
        "an error occurred when try to find container \"abc\": not found",
        "failed to pull and unpack image \"registry.example/team/app:1.2\": failed to resolve reference \
         \"registry.example/team/app:1.2\": registry.example/team/app:1.2: not found",
        "failed to reserve sandbox name \"web-7d4f_shop_9a1c_0\": name \"web-7d4f_shop_9a1c_0\" is reserved for \
         \"4b825dc642cb6eb9a060e54bf8d69288fbee49044b825dc642cb6eb9a060e54b\"",
        "failed to setup network for sandbox \"abc\": plugin type=\"bridge\" failed (add): failed to set bridge addr: \
         could not add IP address to \"cni0\": permission denied",
        "failed to do request: Head \"https://registry.example/v2/team/app/manifests/1.2\": dial tcp 10.0.0.1:443: \
         connect: connection refused",
        "pull access denied, repository does not exist or may require authorization: server message: \
         insufficient_scope: authorization failed",
        "x509: certificate signed by unknown authority",
        "write /var/lib/containerd/io.containerd.content.v1.content/ingest/data: no space left on device",
        "failed to exec in container: timeout 2m0s exceeded: context deadline exceeded",
        "OCI runtime create failed: runc create failed: unable to start container process: exec: no such file or \
         directory: unknown",
        "container is not in running state: CONTAINER_EXITED",
        "the stream was reset: stream no longer needed",
        "the answer ended without grpc-status (http status 404 Not Found)",
        "unknown service runtime.v1.RuntimeService",
        "unexpected status from HEAD request: 500 Internal Server Error",
        "cannot set sysctl kernel.shm_rmid_forced: Invalid argument (os error 22)",
        "cannot set sysctl net.ipv4.tcp_keepalive_intvl: Invalid argument (os error 22)",
        "invalid reference format: repository name must be lowercase",
    ];
    for text in texts {
        let got = error_text(text, Some(b"request"), Some(&subject()), None);
        assert_eq!(&*got, text);
    }
}

#[test]
fn times_are_shown_and_what_only_resembles_one_is_not() {
    for text in [
        "certificate has expired or is not yet valid: current time 2026-11-23T07:15:45Z is after 2025-11-01T00:59:07Z",
        "at 2025-11-01T23:59:59+05:30: not found",
        "/var/lib/criscope: no space: 812.4 MiB are free, 2048.0 MiB are needed",
    ] {
        assert_eq!(shown(text), text);
    }
    for text in [
        "2025-11-01T00:59:07.512345678Z",
        "2025-13-01T00:59:07Z",
        "2025-11-01T00:59:07Zhunter2",
        "at=2025-11-01T00:59:07Z",
        "5105-10-51T05:10:51Z",
    ] {
        assert!(shown(text).contains(HIDDEN), "{}", shown(text));
    }
}

/// The path only resembles the name of a credential.
#[test]
fn what_happened_to_a_path_is_shown() {
    for text in [
        "error mounting to rootfs at \"/etc/passwd\": mount failed: not a directory",
        "open '/etc/token': permission denied",
    ] {
        assert_eq!(shown(text), text);
    }
    for text in [
        r#"{"/etc/passwd": "hunter2"}"#,
        r#"{"passwd": hunter2}"#,
        "'/etc/passwd'='hunter2'",
    ] {
        assert!(shown(text).contains(HIDDEN), "{}", shown(text));
    }
}

#[test]
fn credentials_are_hidden() {
    let cases = [
        (
            "get https://me:pw@r.example/v2/?sig=abc: refused",
            "get https://<redacted>/v2/?<redacted>: refused",
        ),
        (
            "header Authorization: Bearer abc.def",
            "header Authorization: Bearer <redacted>",
        ),
        (
            "request failed token=12345 code=\"9999\" user",
            "request failed token=<redacted> code=\"<redacted>\" user",
        ),
        (
            "got eyJhbGciOiJSUzI1NiIsImtpZCI6IkFCQ0RFRkdISUpLTE1OT1AifQ from server",
            "got <redacted> from server",
        ),
        (
            "exec: \"/bin/start-me\": not found",
            "exec: \"/bin/<redacted>\": not found",
        ),
        (
            "card 4111 1111 1111 1111 denied",
            "card 4111 <redacted> denied",
        ),
        ("bad key 2c26-4f9a", "bad key <redacted>"),
        ("naïve value", "<redacted> value"),
        ("got %70%77%31%32", "got %<redacted>"),
        ("got \\160\\167 &#112;&#119;", "got \\<redacted>;"),
        ("a\nb\tc", "a <redacted>"),
    ];
    for (text, want) in cases {
        assert_eq!(shown(text), want.replace("card", HIDDEN), "{text}");
    }
}

/// Facts of the node that no request carries.
#[test]
fn platforms_and_ranges_of_addresses_are_shown() {
    for text in [
        "no IP addresses available in range set: 10.88.0.1-10.88.0.254",
        "no image for linux/arm64",
        "no match for platform linux/amd64 in manifest: not found",
    ] {
        assert_eq!(shown(text), text);
    }
    for text in [
        "range=10.88.0.1-10.88.0.254",
        "10.88.0.1-hunter",
        "10.88.0.1-4111",
    ] {
        assert!(shown(text).contains(HIDDEN), "{text}");
    }
}

/// The cause is at the end of a text.
#[test]
fn the_end_of_a_long_text_is_kept() {
    let text = format!(
        "container {}: no such device",
        "failed to mount ".repeat(1000)
    );
    let got = shown(&text);
    assert!(got.len() <= MAX_MESSAGE, "{}", got.len());
    assert!(
        got.starts_with("container failed") && got.ends_with(": no such device"),
        "{got}"
    );
    assert_eq!(*own_text(&text), *shortened(&text, MAX_MESSAGE));
}

/// In whatever form a runtime quotes a value, neither the value nor any of its words is shown.
#[test]
fn no_form_of_an_echo_is_shown() {
    let values = [
        "hunter2!",
        "Tr0ub4dor&3 horse battery",
        "line-one-k1\nline-two-k2\n",
        "p@ss/w0rd#1+x=y",
        "-----BEGIN EC KEY-----\nMHcCAQEEIIGk\n",
        "tab\tquote\"back\\slash-zq",
    ];
    for value in values {
        let hex: String = value.bytes().map(|b| format!("{b:02x}")).collect();
        let forms = [
            value.to_owned(),
            format!("{value:?}"),
            value.to_uppercase(),
            value.to_lowercase(),
            value[..value.len() - 2].to_owned(),
            value[2..].to_owned(),
            value.replace(' ', "\n"),
            value.split_inclusive(' ').collect::<Vec<_>>().join("\" \""),
            hex.clone(),
            hex.to_uppercase(),
            serde_json::to_string(value).expect("json"),
            serde_json::to_string(&format!("{value:?}")).expect("json"),
            percent_encoding::percent_encode(value.as_bytes(), percent_encoding::NON_ALPHANUMERIC)
                .to_string(),
        ];
        for form in forms {
            for text in [
                format!("cannot set {form}"),
                format!("env[KEY={form}]"),
                form.clone(),
            ] {
                let got = shown(&text);
                for tell in [
                    "hunter",
                    "tr0ub",
                    "dor",
                    "battery",
                    "k1",
                    "k2",
                    "w0rd",
                    "mhcc",
                    "zq",
                    "slash",
                    &hex[..8],
                ] {
                    let at = got.to_lowercase().find(tell);
                    assert_eq!(at, None, "{tell} in {got:?} from {text:?}");
                }
            }
        }
    }
}

#[test]
fn identity_is_shown_and_the_rest_of_the_request_is_not() {
    let text = "app in web-7d4f: exec /bin/start-me with DB=hunter2! failed, image=registry.example/team/app:1.2";
    assert_eq!(
        &*error_text(text, Some(b""), Some(&subject()), None),
        "app in web-7d4f: exec /bin/<redacted> with <redacted>! failed, image=registry.example/team/app:1.2"
    );
    assert_eq!(
        &*error_text("backend blue-1: gone", None, None, Some("blue-1")),
        "backend blue-1: gone"
    );
}

/// A key can look like an id. A runtime's own id does not occur in the request, nor do the bytes it encodes.
#[test]
fn an_id_is_shown_unless_it_could_be_a_key() {
    let text = format!("reserved for {ID}");
    let hidden = "reserved for <redacted>";
    let bytes: Vec<u8> = (0..ID.len() / 2)
        .map(|i| u8::from_str_radix(&ID[2 * i..2 * i + 2], 16).expect("hex"))
        .collect();
    let cases: [(Option<&[u8]>, &str); 6] = [
        (Some(b""), &text),
        (Some(b"\x0a\x03abc"), &text),
        (None, hidden),
        (Some(ID.as_bytes()), hidden),
        (Some(ID.to_uppercase().leak().as_bytes()), hidden),
        (Some(&bytes), hidden),
    ];
    for (request, want) in cases {
        assert_eq!(&*error_text(&text, request, None, None), want);
    }
    let large = vec![0; MAX_SEARCH + 1];
    assert_eq!(&*error_text(&text, Some(&large), None, None), hidden);
    assert_eq!(shown(&format!("key={ID}")), format!("key={HIDDEN}"));
    assert_eq!(shown(&ID.to_uppercase()), HIDDEN);
}

#[test]
fn random_letters_are_no_words() {
    for text in [
        "ToIsAsOfInOn",
        "qwertz",
        "aBcDeF",
        "x1y2z3",
        "pASSword",
        "oNoFiT",
    ] {
        assert_eq!(shown(text), HIDDEN, "{text}");
    }
}

#[test]
fn long_texts_are_cut_at_a_character() {
    let got = shown(&"container ü ".repeat(5000));
    assert!(got.len() <= MAX_MESSAGE && got.len() > MAX_MESSAGE - 20);
    assert!(own_text(&"ü".repeat(5000)).len() <= MAX_MESSAGE);
}

/// Errors of runtimes, plugins and registries when a pod does not start. A redacted cause is useless.
#[test]
fn usual_causes_stay_readable() {
    for text in [
        "failed to reserve sandbox name: name is reserved",
        "Kubelet may be retrying requests that are timing out in CRI-O due to system load. Currently at stage container \
         runtime creation: context deadline exceeded: error reserving ctr name",
        "failed to setup network for sandbox: plugin type=\"calico\" failed (add): error getting ClusterInformation: \
         connection is unauthorized: Unauthorized",
        "failed to resolve reference: pull access denied, repository does not exist or may require authorization: \
         server message: insufficient_scope: authorization failed",
        "dial tcp: lookup: no such host",
        "dial tcp: i/o timeout",
        "x509: certificate signed by unknown authority",
        "tls: handshake failure",
        "OCI runtime create failed: runc create failed: unable to start container process: exec: executable file not \
         found in $PATH: unknown",
        "cannot enter cgroupv2 with domain controllers -- it is in threaded mode",
        "container init was OOM-killed (memory limit too low?)",
        "toomanyrequests: You have reached your pull rate limit. You may increase the limit by authenticating and \
         upgrading",
        "unexpected status from HEAD request: 503 Service Unavailable",
        "failed to find plugin \"bridge\" in path [/opt/cni/bin]",
        "no available IP addresses; no IP addresses available in range set",
        "failed to copy: httpReadSeeker: failed open: unexpected EOF",
        "write: no space left on device",
        "etcdserver: request timed out",
        "Another process is using the xtables lock",
        "short-name resolution: did not resolve to an alias and no unqualified-search registries are defined",
        "chdir to cwd set in config.json failed: not a directory",
        "no matching entries in passwd file",
        "unknown FS magic on netns",
    ] {
        let text = text.to_owned();
        assert!(!shown(&text).contains(HIDDEN), "{}", shown(&text));
    }
}
