//! Images that do not come, or come late.

use super::super::spec::{Container, Pull};
use super::super::stage::Play;
use super::super::{Case, case};

/// What has nothing to do with a pull that fails.
const OTHERS: &str =
    "the kubelet took|the kubelet has made no call|kubelet: ; cni; runc; nothing slow";

/// A pod of this image, of which two pulls have failed.
async fn fails(it: Play, image: &str) -> String {
    let image = it.image(image);
    fails_with(&it, &image).await
}

async fn fails_with(it: &Play, image: &str) -> String {
    let spec = it.spec(vec![Container::of("app", image)]);
    it.tell(spec, "two pulls that fail", |done| done.failed >= 2)
        .await
}

/// What both runtimes have.
pub(super) fn common() -> Vec<Case> {
    vec![
        case(
            "image: no such repository",
            "nothing/app:1; cannot pull; has no such image|not found; 2 tries|twice",
            OTHERS,
            |it| fails(it, "nothing/app:1"),
        ),
        case(
            "image: no such tag",
            "good:2; cannot pull; has no such image|not found; 2 tries|twice",
            OTHERS,
            |it| fails(it, "good:2"),
        ),
        case(
            "image: unauthorized",
            "private:1; cannot pull; login|credentials",
            "the kubelet took|the kubelet has made no call|kubelet: ; not found; nothing slow",
            |it| fails(it, "private:1"),
        ),
        case(
            "image: registry down",
            "cannot pull; refuses connections; 127.0.0.1:19",
            OTHERS,
            |it| async move { fails_with(&it, "127.0.0.1:19/app:1").await },
        ),
        case(
            "image: name of the registry not resolved",
            "no-such-registry.invalid/app:1; cannot pull; resolve|no such host|lookup|DNS",
            OTHERS,
            |it| async move { fails_with(&it, "no-such-registry.invalid/app:1").await },
        ),
        case(
            "image: invalid reference",
            "Shop/App; cannot pull|cannot be looked up; invalid|parse|lowercase",
            "the kubelet took|the kubelet has made no call|kubelet: ; cni; runc; nothing slow; not found",
            |it| async move { fails_with(&it, "127.0.0.1:19/Shop/App:1").await },
        ),
        case(
            "image: no such digest",
            "good@sha256:00; cannot pull; no such image|not found",
            OTHERS,
            |it| {
                fails(
                    it,
                    "good@sha256:0000000000000000000000000000000000000000000000000000000000000000",
                )
            },
        ),
        case(
            "image: pull rate limit",
            "limited:1; cannot pull; limits the rate|429",
            OTHERS,
            |it| fails(it, "limited:1"),
        ),
        case(
            "image: registry answers 503",
            "failing:1; cannot pull; the registry failed|503",
            OTHERS,
            |it| fails(it, "failing:1"),
        ),
        case(
            "image: other architecture",
            "foreign:1; cannot run; built for|no variant; amd64|arm64|platform",
            OTHERS,
            |it| fails(it, "foreign:1"),
        ),
        case(
            "image: corrupt layer",
            "corrupt:1; cannot pull; digest|checksum",
            OTHERS,
            |it| fails(it, "corrupt:1"),
        ),
        case(
            "image: a layer that the registry does not have",
            "partial:1; cannot pull; the registry lacks a part of the image",
            "the kubelet took|the kubelet has made no call|kubelet: ; cni; runc; no such image",
            |it| fails(it, "partial:1"),
        ),
        case(
            "image: a web page in place of the manifest",
            "portal:1; cannot pull; web page",
            "the kubelet took|the kubelet has made no call|kubelet: ; cni; runc; no such image",
            |it| fails(it, "portal:1"),
        ),
        case(
            "image: a layer that is no archive",
            "no-archive:1; cannot pull; layer; unpacked",
            "the kubelet took|the kubelet has made no call|kubelet: ; cni; runc; connection",
            |it| fails(it, "no-archive:1"),
        ),
        case(
            "image: slow registry",
            "image pull; slow:1; ~2.5..4.9",
            "the kubelet took|the kubelet has made no call|kubelet: ; cni; runc; unpack",
            |it| async move {
                let app = Container {
                    pull: Pull::Always,
                    ..Container::of("app", &it.image("slow:1"))
                };
                let spec = it.spec(vec![app]);
                it.tell_start(spec).await
            },
        ),
        case(
            "image: pull under way",
            "pull of|image pull|pulling; stalled:1; ~3..9",
            "the kubelet took|the kubelet has made no call|kubelet: ; cni; runc; cannot",
            |it| async move {
                let spec = it.spec(vec![Container::of("app", &it.image("stalled:1"))]);
                let _pod = it.with_sandbox(spec).await;
                it.line_after(4.0).await
            },
        ),
    ]
}

pub(in super::super) fn all() -> Vec<Case> {
    let mut all = common();
    all.extend([
        case(
            "image: the registry does not speak TLS",
            // containerd 2 tries HTTP as well, and is redirected again.
            "moved:1; cannot pull; HTTP response to HTTPS client|TLS|redirects",
            OTHERS,
            |it| fails(it, "moved:1"),
        ),
        // The built-in runtime tries these for longer.
        case(
            "image: the registry redirects to a store that is down",
            "stored-away:1; 127.0.0.1:19; refuses connections",
            "the kubelet took|the kubelet has made no call|kubelet: ; cni; runc; registry's address",
            |it| fails(it, "stored-away:1"),
        ),
        case(
            "image: token service down",
            "tokens:1; token service; 127.0.0.1:19; refuses connections",
            "the kubelet took|the kubelet has made no call|kubelet: ; cni; runc; registry's address",
            |it| fails(it, "tokens:1"),
        ),
        case(
            "image: connection breaks",
            "cut:1; cannot pull; connection; broke",
            OTHERS,
            |it| fails(it, "cut:1"),
        ),
        case(
            "image: absent and never pulled",
            "good:9; not on this node|not present|not there; pull",
            "cni; runc; cannot pull",
            |it| async move {
                let image = it.image("good:9");
                let app = Container {
                    pull: Pull::Never,
                    ..Container::of("app", &image)
                };
                let pod = it.add(it.spec(vec![app]));
                it.wait(&pod, "a try", |done| done.failed >= 2).await;
                it.line_after(4.0).await
            },
        ),
    ]);
    all
}
