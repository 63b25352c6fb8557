//! Completion of arguments. kubectl calls a program `kubectl_complete-criscope` with the words after `kubectl criscope`, the last of
//! which is being typed, and expects the answer that its own commands give: a word per line, then a line with a directive.

use std::collections::HashMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Command};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, ListParams};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::cluster::SELECTOR;
use super::kubeconfig::KubeconfigArgs;

/// The program for kubectl.
#[cfg(not(windows))]
pub(super) const SCRIPT: &str = "#!/bin/sh\nexec kubectl-criscope __complete \"$@\"\n";

/// The program for kubectl: a batch file.
#[cfg(windows)]
pub(super) const SCRIPT: &str = "@kubectl-criscope __complete %*\r\n";

/// Later answers disturb who types.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Upper bound of names from the API server.
const MAX_NAMES: u32 = 500;

/// The directive of Cobra that the shell shall add no names of files.
const NO_FILES: &str = ":4\n";

/// The directive of Cobra without effect: names of files complete the word.
const FILES: &str = ":0\n";

/// What the words before the last one say.
#[derive(Debug)]
struct TypedWords<'a> {
    command: &'a Command,
    has_subcommand: bool,
    /// Values of options by the name of the option.
    values: HashMap<String, String>,
    /// The option whose value comes next.
    pending: Option<&'a Arg>,
}

/// What may follow.
enum Candidates {
    Words(Vec<String>),
    Files,
}

/// The answer for kubectl.
pub(super) async fn complete(words: &[String], command: &Command) -> String {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", words),
    };
    let typed = TypedWords::new(before, command);
    let (prefix, value, candidates) = match (typed.pending, last.split_once('=')) {
        (Some(option), _) => (String::new(), last, typed.values_of(option).await),
        (None, Some((name, value))) if name.starts_with("--") => match typed.option(name) {
            Some(option) => (format!("{name}="), value, typed.values_of(option).await),
            None => (String::new(), last, Candidates::Words(Vec::new())),
        },
        _ if last.starts_with('-') => (String::new(), last, Candidates::Words(typed.flags())),
        _ if !typed.has_subcommand => (String::new(), last, Candidates::Words(typed.subcommands())),
        _ => (String::new(), last, typed.positional().await),
    };
    let Candidates::Words(mut found) = candidates else {
        return FILES.to_owned();
    };
    found.retain(|word| word.starts_with(value));
    found.sort();
    found.dedup();
    let lines = found.iter().map(|word| format!("{prefix}{word}\n"));
    lines.collect::<String>() + NO_FILES
}

impl<'a> TypedWords<'a> {
    fn new(words: &[String], command: &'a Command) -> Self {
        let mut typed = Self {
            command,
            has_subcommand: false,
            values: HashMap::new(),
            pending: None,
        };
        for word in words {
            if let Some(option) = typed.pending.take() {
                typed.set(option, word);
            } else if let Some((name, value)) =
                word.split_once('=').filter(|_| word.starts_with("--"))
            {
                if let Some(option) = typed.option(name) {
                    typed.set(option, value);
                }
            } else if word.starts_with('-') {
                typed.pending = typed
                    .option(word)
                    .filter(|option| option.get_action().takes_values());
            } else if !typed.has_subcommand
                && let Some(subcommand) = command.find_subcommand(word)
            {
                typed.command = subcommand;
                typed.has_subcommand = true;
            }
        }
        typed
    }

    fn set(&mut self, option: &Arg, value: &str) {
        let id = option.get_id().to_string();
        self.values.insert(id, value.to_owned());
    }

    fn arguments(&self) -> impl Iterator<Item = &'a Arg> {
        self.command.get_arguments()
    }

    /// The option that is written like this.
    fn option(&self, word: &str) -> Option<&'a Arg> {
        let mut short = word.strip_prefix('-').into_iter().flat_map(str::chars);
        let short = short.next().filter(|_| word.chars().count() == 2);
        let long = word.strip_prefix("--");
        self.arguments().find(|option| {
            (long.is_some() && option.get_long() == long)
                || (long.is_none() && short.is_some() && option.get_short() == short)
        })
    }

    fn flags(&self) -> Vec<String> {
        let shown = self.arguments().filter(|option| !option.is_hide_set());
        let names = shown.filter_map(Arg::get_long);
        names.map(|name| format!("--{name}")).collect()
    }

    fn subcommands(&self) -> Vec<String> {
        let commands = self.command.get_subcommands();
        let shown = commands.filter(|command| !command.is_hide_set());
        shown.map(|command| command.get_name().to_owned()).collect()
    }

    async fn values_of(&self, option: &Arg) -> Candidates {
        let possible = option.get_possible_values();
        if !possible.is_empty() {
            let names = possible.iter().map(|value| value.get_name().to_owned());
            return Candidates::Words(names.collect());
        }
        Candidates::Words(match option.get_id().as_str() {
            "kubeconfig" | "output" => return Candidates::Files,
            "context" => self.kubeconfig().contexts(),
            "namespace" | "agent_namespace" | "node_namespace" => self.namespaces().await,
            "node" => self.nodes().await,
            _ => Vec::new(),
        })
    }

    async fn positional(&self) -> Candidates {
        let takes_pods = matches!(self.command.get_name(), "explain" | "pods" | "capture");
        Candidates::Words(if takes_pods {
            self.pods().await
        } else {
            Vec::new()
        })
    }

    fn kubeconfig(&self) -> KubeconfigArgs {
        KubeconfigArgs {
            kubeconfig: self.values.get("kubeconfig").map(PathBuf::from),
            context: self.values.get("context").cloned(),
            cluster: self.values.get("cluster").cloned(),
            user: self.values.get("user").cloned(),
            impersonate: self.values.get("impersonate").cloned(),
        }
    }

    /// A client, and the namespace of its context.
    async fn client(&self) -> Option<(kube::Client, String)> {
        let config = self.kubeconfig().load().await.ok()?;
        let namespace = config.default_namespace.clone();
        Some((kube::Client::try_from(config).ok()?, namespace))
    }

    async fn pods(&self) -> Vec<String> {
        let Some((client, default)) = self.client().await else {
            return Vec::new();
        };
        let namespace = self.values.get("namespace").unwrap_or(&default);
        names(Api::<Pod>::namespaced(client, namespace)).await
    }

    async fn namespaces(&self) -> Vec<String> {
        match self.client().await {
            Some((client, _)) => names(Api::<Namespace>::all(client)).await,
            None => Vec::new(),
        }
    }

    /// The nodes with agents.
    async fn nodes(&self) -> Vec<String> {
        let Some((client, _)) = self.client().await else {
            return Vec::new();
        };
        let named = self.values.get("agent_namespace").map(String::as_str);
        let agents = Api::<Pod>::namespaced(client, named.unwrap_or("criscope"));
        let params = ListParams::default().labels(SELECTOR);
        let Ok(Ok(agents)) = timeout(ANSWER_TIMEOUT, agents.list(&params)).await else {
            return Vec::new();
        };
        let nodes = agents.into_iter().filter_map(|agent| agent.spec?.node_name);
        nodes.collect()
    }
}

/// Names of objects; none if the API server does not answer in time.
async fn names<K: Clone + Debug + DeserializeOwned>(api: Api<K>) -> Vec<String> {
    let params = ListParams::default().limit(MAX_NAMES);
    let Ok(Ok(listed)) = timeout(ANSWER_TIMEOUT, api.list_metadata(&params)).await else {
        return Vec::new();
    };
    let names = listed.into_iter().filter_map(|object| object.metadata.name);
    names.collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::Cli;
    use super::*;

    async fn completed(words: &[&str]) -> String {
        let mut command = Cli::command();
        command.build();
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        complete(&words, &command).await
    }

    #[tokio::test]
    async fn commands_flags_and_values_are_completed() {
        assert_eq!(completed(&["ex"]).await, "explain\n:4\n");
        let commands = completed(&[""]).await;
        assert!(
            commands.contains("fleet\n") && !commands.contains("__complete"),
            "{commands}"
        );
        assert_eq!(
            completed(&["pods", "--all-n"]).await,
            "--all-namespaces\n:4\n"
        );
        assert_eq!(completed(&["pods", "-o", "w"]).await, "wide\n:4\n");
        assert_eq!(
            completed(&["explain", "web", "--output=j"]).await,
            "--output=json\n:4\n"
        );
        // Files of a capture and of a kubeconfig.
        assert_eq!(completed(&["capture", "web", "-o", ""]).await, ":0\n");
        assert_eq!(completed(&["--kubeconfig", ""]).await, ":0\n");
        // Options of all commands are known before and behind the subcommand.
        assert_eq!(completed(&["--context", "a", "fl"]).await, "fleet\n:4\n");
        assert_eq!(completed(&["fleet", "--kubec"]).await, "--kubeconfig\n:4\n");
    }

    #[tokio::test]
    async fn contexts_come_from_the_kubeconfig_that_is_typed() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = "{apiVersion: v1, kind: Config, contexts: [{name: blue}, {name: green}]}";
        std::fs::write(file.path(), text).expect("written");
        let path = file.path().to_str().expect("UTF-8");
        let words = ["pods", "--kubeconfig", path, "--context", "g"];
        assert_eq!(completed(&words).await, "green\n:4\n");
    }
}
