//! Hooks of the node (`runtime.hooks_dir`), with a real OCI runtime.

use crate::prelude::*;

/// A hook that appends its argument and the state of the container to a file, or fails.
const PROGRAM: &str = "#!/bin/sh
[ \"$1\" != fail ] || exit 3
echo \"$1 $(sed 's/.*\"status\": *\"\\([a-z]*\\).*/\\1/')\" >> \"$2\"
";

/// Writes a file of hooks in place of another one, as an editor or a package does.
fn write(dir: &Path, name: &str, program: &Path, args: &[&str], when: &Value, stage: &str) {
    let args = [&["hook"], args].concat();
    let file = json!({
        "version": "1.0.0",
        "hook": {"path": program, "args": args, "timeout": 60},
        "when": when,
        "stages": [stage],
    });
    fs::create_dir_all(dir).expect("dir");
    let draft = dir.join("draft");
    fs::write(&draft, file.to_string()).expect("written");
    fs::rename(&draft, dir.join(name)).expect("renamed");
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_of_the_node_run_in_containers_that_meet_their_conditions() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let (system, admin) = (
        daemon.root().join("system.d"),
        daemon.root().join("admin.d"),
    );
    daemon.set_runtime(&format!("hooks_dir = [{system:?}, {admin:?}]\n"));
    let program = daemon.add_program("hook", PROGRAM);
    let output = daemon.root().join("output");
    let to = output.to_str().expect("text");
    let annotated = || json!({"annotations": {"^hooks\\.example/on$": "^yes$"}});
    write(
        &system,
        "01-created.json",
        &program,
        &["created", to],
        &annotated(),
        "createRuntime",
    );
    write(
        &system,
        "02-stopped.json",
        &program,
        &["stopped", to],
        &annotated(),
        "poststop",
    );
    let kubelet = daemon.serve().await;
    let pod = kubelet.plain_pod("hooked").await;
    let on = |name: &str| {
        let mut config = idle(name);
        let key = "hooks.example/on".to_owned();
        config.annotations.insert(key, "yes".to_owned());
        config
    };
    let said = || fs::read_to_string(&output).unwrap_or_default();

    kubelet.launch(&pod, idle("without")).await;
    assert_eq!(said(), "");
    let id = kubelet.launch(&pod, on("with")).await;
    assert_eq!(said(), "created creating\n");
    // Changes are seen by the next container: another file, and one that replaces a file of the first directory.
    write(
        &admin,
        "02-stopped.json",
        &program,
        &["ended", to],
        &annotated(),
        "poststop",
    );
    kubelet.remove(&id).await;
    assert_eq!(
        said(),
        "created creating\nstopped stopped\n",
        "as it was when it was created"
    );
    fs::remove_file(&output).expect("there");
    let id = kubelet.launch(&pod, on("again")).await;
    kubelet.remove(&id).await;
    assert_eq!(said(), "created creating\nended stopped\n");

    // A hook that fails is no container.
    write(
        &admin,
        "03-fails.json",
        &program,
        &["fail"],
        &annotated(),
        "createContainer",
    );
    let error = match kubelet.try_create(&pod, on("failing")).await {
        Ok(id) => kubelet.start(&id).await.err(),
        Err(error) => Some(error),
    };
    let error = error.expect("refused");
    assert!(error.message().contains("hook"), "{error}");
    kubelet.launch(&pod, idle("other")).await;

    // With a broken file it is not known which hooks a container has.
    fs::write(admin.join("03-fails.json"), "{\"version\": \"1.0.0\"").expect("written");
    let error = kubelet
        .try_create(&pod, idle("unknown"))
        .await
        .expect_err("refused");
    assert_eq!(error.code(), Code::FailedPrecondition);
    let path = admin.join("03-fails.json").display().to_string();
    assert!(error.message().contains(&path), "{error}");
    // Everything else works, also after a restart.
    let kubelet = daemon.restart().await;
    let told = daemon.program().wait_event("runtime.hooks").await;
    assert_eq!(told["file"], path, "{told}");
    fs::remove_file(admin.join("03-fails.json")).expect("there");
    kubelet.launch(&pod, idle("mended")).await;
    daemon.end(&kubelet, [&pod]).await;
}
