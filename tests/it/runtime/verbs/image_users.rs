//! Images whose databases and `USER` are made to run a container as another user than the one that was judged.

use super::images::{pull, spec};
use crate::harness::image::{Image, configured, layer};
use crate::prelude::*;
use crate::runtime::crun::node_with_crun;

/// An image with this `USER`, in which users and groups are named like ids of others.
fn image(user: &str) -> Image {
    let passwd =
        b"root:x:0:0::/:/bin/sh\n1000:x:0:0::/:/bin/sh\n4294967296:x:0:0::/:\n+5:x:0:0::/:\n\
        -1:x:0:0::/:\n 5:x:0:0::/:\nlast:x:4294967295:0::/:\nweb:x:33:34::/:\nadmin:x:0:0::/:\n";
    let group = b"root:x:0:\n2000:x:0:\n3000:x:0:\nlast:x:4294967295:\n4294967296:x:0:\n";
    let databases = layer()
        .file("etc/passwd", passwd)
        .file("etc/group", group)
        .end();
    let run = json!({"Env": ["PATH=/bin"], "User": user});
    configured(&run, &[busybox::layer(), databases])
}

fn number(value: i64) -> Option<v1::Int64Value> {
    Some(v1::Int64Value { value })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_of_the_request_is_never_a_name() {
    let (daemon, kubelet) = node_with_crun().await;
    let registry = Registry::start().await;
    let name = registry.push("users", "1", &image("1000:2000"));
    pull(&kubelet, &name, "test").await.expect("PullImage");
    for handler in ["", "crun"] {
        let pod = kubelet.run_with(kubelet.pod_config("users"), handler).await;
        let mut config = idle("requested");
        config.image = spec(&name);
        let context = security(&mut config);
        context.run_as_user = number(1000);
        context.run_as_group = number(2000);
        context.supplemental_groups = vec![4000];
        let id = kubelet.launch(&pod, config.clone()).await;
        let ids = "id -u; id -g; id -G";
        let said = kubelet.says(&id, ids).await;
        assert_eq!(said, "1000\n2000\n2000 4000", "{handler}");
        let user = kubelet.status(&id).await.user.and_then(|user| user.linux);
        let user = user.expect("a user");
        assert_eq!((user.uid, user.gid), (1000, 2000));

        // `USER 1000:2000` of the image, without a user in the request.
        let mut of_image = idle("of-image");
        of_image.image = spec(&name);
        let id = kubelet.launch(&pod, of_image).await;
        let said = kubelet.says(&id, ids).await;
        assert_eq!(said, "1000\n2000\n2000", "{handler}");

        // runc 1.1 would take the group of this name.
        security(&mut config).supplemental_groups = vec![3000];
        let metadata = config.metadata.get_or_insert_default();
        "namesake".clone_into(&mut metadata.name);
        assert_refused(
            kubelet.try_create(&pod, config).await,
            Code::InvalidArgument,
            "3000",
        );
        kubelet.end(&pod).await;
    }
    daemon.assert_clean();
}

/// The user that ImageStatus reports, which the kubelet judges and sends back.
async fn reported(kubelet: &Kubelet, name: &str) -> (Option<i64>, String) {
    let image = kubelet.image(name).await;
    (image.uid.map(|uid| uid.value), image.username)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kubelet_judges_the_user_that_will_run() {
    let (daemon, kubelet) = node().await;
    let registry = Registry::start().await;
    let pod = kubelet.plain_pod("judged").await;
    let cases: &[(&str, Option<i64>, &str, Option<&str>)] = &[
        ("1000", Some(1000), "", Some("1000")),
        ("00", Some(0), "", Some("0")),
        ("web", None, "web", Some("33")),
        // The kubelet refuses every name for `runAsNonRoot`.
        ("admin", None, "admin", Some("0")),
        ("last", None, "last", None),
        ("4294967295", None, "4294967295", None),
        ("4294967296", None, "4294967296", None),
        ("+5", None, "+5", None),
        ("-1", None, "-1", None),
    ];
    for (number_of_case, (user, uid, username, runs_as)) in cases.iter().enumerate() {
        let tag = number_of_case.to_string();
        let name = registry.push("judged", &tag, &image(user));
        pull(&kubelet, &name, "test").await.expect("PullImage");
        let found = reported(&kubelet, &name).await;
        assert_eq!(found, (*uid, (*username).to_owned()), "{user:?}");
        // Without a user, as from crictl, and with the reported one.
        for sends_user in [false, true] {
            let mut config = idle(&format!("c-{tag}-{sends_user}"));
            config.image = spec(&name);
            if sends_user {
                let context = security(&mut config);
                context.run_as_user = uid.and_then(number);
                (*username).clone_into(&mut context.run_as_username);
            }
            match runs_as {
                Some(expected) => {
                    let id = kubelet.launch(&pod, config).await;
                    assert_eq!(kubelet.says(&id, "id -u").await, *expected, "{user:?}");
                    kubelet.remove(&id).await;
                }
                None => {
                    let refused = kubelet.try_create(&pod, config).await;
                    let error = refused.expect_err(user);
                    let codes = [Code::InvalidArgument, Code::NotFound];
                    assert!(codes.contains(&error.code()), "{error}");
                }
            }
        }
    }
    daemon.end(&kubelet, [&pod]).await;
}
