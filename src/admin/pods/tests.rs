//! Which episodes a list shows, in which order, and what it says of them.

use std::time::Duration;

use super::*;
use crate::lifecycle::examples;

fn names(filter: &PodListQuery) -> Vec<String> {
    let mut recent = examples::recent();
    filter.apply(&mut recent);
    recent.episodes.into_iter().map(|it| it.name).collect()
}

#[test]
fn filters_and_order() {
    let all = names(&PodListQuery::default());
    assert_eq!(all.len(), examples::all().len());
    let some = |text: &str| Some(text.to_owned());
    let slowest = names(&PodListQuery {
        sort: some("slowest"),
        limit: Some(3),
        ..PodListQuery::default()
    });
    assert_eq!(slowest, ["leaky-0", "typo-2", "db-0"]);
    let restarts = names(&PodListQuery {
        kind: some("restart"),
        ..PodListQuery::default()
    });
    assert_eq!(restarts, ["leaky-0"]);
    let both = names(&PodListQuery {
        kind: some("start,restart"),
        state: some("failed,open"),
        namespace: some("shop"),
        ..PodListQuery::default()
    });
    assert_eq!(both, ["typo-5c9f", "stuck-1", "typo-2"]);
    let failed = names(&PodListQuery {
        failed: some("true"),
        namespace: some(""),
        ..PodListQuery::default()
    });
    assert_eq!(
        failed.len(),
        5,
        "two failed, one fails, one recovered, one keeps ending: {failed:?}"
    );
}

#[test]
fn crash_loops_are_trouble_and_come_before_what_was_slow() {
    let of_state = |state: &str| {
        names(&PodListQuery {
            state: Some(state.to_owned()),
            ..PodListQuery::default()
        })
    };
    assert_eq!(of_state("crash_loop"), ["leaky-0"]);
    assert!(!of_state("ok").contains(&"leaky-0".to_owned()));
    let failed = names(&PodListQuery {
        failed: Some("true".to_owned()),
        ..PodListQuery::default()
    });
    assert!(failed.contains(&"leaky-0".to_owned()));
    // The newest of each loop; what came before it has its place by its time.
    let older = EpisodeView {
        attempt: 2,
        duration_ms: 100.0,
        ..examples::crash_loop()
    };
    let mut episodes = vec![examples::crash_loop(), examples::slow_cni(), older];
    slowest_first(&mut episodes);
    let order: Vec<_> = episodes.iter().map(|it| (&*it.name, it.attempt)).collect();
    let slow = &*examples::slow_cni().name;
    assert_eq!(order, [("leaky-0", 3), (slow, 0), ("leaky-0", 2)]);
}

fn pods(filter: &PodListQuery) -> Vec<String> {
    let mut pods = examples::pods();
    filter.apply_to_pods(&mut pods, DEFAULT_LIST_LIMIT);
    pods.pods.into_iter().map(|it| it.name).collect()
}

#[test]
fn pods_are_found_by_a_part_of_their_name_and_by_state() {
    let some = |text: &str| Some(text.to_owned());
    let of = |name: &str| {
        pods(&PodListQuery {
            name: some(name),
            ..PodListQuery::default()
        })
    };
    assert_eq!(of("leak"), ["leaky-0"]);
    assert_eq!(of(" leak "), ["leaky-0"]);
    assert_eq!(of("shop/leak"), ["leaky-0"]);
    assert!(of("default/leak").is_empty() && of("shop/").len() > 3);
    let of = |state: &str| {
        pods(&PodListQuery {
            state: some(state),
            namespace: some("shop"),
            ..PodListQuery::default()
        })
    };
    assert_eq!(of("failing"), ["typo-5c9f", "typo-2", "leaky-0"]);
    assert_eq!(of("open"), ["stuck-1"]);
    assert_eq!(of("gone,crash-loop").len(), 2);
    assert!(of("nonsense").is_empty());
    let slowest = pods(&PodListQuery {
        sort: some("slowest"),
        limit: Some(4),
        namespace: some("shop"),
        ..PodListQuery::default()
    });
    assert_eq!(slowest, ["typo-2", "typo-5c9f", "leaky-0", "stuck-1"]);
}

#[test]
fn a_crash_loop_is_one_row() {
    let own = vec![
        examples::crash_loop(),
        EpisodeView {
            attempt: 2,
            began_unix_us: examples::NOW - Duration::from_secs(60),
            ..examples::crash_loop()
        },
    ];
    let sentence = examples::crash_loop().crash_loop.expect("a loop");
    let pod = PodSummary::from_episodes(own, sentence.clone(), examples::NOW);
    let list = PodList {
        pods: pod.into_iter().collect(),
        known: 1,
        ..examples::pods()
    };
    let html = list_page(&list, &PodListQuery::default(), 1).into_html();
    let told = format!("<span class=\"warn\">{sentence}</span>");
    assert_eq!(html.matches(&told).count(), 1, "{html}");
    assert_eq!(html.matches("↻ crash loop</span>").count(), 1);
    assert!(
        html.contains("3 restarts") && html.contains("1m 00s"),
        "{html}"
    );
    let page = pod_page(
        &examples::story(examples::crash_loop()),
        VerdictLevel::Warning,
        None,
    )
    .into_html();
    assert_eq!(page.matches(&sentence).count(), 1, "{page}");
    assert!(page.contains("↻ crash loop") && !page.contains("✓ ok"));
}

#[test]
fn what_fails_is_red_and_what_is_gone_is_marked() {
    let list = examples::pods();
    let html = list_page(&list, &PodListQuery::default(), list.pods.len()).into_html();
    assert!(
        html.contains("<span class=\"bad\">✗ failing</span>"),
        "{html}"
    );
    assert!(html.contains("<li class=\"gone\">") && html.contains("– gone</span>"));
    let at = |name: &str| html.find(&format!("</span>{name}</a>")).expect(name);
    assert!(at("typo-2") < at("stuck-1") && at("stuck-1") < at("db-0"));
    assert!(at("db-0") < at("web-7d4b9c6f5-qq4fz"), "the gone are last");
    assert!(html.contains("type=\"search\"") && html.contains("state=failing"));
}

#[test]
fn a_container_that_others_wait_for_stands_among_the_calls() {
    let html = pod_page(
        &examples::story(examples::slow_init()),
        VerdictLevel::Good,
        None,
    )
    .into_html();
    let row = html
        .find("<strong>run init container</strong> migrate")
        .expect("a row");
    let started = html
        .find("<strong>StartContainer</strong> migrate")
        .expect("a call");
    let created = html
        .find("<strong>CreateContainer</strong> postgres")
        .expect("a call");
    assert!(started < row && row < created);
    assert!(
        html.contains("run init container <strong>6.50 s</strong> 80 %"),
        "{html}"
    );
}

#[test]
fn hostile_names_stay_text_on_every_page() {
    let filter = PodListQuery {
        namespace: Some("\"><script>".to_owned()),
        name: Some("\"><script>".to_owned()),
        ..PodListQuery::default()
    };
    let unknown = near::unknown("<b>", "\"><script>", &examples::pods().pods, Vec::new());
    for html in [
        list_page(&examples::pods(), &filter, 9).into_html(),
        pod_page(
            &examples::story(examples::hostile()),
            VerdictLevel::Bad,
            None,
        )
        .into_html(),
        unknown_page(&unknown).into_html(),
    ] {
        // One script, ours; no markup of theirs; nothing invisible.
        assert_eq!(html.matches("<script").count(), 1, "{html}");
        assert!(!html.contains("<img") && !html.contains("<b>"), "{html}");
        assert!(!html.contains(['\u{202e}', '\u{200b}', '\u{1b}', '\u{7}']));
    }
}

#[test]
fn a_list_says_when_there_is_nothing() {
    let mut none = PodList::default();
    let html = list_page(&none, &PodListQuery::default(), 0).into_html();
    assert!(html.contains("Pods appear when the kubelet"), "{html}");
    none.known = 7;
    let html = list_page(&none, &PodListQuery::default(), 0).into_html();
    assert!(html.contains("None of the 7 pods"), "{html}");
}

#[test]
fn a_filtered_list_says_so_and_leads_back() {
    let some = |text: &str| Some(text.to_owned());
    let filter = PodListQuery {
        state: some("cannot_start"),
        cause: some("image_pull"),
        ..PodListQuery::default()
    };
    let mut list = examples::pods();
    for pod in &mut list.pods {
        if pod.name.starts_with("typo") {
            pod.cause = "image_not_found".to_owned();
        }
    }
    let found = filter.apply_to_pods(&mut list, DEFAULT_LIST_LIMIT);
    let html = list_page(&list, &filter, found).into_html();
    let part = format!("Shown: {found} of {} pods, with", list.known);
    assert!(found > 0 && html.contains(&part), "{html}");
    assert!(html.contains("<strong>image pull</strong>") && html.contains("Show all</a>"));
    assert!(html.contains("shop/</span>typo-2") && !html.contains("shop/</span>stuck-1"));
    // The verdict is over all pods, not only over the listed ones.
    assert!(
        html.contains("href=\"/debug/pods?state=crash_loop\""),
        "{html}"
    );
    let exact = PodListQuery {
        cause: some("image_not_found"),
        ..PodListQuery::default()
    };
    assert_eq!(exact.apply_to_pods(&mut list, DEFAULT_LIST_LIMIT), found);
}
