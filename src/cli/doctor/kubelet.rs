//! Finds the CRI socket of this node's kubelet. Only reads: `/proc` and the kubelet's own files.

use std::path::{Path, PathBuf};

use super::super::output::ReportFinding;
use super::process::NodeFiles;
use super::upstreams;
use crate::call::Client;
use crate::config::Config;
use crate::install::{document, flag};
use crate::settings::{lexical, show_endpoint};

const TOPIC: &str = "kubelet";
const ENDPOINT_FLAG: &str = "--container-runtime-endpoint";
const IMAGE_ENDPOINT_FLAG: &str = "--image-service-endpoint";
const ENDPOINT_KEY: &str = "containerRuntimeEndpoint";
const IMAGE_ENDPOINT_KEY: &str = "imageServiceEndpoint";

/// The configuration file of kubeadm.
const DEFAULT_CONFIG_FILE: &str = "/var/lib/kubelet/config.yaml";

/// The kubelet's default (KubeletConfiguration v1beta1).
const DEFAULT_ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

/// Suffix of the path by which a kubelet recognises CRI-O and reads statistics itself instead of asking the runtime.
const CRIO_SUFFIX: &str = "run/crio/crio.sock";

/// A setting of the kubelet and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KubeletSetting {
    endpoint: String,
    source: String,
}

pub(super) fn check(config: Option<&Config>, node: &NodeFiles) -> Vec<ReportFinding> {
    let pids: Vec<_> = node
        .pids()
        .into_iter()
        .filter(|pid| {
            let comm = node.comm(*pid);
            comm.is_some_and(|comm| Client::from_comm(&comm) == Client::Kubelet)
        })
        .collect();
    let mut findings = Vec::new();
    for pid in &pids {
        let arguments = node.arguments(*pid);
        findings.extend(judge(&node.describe(*pid), &arguments, config, node));
    }
    if pids.is_empty() {
        findings.extend(not_running(config, node));
    }
    findings.extend(config.and_then(crio));
    findings
}

fn not_running(config: Option<&Config>, node: &NodeFiles) -> Vec<ReportFinding> {
    if !node.0.has(DEFAULT_CONFIG_FILE) {
        return vec![ReportFinding::ok(TOPIC, "there is no kubelet on this node")];
    }
    let arguments = [format!("--config={DEFAULT_CONFIG_FILE}")];
    judge("a kubelet, not running now,", &arguments, config, node)
}

fn judge(
    who: &str,
    arguments: &[String],
    config: Option<&Config>,
    node: &NodeFiles,
) -> Vec<ReportFinding> {
    let runtime =
        effective(arguments, ENDPOINT_FLAG, ENDPOINT_KEY, node).unwrap_or_else(|| KubeletSetting {
            endpoint: DEFAULT_ENDPOINT.to_owned(),
            source: "its default".to_owned(),
        });
    let text = format!("{who} uses {} ({})", runtime.endpoint, runtime.source);
    let Some(config) = config else {
        return vec![ReportFinding::ok(TOPIC, text)];
    };
    let used = path_of(&runtime.endpoint);
    if !config.serves_at(&used) {
        let change = change(&runtime, config);
        let mut backends = upstreams(config);
        let finding = match backends.find(|(_, endpoint)| lexical(endpoint) == used) {
            Some((name, _)) => {
                format!("{text}: directly to {name}, so criscope sees no calls")
            }
            None => format!("{text}: neither criscope's socket nor a backend of it"),
        };
        return vec![ReportFinding::warn(TOPIC, finding).hint(change)];
    }
    let mut findings = vec![ReportFinding::ok(TOPIC, text)];
    if let Some(images) = effective(arguments, IMAGE_ENDPOINT_FLAG, IMAGE_ENDPOINT_KEY, node)
        && !config.serves_at(&path_of(&images.endpoint))
    {
        let text = format!(
            "{who} sends image calls to {} ({}), so criscope sees no pulls",
            images.endpoint, images.source
        );
        findings
            .push(ReportFinding::warn(TOPIC, text).hint(format!("remove {IMAGE_ENDPOINT_KEY}")));
    }
    findings
}

fn change(setting: &KubeletSetting, config: &Config) -> String {
    let listen = show_endpoint(&config.server.listen);
    if setting.source == ENDPOINT_FLAG {
        // kubeadm before 1.34 writes the flag into kubeadm-flags.env.
        return format!(
            "the flag wins over the file: set {ENDPOINT_FLAG}={listen} where the kubelet's flags are set (kubeadm: /var/lib/kubelet/kubeadm-flags.env) and restart the kubelet; docs/INSTALL.md"
        );
    }
    format!(
        "once criscope runs, set {ENDPOINT_KEY}: {listen} in the kubelet's configuration and restart the kubelet; docs/INSTALL.md"
    )
}

/// The effective value: a flag overrides the drop-ins, a later drop-in an earlier one, and drop-ins the file.
fn effective(
    arguments: &[String],
    name: &str,
    key: &str,
    node: &NodeFiles,
) -> Option<KubeletSetting> {
    if let Some((_, endpoint)) = flag::last_in_words(arguments, name) {
        return Some(KubeletSetting {
            endpoint: endpoint.to_owned(),
            source: name.to_owned(),
        });
    }
    // Drop-ins are merged in the order of their names.
    let drop_ins = flag::last_in_words(arguments, "--config-dir");
    let drop_ins = drop_ins.map(|(_, directory)| node.0.names(directory, &["conf"]));
    let file = flag::last_in_words(arguments, "--config").map(|(_, file)| PathBuf::from(file));
    let mut files = drop_ins.unwrap_or_default().into_iter().rev().chain(file);
    files.find_map(|file| {
        let text = node.0.text(&file).ok()??;
        let endpoint = document::get(&text, key).ok()??;
        Some(KubeletSetting {
            endpoint,
            source: file.display().to_string(),
        })
    })
}

fn path_of(endpoint: &str) -> PathBuf {
    let path = endpoint.strip_prefix("unix:").unwrap_or(endpoint);
    lexical(Path::new(path.strip_prefix("//").unwrap_or(path)))
}

/// With another path than CRI-O's own the kubelet asks the runtime for statistics.
fn crio(config: &Config) -> Option<ReportFinding> {
    let listen = &config.server.listen;
    if is_crio(listen) || !upstreams(config).any(|(_, endpoint)| is_crio(endpoint)) {
        return None;
    }
    let text = format!(
        "takes statistics from CRI-O itself behind {}, and no longer from cAdvisor",
        show_endpoint(listen)
    );
    Some(ReportFinding::warn(TOPIC, text).hint(format!(
        "to keep it as it was, listen on a path that ends with {CRIO_SUFFIX}; docs/INSTALL.md"
    )))
}

fn is_crio(path: &Path) -> bool {
    show_endpoint(path).ends_with(CRIO_SUFFIX)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::super::output::FindingLevel;
    use super::*;
    use crate::install::FilesystemRoot;

    struct FakeNode {
        _directory: tempfile::TempDir,
        node: NodeFiles,
    }

    fn node(files: &[(&str, &str)]) -> FakeNode {
        let directory = tempfile::tempdir().expect("a directory");
        let node = NodeFiles(FilesystemRoot::at(directory.path()));
        for (path, content) in files {
            let path = node.0.path(path);
            fs::create_dir_all(path.parent().expect("has one")).expect("made");
            fs::write(path, content).expect("written");
        }
        FakeNode {
            _directory: directory,
            node,
        }
    }

    fn config() -> Config {
        Config::with_upstream("/run/containerd/containerd.sock".into())
    }

    fn only(files: &[(&str, &str)]) -> ReportFinding {
        let fake = node(files);
        let findings = check(Some(&config()), &fake.node);
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings[0].clone()
    }

    const CONFIG: &str = "/var/lib/kubelet/config.yaml";
    const RUNS: (&str, &str) = ("/proc/812/comm", "kubelet\n");

    #[test]
    fn a_flag_wins_over_drop_ins_and_they_over_the_file() {
        let command = "kubelet\0--config\0/etc/k.yaml\0--config-dir=/etc/k.d\0";
        let flags =
            format!("{command}--container-runtime-endpoint=unix:///run/criscope/criscope.sock\0");
        let files = [
            RUNS,
            (
                "/etc/k.yaml",
                "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: \"unix:///a\" # x\n",
            ),
            ("/etc/k.d/10.conf", "containerRuntimeEndpoint: unix:///b\n"),
            (
                "/etc/k.d/20.conf",
                "{\"containerRuntimeEndpoint\": \"unix:///c\"}",
            ),
            ("/etc/k.d/30.txt", "containerRuntimeEndpoint: unix:///d\n"),
        ];
        let with =
            |cmdline: &str| only(&[&files[..], &[("/proc/812/cmdline", cmdline)]].concat()).text;
        assert_eq!(
            with(&flags),
            "kubelet (pid 812) uses unix:///run/criscope/criscope.sock (--container-runtime-endpoint)"
        );
        assert!(with(command).contains("uses unix:///c (/etc/k.d/20.conf): neither"));
        assert!(with("kubelet\0--config=/etc/k.yaml\0").contains("uses unix:///a (/etc/k.yaml)"));
    }

    #[test]
    fn a_kubelet_that_goes_past_us_is_warned_of() {
        let finding = only(&[RUNS, ("/proc/812/cmdline", "/usr/bin/kubelet\0")]);
        assert_eq!(finding.level, FindingLevel::Warn);
        assert_eq!(
            finding.text,
            "kubelet (pid 812) uses unix:///run/containerd/containerd.sock (its default): directly to upstream, so criscope sees no calls"
        );
        let flag = "kubelet\0--container-runtime-endpoint\0/var/run/containerd/containerd.sock\0";
        let finding = only(&[RUNS, ("/proc/812/cmdline", flag)]);
        assert!(finding.text.contains("directly to upstream"), "{finding:?}");
        assert!(
            finding
                .hint
                .is_some_and(|hint| hint.contains("kubeadm-flags.env"))
        );
    }

    #[test]
    fn the_socket_in_containerds_place_is_ours() {
        let mut config = Config::builtin();
        let runtime = config.runtime.as_mut().expect("built in");
        runtime.containerd_socket = Some("/run/containerd/containerd.sock".into());
        let fake = node(&[RUNS, ("/proc/812/cmdline", "/usr/bin/kubelet\0")]);
        let findings = check(Some(&config), &fake.node);
        let levels: Vec<_> = findings.iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [FindingLevel::Ok], "{findings:?}");
    }

    #[test]
    fn a_stopped_kubelet_is_read_from_its_file() {
        let text = "containerRuntimeEndpoint: unix:///run/criscope/criscope.sock\n";
        let finding = only(&[(CONFIG, text)]);
        assert_eq!(finding.level, FindingLevel::Ok, "{finding:?}");
        assert_eq!(
            only(&[("/proc/1/comm", "init\n")]).text,
            "there is no kubelet on this node"
        );
    }

    #[test]
    fn images_that_go_past_us_are_warned_of() {
        let text = "containerRuntimeEndpoint: unix:///run/criscope/criscope.sock\n\
                    imageServiceEndpoint: unix:///run/containerd/containerd.sock\n";
        let fake = node(&[(CONFIG, text)]);
        let findings = check(Some(&config()), &fake.node);
        let levels: Vec<_> = findings.iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [FindingLevel::Ok, FindingLevel::Warn]);
    }

    #[test]
    fn crio_is_recognised_by_its_path() {
        let mut config = Config::with_upstream("/var/run/crio/crio.sock".into());
        assert_eq!(
            crio(&config).map(|finding| finding.level),
            Some(FindingLevel::Warn)
        );
        config.server.listen = "/run/criscope/run/crio/crio.sock".into();
        assert_eq!(crio(&config), None);
    }
}
