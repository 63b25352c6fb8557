//! A pod whose container crashes again and again, wherever there is a list.

use super::pod::{Pod, runtime};
use super::{config_with, summary};
use crate::commands::printed;
use crate::prelude::*;

/// The pod's crash loop as JSON: in the list of episodes, newest first, on the front page, and by the
/// pod's own story; and the sentence of that.
async fn told(proxy: &Proxy) -> (Vec<Value>, Vec<Value>, Vec<Value>, Value) {
    let get = async |path: &str| -> Value {
        let (status, json) = proxy.get(path).await;
        assert_eq!(status, 200, "{path}: {json}");
        serde_json::from_str(&json).expect("json")
    };
    let marks = |episodes: &Value| -> Vec<Value> {
        let episodes = episodes.as_array().expect("episodes");
        let of_pod = episodes.iter().filter(|it| it["name"] == "web");
        of_pod.map(|it| it["crash_loop"].clone()).collect()
    };
    let list = get("/debug/pods?format=json").await;
    let live = get("/?format=json").await;
    let pod = get("/debug/pods/shop/web?format=json").await;
    (
        marks(&list["episodes"]),
        marks(&live["starts"]),
        marks(&pod["episodes"]),
        pod["headline"].clone(),
    )
}

/// A criscope that takes a start for over so late that the look at its container still belongs to it.
async fn patient(fake: &Fake, state: &TempDir) -> Proxy {
    let start = Start::new(crate::CRISCOPE).config(&config_with("5s", state.path()));
    start.upstream(fake.path()).ready().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loop_is_seen_in_every_list() {
    let (fake, state) = (Fake::new(), tempfile::tempdir().expect("dir"));
    runtime(&fake);
    let first = patient(&fake, &state).await;
    let client = first.client().await;
    let mut pod = Pod::new("web");
    pod.start(&client).await;
    pod.status(&client).await;
    let line = summary(&first, "pod.start.summary", "web").await;
    assert_eq!(
        (&line["level"], &line["crash_loop"]),
        (&"info".into(), &Value::Null),
        "one end is no loop: {line}"
    );
    pod.again(&client).await;
    pod.status(&client).await;
    let line = summary(&first, "pod.restart.summary", "web").await;
    let sentence = line["crash_loop"].clone();
    let text = sentence.as_str().unwrap_or_default();
    assert!(
        text.starts_with("app keeps crashing: exit code 1"),
        "{line}"
    );
    assert_eq!(
        (&line["level"], &line["criscope.outcome"]),
        (&"warn".into(), &"ok".into())
    );
    let mut other = Pod::new("other");
    other.start(&client).await;
    summary(&first, "pod.start.summary", "other").await;

    let both = vec![sentence.clone(); 2];
    let wanted = (both.clone(), both.clone(), both, sentence.clone());
    assert_eq!(told(&first).await, wanted);
    for path in ["/", "/debug/pods", "/debug/pods?state=crash_loop"] {
        let (_, html) = first.get(path).await;
        assert!(html.contains(&format!("`\">{text}</span>")), "{html}");
        assert_eq!(
            html.matches("↻ crash loop</span>").count(),
            1,
            "one row: {path}: {html}"
        );
        let healthy = html.matches("✓ ok</span>").count();
        assert_eq!(
            healthy,
            usize::from(!path.contains("state")),
            "{path}: {html}"
        );
    }
    let (_, html) = first.get("/").await;
    let verdict = "href=\"/debug/pods?state=crash_loop\">1 of 2 pods crash-loops</a>";
    assert!(html.contains(verdict), "{html}");
    for args in [
        ["pods"].as_slice(),
        &["pods", "--slowest", "1"],
        &["pods", "--failed"],
    ] {
        let table = printed(&first, args).await;
        let row = table.lines().nth(1).unwrap_or_default();
        assert!(
            row.starts_with("shop/web ") && row.contains(" crash loop "),
            "{table}"
        );
        assert!(row.contains(text), "{table}");
        assert_eq!(table.matches("crash loop").count(), 1, "one row: {table}");
    }
    let said = printed(&first, &["explain", "shop/web"]).await;
    assert_eq!(said.lines().next(), Some(text));
    assert!(
        said.contains("restart 1 of container app, crash loop"),
        "{said}"
    );

    // All of it is there again after a kill.
    let file = state.path().join("journal.jsonl");
    until("the last line of the journal", || async {
        let text = fs::read_to_string(&file).ok()?;
        (text.matches("\"closed\"").count() >= 3).then_some(())
    })
    .await;
    first.signal(Signal::SIGKILL);
    first.ended().await;
    let second = patient(&fake, &state).await;
    until_true("the stories", async || {
        let scrape = second.scrape().await;
        scrape.metric("criscope_story_episodes").sum() == 3.0
    })
    .await;
    assert_eq!(told(&second).await, wanted);
    second.stop().await;
}
