//! Memory of criscope: idle, while a long list passes, and after very many calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criscope::cri::v1;
use prost::Message;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::client::{Client, Prepared, Reading};
use crate::compare::{Shape, callers, check_length};
use crate::error::{Error, Result};
use crate::paths::{Kind, Route};
use crate::process::Process;
use criscope_testkit::requests;

/// How often memory is read during the many calls.
const SAMPLES: u64 = 10;

/// Polls of a caller per pod that is started and stopped. A busy node has far fewer pods per poll.
const POLLS_PER_POD: u64 = 500;

/// Resident memory, in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    /// Idle in front of the runtime, some time after the start.
    pub(crate) idle: Idle,
    /// Peak while the long list was read quickly, repeatedly.
    pub(crate) list_peak: u64,
    /// Peak while the long list was read slowly.
    pub(crate) slow_list_peak: u64,
    /// Peak when it was started in front of a runtime that has the long list.
    pub(crate) start_peak: u64,
    /// After each tenth of the many calls.
    pub(crate) during_calls: Vec<Sample>,
}

/// Resident memory of an idle criscope, in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Idle {
    /// Total. Most of it is code: the kernel maps the surroundings of each page once used, also at start.
    pub(crate) rss: u64,
    /// Without file-backed pages, which the kernel can drop.
    pub(crate) anonymous: u64,
}

impl Idle {
    /// Measures a process after a pause.
    ///
    /// # Errors
    /// If the process has ended.
    pub(crate) async fn of(process: &Process, pause: Duration) -> Result<Self> {
        tokio::time::sleep(pause).await;
        Ok(Self {
            rss: process.rss()?,
            anonymous: process.anonymous()?,
        })
    }
}

/// Memory after a number of calls.
#[derive(Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) calls: u64,
    pub(crate) rss: u64,
}

impl Memory {
    /// Growth from the third tenth of the calls to the last, in bytes. Buffers that fill only once, such as the
    /// recorder and the episodes, are full by then: a million calls contain 2,000 pods, of which 256 are remembered.
    pub(crate) fn growth(&self) -> i64 {
        match self.during_calls.as_slice() {
            [_, _, full, .., last] => last.rss.cast_signed() - full.rss.cast_signed(),
            _ => 0,
        }
    }

    /// Number of calls.
    pub(crate) fn calls(&self) -> u64 {
        self.during_calls.last().map_or(0, |sample| sample.calls)
    }
}

/// Peak while one caller reads the long list slowly.
///
/// # Errors
/// If the call fails.
pub(crate) async fn slow_list(route: &Route, call: &Prepared) -> Result<u64> {
    let process = route.process()?;
    process.reset_peak()?;
    let mut client = Client::connect(&route.socket, Reading::SLOW).await?;
    let length = client.call(call).await?;
    check_length(route.kind, length)?;
    process.peak_rss()
}

/// The peak until the end of a pause.
///
/// # Errors
/// If the process has ended.
pub(crate) async fn peak_after(process: &Process, pause: Duration) -> Result<u64> {
    tokio::time::sleep(pause).await;
    process.peak_rss()
}

/// 16 callers make `calls` calls on one connection: polls, and from time to time the start and stop of a pod, so that the
/// index, the log and traces of pods are exercised as well.
///
/// # Errors
/// If a call fails.
pub(crate) async fn many_calls(route: &Route, calls: u64) -> Result<Vec<Sample>> {
    let process = route.process()?;
    let clients = callers(route, Shape::Streams).await?;
    let polls = Arc::new([
        Prepared::runtime("Version", &v1::VersionRequest::default())?,
        Prepared::runtime("ListContainers", &v1::ListContainersRequest::default())?,
        Prepared::runtime("ContainerStatus", &container_status())?,
    ]);
    let done = Arc::new(AtomicU64::new(0));
    let mut samples = Vec::new();
    for sample in 1..=SAMPLES {
        let until = calls * sample / SAMPLES;
        let mut tasks = JoinSet::new();
        for client in &clients {
            let caller = Caller {
                client: client.clone(),
                polls: Arc::clone(&polls),
                done: Arc::clone(&done),
            };
            tasks.spawn(caller.run(until));
        }
        while let Some(task) = tasks.join_next().await {
            task.map_err(|error| Error::Setup(format!("{}: {error}", Kind::Criscope.name())))??;
        }
        samples.push(Sample {
            calls: done.load(Ordering::Relaxed),
            rss: process.rss()?,
        });
    }
    Ok(samples)
}

fn container_status() -> v1::ContainerStatusRequest {
    requests::status(&format!("{:064x}", 0), false)
}

struct Caller {
    client: Client,
    polls: Arc<[Prepared; 3]>,
    done: Arc<AtomicU64>,
}

impl Caller {
    async fn run(mut self, until: u64) -> Result<()> {
        let mut polls = 0;
        while self.done.load(Ordering::Relaxed) < until {
            for poll in self.polls.iter() {
                self.client.call(poll).await?;
                polls += 1;
                self.done.fetch_add(1, Ordering::Relaxed);
            }
            if polls % POLLS_PER_POD < 3 {
                self.pod().await?;
            }
        }
        Ok(())
    }

    /// The calls of a pod with one container, from start to stop.
    async fn pod(&mut self) -> Result<()> {
        let name = format!("pod-{}", self.done.load(Ordering::Relaxed));
        let config = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                uid: format!("uid-of-{name}"),
                name,
                namespace: "benchmark".to_owned(),
                attempt: 0,
            }),
            ..Default::default()
        };
        let run = requests::run_pod(config.clone(), "");
        let answer: v1::RunPodSandboxResponse = self.ask("RunPodSandbox", &run).await?;
        let pod_sandbox_id = answer.pod_sandbox_id;
        let create = requests::create(
            &pod_sandbox_id,
            v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata {
                    name: "main".to_owned(),
                    attempt: 0,
                }),
                ..Default::default()
            },
            config,
        );
        let answer: v1::CreateContainerResponse = self.ask("CreateContainer", &create).await?;
        let container_id = answer.container_id;
        let start = requests::start(&container_id);
        let stop = requests::stop(&container_id, 1);
        let remove = requests::remove(&container_id);
        let stop_pod = requests::stop_pod(&pod_sandbox_id);
        let remove_pod = requests::remove_pod(&pod_sandbox_id);
        let _: v1::StartContainerResponse = self.ask("StartContainer", &start).await?;
        let _: v1::StopContainerResponse = self.ask("StopContainer", &stop).await?;
        let _: v1::RemoveContainerResponse = self.ask("RemoveContainer", &remove).await?;
        let _: v1::StopPodSandboxResponse = self.ask("StopPodSandbox", &stop_pod).await?;
        let _: v1::RemovePodSandboxResponse = self.ask("RemovePodSandbox", &remove_pod).await?;
        Ok(())
    }

    async fn ask<R: Message + Default>(
        &mut self,
        method: &str,
        request: &impl Message,
    ) -> Result<R> {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.client.ask(method, request).await
    }
}
