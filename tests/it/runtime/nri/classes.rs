//! Block I/O classes that plugins choose.

use criscope_nri::PluginReply;
use criscope_nri::api::{
    ContainerAdjustment, ContainerRequest, CreateContainerResponse, Event,
    LinuxContainerAdjustment, LinuxResources, OptionalString,
};
use prost::Message as _;

use super::{Plugin, configure};
use crate::prelude::*;

/// Gives each container the class of its name.
fn by_name(method: &str, payload: Bytes) -> PluginReply {
    if method != "CreateContainer" {
        return PluginReply::empty();
    }
    let request = ContainerRequest::decode(payload).expect("a request");
    let name = request.container.expect("a container").name;
    let value = if name == "none" { String::new() } else { name };
    let resources = LinuxResources {
        blockio_class: Some(OptionalString { value }),
        ..LinuxResources::default()
    };
    PluginReply::message(&CreateContainerResponse {
        adjust: Some(ContainerAdjustment {
            linux: Some(LinuxContainerAdjustment {
                resources: Some(resources),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_io_class_replaces_that_of_the_pod() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let file = daemon.root().join("blockio.yaml");
    let text = "Classes:\n  of-plugin: [{Devices: [/dev/*], ThrottleReadBps: 1G}]\n  \
        of-pod: [{Devices: [/dev/*], ThrottleWriteBps: 1G}]\n";
    fs::write(&file, text).expect("written");
    daemon.set_runtime(&format!("blockio_config_file = {file:?}\n"));
    configure(&mut daemon, "");
    let kubelet = daemon.serve().await;
    let mut config = kubelet.pod_config("classed");
    let key = "blockio.resources.beta.kubernetes.io/pod".to_owned();
    config.annotations.insert(key, "of-pod".to_owned());
    let pod = kubelet.run(config).await;
    let limits = |id: &str| {
        let bundle = daemon.root().join("root/containers").join(id);
        let text = fs::read(bundle.join("config.json")).expect("a bundle");
        let spec: Value = serde_json::from_slice(&text).expect("JSON");
        spec["linux"]["resources"]["blockIO"].clone()
    };
    let rate = |limits: &Value, key: &str| limits[key][0]["rate"].as_u64();

    let id = kubelet.launch(&pod, idle("plain")).await;
    let found = limits(&id);
    assert_eq!(
        rate(&found, "throttleWriteBpsDevice"),
        Some(1_000_000_000),
        "{found}"
    );
    let _plugin = Plugin::new(&daemon, "10", &[Event::CreateContainer], by_name).await;
    let id = kubelet.launch(&pod, idle("of-plugin")).await;
    let found = limits(&id);
    assert_eq!(
        rate(&found, "throttleReadBpsDevice"),
        Some(1_000_000_000),
        "{found}"
    );
    assert!(found["throttleWriteBpsDevice"].is_null(), "{found}");
    let id = kubelet.launch(&pod, idle("none")).await;
    assert!(limits(&id).is_null());

    let error = kubelet.try_create(&pod, idle("other")).await;
    let error = error.expect_err("refused");
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    let expected = format!(
        "block I/O class \"other\" is not defined in {}",
        file.display()
    );
    assert!(error.message().contains(&expected), "{error}");
    daemon.end(&kubelet, [&pod]).await;
}
