//! Records of other versions, and unreadable records.

use super::{Running, change, read, refused};
use crate::prelude::*;

async fn listed(kubelet: &Kubelet) -> Vec<String> {
    let mut runtime = kubelet.runtime.clone();
    let all = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default());
    let all = all.await.expect("ListPodSandbox").into_inner().items;
    all.into_iter().map(|pod| pod.id).collect()
}

fn copies(daemon: &Daemon) -> PathBuf {
    daemon.state().join("state/records")
}

/// Replaces a record with a directory, which is unreadable but not damaged.
fn hide(record: &Path) {
    fs::rename(record, record.with_extension("hidden")).expect("record");
    fs::create_dir(record).expect("dir");
}

fn show(record: &Path) {
    fs::remove_dir(record).expect("dir");
    fs::rename(record.with_extension("hidden"), record).expect("record");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_version_refuses_the_start_before_anything_is_touched() {
    let (mut daemon, kubelet) = node().await;
    let pod = Running::new(&kubelet, "newer").await;
    daemon.kill();
    for record in [pod.sandbox_record(&daemon), pod.container_record(&daemon)] {
        let before = fs::read(&record).expect("record");
        change(&record, |record| {
            record["version"] = 999.into();
            // Not a valid record of this version.
            record["state"] = json!({"name": "ready"});
        });
        let newer = fs::read(&record).expect("record");
        let said = refused(&daemon).await;
        let named = said.contains(&record.display().to_string());
        assert!(named && said.contains("999"), "{said}");
        pod.lives("a newer record");
        assert_eq!(fs::read(&record).expect("record"), newer);
        fs::write(&record, before).expect("record");
    }
    let kubelet = daemon.serve().await;
    pod.is_well(&kubelet, "its own version").await;
    daemon.end(&kubelet, [&pod.pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_version_is_migrated_and_unknown_fields_survive() {
    let (mut daemon, kubelet) = node().await;
    let pod = Running::new(&kubelet, "older").await;
    daemon.kill();
    let records = [pod.sandbox_record(&daemon), pod.container_record(&daemon)];
    let now = read(&records[0])["version"].clone();
    for record in &records {
        change(record, |record| {
            record["version"] = 1.into();
            record["later"] = json!({"a": [1, 2]});
            record["config"]["metadata"]["later"] = "b".into();
            if let Some(fields) = record.as_object_mut() {
                fields.remove("image_name");
            }
        });
    }
    fs::remove_dir_all(copies(&daemon)).expect("copies");
    let kubelet = daemon.serve().await;
    pod.is_well(&kubelet, "migrated").await;
    assert!(now.as_u64() > Some(1), "there is an older version: {now}");
    let image = kubelet.status(&pod.container).await.image;
    assert_ne!(image.unwrap_or_default().image, "");
    // Later operations rewrite the record.
    kubelet.stop(&pod.container, 0).await;
    kubelet.stop_pod(&pod.pod.id).await;
    for record in &records {
        let record = read(record);
        assert_eq!(record["version"], now);
        assert_eq!(record["later"], json!({"a": [1, 2]}));
        assert_eq!(record["config"]["metadata"]["later"], "b");
    }
    daemon.end(&kubelet, [&pod.pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_used_now_is_replaced_by_its_copy() {
    let (mut daemon, kubelet) = node().await;
    let pod = Running::new(&kubelet, "copied").await;
    for what in ["unreadable", "damaged"] {
        daemon.kill();
        for record in [pod.sandbox_record(&daemon), pod.container_record(&daemon)] {
            if what == "damaged" {
                fs::write(&record, "{").expect("record");
            } else {
                hide(&record);
            }
        }
        let kubelet = daemon.serve().await;
        pod.is_well(&kubelet, what).await;
        let again = kubelet.try_run(pod.pod.config.clone(), "").await;
        assert_eq!(again.err().map(|e| e.code()), Some(Code::AlreadyExists));
        let again = kubelet.try_create(&pod.pod, idle("main")).await;
        assert_eq!(again.err().map(|e| e.code()), Some(Code::AlreadyExists));
        let scrape = daemon.program().scrape().await;
        let problems = scrape.metric("criscope_runtime_recovery_problems").sum();
        assert!(problems >= 2.0, "{what}: {problems}");
        if what == "unreadable" {
            for record in [pod.sandbox_record(&daemon), pod.container_record(&daemon)] {
                show(&record);
            }
        }
    }
    let kubelet = Kubelet::of(&daemon).await;
    daemon.end(&kubelet, [&pod.pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_without_a_copy_keeps_its_pod_and_is_tried_again() {
    for of in ["sandbox", "container"] {
        for what in ["unreadable", "damaged"] {
            let (mut daemon, kubelet) = node().await;
            let pod = Running::new(&kubelet, "kept").await;
            let other = Running::new(&kubelet, "well").await;
            daemon.kill();
            fs::remove_dir_all(copies(&daemon)).expect("copies");
            let record = match of {
                "sandbox" => pod.sandbox_record(&daemon),
                _ => pod.container_record(&daemon),
            };
            let good = fs::read(&record).expect("record");
            if what == "damaged" {
                fs::write(&record, "{").expect("record");
            } else {
                hide(&record);
            }
            daemon.start().await;
            let when = format!("{of} {what}");
            pod.lives(&when);
            let kubelet = Kubelet::of(&daemon).await;
            other.is_well(&kubelet, &when).await;
            // Its name stays reserved, and calls about it report the reason.
            let code = match of {
                "sandbox" => {
                    let stopped = kubelet.try_stop_pod(&pod.pod.id).await;
                    assert_eq!(stopped.err().map(|e| e.code()), Some(Code::Unavailable));
                    let again = kubelet.try_run(pod.pod.config.clone(), "").await;
                    again.err().map(|e| e.code())
                }
                _ => {
                    let again = kubelet.try_create(&pod.pod, idle("main")).await;
                    again.err().map(|e| e.code())
                }
            };
            assert_eq!(code, Some(Code::Unavailable), "{when}");
            let problems =
                |scrape: &Scrape| scrape.metric("criscope_runtime_recovery_problems").sum();
            assert!(problems(&daemon.program().scrape().await) > 0.0, "{when}");
            pod.lives(&when);

            // The disk works again, or the record has been repaired.
            if what == "damaged" {
                let new = record.with_extension("mended");
                fs::write(&new, &good).expect("record");
                fs::rename(new, &record).expect("record");
            } else {
                show(&record);
            }
            until_true("the pod", async || {
                let status = requests::status(&pod.container, false);
                let known = kubelet.runtime.clone().container_status(status).await;
                listed(&kubelet).await.contains(&pod.pod.id) && known.is_ok()
            })
            .await;
            pod.is_well(&kubelet, &when).await;
            assert_eq!(problems(&daemon.program().scrape().await), 0.0, "{when}");
            for one in [&pod, &other] {
                kubelet.end(&one.pod).await;
            }
            daemon.assert_clean();
        }
    }
}
