//! Key providers: ocicrypt's configuration file, and its protocol (`docs/keyprovider.md` of containers/ocicrypt), which is a JSON
//! document for a program's standard input or for a gRPC service.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::uri::PathAndQuery;
use prost::Message;
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::json;
use crate::program::{self, MAX_OUTPUT};

const UNWRAP: &str = "/keyprovider.KeyProviderService/UnWrapKey";
/// Characters of the message of a service in an error.
const MAX_SHOWN: usize = 1000;

/// The file that `OCICRYPT_KEYPROVIDER_CONFIG` names for containerd and CRI-O.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct KeyProviders {
    #[serde(default)]
    key_providers: BTreeMap<String, KeyProvider>,
}

/// How one provider is asked.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct KeyProvider {
    cmd: Option<Cmd>,
    #[serde(default)]
    grpc: String,
    grpc_tls: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Cmd {
    path: PathBuf,
    #[serde(default)]
    args: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Output {
    keyunwrapresults: Results,
}

#[derive(Deserialize)]
struct Results {
    optsdata: String,
}

/// Both messages of the service have one field, the JSON document.
#[derive(Clone, PartialEq, Message)]
struct Document {
    #[prost(bytes = "vec", tag = "1")]
    json: Vec<u8>,
}

/// The error is the reason. It never has the program's standard output, which may be a key.
type Answer<T> = std::result::Result<T, String>;

fn failed<T>(reason: impl Into<String>) -> Answer<T> {
    Err(reason.into())
}

impl KeyProviders {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).map_err(|e| e.to_string());
        let parsed = bytes.and_then(|bytes| json::from_slice(&bytes).map_err(|e| e.to_string()));
        // What cannot be read is a setting that is wrong, not a failure of the machine.
        parsed.map_err(|reason| Error::Settings {
            path: path.to_owned(),
            reason,
        })
    }

    /// Names the providers whose program does not exist.
    pub(super) fn without_program(&self) -> impl Iterator<Item = String> {
        let providers = self.key_providers.iter();
        providers.filter_map(|(name, provider)| {
            let path = &provider.cmd.as_ref()?.path;
            (!path.exists())
                .then(|| format!("key provider {name}: {} does not exist", path.display()))
        })
    }

    pub(super) fn get(&self, name: &str) -> Option<&KeyProvider> {
        self.key_providers.get(name)
    }
}

impl KeyProvider {
    /// Unwraps a key. The answer is JSON, the private options of the layer's cipher.
    pub(super) async fn unwrap(
        &self,
        wrapped: &[u8],
        timeout: Duration,
    ) -> Answer<Zeroizing<Vec<u8>>> {
        // Exactly the fields that ocicrypt sends: some providers are strict.
        let question = json!({
            "op": "keyunwrap",
            "keywrapparams": {"ec": null, "optsdata": null},
            "keyunwrapparams": {"dc": {"Parameters": {}}, "annotation": STANDARD.encode(wrapped)},
        });
        let question = question.to_string().into_bytes();
        let answer = match &self.cmd {
            Some(cmd) => cmd.ask(&question, timeout).await?,
            None if self.grpc.is_empty() => {
                return failed("neither cmd nor grpc says how it is asked");
            }
            None if self.grpc_tls.is_some() => {
                return failed(
                    "grpc-tls is not supported: use a unix socket, or a loopback address",
                );
            }
            None => self.call(question, timeout).await?,
        };
        let Ok(output) = json::from_slice::<Output>(&answer) else {
            return failed("its answer has no unwrapped key");
        };
        let encoded = Zeroizing::new(output.keyunwrapresults.optsdata);
        match STANDARD.decode(encoded.as_bytes()) {
            Ok(options) if !options.is_empty() => Ok(Zeroizing::new(options)),
            _ => failed("its answer has no unwrapped key"),
        }
    }

    async fn call(&self, question: Vec<u8>, timeout: Duration) -> Answer<Zeroizing<Vec<u8>>> {
        let asked = tokio::time::timeout(timeout, unary(&self.grpc, question)).await;
        asked.unwrap_or_else(|_| failed(program::no_answer(timeout)))
    }
}

impl Cmd {
    async fn ask(&self, question: &[u8], timeout: Duration) -> Answer<Zeroizing<Vec<u8>>> {
        let mut command = Command::new(&self.path);
        command.args(self.args.iter().flatten());
        let path = self.path.display();
        let ended = program::run(&mut command, question, timeout).await;
        let ended = ended.map_err(|reason| format!("{path}: {reason}"))?;
        if !ended.status.success() {
            return failed(format!("{path}: {}: {}", ended.status, ended.messages));
        }
        if ended.is_cut {
            return failed(format!("{path}: more than {MAX_OUTPUT} bytes of output"));
        }
        Ok(ended.stdout)
    }
}

fn connection_error(address: &str, error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    format!("{address}: {}", program::line(text.as_bytes()))
}

async fn unary(address: &str, question: Vec<u8>) -> Answer<Zeroizing<Vec<u8>>> {
    let endpoint = Endpoint::from_shared(target(address))
        .map_err(|error| connection_error(address, &error))?;
    let channel = endpoint
        .connect()
        .await
        .map_err(|error| connection_error(address, &error))?;
    let mut client = Grpc::new(channel).max_decoding_message_size(MAX_OUTPUT);
    client
        .ready()
        .await
        .map_err(|error| connection_error(address, &error))?;
    let codec = ProstCodec::<Document, Document>::default();
    let request = tonic::Request::new(Document { json: question });
    let path = PathAndQuery::from_static(UNWRAP);
    match client.unary(request, path, codec).await {
        Ok(answer) => Ok(Zeroizing::new(answer.into_inner().json)),
        Err(status) => {
            let message = program::line(status.message().as_bytes());
            let message: String = message.chars().take(MAX_SHOWN).collect();
            failed(format!("{address}: {:?}: {message}", status.code()))
        }
    }
}

/// The address of a service as Go's gRPC reads it: `host:port`, `unix:path`, or with a resolver before it.
fn target(address: &str) -> String {
    if address.starts_with("unix:") {
        return address.to_owned();
    }
    let plain = ["dns:///", "passthrough:///"].iter();
    let plain = plain.fold(address, |rest, prefix| {
        rest.strip_prefix(prefix).unwrap_or(rest)
    });
    format!("http://{plain}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_go() {
        for (address, expected) in [
            ("localhost:50051", "http://localhost:50051"),
            ("dns:///kms:1", "http://kms:1"),
            ("passthrough:///[::1]:1", "http://[::1]:1"),
            ("unix:///run/kms.sock", "unix:///run/kms.sock"),
            ("unix:/run/kms.sock", "unix:/run/kms.sock"),
        ] {
            assert_eq!(target(address), expected);
            assert!(Endpoint::from_shared(target(address)).is_ok(), "{address}");
        }
    }

    #[tokio::test]
    async fn a_provider_without_a_way_to_ask_or_with_tls_is_refused() {
        let text = r#"{"key-providers": {"a": {}, "b": {"grpc": "k:1", "grpc-tls": {}}, "c": {"cmd": {"path": "/no", "args": null}}}}"#;
        let all: KeyProviders = serde_json::from_str(text).expect("valid");
        for (name, part) in [
            ("a", "neither cmd nor grpc"),
            ("b", "grpc-tls"),
            ("c", "/no: "),
        ] {
            let provider = all.get(name).expect(name);
            let answer = provider.unwrap(b"x", Duration::from_secs(30)).await;
            let reason = answer.expect_err(name);
            assert!(reason.contains(part), "{reason}");
        }
    }
}
