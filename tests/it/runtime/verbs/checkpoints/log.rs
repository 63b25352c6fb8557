//! What a pod puts in the place of its log is not in an archive.

use std::os::unix::fs::symlink;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn no_file_of_the_node_is_in_an_archive_in_place_of_a_log() {
    let (daemon, kubelet, dumps) = Dumps::start().await;
    dumps.set("open");
    let mut config = shell(
        "main",
        "echo said; trap 'exit 0' TERM; sleep 1000000 & wait",
    );
    config.log_path = "app/0.log".to_owned();
    let id = running(&kubelet, config).await;
    kubelet.logged(&id, "said").await;
    let secrets = daemon.root().join("secrets");
    fs::create_dir(&secrets).expect("directory");
    fs::write(secrets.join("0.log"), "secret of the node").expect("secret");
    let log = PathBuf::from(kubelet.status(&id).await.log_path);
    let app = log.parent().expect("a directory").to_owned();
    let pod = app.parent().expect("a directory").to_owned();
    let archive = dumps.archive();
    // In place of the log, of its directory, and of the directory of the pod.
    for (place, target, is_hard) in [
        (&log, secrets.join("0.log"), false),
        (&log, secrets.join("0.log"), true),
        (&app, secrets.clone(), false),
        (&pod, daemon.root().join("outer"), false),
    ] {
        let kept = daemon.root().join("kept");
        fs::rename(place, &kept).expect("renamed");
        match is_hard {
            true => fs::hard_link(&target, place).expect("hard link"),
            false => symlink(&target, place).expect("link"),
        }
        if place == &pod {
            fs::create_dir(&target).expect("directory");
            symlink(&secrets, target.join("app")).expect("link");
        }
        checkpoint(&kubelet, &id, &archive, 0)
            .await
            .expect("CheckpointContainer");
        let content = fs::read(&archive).expect("an archive");
        let name = place.display();
        assert!(!files(&content).contains_key("container.log"), "{name}");
        let text = String::from_utf8_lossy(&content);
        assert!(!text.contains("secret of the node"), "{name}");
        fs::remove_file(place).expect("link");
        fs::rename(&kept, place).expect("renamed");
    }
    checkpoint(&kubelet, &id, &archive, 0)
        .await
        .expect("CheckpointContainer");
    let found = files(&fs::read(&archive).expect("an archive"));
    assert!(String::from_utf8_lossy(&found["container.log"]).ends_with("said\n"));
    assert_untouched(&daemon, &kubelet, &id).await;
}
