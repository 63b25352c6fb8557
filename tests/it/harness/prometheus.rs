//! A real Prometheus that reads several criscopes, each as a node of its own, and keeps rules.

use std::fmt::Write as _;
use std::process::{Child, Command, Stdio};

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::packages::program;
use super::proxy::free_port;
use super::until;
use crate::rules::file::INTERVAL;

/// See the module documentation. Dropping it kills it.
pub(crate) struct Prometheus {
    dir: TempDir,
    port: u16,
    child: Child,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.dir.path().join("log"));
            eprintln!("log of prometheus:\n{}", log.unwrap_or_default());
        }
    }
}

impl Prometheus {
    /// Reads admin endpoints at these ports once in an [`INTERVAL`], which is also what an answer may take: Prometheus
    /// allows no more. A name is both the instance and the cluster of its node,
    /// so that what is summed up for a cluster is of that node alone.
    pub(crate) async fn start(nodes: &[(&str, u16)], rules: &str) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let time = format!("{}ms", INTERVAL * 1000.0);
        let mut config = format!(
            "global: {{scrape_interval: {time}, scrape_timeout: {time}, evaluation_interval: {time}}}\n\
             rule_files: [rules.yaml]\n\
             scrape_configs:\n- job_name: criscope\n  static_configs:\n",
        );
        for (name, port) in nodes {
            let _ = writeln!(
                config,
                "  - targets: ['127.0.0.1:{port}']\n    labels: {{instance: {name}, cluster: {name}}}"
            );
        }
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("prometheus.yaml"), config).expect("write");
        std::fs::write(path("rules.yaml"), rules).expect("write");
        let log = std::fs::File::create(path("log")).expect("log");
        let port = free_port();
        let child = Command::new(program("prometheus", "prometheus"))
            .arg(format!(
                "--config.file={}",
                path("prometheus.yaml").display()
            ))
            .arg(format!("--storage.tsdb.path={}", path("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--enable-feature=exemplar-storage")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("start prometheus");
        let prometheus = Self { dir, port, child };
        until("prometheus", || async {
            prometheus.query("vector(1)").await.ok()
        })
        .await;
        prometheus
    }

    /// The data of an answer of its HTTP API; warnings are errors.
    pub(crate) async fn api(&self, path: &str, args: &[(&str, &str)]) -> Result<Value, String> {
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

    /// The samples of now, as value and labels.
    pub(crate) async fn query(&self, query: &str) -> Result<Vec<(f64, Value)>, String> {
        let data = self.api("query", &[("query", query)]).await?;
        let samples = data["result"].as_array().ok_or("no result")?.iter();
        let samples = samples.map(|sample| {
            let value = sample["value"][1].as_str().ok_or("no value")?;
            let value = value.parse::<f64>().map_err(|e| e.to_string())?;
            Ok((value, sample["metric"].clone()))
        });
        samples.collect()
    }

    /// Whether a query has a sample now.
    pub(crate) async fn has(&self, query: &str) -> bool {
        self.query(query)
            .await
            .is_ok_and(|samples| !samples.is_empty())
    }

    /// Waits until a query has a sample.
    pub(crate) async fn wait(&self, query: &str) {
        until(query, || async { self.has(query).await.then_some(()) }).await;
    }
}
