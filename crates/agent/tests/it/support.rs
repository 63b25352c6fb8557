//! YAML as API servers read it, programs, and patience.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// `deploy/kubernetes`
pub(crate) fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes")
}

pub(crate) fn read(path: &str) -> String {
    let path = manifests().join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The documents of a YAML file.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n");
    documents
        .map(|it| serde_saphyr::from_str(it).unwrap_or_else(|e| panic!("{e} in\n{it}")))
        .collect()
}

/// Parses an object as strictly as `kubectl apply --validate=strict`: no field may be unknown.
pub(crate) fn parse<T: DeserializeOwned + Serialize>(object: Value) -> T {
    let written = object.clone();
    let parsed: T = serde_json::from_value(object).unwrap_or_else(|e| panic!("{e}: {written}"));
    let read = serde_json::to_value(&parsed).expect("JSON");
    known(&written, &read, "");
    parsed
}

/// Panics if the object has a field that was not read.
fn known(object: &Value, read: &Value, path: &str) {
    match (object, read) {
        (Value::Object(object), Value::Object(read)) => {
            for (key, value) in object {
                let path = format!("{path}.{key}");
                let read = read.get(key);
                // Empty values are left out when written.
                let is_empty = value.as_array().is_some_and(Vec::is_empty)
                    || value.as_object().is_some_and(serde_json::Map::is_empty)
                    || value.is_null();
                match read {
                    Some(read) => known(value, read, &path),
                    None => assert!(is_empty, "unknown field {path}"),
                }
            }
        }
        (Value::Array(object), Value::Array(read)) => {
            assert_eq!(object.len(), read.len(), "{path}");
            let pairs = object.iter().zip(read).enumerate();
            pairs.for_each(|(n, (object, read))| known(object, read, &format!("{path}[{n}]")));
        }
        _ => {}
    }
}

/// A running program, which ends with this.
#[derive(Debug)]
pub(crate) struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A kubeconfig for this token, in a file.
pub(crate) fn kubeconfig(dir: &Path, server: &str, ca: &Path, token: &str) -> PathBuf {
    let path = dir.join(format!("kubeconfig-{token}"));
    let mut file = fs::File::create(&path).expect("a file");
    write!(
        file,
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters: [{{name: test, cluster: {{server: '{server}', certificate-authority: '{}'}}}}]\n\
         users: [{{name: test, user: {{token: '{token}'}}}}]\n\
         contexts: [{{name: test, context: {{cluster: test, user: test, namespace: shop}}}}]\n",
        ca.display()
    )
    .expect("written");
    path
}

pub(crate) fn start(program: &str, args: &[&str], kubeconfig: &Path) -> Program {
    let mut command = Command::new(program);
    command
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::null());
    Program(command.spawn().expect("started"))
}

/// Runs a program to its end, off the threads of the test's runtime.
pub(crate) async fn run(program: &'static str, args: &[&str], kubeconfig: &Path) -> Output {
    let mut command = Command::new(program);
    command
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::null());
    command.env("NO_COLOR", "1").env_remove("COLUMNS");
    let run = tokio::task::spawn_blocking(move || command.output().expect("run"));
    run.await.expect("ended")
}

/// Polls until there is an answer.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < end, "{what} takes too long");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
