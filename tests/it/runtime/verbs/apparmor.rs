//! AppArmor: enforced where the kernel has it, as in the virtual machine of `tests/v2`, and otherwise refused.

use std::io::Write as _;

use criscope::cri::v1::{self, security_profile::ProfileType};

use crate::prelude::*;

/// Prints the profile of a process.
const PROFILE: &str = "cat /proc/self/attr/current";
/// That of the runtime.
const DEFAULT: &str = "criscope-default";

/// The loaded profiles, if the kernel has AppArmor.
fn profiles() -> Option<String> {
    fs::read_to_string("/sys/kernel/security/apparmor/profiles").ok()
}

/// A profile that is unloaded on drop.
struct Profile(String);

impl Profile {
    fn load(name: &str, rules: &str) -> Self {
        let profile = format!("profile {name} flags=(attach_disconnected) {{\n{rules}}}\n");
        parser("-Kr", &profile);
        Self(name.to_owned())
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        parser("-KR", &format!("profile {} {{ }}\n", self.0));
    }
}

fn parser(option: &str, profile: &str) {
    let mut child = Command::new("apparmor_parser")
        .arg(option)
        .stdin(Stdio::piped())
        .spawn()
        .expect("apparmor_parser");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(profile.as_bytes()).expect("written");
    drop(stdin);
    assert!(child.wait().expect("ends").success());
}

/// A container with CAP_SYS_ADMIN, so that nothing but a profile keeps it from mounting, and with this profile, if any.
fn container(name: &str, profile: Option<(ProfileType, &str)>) -> v1::ContainerConfig {
    let mut config = idle(name);
    let context = security(&mut config);
    context.capabilities = Some(v1::Capability {
        add_capabilities: vec!["SYS_ADMIN".to_owned()],
        ..Default::default()
    });
    context.apparmor = profile.map(|(kind, name)| v1::SecurityProfile {
        profile_type: kind.into(),
        localhost_ref: name.to_owned(),
    });
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_confines_or_there_is_no_container() {
    let profiles = profiles();
    // The daemon leaves its profile to the containers that outlive it; the test does not, unless it was there before.
    let _loaded = profiles
        .as_ref()
        .filter(|loaded| !loaded.contains(DEFAULT))
        .map(|_| Profile(DEFAULT.to_owned()));
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    daemon.with_apparmor();
    let kubelet = daemon.serve().await;
    let pod = kubelet.plain_pod("profiles").await;
    if profiles.is_some() {
        confined(&kubelet, &pod).await;
    } else {
        let default = container("default", Some((ProfileType::RuntimeDefault, "")));
        let error = kubelet
            .try_create(&pod, default)
            .await
            .expect_err("no AppArmor");
        assert!(error.message().contains("apparmor"), "{error}");
        let id = kubelet.launch(&pod, container("none", None)).await;
        kubelet.says(&id, "mount -t tmpfs none /volume").await;
    }
    daemon.end(&kubelet, [&pod]).await;
}

async fn confined(kubelet: &Kubelet, pod: &crate::harness::kubelet::Pod) {
    let wanted = [
        ("default", Some((ProfileType::RuntimeDefault, ""))),
        // As with containerd: no profile means the default one.
        ("none", None),
    ];
    for (name, profile) in wanted {
        let id = kubelet.launch(pod, container(name, profile)).await;
        let profile = kubelet.says(&id, PROFILE).await;
        assert_eq!(profile, format!("{DEFAULT} (enforce)"), "{name}");
        for denied in [
            "mount -t tmpfs none /volume",
            "echo 0 > /proc/sys/vm/overcommit_ratio",
            "cat /sys/kernel/security/apparmor/profiles",
        ] {
            assert_ne!(kubelet.exec(&id, denied).await.code, 0, "{name}: {denied}");
        }
        // A container stops its own processes, and the runtime stops the container.
        kubelet.says(&id, "sleep 60 & kill $!").await;
        kubelet.stop(&id, 0).await;
    }

    let unconfined = container("free", Some((ProfileType::Unconfined, "")));
    let id = kubelet.launch(pod, unconfined).await;
    assert_eq!(kubelet.says(&id, PROFILE).await, "unconfined");
    kubelet.says(&id, "mount -t tmpfs none /volume").await;

    let own = format!("criscope-test-{}", std::process::id());
    let missing = container("own", Some((ProfileType::Localhost, &own)));
    let error = kubelet
        .try_create(pod, missing)
        .await
        .expect_err("not loaded");
    assert!(error.message().contains(&own), "{error}");
    assert_eq!(error.code(), Code::NotFound, "{error}");

    let _loaded = Profile::load(
        &own,
        "  file,\n  capability,\n  network,\n  signal,\n  mount,\n  deny /volume/** w,\n",
    );
    let config = container("own", Some((ProfileType::Localhost, &own)));
    let id = kubelet.launch(pod, config).await;
    assert_eq!(kubelet.says(&id, PROFILE).await, format!("{own} (enforce)"));
    kubelet.says(&id, "touch /tmp/allowed").await;
    let said = kubelet.exec(&id, "touch /volume/denied").await;
    assert!(
        said.code != 0 && said.err.contains("Permission denied"),
        "{}",
        said.err
    );
}
