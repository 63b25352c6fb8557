//! A real Prometheus that scrapes any number of criscope instances, each as a separate node, and evaluates rules.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::packages::program;
use crate::process::Process;
use crate::proxy::free_port;
use crate::{until, until_true};

/// A running Prometheus. Dropping it stops it.
pub struct Prometheus {
    port: u16,
    // Dropped before its directory is removed.
    _process: Process,
    dir: TempDir,
}

impl Prometheus {
    /// Scrapes the admin endpoints at these loopback ports at this interval, which is also the scrape timeout:
    /// Prometheus allows no longer one. A name becomes both `instance` and `cluster`, so that a sum over a cluster is
    /// one over that node alone.
    pub async fn start(interval: Duration, nodes: &[(&str, u16)], rules: &str) -> Self {
        Self::scraping(interval, nodes, rules, "").await
    }

    /// The same, with further keys of the scrape configuration, one per line: `scheme: https`.
    pub async fn scraping(
        interval: Duration,
        nodes: &[(&str, u16)],
        rules: &str,
        keys: &str,
    ) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let time = format!("{}ms", interval.as_millis());
        let mut config = format!(
            "global: {{scrape_interval: {time}, scrape_timeout: {time}, evaluation_interval: {time}}}\n\
             rule_files: [rules.yaml]\n\
             scrape_configs:\n- job_name: criscope\n",
        );
        for key in keys.lines() {
            let _ = writeln!(config, "  {key}");
        }
        config.push_str("  static_configs:\n");
        for (name, port) in nodes {
            let _ = writeln!(
                config,
                "  - targets: ['127.0.0.1:{port}']\n    labels: {{instance: {name}, cluster: {name}}}"
            );
        }
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("prometheus.yaml"), config).expect("write");
        std::fs::write(path("rules.yaml"), rules).expect("write");
        let port = free_port();
        let mut command = Command::new(program("prometheus", "prometheus"));
        command
            .arg(format!(
                "--config.file={}",
                path("prometheus.yaml").display()
            ))
            .arg(format!("--storage.tsdb.path={}", path("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--enable-feature=exemplar-storage");
        let process = Process::spawn("prometheus", &mut command, path("log"));
        let prometheus = Self {
            port,
            _process: process.expect("start prometheus"),
            dir,
        };
        until("prometheus", || async {
            prometheus.query("vector(1)").await.ok()
        })
        .await;
        prometheus
    }

    /// The directory of its time series.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Calls the HTTP API and returns `data`; warnings are errors.
    pub async fn api(&self, path: &str, args: &[(&str, &str)]) -> Result<Value, String> {
        let args = args.iter().map(|(name, value)| {
            let value = percent_encode(value.as_bytes(), NON_ALPHANUMERIC);
            format!("{name}={value}")
        });
        let args: Vec<_> = args.collect();
        let request = format!(
            "GET /api/v1/{path}?{} HTTP/1.0\r\nhost: localhost\r\nconnection: close\r\n\r\n",
            args.join("&")
        );
        let answer = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = answer.await.map_err(|e| e.to_string())?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        let mut body: Value = serde_json::from_str(body).map_err(|e| format!("{e}: {body}"))?;
        if body["status"] != "success" || body.get("warnings").is_some() {
            return Err(body.to_string());
        }
        Ok(body["data"].take())
    }

    /// Runs an instant query; returns its samples as value and labels.
    pub async fn query(&self, query: &str) -> Result<Vec<(f64, Value)>, String> {
        let data = self.api("query", &[("query", query)]).await?;
        let samples = data["result"].as_array().ok_or("no result")?.iter();
        let samples = samples.map(|sample| {
            let value = sample["value"][1].as_str().ok_or("no value")?;
            let value = value.parse::<f64>().map_err(|e| e.to_string())?;
            Ok((value, sample["metric"].clone()))
        });
        samples.collect()
    }

    /// Returns whether an instant query has a sample.
    pub async fn has(&self, query: &str) -> bool {
        self.query(query)
            .await
            .is_ok_and(|samples| !samples.is_empty())
    }

    /// Waits until a query has a sample.
    pub async fn wait(&self, query: &str) {
        until_true(query, async || self.has(query).await).await;
    }
}
