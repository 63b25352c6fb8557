//! What says no to an image or a container of the built-in runtime, and is neither the registry nor the OCI runtime.

use super::super::asked::{GREEDY, HOOKED};
use super::super::spec::Container;
use super::super::stage::Play;
use super::super::{Case, case};
use crate::prelude::*;

/// Components that have nothing to do with it.
const OTHERS: &str = "the kubelet took|the kubelet has made no call|kubelet: ; cni; the registry; disk; nothing slow; keeps crashing";

async fn fails(it: Play, container: Container) -> String {
    let spec = it.spec(vec![container]);
    it.tell(spec, "two failures", |done| done.failed >= 2).await
}

async fn of_image(it: Play, image: &str) -> String {
    let container = Container::of("app", &it.image(image));
    fails(it, container).await
}

fn annotate(config: &mut v1::ContainerConfig, key: &str, value: &str) {
    config.annotations.insert(key.to_owned(), value.to_owned());
}

pub(in super::super) fn own() -> Vec<Case> {
    vec![
        case(
            "image: an image verifier rejects it",
            "vulnerable:1; cannot pull; verifier; critical vulnerabilities found",
            OTHERS,
            |it| of_image(it, "vulnerable:1"),
        ),
        case(
            "image: an image verifier does not answer",
            "unjudged:1; cannot pull; verifier; no answer within 1 s",
            OTHERS,
            |it| of_image(it, "unjudged:1"),
        ),
        case(
            "image: a key provider fails",
            "sealed:1; cannot pull; key provider; the vault does not answer",
            OTHERS,
            |it| of_image(it, "sealed:1"),
        ),
        case(
            "oci: an NRI plugin refuses a container",
            "greedy; cannot create; NRI plugin 10-quota; the quota is used up",
            OTHERS,
            |it| fails(it, Container::idle(GREEDY)),
        ),
        case(
            "oci: a hook of the node fails",
            "app; cannot create|cannot start; hook; the licence server is away",
            OTHERS,
            |it| {
                fails(
                    it,
                    Container::idle("app").with(|config| annotate(config, HOOKED, "yes")),
                )
            },
        ),
        case(
            "oci: CDI device missing",
            "app; cannot create; CDI device vendor.example/gpu=7; not known on this node",
            OTHERS,
            |it| {
                fails(
                    it,
                    Container::idle("app").with(|config| {
                        let name = "vendor.example/gpu=7".to_owned();
                        config.cdi_devices = vec![v1::CdiDevice { name }];
                    }),
                )
            },
        ),
        case(
            "oci: block I/O class missing",
            "app; cannot create; block I/O class; not defined",
            OTHERS,
            |it| {
                fails(
                    it,
                    Container::idle("app").with(|config| {
                        annotate(config, "io.kubernetes.cri.blockio-class", "fast");
                    }),
                )
            },
        ),
    ]
}
