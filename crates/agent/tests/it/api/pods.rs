//! Pods that are created: what stands in for the kubelet runs their command as a process of this machine.

use std::process::{Command, Stdio};
use std::sync::Arc;

use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{Reply, State};
use crate::support::parse;

impl State {
    pub(super) fn create_pod(self: &Arc<Self>, namespace: &str, mut object: Value) -> Reply {
        let pod: Pod = parse(object.clone());
        let prefix = pod.metadata.generate_name.expect("a prefix of names");
        let name = format!("{prefix}x7k2p");
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!(namespace);
        object["status"] = json!({"phase": "Pending"});
        let spec = pod.spec.expect("a specification");
        let command = spec.containers[0].command.clone().expect("a command");
        let key = format!("{namespace}/{name}");
        let mut pods = self.pods.lock().expect("pods");
        assert!(pods.insert(key.clone(), object.clone()).is_none());
        let state = Arc::clone(self);
        std::thread::spawn(move || state.run(&key, &command));
        Ok((StatusCode::CREATED, object))
    }

    /// Runs the command of a capture. Its image is the program under test, its node this machine.
    fn run(&self, key: &str, command: &[String]) {
        let (program, rest) = command.split_first().expect("a program");
        assert_eq!(program, "/usr/bin/criscope-agent");
        let end = rest
            .iter()
            .position(|it| it == "--")
            .expect("the end of options");
        let mut process = Command::new(env!("CARGO_BIN_EXE_criscope-agent"));
        process.args(&rest[..end]).arg("--program");
        process.arg(&*self.criscope.lock().expect("criscope"));
        process.args(["--pid", &std::process::id().to_string()]);
        process.args(&rest[end..]).stdin(Stdio::null());
        let output = process.output().expect("run");
        let log = [output.stderr, output.stdout].concat();
        let log = String::from_utf8(log).expect("a log is text");
        self.logs.lock().expect("logs").insert(key.to_owned(), log);
        let phase = if output.status.success() {
            "Succeeded"
        } else {
            "Failed"
        };
        if let Some(pod) = self.pods.lock().expect("pods").get_mut(key) {
            pod["status"]["phase"] = json!(phase);
        }
    }

    pub(super) fn log_of(&self, namespace: &str, name: &str) -> String {
        let logs = self.logs.lock().expect("logs");
        logs.get(&format!("{namespace}/{name}"))
            .cloned()
            .unwrap_or_default()
    }

    pub(super) fn delete_pod(&self, namespace: &str, name: &str) -> Reply {
        let mut pods = self.pods.lock().expect("pods");
        let removed = pods.remove(&format!("{namespace}/{name}"));
        let missing = || (StatusCode::NOT_FOUND, format!("pods {name:?} not found"));
        Ok((StatusCode::OK, removed.ok_or_else(missing)?))
    }
}
