//! What goes in and out of containers, with and without a terminal.

use criscope::runtime::process::{Attach, Resize, Stdio};

use super::pod::{Pod, everything, exit, read, target};

#[tokio::test]
async fn two_attach_and_stdin_ends_once() {
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
    let (mut first, mut input) = pod.shim.attach(everything("a", "")).await.expect("attach");
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
        log: pod.text("a.log"),
        ..Stdio::default()
    };
    pod.create("a", "read x; stty size; echo got $x; exit 3", stdio)
        .await;
    let (mut attached, mut input) = pod.shim.attach(everything("a", "")).await.expect("attach");
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
