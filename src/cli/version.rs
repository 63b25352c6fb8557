//! `criscope version`: the version of this program, of the running criscope and of the runtimes behind it.

use std::io::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::CommandFailure;
use super::ask::{AdminEndpoint, AdminEndpointArgs, block_on};
use crate::cri::visible::visible;
use crate::pages::source::{PageError, PageSource as _};
use crate::pages::terminal::format::{self, OutputFormat};
use crate::version;

/// The front page, which is also served without the pages below /debug.
const FRONT_PAGE: &str = "/?format=json";

/// Print the version of this program, of the running criscope and of its runtimes
///
/// Exits with 1 if no criscope is running; --client prints the version of this program alone.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    admin: AdminEndpointArgs,
    /// Only the version of this program
    #[arg(long)]
    client: bool,
    /// Output format, instead of text
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<OutputFormat>,
}

/// The part of the front page that is read.
#[derive(Debug, Deserialize)]
struct DaemonVersion {
    version: String,
    backends: Vec<BackendVersion>,
}

#[derive(Debug, Deserialize)]
struct BackendVersion {
    name: String,
    #[serde(default)]
    runtime: Option<(String, String)>,
    api: String,
}

/// `-o json`
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionReport {
    client: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    runtimes: Vec<RuntimeVersion>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuntimeVersion {
    backend: String,
    /// Absent until the runtime has answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    api_version: String,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let client = version::with_commit().to_owned();
    let asked = if args.client {
        Ok(None)
    } else {
        args.admin
            .endpoint()
            .and_then(|endpoint| block_on(async { Ok(Some(ask(&endpoint).await?)) }))
    };
    // The version of this program is known in any case.
    let (live, failure) = match asked {
        Ok(live) => (live, None),
        Err(failure) => (None, Some(failure)),
    };
    let versions = VersionReport::new(client, live);
    match args.output {
        Some(format) => format::print(format, &versions)?,
        None => {
            let mut out = io::stdout().lock();
            out.write_all(versions.text().as_bytes())?;
            out.flush()?;
        }
    }
    failure.map_or(Ok(()), Err)
}

async fn ask(endpoint: &AdminEndpoint) -> Result<DaemonVersion, PageError> {
    endpoint.json(FRONT_PAGE).await
}

impl VersionReport {
    fn new(client: String, live: Option<DaemonVersion>) -> Self {
        let (server, backends) = match live {
            Some(live) => (Some(live.version), live.backends),
            None => (None, Vec::new()),
        };
        let runtimes = backends.into_iter().map(|backend| {
            let (name, version) = backend.runtime.unzip();
            RuntimeVersion {
                backend: backend.name,
                name,
                version,
                api_version: backend.api,
            }
        });
        Self {
            client,
            server,
            runtimes: runtimes.collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("Client:  criscope {}\n", self.client);
        if let Some(server) = &self.server {
            text += &format!("Server:  criscope {}\n", visible(server));
        }
        for runtime in &self.runtimes {
            let what = match (&runtime.name, &runtime.version) {
                (Some(name), Some(version)) => {
                    format!("{name} {version} ({})", runtime.api_version)
                }
                _ => "has not answered yet".to_owned(),
            };
            let line = format!("Runtime: {what}, backend {}", runtime.backend);
            text += &format!("{}\n", visible(&line));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_has_not_answered_has_no_version() {
        let live = serde_json::from_str(
            r#"{"version":"0.2.0","backends":[
                {"name":"a","runtime":["containerd","1.6.20"],"api":"runtime.v1"},
                {"name":"b","api":"runtime.v1"}]}"#,
        );
        let versions = VersionReport::new("0.2.1".to_owned(), Some(live.expect("parsed")));
        assert_eq!(
            versions.text(),
            "Client:  criscope 0.2.1\nServer:  criscope 0.2.0\n\
             Runtime: containerd 1.6.20 (runtime.v1), backend a\n\
             Runtime: has not answered yet, backend b\n"
        );
        let json = serde_json::to_value(&versions).expect("json");
        assert_eq!(json["runtimes"][0]["apiVersion"], "runtime.v1");
        assert_eq!(json["runtimes"][1].get("version"), None);
    }
}
