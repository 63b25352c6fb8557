//! CheckpointPod: the containers of a pod are frozen together. RestorePod is refused.

use super::*;

/// A pod of the handler `second` with two running containers.
struct Pair {
    pod: Pod,
    ids: [String; 2],
    out: PathBuf,
}

impl Pair {
    async fn start(kubelet: &Kubelet, dumps: &Dumps) -> Self {
        let pod = kubelet.run_with(kubelet.pod_config("pair"), "second").await;
        let app = kubelet.launch(&pod, idle("app")).await;
        let side = kubelet.launch(&pod, idle("side")).await;
        let out = dumps.out.join("pod");
        fs::create_dir(&out).expect("out");
        Self {
            pod,
            ids: [app, side],
            out,
        }
    }

    fn request(&self) -> v1::CheckpointPodRequest {
        v1::CheckpointPodRequest {
            pod_sandbox_id: self.pod.id.clone(),
            output_path: self.out.display().to_string(),
            container_ids: self.ids.to_vec(),
            ..Default::default()
        }
    }

    fn left(&self) -> BTreeSet<String> {
        let names = fs::read_dir(&self.out).expect("out").flatten();
        let names = names.map(|entry| entry.file_name().into_string().expect("text"));
        names.collect()
    }

    async fn assert_untouched(&self, daemon: &Daemon, kubelet: &Kubelet) {
        for id in &self.ids {
            assert_untouched(daemon, kubelet, id).await;
        }
    }
}

async fn checkpoint_pod(
    kubelet: &Kubelet,
    request: v1::CheckpointPodRequest,
    limit: Option<Duration>,
) -> Result<(), Status> {
    let mut request = tonic::Request::new(request);
    if let Some(limit) = limit {
        request.set_timeout(limit);
    }
    kubelet.runtime.clone().checkpoint_pod(request).await?;
    Ok(())
}

/// What a test changes in a request.
type Change<'a> = &'a dyn Fn(&mut v1::CheckpointPodRequest);

/// The caller's time for a checkpoint that succeeds or is refused.
const CHECKPOINT_LIMIT: Option<Duration> = Some(Duration::from_secs(120));

#[tokio::test(flavor = "multi_thread")]
async fn the_containers_of_a_pod_are_frozen_together() {
    let (daemon, kubelet, dumps) = Dumps::start().await;
    let pair = Pair::start(&kubelet, &dumps).await;
    let (caller, request) = (kubelet.clone(), pair.request());
    let call =
        tokio::spawn(async move { checkpoint_pod(&caller, request, CHECKPOINT_LIMIT).await });
    dumps.entered().await;
    // One of them is being captured.
    let root = daemon.state().join("state/oci/second");
    for id in &pair.ids {
        let mut command = Command::new(oci_runtime());
        let state = command.arg("--root").arg(&root).args(["state", id]);
        let state = json(&state.output().expect("state").stdout);
        assert_eq!(state["status"], "paused", "{id}");
    }
    dumps.set("open");
    call.await.expect("ended").expect("CheckpointPod");
    let names = ["app.tar", "pod.json", "side.tar"].map(str::to_owned);
    assert_eq!(pair.left(), BTreeSet::from(names));
    pair.assert_untouched(&daemon, &kubelet).await;
    for (name, id) in ["app", "side"].iter().zip(&pair.ids) {
        let archive = pair.out.join(format!("{name}.tar"));
        let mode = fs::metadata(&archive)
            .expect("an archive")
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o600);
        let found = files(&fs::read(&archive).expect("an archive"));
        assert_eq!(json(&found["config.dump"])["id"], id.as_str());
        assert!(found.contains_key("checkpoint/inventory.img"));
    }
    let manifest = json(&fs::read(pair.out.join("pod.json")).expect("a manifest"));
    assert_eq!(manifest["sandboxId"], pair.pod.id.as_str());
    assert_eq!(manifest["config"]["metadata"]["name"], "pair");
    let listed = manifest["containers"].as_array().expect("containers");
    let archives: BTreeSet<_> = listed.iter().map(|c| c["archive"].as_str()).collect();
    assert_eq!(
        archives,
        BTreeSet::from([Some("app.tar"), Some("side.tar")])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_checkpoint_that_cannot_be_made_leaves_nothing() {
    let (daemon, kubelet, dumps) = Dumps::start().await;
    dumps.set("open");
    let pair = Pair::start(&kubelet, &dumps).await;
    let other = running(&kubelet, idle("other")).await;
    let over = kubelet.launch(&pair.pod, shell("over", "exit 3")).await;
    kubelet.ended(&over).await;
    let full = dumps.out.join("full");
    fs::create_dir(&full).expect("directory");
    fs::write(full.join("old"), "x").expect("file");
    let changes: [(Change<'_>, Code, &str); 10] = [
        (
            &|r| r.pod_sandbox_id = "absent".to_owned(),
            Code::NotFound,
            "absent",
        ),
        (
            &|r| r.container_ids.clear(),
            Code::InvalidArgument,
            "no containers",
        ),
        (
            &|r| r.container_ids.push(r.container_ids[0].clone()),
            Code::InvalidArgument,
            "app is named twice",
        ),
        (
            &|r| r.container_ids.push(other.clone()),
            Code::InvalidArgument,
            "is not of pod sandbox",
        ),
        (
            &|r| r.container_ids.push("absent".to_owned()),
            Code::NotFound,
            "absent",
        ),
        (
            &|r| r.container_ids.push(over.clone()),
            Code::FailedPrecondition,
            "not running",
        ),
        (
            &|r| {
                drop(
                    r.options
                        .insert("leave-running".to_owned(), "no".to_owned()),
                )
            },
            Code::InvalidArgument,
            "unknown option \"leave-running\"",
        ),
        (
            &|r| r.output_path = "relative".to_owned(),
            Code::InvalidArgument,
            "absolute path",
        ),
        (
            &|r| r.output_path += "/none",
            Code::InvalidArgument,
            "absolute path of a directory",
        ),
        (
            &|r| r.output_path = full.display().to_string(),
            Code::InvalidArgument,
            "is not empty",
        ),
    ];
    for (change, code, words) in changes {
        let mut request = pair.request();
        change(&mut request);
        let made = checkpoint_pod(&kubelet, request, CHECKPOINT_LIMIT).await;
        assert_refused(made, code, words);
    }
    let made = checkpoint_pod(&kubelet, pair.request(), None).await;
    assert_refused(made, Code::InvalidArgument, "no deadline");
    assert!(!dumps.gate.join("dumped").exists(), "nothing was dumped");

    dumps.set("fail");
    let made = checkpoint_pod(&kubelet, pair.request(), CHECKPOINT_LIMIT).await;
    assert_refused(made, Code::Unknown, "told to fail");
    assert_eq!(pair.left(), BTreeSet::new());
    pair.assert_untouched(&daemon, &kubelet).await;
    fs::remove_file(dumps.gate.join("fail")).expect("gate");

    // The dump is late: the containers are resumed when it ends, and its files are removed.
    fs::remove_file(dumps.gate.join("open")).expect("gate");
    let late = Some(Duration::from_secs(2));
    let error = checkpoint_pod(&kubelet, pair.request(), late).await;
    let error = error.expect_err("late");
    // Both ends watch the deadline.
    let is_late = matches!(error.code(), Code::DeadlineExceeded | Code::Cancelled);
    assert!(is_late, "{error}");
    dumps.set("open");
    for id in &pair.ids {
        ended(&daemon, id).await;
    }
    pair.assert_untouched(&daemon, &kubelet).await;
    until_true("the end of the drafts", async || pair.left().is_empty()).await;

    checkpoint_pod(&kubelet, pair.request(), CHECKPOINT_LIMIT)
        .await
        .expect("another one");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_not_restored() {
    let (_daemon, kubelet, pod) = node_with_pod("restored").await;
    let request = v1::CheckpointPodRequest {
        pod_sandbox_id: pod.id.clone(),
        ..Default::default()
    };
    let made = checkpoint_pod(&kubelet, request, CHECKPOINT_LIMIT).await;
    assert_refused(made, Code::Unimplemented, "runtime.enable_criu");
    let request = v1::RestorePodRequest::default();
    let restored = kubelet.runtime.clone().restore_pod(request).await;
    assert_refused(restored, Code::Unimplemented, "not restored");
}
