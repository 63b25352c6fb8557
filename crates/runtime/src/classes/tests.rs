//! Classes of containers.

use std::fs;

use oci_spec::runtime::Spec;
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Code;

use super::annotations::Origin;
use super::*;
use criscope_cri::v1::ContainerMetadata;

fn annotated<T>(to: &mut T, annotations: &[(&str, &str)], of: impl Fn(&mut T, String, String)) {
    for (key, value) in annotations {
        of(to, (*key).to_owned(), (*value).to_owned());
    }
}

fn pod(annotations: &[(&str, &str)]) -> PodSandboxConfig {
    let mut pod = PodSandboxConfig::default();
    annotated(&mut pod, annotations, |pod, key, value| {
        pod.annotations.insert(key, value);
    });
    pod
}

fn container(annotations: &[(&str, &str)]) -> ContainerConfig {
    let mut container = ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: "web".to_owned(),
            attempt: 0,
        }),
        ..ContainerConfig::default()
    };
    annotated(&mut container, annotations, |container, key, value| {
        container.annotations.insert(key, value);
    });
    container
}

const POD: (&str, &str) = ("blockio.resources.beta.kubernetes.io/pod", "slow");
const OF_WEB: (&str, &str) = (
    "blockio.resources.beta.kubernetes.io/container.web",
    "weighted",
);
const OF_OTHER: (&str, &str) = ("blockio.resources.beta.kubernetes.io/container.db", "none");
const OWN: (&str, &str) = ("io.kubernetes.cri.blockio-class", "own");
const RDT: (&str, &str) = ("rdt.resources.beta.kubernetes.io/pod", "gold");

#[test]
fn the_annotation_of_the_container_precedes_those_of_the_pod() {
    for (of_pod, own, class) in [
        (&[][..], &[][..], None),
        (&[POD], &[], Some(("slow", Origin::Pod))),
        (&[POD, OF_OTHER], &[], Some(("slow", Origin::Pod))),
        (&[POD, OF_WEB], &[], Some(("weighted", Origin::Pod))),
        (&[POD, OF_WEB], &[OWN], Some(("own", Origin::Container))),
        // The annotations of pods mean nothing on a container, nor those of containers on a pod.
        (&[OWN], &[POD, OF_WEB], None),
        // An empty one is no class, also where the whole pod has one.
        (&[POD, (OF_WEB.0, "")], &[], None),
        (&[POD], &[(OWN.0, "")], None),
        (&[RDT], &[], None),
    ] {
        let found = annotations::Keys::BLOCKIO
            .class(&pod(of_pod), &container(own))
            .map(|(class, origin)| (class.to_owned(), origin));
        let class = class.map(|(class, origin)| (class.to_owned(), origin));
        assert_eq!(found, class, "{of_pod:?} {own:?}");
    }
    let (pod, container) = (pod(&[POD, RDT]), container(&[]));
    let found = annotations::Keys::RDT.class(&pod, &container);
    assert_eq!(found, Some(("gold", Origin::Pod)));
}

struct Node {
    dir: TempDir,
    settings: PodDefaults,
}

impl Node {
    fn new(blockio: Option<&str>) -> Self {
        let dir = tempfile::tempdir().expect("made");
        let path = dir.path().join("blockio.yaml");
        if let Some(text) = blockio {
            fs::write(&path, text).expect("written");
        }
        let settings = PodDefaults {
            blockio_config_file: blockio.map(|_| path),
            ..PodDefaults::default()
        };
        Self { dir, settings }
    }

    fn apply(&self, annotations: &[(&str, &str)]) -> Result<Value, SpecError> {
        let mut spec = Spec::default();
        let classes = Classes::open(&self.settings);
        classes.apply(&mut spec, &pod(annotations), &container(&[]))?;
        Ok(serde_json::to_value(spec).expect("JSON"))
    }

    fn refused(&self, annotations: &[(&str, &str)]) -> (Code, String) {
        let error = self.apply(annotations).expect_err("refused");
        (error.code(), error.to_string())
    }
}

#[test]
fn a_class_is_set_or_its_container_refused() {
    let node = Node::new(Some("Classes: {weighted: [{Weight: 40}]}"));
    let spec = node.apply(&[OF_WEB]).expect("set");
    assert_eq!(spec["linux"]["resources"]["blockIO"], json!({"weight": 40}));
    let spec = node.apply(&[]).expect("none");
    assert!(spec["linux"]["resources"]["blockIO"].is_null(), "{spec}");

    let path = node.dir.path().join("blockio.yaml").display().to_string();
    let (code, text) = node.refused(&[POD]);
    assert_eq!(code, Code::InvalidArgument);
    assert_eq!(
        text,
        format!("container \"web\": block I/O class \"slow\" is not defined in {path}")
    );
    // The file is read for each container.
    fs::write(&path, "Classes: {slow: [{Weight: 1}]}").expect("written");
    let (code, text) = node.refused(&[POD]);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(text.contains(&path) && text.contains("Weight 1 "), "{text}");
    node.apply(&[]).expect("without a class it is not read");
    fs::write(
        &path,
        "Classes: {slow: [{Devices: [/dev/null], ThrottleReadBps: 1}]}",
    )
    .expect("written");
    let (code, text) = node.refused(&[POD]);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(
        text.ends_with(&format!("{path}: /dev/null is no block device")),
        "{text}"
    );
}

#[test]
fn another_file_that_is_broken_leaves_the_classes_as_they_are() {
    let node = Node::new(Some("Classes: {slow: [{Weight: 40}]}"));
    let classes = Classes::open(&node.settings);
    let path = node.dir.path().join("other.yaml");
    fs::write(&path, "Classes: {slow: [{Weight: 1}]}").expect("written");
    let other = PodDefaults {
        blockio_config_file: Some(path.clone()),
        ..node.settings.clone()
    };
    let error = classes.after(&other).expect_err("broken").to_string();
    let expected = format!("runtime.blockio_config_file: {}: ", path.display());
    assert!(error.starts_with(&expected), "{error}");
    assert_eq!(classes.blockio("slow").expect("kept").weight(), Some(40));
    fs::write(&path, "Classes: {slow: [{Weight: 50}]}").expect("written");
    let classes = classes.after(&other).expect("valid");
    assert_eq!(classes.blockio("slow").expect("there").weight(), Some(50));
    // The same file is read for each container; that it is broken now refuses no other setting.
    fs::write(&path, "broken").expect("written");
    let classes = classes.after(&other).expect("the same");
    assert!(classes.blockio("slow").is_err());
    let none = classes.after(&PodDefaults::default()).expect("none");
    assert!(matches!(
        none.blockio("slow"),
        Err(SpecError::Unsupported(_))
    ));
}

#[test]
fn a_node_without_classes_refuses_or_ignores_them() {
    let mut node = Node::new(None);
    for (annotation, key) in [(POD, "blockio_config_file"), (RDT, "rdt_config_file")] {
        let (code, text) = node.refused(&[annotation]);
        assert_eq!(code, Code::FailedPrecondition);
        assert!(
            text.starts_with("container \"web\": ") && text.contains(annotation.1),
            "{text}"
        );
        assert!(text.contains(key), "{text}");
    }
    node.settings.ignore_blockio_not_enabled_errors = true;
    node.settings.ignore_rdt_not_enabled_errors = true;
    let spec = node.apply(&[POD, RDT]).expect("ignored");
    assert!(spec["linux"]["intelRdt"].is_null(), "{spec}");
    // A file that is broken is not the same as none.
    node.settings.blockio_config_file = Some("/no/such/file".into());
    let (code, text) = node.refused(&[POD]);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(text.contains("/no/such/file: "), "{text}");
}

#[test]
fn the_group_of_the_system_is_no_class_of_service() {
    let mut spec = Spec::default();
    set_rdt(&mut spec, Some("gold".to_owned()));
    let clos = |spec: &Spec| serde_json::to_value(spec).expect("JSON")["linux"]["intelRdt"].clone();
    assert_eq!(clos(&spec), json!({"closID": "gold"}));
    set_rdt(&mut spec, None);
    assert!(clos(&spec).is_null());
}
