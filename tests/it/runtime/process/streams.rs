//! Input and output of containers, with and without a terminal.

use criscope::runtime::shim_client::{Attach, Resize, Stdio};

use super::pod::{Pod, everything, exit, read, target};
use crate::prelude::*;

#[tokio::test]
async fn two_clients_attach_and_stdin_closes_once() {
    let pod = Pod::new().await;
    let mut events = pod.shim.events();
    pod.create(
        "a",
        "cat; echo over >&2",
        Stdio {
            stdin: true,
            stdin_once: true,
            ..Stdio::default()
        },
    )
    .await;
    let (mut first, mut input) = pod.attach("a", "").await;
    let (mut second, _none) = pod
        .shim
        .attach(Attach {
            stdin: false,
            ..everything("a", "")
        })
        .await
        .expect("attach");
    pod.shim.start(pod.verb("a")).await.expect("start");
    let big = "0123456789abcdef".repeat(20_000);
    let (sent, one, two) = tokio::join!(
        async {
            input.write(big.as_bytes()).await?;
            input.end().await
        },
        read(&mut first, ""),
        read(&mut second, ""),
    );
    sent.expect("sent");
    assert_eq!((one.0.len(), one.0 == big), (big.len(), true));
    assert_eq!(one.1, "over\n");
    assert!(one == two, "both see the same");
    assert_eq!(exit(&mut events, "a", "").await.code, 0);
    pod.end(&["a"]).await;
}

#[tokio::test]
async fn a_terminal() {
    let pod = Pod::new().await;
    let mut events = pod.shim.events();
    let stdio = Stdio {
        tty: true,
        stdin: true,
        ..pod.logged("a")
    };
    pod.create("a", "read x; stty size; echo got $x; exit 3", stdio)
        .await;
    let (mut attached, mut input) = pod.attach("a", "").await;
    pod.shim
        .resize(Resize {
            target: target("a", ""),
            width: 101,
            height: 37,
        })
        .await
        .expect("resize");
    pod.shim.start(pod.verb("a")).await.expect("start");
    input.write(b"it\n").await.expect("input");
    let (out, _) = read(&mut attached, "got it").await;
    assert!(out.contains("37 101\r\n"), "{out:?}");
    assert_eq!(exit(&mut events, "a", "").await.code, 3);
    assert!(
        pod.log("a").contains(&"stdout F got it".to_owned()),
        "{:?}",
        pod.log("a")
    );
    pod.end(&["a"]).await;
}

/// A script that writes pieces atomically until it blocks, and counts them in a file.
fn endless(count: &str) -> String {
    format!(
        "while dd if=/dev/zero bs={PIECE} count=1 2>/dev/null; do printf x >> /{count}; done; sleep 1000"
    )
}

const PIECE: usize = 4096;

#[tokio::test]
async fn the_last_output_waits_for_a_slow_reader() {
    let pod = Pod::new().await;
    let mut events = pod.shim.events();
    pod.create("a", &endless("a"), Stdio::default()).await;
    let mut attached = vec![pod.attach("a", "").await];
    pod.shim.start(pod.verb("a")).await.expect("start");
    let exec = pod.exec(target("a", "e"), &endless("e"), Stdio::default());
    pod.shim.exec(exec).await.expect("exec");
    attached.push(pod.attach("a", "e").await);
    let root = pod.path("a/rootfs");
    let written = |name: &str| fs::metadata(root.join(name)).map_or(0, |file| file.len());
    until_still("the writers to block", || {
        let both = ["a", "e"].map(written);
        both.iter().all(|count| *count > 0).then_some(both)
    })
    .await;
    pod.kill("", true).await;
    exit(&mut events, "a", "").await;
    let written = ["a", "e"].map(|name| usize::try_from(written(name)).expect("few"));
    pod.end(&["a"]).await;
    for ((mut output, _input), count) in attached.into_iter().zip(written) {
        let got = read(&mut output, "").await.0.len();
        // The last piece may have been written but not counted.
        let whole = [count * PIECE, (count + 1) * PIECE];
        assert!(whole.contains(&got), "{got} bytes of {count} pieces");
    }
}
