//! What a runtime that quotes everything says, and the headers that callers and runtimes add.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use super::filler::{Filler, echoes};
use crate::prelude::*;

/// Error texts of at most about so many bytes that quote all values in all forms.
pub(super) fn texts(secrets: &[String], most: usize) -> Vec<String> {
    let mut texts = vec![String::new()];
    for (i, echo) in secrets.iter().flat_map(|secret| echoes(secret)).enumerate() {
        let words = match i % 6 {
            0 => format!("failed to create \"{echo}\": not found: "),
            1 => format!("Authorization: Bearer {echo}, "),
            2 => format!("Get \"https://me:{echo}@host.example/v2/?token={echo}\": denied: "),
            3 => format!("env[{echo}={echo}] "),
            4 => format!("exec: {echo}: no such file or directory\n"),
            _ => format!("{echo} "),
        };
        let last = texts.last_mut().expect("one");
        if last.len() + words.len() > most && !last.is_empty() {
            texts.push(words);
        } else {
            last.push_str(&words);
        }
    }
    texts
}

pub(super) fn percent(text: &str) -> String {
    const MESSAGE: &AsciiSet = &CONTROLS.add(b'%');
    percent_encode(text.as_bytes(), MESSAGE).to_string()
}

pub(super) fn head() -> Step {
    let mut all = headers(&[("content-type", "application/grpc")]);
    all.extend(metadata(&mut Filler::default()));
    Step::Head(200, all)
}

/// Headers with canaries, such as callers and runtimes add.
pub(super) fn metadata(filler: &mut Filler) -> HeaderMap {
    let mut canary = || percent(&filler.canary());
    headers(&[
        ("authorization", &format!("Bearer {}", canary())),
        ("cookie", &format!("session={}", canary())),
        ("set-cookie", &format!("session={}", canary())),
        ("baggage", &format!("user={}", canary())),
        ("x-registry-auth", &canary()),
        ("x-secret-bin", &STANDARD.encode(canary())),
    ])
}

pub(super) fn trailers(code: i32, text: &str, secrets: &[String]) -> HeaderMap {
    let mut all = script::status(code, &percent(text));
    let details = secrets.iter().take(20).cloned().collect::<String>();
    all.extend(headers(&[
        ("grpc-status-details-bin", &STANDARD.encode(&details)),
        ("x-detail", &percent(&details)),
    ]));
    all
}
