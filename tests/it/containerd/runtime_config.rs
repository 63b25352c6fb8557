//! RuntimeConfig, which containerd 1.6 does not implement.

use criscope::client;

use super::end;
use crate::prelude::*;

/// The cgroup driver in an answer.
async fn driver(socket: &Path) -> Result<i32, Code> {
    let channel = client::connect(socket, Duration::from_secs(30)).await;
    let mut runtime = client::runtime(channel.expect("connect"));
    let answer = runtime.runtime_config(v1::RuntimeConfigRequest {}).await;
    let answer = answer.map_err(|status| status.code())?.into_inner();
    Ok(answer.linux.map_or(-1, |linux| linux.cgroup_driver))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_containerd_is_answered_for() {
    // Its configuration has SystemdCgroup = false.
    let containerd = Containerd::new().await;
    let direct = driver(&containerd.socket()).await;
    if direct.is_ok() {
        println!("NOT CHECKED: this containerd implements RuntimeConfig");
        return end(containerd);
    }
    assert_eq!(direct, Err(Code::Unimplemented));
    let proxy = super::before(&containerd).await;
    let answered = driver(&proxy.socket()).await;
    assert_eq!(answered, Ok(v1::CgroupDriver::Cgroupfs.into()));
    until_true("the page has what was answered", async || {
        let front = proxy.json("/").await;
        front["backends"][0]["answered_cgroup_driver"] == "cgroupfs (from its configuration)"
    })
    .await;
    drop(proxy);

    let config = format!(
        "[backends.old]\nkind = \"upstream\"\nendpoint = \"unix://{}\"\nanswer_runtime_config = false\n",
        containerd.socket().display()
    );
    let proxy = Start::new(crate::CRISCOPE).config(&config).ready().await;
    assert_eq!(driver(&proxy.socket()).await, Err(Code::Unimplemented));
    drop(proxy);
    end(containerd);
}
