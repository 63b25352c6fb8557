//! Secrets are found in whatever form they are quoted, and hardly anything else is.

mod facts;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use prost::Message as _;

use super::super::redact::text_of_call;
use super::super::subject::ContainerIdentity;
use super::super::{peek, v1, words};
use super::*;

const SANDBOX: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee49044b825dc642cb6eb9a060e54b";

/// Values as pods have them.
const SECRETS: [&str; 12] = [
    "hunter2!",
    "zx7Q",
    "Tr0ub4dor&3 zebra quilt",
    "line-one-kq1\nline-two-kq2\n",
    "p@zz/w0rd#1+x=y",
    "-----BEGIN EC KEY-----\nMHcCAQEEIIGkZZz\n",
    "tab\tquote\"bazq\\slazh-zq",
    "postgres://shop:Wq9zzK@db.internal:5432/orders?sslmode=require",
    "{\"auths\":{\"r.example\":{\"auth\":\"c2hvcDpXcTl6ekstLQ==\"}}}",
    "zürich-gehzim-paßwort",
    "5105105105105100",
    "aGVsbG96d29ybGR6",
];

fn pod() -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "web-7d4f".into(),
            uid: "9a1c".into(),
            namespace: "shop".into(),
            attempt: 0,
        }),
        ..Default::default()
    }
}

fn create(config: v1::ContainerConfig) -> Vec<u8> {
    let metadata = v1::ContainerMetadata {
        name: "app".into(),
        attempt: 0,
    };
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: SANDBOX.into(),
        config: Some(v1::ContainerConfig {
            metadata: Some(metadata),
            ..config
        }),
        sandbox_config: Some(pod()),
    };
    request.encode_to_vec()
}

fn with_env(value: &str) -> v1::ContainerConfig {
    let env = v1::KeyValue {
        key: "SETTING".into(),
        value: value.as_bytes().to_vec().into(),
    };
    v1::ContainerConfig {
        envs: vec![env],
        ..Default::default()
    }
}

/// What a pod has that is no secret.
fn with_facts(config: v1::ContainerConfig) -> v1::ContainerConfig {
    v1::ContainerConfig {
        mounts: vec![v1::Mount {
            host_path: "/srv/ledger".into(),
            container_path: "/mnt/ledger".into(),
            ..Default::default()
        }],
        devices: vec![v1::Device {
            host_path: "/dev/nvidia7".into(),
            ..Default::default()
        }],
        ..config
    }
}

/// The subject of a call about the container.
fn subject() -> Subject {
    Subject {
        container_id: Some("c1".into()),
        container: Some(Arc::new(ContainerIdentity {
            name: "app".into(),
            attempt: 0,
        })),
        ..peek::request(Method::CreateContainer, &create(with_env("")))
    }
}

fn shown(secrets: &Secrets, method: Method, request: &[u8], text: &str) -> String {
    let subject = subject();
    let request = (method, Some(request));
    text_of_call(text, request, Some(&subject), None, secrets).into()
}

fn remember(secrets: &Secrets, request: &[u8]) {
    secrets.remember(Method::CreateContainer, Some(request), Some(&subject()));
}

/// StartContainer, whose request names the container only.
fn start() -> Vec<u8> {
    let container_id = "c1".into();
    v1::StartContainerRequest { container_id }.encode_to_vec()
}

/// The forms in which a runtime may quote a value.
fn forms(value: &str) -> Vec<String> {
    let each = |f: &dyn Fn(char) -> String| value.chars().map(f).collect::<String>();
    let percent = |value: &str| percent_encode(value.as_bytes(), NON_ALPHANUMERIC).to_string();
    let hex: String = value.bytes().map(|b| format!("{b:02x}")).collect();
    let json = serde_json::to_string(value).expect("json");
    vec![
        value.to_owned(),
        format!("{value:?}"),
        json.clone(),
        serde_json::to_string(&json).expect("json"),
        serde_json::to_string(&serde_json::to_string(&json).expect("json")).expect("json"),
        value.to_uppercase(),
        value.to_lowercase(),
        value.replace(' ', "\" \""),
        value.replace('"', "&quot;").replace('&', "&amp;"),
        percent(value),
        percent(&percent(value)),
        each(&|c| format!("%{:02X}", (c as u32).min(255))),
        each(&|c| format!("\\x{:02x}", (c as u32).min(255))),
        each(&|c| format!("\\u{:04x}", c as u32)),
        each(&|c| format!("\\u{{{:x}}}", c as u32)),
        each(&|c| format!("\\{:03o}", (c as u32).min(255))),
        each(&|c| format!("&#{};", c as u32)),
        STANDARD.encode(value),
        URL_SAFE_NO_PAD.encode(value),
        STANDARD.encode(format!("a{value}")),
        STANDARD.encode(format!("ab{value}")),
        hex.to_uppercase(),
        hex,
        format!("'{}'", value.escape_default()),
    ]
}

/// Parts of a text that show a secret: a window of its letters, in any form in which a reader would see them.
fn tells(value: &str) -> Vec<String> {
    let letters: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
    let letters = letters.to_lowercase();
    let window = KEPT_WINDOW.min(letters.len());
    (0..=letters.len() - window)
        .map(|at| letters[at..at + window].to_owned())
        .collect()
}

fn assert_hidden(got: &str, value: &str, text: &str) {
    // Words of the field are shown anyway.
    let pieces = got.split(|c: char| !c.is_ascii_alphanumeric());
    let letters: String = pieces
        .map(|piece| {
            if words::is_word(piece.as_bytes()) {
                "."
            } else {
                piece
            }
        })
        .collect();
    let letters = letters.to_lowercase();
    for tell in tells(value) {
        assert!(!letters.contains(&tell), "{tell} in {got:?} from {text:?}");
    }
    for form in forms(value).into_iter().filter(|form| form.len() > 8) {
        let form = form.trim_matches('"').trim_end_matches('=');
        assert!(!got.contains(form), "{form} in {got:?} from {text:?}");
    }
}

#[test]
fn no_form_of_a_secret_of_the_request_is_shown() {
    let secrets = Secrets::default();
    for value in SECRETS {
        let request = create(with_env(value));
        for form in forms(value) {
            for text in texts(&form) {
                let got = shown(&secrets, Method::CreateContainer, &request, &text);
                assert_hidden(&got, value, &text);
            }
        }
    }
}

#[test]
fn no_form_of_a_secret_of_an_earlier_request_is_shown() {
    let secrets = Secrets::default();
    for value in SECRETS {
        remember(&secrets, &create(with_env(value)));
    }
    for value in SECRETS {
        for form in forms(value) {
            for text in texts(&form) {
                let got = shown(&secrets, Method::StartContainer, &start(), &text);
                assert_hidden(&got, value, &text);
            }
        }
    }
}

/// What runtimes say around a value.
fn texts(form: &str) -> [String; 5] {
    [
        form.to_owned(),
        format!("cannot zet {form}"),
        format!("env[SETTING={form}] zealous"),
        format!("exec: \"{form}\": stat {form}: no such file or directory"),
        format!("plugin type=\"tuning\" failed (add): {form} {form}"),
    ]
}

/// A runtime that cuts a value leaves parts of it, which are hidden if they have a window.
#[test]
fn parts_of_a_secret_are_hidden() {
    let secrets = Secrets::default();
    let value = "kwyjibozq0001vex";
    remember(&secrets, &create(with_env(value)));
    for begin in 0..value.len() - KEPT_WINDOW {
        for end in begin + KEPT_WINDOW..=value.len() {
            let part = &value[begin..end];
            for text in [part.to_owned(), format!("x{part}y"), part.to_uppercase()] {
                let got = shown(&secrets, Method::StartContainer, &start(), &text);
                assert_eq!(got, "<redacted>", "{text}");
            }
        }
    }
    let split = shown(
        &secrets,
        Method::StartContainer,
        &start(),
        "kwy\" \"jib: ozq00",
    );
    assert_eq!(split, "<redacted>");
}

#[test]
fn every_secret_field_of_a_request_is_hidden() {
    let map = |value: &str| [("key".to_owned(), value.to_owned())].into();
    let config = v1::ContainerConfig {
        command: vec!["/qq/kommand".into(), "kommandarg".into()],
        args: vec!["--tokenz=argzone".into(), "zs".into()],
        annotations: map("annozone"),
        labels: map("labelzone"),
        ..with_env("envzone")
    };
    let mut request = v1::CreateContainerRequest::decode(&*create(config)).expect("request");
    let pod = request.sandbox_config.as_mut().expect("pod");
    pod.annotations = map("podzone");
    let request = request.encode_to_vec();
    let secrets = Secrets::default();
    remember(&secrets, &request);
    let start = start();
    for value in [
        "kommandarg",
        "argzone",
        "zs",
        "annozone",
        "labelzone",
        "envzone",
        "podzone",
    ] {
        for (method, request) in [
            (Method::CreateContainer, &request),
            (Method::StartContainer, &start),
        ] {
            let text = format!("cannot set {value}: failed");
            let got = shown(&secrets, method, request, &text);
            assert_eq!(got, "cannot set <redacted>: failed", "{value} {method}");
        }
    }
    let pull = v1::PullImageRequest {
        image: Some(v1::ImageSpec {
            image: "https://uzzer:pazzword@r.example/app?zig=zignature".into(),
            ..Default::default()
        }),
        auth: Some(v1::AuthConfig {
            username: "rezistry".into(),
            password: "pazz-phrase".into(),
            auth: STANDARD.encode("robot:0pen-zezame"),
            identity_token: "tok-identzity".into(),
            registry_token: "tok-regzistry".into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    for value in [
        "uzzer",
        "pazzword",
        "zignature",
        "rezistry",
        "pazz-phrase",
        "0pen-zezame",
        "tok-identzity",
        "tok-regzistry",
    ] {
        let text = format!("denied: {value} is wrong for r.example/app");
        let got = shown(&secrets, Method::PullImage, &pull.encode_to_vec(), &text);
        assert_eq!(
            got, "denied: <redacted> is wrong for r.example/app",
            "{value}"
        );
    }
}

/// Words of eight letters are base64 of something, in which a letter occurs by chance.
#[test]
fn a_value_of_one_letter_hides_no_words() {
    let text = "error mounting \"/data\" to rootfs: permission denied";
    for letter in 'a'..='z' {
        let secrets = Secrets::default();
        let request = create(with_env(&letter.to_string()));
        remember(&secrets, &request);
        let got = shown(&secrets, Method::StartContainer, &start(), text);
        assert!(got.starts_with("error mounting "), "{letter}: {got}");
        assert!(
            got.ends_with(" to rootfs: permission denied"),
            "{letter}: {got}"
        );
    }
}
