//! A pod that starts slowly because of its network or the OCI runtime: criscope finds out which, in front of an unmodified
//! containerd.

use super::end;
use super::pod::{make, sandbox_config};
use crate::prelude::*;

/// The observations in the log, with the methods of the calls and the names of the programs.
fn seen(log: &[String]) -> Vec<(String, String, String)> {
    let events = log
        .iter()
        .filter_map(|line| serde_json::from_str(line).ok());
    let events: Vec<Value> = events.collect();
    let word = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let method = |seq: &Value| {
        let ended = events
            .iter()
            .find(|l| l["event"] == "rpc.end" && &l["seq"] == seq);
        let method = ended.map(|line| word(line, "rpc.method"));
        let name = method.as_deref().and_then(|name| name.rsplit('/').next());
        name.unwrap_or_default().to_owned()
    };
    let sightings = events.iter().filter(|line| line["event"] == "sampler.seen");
    sightings
        .map(|line| (method(&line["seq"]), word(line, "work"), word(line, "name")))
        .collect()
}

fn has(seen: &[(String, String, String)], want: [&str; 3]) -> bool {
    seen.iter()
        .any(|(method, work, name)| [method.as_str(), work, name] == want)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slow_part_of_a_slow_start_is_seen() {
    let containerd = Containerd::with_slow_parts().await;
    let config =
        "[telemetry.log]\nlevel = \"debug\"\n[sampler]\nafter = \"100ms\"\nperiod = \"20ms\"\n";
    let proxy = Start::new(crate::CRISCOPE)
        .upstream(&containerd.socket())
        .config(config)
        .ready()
        .await;
    let kubelet = Kubelet::before(&proxy.socket(), &containerd).await;
    let delay = |part: &str, seconds: &str| {
        fs::write(containerd.root().join(format!("{part}.delay")), seconds).expect("delay");
    };
    delay("slow-bridge", "1");
    delay("runc", "0.5");
    let (pod, container) = make(&kubelet, &sandbox_config(&containerd)).await;
    kubelet.stop(&container, 0).await;
    kubelet.end(&pod).await;

    let seen = seen(&proxy.stop().await);
    for want in [
        ["RunPodSandbox", "cni", "slow-bridge"],
        ["RunPodSandbox", "oci", "runc"],
        ["StartContainer", "oci", "runc"],
        ["StopContainer", "oci", "runc"],
        ["StopPodSandbox", "cni", "slow-bridge"],
    ] {
        assert!(has(&seen, want), "{want:?} is not in {seen:#?}");
    }
    let cni = seen.iter().filter(|(_, work, _)| work == "cni");
    for (method, _, name) in cni {
        let fits =
            ["RunPodSandbox", "StopPodSandbox", "RemovePodSandbox"].contains(&method.as_str());
        assert!(
            fits && ["slow-bridge", "bridge", "loopback"].contains(&name.as_str()),
            "{seen:#?}"
        );
    }
    end(containerd);
}
