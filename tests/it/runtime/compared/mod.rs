//! The same images and requests run through containerd and through the built-in runtime, and the outcome is compared: that something
//! "runs elsewhere" is measured. Needs root, containerd, runc, CNI plugins and a static busybox.

mod cases;

use self::cases::{Case, Look, Source};
use crate::harness::image::INDEX;
use crate::prelude::*;

/// The cases whose outcome differs on purpose, and the first column of their row in docs/MIGRATION.md.
const DIFFERENCES: [(&str, &str); 12] = [
    (
        "a name that climbs out of the layer",
        "an entry of a layer whose relative name climbs above the root (`../x`, `a/../../x`), also as a whiteout or the target of a hard link",
    ),
    (
        "130 volumes",
        "more than 128 `VOLUME`s, or volumes whose files are more than those of the image and 64 MiB",
    ),
    ("an index with amd64/v2 only", LEVELS),
    ("an index with amd64 of three levels", LEVELS),
    ("USER name:", NO_GROUP),
    ("USER 1000:", NO_GROUP),
    ("a user with a blank", ODD_USERS),
    ("a user id with a sign", ODD_USERS),
    ("a relative working directory", "a relative `WorkingDir`"),
    (
        "a working directory among the files of a process",
        "a working directory among the files of a process (`/proc/self/fd/7`, `/dev/fd`), also through links",
    ),
    (
        "a volume below /dev",
        "a `VOLUME` at or below `/proc`, `/sys` or `/dev`, or at `/`",
    ),
    (
        "a stop signal that does not exist",
        "a stop signal that does not exist (`SIGFOO`, `99`)",
    ),
];

const SYSCTL: &str = "a sysctl of an interface";
const LEVELS: &str = "levels of x86-64 in an index (`amd64/v2`, `v3`)";
const NO_GROUP: &str = "`USER name:` and `USER 1000:`";
const ODD_USERS: &str = "a user or group with blanks, a sign, or letters beyond ASCII";

/// What came of a case, without the words of errors.
type Outcome = String;

/// Pulls an image.
async fn pull(kubelet: &Kubelet, name: &str, pod: &Pod) -> Result<(), Status> {
    let request = v1::PullImageRequest {
        image: Some(image(name)),
        sandbox_config: Some(pod.config.clone()),
        ..Default::default()
    };
    kubelet.images.clone().pull_image(request).await?;
    Ok(())
}

fn image(name: &str) -> v1::ImageSpec {
    v1::ImageSpec {
        image: name.to_owned(),
        user_specified_image: name.to_owned(),
        ..Default::default()
    }
}

/// Puts the image of a case into the registry, and returns its name.
fn push(registry: &Registry, number: usize, case: &Case) -> String {
    let tag = number.to_string();
    match &case.source {
        Source::Image(image) => registry.push("compared", &tag, image),
        Source::Index(entries) => {
            for (place, (_, image)) in entries.iter().enumerate() {
                registry.push("compared", &format!("{number}-{place}"), image);
            }
            registry.put_manifest("compared", &tag, INDEX, &cases::index(entries));
            registry.name(&format!("compared:{tag}"))
        }
    }
}

/// Runs a case; returns the outcome, and the error if there is one.
async fn run(
    kubelet: &Kubelet,
    pod: &Pod,
    name: &str,
    number: usize,
    case: &Case,
) -> (Outcome, String) {
    if let Err(error) = pull(kubelet, name, pod).await {
        return ("is not pulled".to_owned(), error.to_string());
    }
    let mut config = shell(&format!("c{number}"), case.script);
    if case.script.is_empty() {
        config.command = Vec::new();
    }
    config.image = Some(image(name));
    (case.change)(&mut config);
    let mut pod = pod.clone();
    if case.is_privileged {
        let linux = pod.config.linux.get_or_insert_default();
        linux.security_context.get_or_insert_default().privileged = true;
    }
    // Which of the two calls refuses is not compared.
    let id = match kubelet.try_create(&pod, config).await {
        Ok(id) => id,
        Err(error) => return ("does not run".to_owned(), error.to_string()),
    };
    if let Err(error) = kubelet.start(&id).await {
        return ("does not run".to_owned(), error.to_string());
    }
    let mut said = String::new();
    if matches!(case.look, Look::Stop) {
        kubelet.logged(&id, "ready").await;
        let request = requests::stop(&id, 60);
        if let Err(error) = kubelet.runtime.clone().stop_container(request).await {
            kubelet.remove(&id).await;
            return ("cannot be stopped".to_owned(), error.to_string());
        }
    }
    let status = kubelet.ended(&id).await;
    for (_, line) in kubelet.log(&id).await {
        said.push_str(&line);
        said.push('\n');
    }
    let outcome = format!("ends with {} and says {said:?}", status.exit_code);
    kubelet.remove(&id).await;
    (outcome, String::new())
}

/// A pod with a sysctl of its interface, which exists only after CNI has run.
async fn sysctl(kubelet: &Kubelet) -> Outcome {
    let mut config = kubelet.pod_config("sysctl");
    let linux = config.linux.get_or_insert_default();
    let name = "net.ipv4.conf.eth0.rp_filter".to_owned();
    linux.sysctls.insert(name, "2".to_owned());
    let pod = match kubelet.try_run(config, "").await {
        Ok(pod) => pod,
        Err(error) => return format!("does not run: {error}"),
    };
    let id = kubelet.launch(&pod, crate::harness::kubelet::idle("main"));
    let id = id.await;
    let said = kubelet.says(&id, "cat /proc/sys/net/ipv4/conf/eth0/rp_filter");
    let said = said.await;
    kubelet.end(&pod).await;
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_with_containerd_runs_here() {
    let (containerd, daemon) = tokio::join!(Containerd::new(), Daemon::new(crate::CRISCOPE));
    let registry = Registry::start().await;
    let theirs = Kubelet::of_containerd(&containerd).await;
    let ours = Kubelet::of(&daemon).await;
    let pods = (
        theirs.plain_pod("compared").await,
        ours.plain_pod("compared").await,
    );
    let mut cases = cases::images();
    cases.extend(cases::values());
    cases.extend(cases::requests());
    let (mut different, mut report) = (BTreeSet::new(), String::new());
    for (number, case) in cases.iter().enumerate() {
        let name = push(&registry, number, case);
        let (there, here) = tokio::join!(
            run(&theirs, &pods.0, &name, number, case),
            run(&ours, &pods.1, &name, number, case),
        );
        if there.0 != here.0 {
            different.insert(case.name);
            report += &format!(
                "{}\n  there: {} {}\n  here: {} {}\n",
                case.name, there.0, there.1, here.0, here.1
            );
        }
    }
    let (there, here) = tokio::join!(sysctl(&theirs), sysctl(&ours));
    if there != here {
        different.insert(SYSCTL);
        report += &format!("{SYSCTL}\n  there: {there}\n  here: {here}\n");
    }
    theirs.end(&pods.0).await;
    ours.end(&pods.1).await;
    daemon.assert_clean();
    let names: BTreeSet<_> = cases.iter().map(|case| case.name).collect();
    let expected = DIFFERENCES.map(|(name, _)| name).into();
    let expected: BTreeSet<_> = names.intersection(&expected).copied().collect();
    assert_eq!(different, expected, "{report}");
    print!("{report}");
}

#[test]
fn differences_are_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/MIGRATION.md");
    let text = fs::read_to_string(path).expect(path);
    for (name, row) in DIFFERENCES {
        assert!(
            text.contains(&format!("| {row} |")),
            "{name}: no row {row:?}"
        );
    }
}
