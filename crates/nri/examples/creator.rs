//! A runtime that creates an imaginary container for each line of its input, and shows what plugins make of it.
//!
//! `cargo run --example creator -- /tmp/nri.sock`, and a plugin with `-idx 10 -socket-path /tmp/nri.sock`.

use std::sync::Arc;

use criscope_nri::api::{Container, ContainerUpdate, Event, PodSandbox};
use criscope_nri::{
    Adaptation, BoxFuture, CloseReason, EvictionRequest, NriSettings, PluginInfo, PluginObserver,
    Runtime,
};
use tokio::io::{AsyncBufReadExt as _, BufReader};

#[derive(Debug)]
struct Imaginary;

impl Runtime for Imaginary {
    fn list(&self) -> BoxFuture<'_, (Vec<PodSandbox>, Vec<Container>)> {
        Box::pin(async { Default::default() })
    }

    fn update(&self, update: ContainerUpdate) -> BoxFuture<'_, Result<(), String>> {
        println!("update of {}", update.container_id);
        Box::pin(async { Ok(()) })
    }

    fn evict(&self, eviction: EvictionRequest) -> BoxFuture<'_, Result<(), String>> {
        println!(
            "eviction of {} by {}: {}",
            eviction.container_id, eviction.plugin, eviction.reason
        );
        Box::pin(async { Ok(()) })
    }
}

#[derive(Debug)]
struct Told;

impl PluginObserver for Told {
    fn connected(&self, plugin: &PluginInfo) {
        println!("{} is there (NRI {})", plugin.name, plugin.nri_version);
    }

    fn closed(&self, plugin: &PluginInfo, reason: &CloseReason) {
        println!("{:?} is gone: {reason}", plugin.name);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let socket = std::env::args().nth(1).ok_or("usage: creator SOCKET")?;
    let settings = NriSettings {
        socket: Some(socket.into()),
        plugin_dir: None,
        ..NriSettings::default()
    };
    let nri = Adaptation::new(settings, Arc::new(Imaginary), Arc::new(Told));
    nri.start().await?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(name) = lines.next_line().await? {
        let pod = PodSandbox {
            id: format!("pod-{name}"),
            name: name.clone(),
            ..Default::default()
        };
        let container = Container {
            id: format!("container-{name}"),
            pod_sandbox_id: pod.id.clone(),
            name,
            ..Default::default()
        };
        nri.pod(Event::RunPodSandbox, pod.clone()).await?;
        match nri.create_container(pod, container).await {
            Err(error) => println!("refused: {error}"),
            Ok(adjusted) => {
                let names: Vec<_> = adjusted.env.iter().map(|one| one.key.as_str()).collect();
                let mounts = adjusted.mounts.len();
                println!("adjusted: variables {names:?}, {mounts} mounts");
            }
        }
    }
    nri.stop().await;
    Ok(())
}
