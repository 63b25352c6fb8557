//! Pods and containers that run with other runtimes, and that were refused or left something behind here.

use crate::prelude::*;

/// `kubectl debug --profile=sysadmin`: the kubelet says in each request whether the pod is privileged now.
#[tokio::test(flavor = "multi_thread")]
async fn a_privileged_container_in_a_pod_that_began_without() {
    let (daemon, kubelet) = node().await;
    let mut pod = kubelet.plain_pod("debugged").await;
    let mut debugger = idle("debugger");
    security(&mut debugger).privileged = true;
    let refused = kubelet.try_create(&pod, debugger.clone()).await;
    let error = refused.expect_err("the request says that the pod is not");
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    let linux = pod.config.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default().privileged = true;
    let id = kubelet.launch(&pod, debugger).await;
    let said = kubelet.says(&id, "grep CapEff /proc/self/status").await;
    let own = fs::read_to_string("/proc/self/status").expect("status");
    let own = own.lines().find(|line| line.starts_with("CapEff"));
    assert_eq!(Some(said.as_str()), own);
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sysctls_of_an_interface_are_set_when_it_is_there() {
    let (daemon, kubelet) = node().await;
    let with = |interface: &str| {
        let mut config = kubelet.pod_config("sysctls");
        let linux = config.linux.get_or_insert_default();
        let name = format!("net.ipv4.conf.{interface}.rp_filter");
        linux.sysctls.insert(name, "2".to_owned());
        config
    };
    let pod = kubelet.run(with("eth0")).await;
    let id = kubelet.launch(&pod, idle("main")).await;
    let said = kubelet.says(&id, "cat /proc/sys/net/ipv4/conf/eth0/rp_filter");
    assert_eq!(said.await, "2");
    kubelet.end(&pod).await;
    let refused = kubelet.try_run(with("none0"), "").await;
    let error = refused.err().expect("there is no such interface");
    assert!(
        error.message().contains("net.ipv4.conf.none0.rp_filter"),
        "{error}"
    );
    daemon.assert_clean();
}
