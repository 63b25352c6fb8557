//! Nodes without a machine, for `tests/by-hand/rollout.sh`: stands in for the kubelets of many nodes, and runs in their pods the
//! installers of this crate, with a stand-in for what `criscope install` does, and the hook of `helm uninstall`. Everything else is real.
//!
//! usage: hollow_nodes DIR [bare N]
//! `DIR/NODE` is the disk of a node. The script writes into it `dead` (the machine is off), `hang` (the installation takes until this is gone)
//! and `broken` (the reason why criscope does not become healthy there); criscope is on the node while `installed` is there. With `bare N` there are no pods: N installers start on
//! the nodes `bare-0` and so on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser as _;
use criscope_agent::rollout::local_state::InstallStateFile;
use criscope_agent::rollout::participant::{InstallerIdentity, NodeWork, Participant};
use criscope_agent::rollout::removal;
use criscope_agent::rollout::{Goal, NodeState, RolloutPolicy, RolloutTiming};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The namespace of the installers.
const NAMESPACE: &str = "criscope-node";

/// How long the stand-in for `criscope install` takes.
const WORK_TIME: Duration = Duration::from_secs(2);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(clap::Parser)]
struct HookLine {
    #[command(flatten)]
    args: removal::Args,
}

#[derive(clap::Parser)]
struct PolicyLine {
    #[command(flatten)]
    policy: RolloutPolicy,
    #[arg(long)]
    uninstall: bool,
}

/// What stands in for `criscope install` and `uninstall`.
struct HollowWork {
    disk: PathBuf,
    is_removal: bool,
}

impl NodeWork for HollowWork {
    async fn work(&self) -> Result<(), String> {
        sleep(WORK_TIME).await;
        while self.disk.join("hang").exists() {
            sleep(WORK_TIME).await;
        }
        self.check().await?;
        let installed = self.disk.join("installed");
        let changed = if self.is_removal {
            fs::remove_file(&installed).or_else(|error| {
                let is_absent = error.kind() == std::io::ErrorKind::NotFound;
                is_absent.then_some(()).ok_or(error)
            })
        } else {
            fs::write(&installed, "")
        };
        changed.map_err(|error| error.to_string())
    }

    fn interrupt(&self) {}

    async fn check(&self) -> Result<(), String> {
        fs::read_to_string(self.disk.join("broken"))
            .map_or(Ok(()), |reason| Err(reason.trim().to_owned()))
    }

    fn note_state(&self, state: NodeState) {
        let file = InstallStateFile::at(&self.disk);
        let noted = if self.is_removal && state == NodeState::Done {
            file.remove()
        } else {
            file.write(state)
        };
        if let Err(error) = noted {
            tracing::warn!(%error, "cannot write the state");
        }
    }
}

/// A pod that runs.
struct Running {
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

/// A client with the rights of a service account.
async fn client_of(account: &str) -> Result<kube::Client, BoxError> {
    let mut config = kube::Config::infer().await?;
    let account = format!("system:serviceaccount:{NAMESPACE}:{account}");
    config.auth_info.impersonate = Some(account);
    Ok(kube::Client::try_from(config)?)
}

/// Runs an installer as a kubelet does: again after a failure.
async fn install(
    participant: Participant,
    work: HollowWork,
    mut stop: oneshot::Receiver<()>,
) -> bool {
    let mut delay = Duration::from_secs(1);
    loop {
        let stopped = async {
            let _ = (&mut stop).await;
        };
        match participant.run(&work, stopped).await {
            Ok(()) => return true,
            Err(criscope_agent::rollout::participant::ParticipantError::Stopped) => return false,
            Err(error) => {
                println!("{}: installer: {error}", participant.identity.node);
                sleep(delay).await;
                delay = (delay * 2).min(Duration::from_secs(60));
            }
        }
    }
}

/// The kubelets.
struct Kubelets {
    dir: PathBuf,
    client: kube::Client,
    running: BTreeMap<String, Running>,
}

impl Kubelets {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn is_dead(&self, node: &str) -> bool {
        self.dir.join(node).join("dead").exists()
    }

    /// Reports that the nodes live, as kubelets do.
    async fn heartbeat(&self) -> Result<(), BoxError> {
        let leases = Api::<Lease>::namespaced(self.client.clone(), "kube-node-lease");
        let nodes = Api::<Node>::all(self.client.clone());
        for node in nodes.list(&ListParams::default()).await? {
            let name = node.metadata.name.unwrap_or_default();
            if self.is_dead(&name) || name.starts_with("bare-") {
                continue;
            }
            fs::create_dir_all(self.dir.join(&name))?;
            let life = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": MicroTime(Timestamp::now())},
            });
            leases
                .patch(
                    &name,
                    &PatchParams::apply("hollow").force(),
                    &Patch::Apply(&life),
                )
                .await?;
            let conditions = node
                .status
                .and_then(|status| status.conditions)
                .unwrap_or_default();
            if !conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True")
            {
                let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Hollow",
                    "lastHeartbeatTime": Timestamp::now(), "lastTransitionTime": Timestamp::now()}]}});
                nodes
                    .patch_status(&name, &PatchParams::default(), &Patch::Strategic(&ready))
                    .await?;
            }
        }
        Ok(())
    }

    /// Starts and ends what runs in pods. In pods of agents nothing runs.
    async fn sync(&mut self) -> Result<(), BoxError> {
        let pods = Api::<Pod>::all(self.client.clone());
        for pod in pods.list(&ListParams::default()).await? {
            let spec = pod.spec.as_ref();
            let node = spec.and_then(|spec| spec.node_name.clone());
            let node = node.unwrap_or_default();
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            let labels = pod.metadata.labels.as_ref();
            let component = labels.and_then(|labels| labels.get("app.kubernetes.io/component"));
            if node.is_empty() {
                continue;
            }
            if self.is_dead(&node) {
                if let Some(running) = self.running.remove(&uid) {
                    running.task.abort();
                }
            } else if pod.metadata.deletion_timestamp.is_some() {
                self.end(&pod, &uid).await;
            } else if !self.running.contains_key(&uid) {
                let running = match component.map(String::as_str) {
                    Some("installer") => self.start(&pod, &node, &uid).await?,
                    Some("uninstaller") => self.start_hook(&pod).await?,
                    _ => continue,
                };
                self.running.insert(uid, running);
            }
        }
        Ok(())
    }

    async fn end(&mut self, pod: &Pod, uid: &str) {
        if let Some(mut running) = self.running.remove(uid) {
            drop(running.stop.take());
            let _ = running.task.await;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        // The next round tries again.
        let _ = pods
            .delete(name, &DeleteParams::default().grace_period(0))
            .await;
    }

    /// Runs the hook of `helm uninstall`.
    async fn start_hook(&self, pod: &Pod) -> Result<Running, BoxError> {
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let args = container.and_then(|container| container.args.clone());
        let line = ["hook", "--namespace", NAMESPACE].map(str::to_owned);
        let line = HookLine::try_parse_from(line.into_iter().chain(args.unwrap_or_default()))?;
        let client = client_of("criscope-uninstaller").await?;
        let (pods, name) = (self.pods(), pod.metadata.name.clone().unwrap_or_default());
        let task = tokio::spawn(async move {
            let result = removal::run(&line.args, client).await;
            let phase = if result.is_ok() {
                "Succeeded"
            } else {
                "Failed"
            };
            println!("hook: {phase}: {result:?}");
            let status = json!({"status": {"phase": phase}});
            let _ = pods
                .patch_status(&name, &PatchParams::default(), &Patch::Strategic(&status))
                .await;
        });
        Ok(Running { task, stop: None })
    }

    async fn start(&self, pod: &Pod, node: &str, uid: &str) -> Result<Running, BoxError> {
        let installer = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.init_containers.as_ref());
        let args = installer
            .and_then(|all| all[0].args.clone())
            .unwrap_or_default();
        let line = PolicyLine::try_parse_from(std::iter::once("install".to_owned()).chain(args))?;
        let labels = pod.metadata.labels.as_ref();
        let revision = labels.and_then(|labels| labels.get("controller-revision-hash"));
        let participant = Participant {
            client: client_of("criscope-installer").await?,
            namespace: NAMESPACE.to_owned(),
            identity: InstallerIdentity {
                node: node.to_owned(),
                pod_uid: uid.to_owned(),
                revision: revision.cloned().unwrap_or_default(),
                goal: if line.uninstall {
                    Goal::Uninstall
                } else {
                    Goal::Install
                },
            },
            policy: line.policy,
            timing: RolloutTiming::default(),
        };
        let disk = self.dir.join(node);
        // A pod may be bound to a new node before its first heartbeat.
        fs::create_dir_all(&disk)?;
        let work = HollowWork {
            disk,
            is_removal: line.uninstall,
        };
        let (sender, stop) = oneshot::channel();
        let (pods, name) = (self.pods(), pod.metadata.name.clone().unwrap_or_default());
        let task = tokio::spawn(async move {
            if install(participant, work, stop).await {
                let ready = json!({"status": {"phase": "Running", "conditions": [
                    {"type": "Ready", "status": "True", "lastTransitionTime": Timestamp::now()}]}});
                let _ = pods
                    .patch_status(&name, &PatchParams::default(), &Patch::Strategic(&ready))
                    .await;
            }
        });
        Ok(Running {
            task,
            stop: Some(sender),
        })
    }
}

/// Starts installers without pods.
async fn bare(dir: &Path, count: usize) -> Result<(), BoxError> {
    let mut senders = Vec::new();
    for n in 0..count {
        let node = format!("bare-{n}");
        let disk = dir.join(&node);
        fs::create_dir_all(&disk)?;
        let participant = Participant {
            client: client_of("criscope-installer").await?,
            namespace: NAMESPACE.to_owned(),
            identity: InstallerIdentity {
                pod_uid: node.clone(),
                node,
                revision: "1".to_owned(),
                goal: Goal::Install,
            },
            policy: PolicyLine::try_parse_from(["install", "--max-parallel=10%"])?.policy,
            timing: RolloutTiming::default(),
        };
        let (sender, stop) = oneshot::channel();
        senders.push(sender);
        tokio::spawn(install(
            participant,
            HollowWork {
                disk,
                is_removal: false,
            },
            stop,
        ));
    }
    println!("{count} installers");
    std::future::pending::<()>().await;
    drop(senders);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt()
        .with_env_filter("warn,criscope_agent=info")
        .init();
    let args: Vec<_> = std::env::args().skip(1).collect();
    let dir = PathBuf::from(args.first().ok_or("usage: hollow_nodes DIR [bare N]")?);
    if let [_, _, count] = &args[..] {
        return bare(&dir, count.parse()?).await;
    }
    let mut kubelets = Kubelets {
        dir,
        client: kube::Client::try_default().await?,
        running: BTreeMap::new(),
    };
    let mut round = 0_u32;
    loop {
        if round.is_multiple_of(8)
            && let Err(error) = kubelets.heartbeat().await
        {
            println!("heartbeat: {error}");
        }
        if let Err(error) = kubelets.sync().await {
            println!("pods: {error}");
        }
        round += 1;
        sleep(Duration::from_secs(1)).await;
    }
}
