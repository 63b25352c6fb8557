//! Finished specifications with real OCI runtimes: hooks of files, CDI devices and NRI plugins.

use criscope_nri::PluginReply;
use criscope_nri::api::*;

use super::{Plugin, adjusting, configure, daemon};
use crate::harness::busybox as image;
use crate::harness::packages::{busybox, file};
use crate::prelude::*;
use crate::runtime::crun::crun;

/// An image that would run its code in hooks.
const PRELOAD: &str = "registry.example/criscope/preload:1";
/// The environment of a hook without one.
const MINIMAL: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\0";
const STAGES: [&str; 6] = [
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
];

/// The program of a hook that copies its environment, which no shell adds to, and its arguments. It reads its input first, the state of
/// the container, which is JSON and not copied: a hook that ends before may end crun by SIGPIPE.
fn copying(stage: &str, to: &Path) -> (String, Vec<String>) {
    // That of `startContainer` is in the container, where busybox is too.
    let program = match stage {
        "startContainer" => "/bin/busybox".to_owned(),
        _ => busybox().display().to_string(),
    };
    let copy = format!("/[\"{{}}]/!w {}", to.display());
    let args = ["sed", "-n", &copy, "-", "/proc/self/environ"];
    (program, args.map(str::to_owned).to_vec())
}

/// A hook as in files of hooks and of CDI devices.
fn hook_of_file(stage: &str, to: &Path, env: Option<&[&str]>) -> Value {
    let (path, args) = copying(stage, to);
    let mut hook = json!({"path": path, "args": args});
    if let Some(env) = env {
        hook["env"] = json!(env);
    }
    hook
}

/// Writes files of hooks for all stages, one with an empty list of variables, and one with variables of its own.
fn write_hooks(dir: &Path, output: &Path) {
    fs::create_dir_all(dir).expect("dir");
    let write = |name: &str, stage: &str, env: Option<&[&str]>| {
        let file = json!({
            "version": "1.0.0",
            "hook": hook_of_file(stage, &output.join(name), env),
            "when": {"always": true},
            "stages": [stage],
        });
        fs::write(dir.join(format!("{name}.json")), file.to_string()).expect("written");
    };
    for stage in STAGES {
        write(&format!("file-{stage}"), stage, None);
    }
    write("empty", "createContainer", Some(&[]));
    write("own", "createContainer", Some(&["HARMLESS=yes"]));
}

/// Writes a CDI device with hooks of all stages.
fn write_device(dir: &Path, output: &Path) {
    let hooks = STAGES.map(|stage| {
        let mut hook = hook_of_file(stage, &output.join(format!("device-{stage}")), None);
        hook["hookName"] = json!(stage);
        hook
    });
    let file = json!({
        "cdiVersion": "0.5.0",
        "kind": "vendor.example/hooked",
        "devices": [{"name": "a", "containerEdits": {"hooks": hooks}}],
    });
    fs::create_dir_all(dir).expect("dir");
    fs::write(dir.join("hooked.json"), file.to_string()).expect("written");
}

/// The hooks of an NRI plugin, of all stages.
fn plugin_hooks(output: &Path) -> ContainerAdjustment {
    let hook = |stage: &str| {
        let (path, args) = copying(stage, &output.join(format!("plugin-{stage}")));
        vec![Hook {
            path,
            args,
            ..Default::default()
        }]
    };
    ContainerAdjustment {
        hooks: Some(Hooks {
            prestart: hook("prestart"),
            create_runtime: hook("createRuntime"),
            create_container: hook("createContainer"),
            start_container: hook("startContainer"),
            poststart: hook("poststart"),
            poststop: hook("poststop"),
        }),
        ..Default::default()
    }
}

/// A container of the image with a hooked device, in which the hooks can write.
fn hooked(output: &Path) -> v1::ContainerConfig {
    let mut config = idle("hooked");
    config.image.as_mut().expect("present").image = PRELOAD.to_owned();
    config.mounts.push(v1::Mount {
        container_path: output.display().to_string(),
        host_path: output.display().to_string(),
        ..Default::default()
    });
    config.cdi_devices = vec![v1::CdiDevice {
        name: "vendor.example/hooked=a".to_owned(),
    }];
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn no_image_chooses_the_environment_of_a_hook() {
    file("/usr/bin/containerd-shim-runc-v2", "containerd");
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let archive = daemon.root().join("preload.tar");
    let env = ["PATH=/bin", "LD_PRELOAD=/proc/self/cwd/evil.so"];
    image::write_with(&archive, PRELOAD, &json!({"Env": env}));
    image_store::import(&archive, &daemon.root().join("root/images")).await;
    let (output, hooks) = (daemon.root().join("output"), daemon.root().join("hooks.d"));
    fs::create_dir_all(&output).expect("dir");
    write_hooks(&hooks, &output);
    write_device(&daemon.root().join("cdi"), &output);
    daemon.set_runtime(&format!("hooks_dir = [{hooks:?}]\n"));
    configure(&mut daemon, "");
    let (crun, runc) = (crun(&daemon), oci_runtime());
    daemon.configure(&format!(
        "[runtime.handlers.crun]\npath = {crun:?}\n\
         [runtime.handlers.shim]\nruntime_type = \"io.containerd.runc.v2\"\npath = {runc:?}\n"
    ));
    daemon.start().await;
    let _plugin = adjusting(&daemon, "10", plugin_hooks(&output)).await;
    let kubelet = Kubelet::of(&daemon).await;
    for handler in ["runc", "crun", "shim"] {
        let pod = kubelet.run_with(kubelet.pod_config(handler), handler).await;
        let id = kubelet.launch(&pod, hooked(&output)).await;
        // The image has what an attack needs.
        let preload = kubelet.says(&id, "echo $LD_PRELOAD").await;
        assert_eq!(preload, "/proc/self/cwd/evil.so");
        kubelet.end(&pod).await;
        let mut names = vec!["empty".to_owned()];
        for source in ["file", "device", "plugin"] {
            names.extend(STAGES.map(|stage| format!("{source}-{stage}")));
        }
        for name in names {
            let env = fs::read_to_string(output.join(&name));
            let env = env.unwrap_or_else(|error| panic!("{handler}: {name}: {error}"));
            assert_eq!(env, MINIMAL, "{handler}: {name}");
        }
        let own = fs::read_to_string(output.join("own")).expect("it ran");
        assert_eq!(own, "HARMLESS=yes\0", "{handler}");
        for entry in fs::read_dir(&output).expect("there") {
            fs::remove_file(entry.expect("an entry").path()).expect("removed");
        }
    }
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plugin_may_not_make_of_a_specification_is_refused() {
    let (daemon, kubelet) = daemon().await;
    let pod = kubelet.plain_pod("refused").await;
    let hook = ContainerAdjustment {
        hooks: Some(Hooks {
            create_container: vec![Hook {
                path: "bin/hook".to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    };
    let mounts = ContainerAdjustment {
        mounts: vec![Mount {
            destination: "-/proc".to_owned(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let annotation = ContainerAdjustment {
        annotations: [("run.oci.hooks.stdout".to_owned(), "/etc/x".to_owned())].into(),
        ..Default::default()
    };
    let mut adjustments = [hook, mounts, annotation].into_iter();
    let serve = move |method: &str, _| match method {
        "CreateContainer" => PluginReply::message(&CreateContainerResponse {
            adjust: adjustments.next(),
            ..Default::default()
        }),
        _ => PluginReply::empty(),
    };
    let _plugin = Plugin::new(&daemon, "10", &[Event::CreateContainer], serve).await;
    for part in [
        "rule hooks: hooks.createContainer[0].path",
        "rule mounts: mounts: the mount of the request at /proc is missing",
        "rule annotations: annotations.run.oci.hooks.stdout",
    ] {
        assert_refused(
            kubelet.try_create(&pod, idle("refused")).await,
            Code::FailedPrecondition,
            part,
        );
    }
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_a_plugin_drops_is_logged() {
    let (daemon, kubelet) = daemon().await;
    let pod = kubelet.plain_pod("dropped").await;
    let adjust = ContainerAdjustment {
        linux: Some(LinuxContainerAdjustment {
            namespaces: vec![LinuxNamespace {
                r#type: "-uts".to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    };
    let _plugin = adjusting(&daemon, "10", adjust).await;
    let id = kubelet.launch(&pod, idle("dropped")).await;
    let told = daemon.program().wait_event("runtime.confinement").await;
    assert_eq!(told["container.id"], id, "{told}");
    assert_eq!(told["spec.fields"], "linux.namespaces.uts", "{told}");
    daemon.end(&kubelet, [&pod]).await;
}
