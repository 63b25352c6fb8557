//! Ephemeral containers: what is the matter with them ranks behind what is the matter with the others.

use std::sync::Arc;

use super::*;

/// A pod whose container `app` is in a crash loop, up to 40 s.
fn crashing(web: &ScriptedPod) -> EpisodeStore {
    let mut store = store(chain([web.run(0, 500)], up(web, 600)));
    for run in 0..3 {
        let from = 1000 + 13_000 * u64::from(run);
        store.note_exit(
            &web.0,
            None,
            web.exit(("app", run), 3, from - 200, from + 1000),
        );
        store.tick(at(from + 12_000), &[]);
        store.apply(web.create(("app", run + 1), from + 12_500, 50));
        store.apply(web.start(("app", run + 1), from + 12_600, 50));
    }
    store
}

fn refused(web: &ScriptedPod, at: u64) -> EpisodeCall {
    let create = web.create(("debugger", 0), at, 50);
    create.fails(Code::InvalidArgument, "no command specified")
}

fn of(store: &EpisodeStore, now: u64) -> String {
    pod_headline(&episodes(store), at(now))
}

#[test]
fn an_ephemeral_container_that_is_refused_hides_no_crash_loop() {
    let web = pod("web");
    let mut store = crashing(&web);
    let before = of(&store, 41_000);
    assert!(before.starts_with("container app keeps ending"), "{before}");
    for n in 0..3 {
        store.apply(refused(&web, 42_000 + 12_000 * n));
    }
    let said = of(&store, 70_000);
    assert!(said.starts_with("container app keeps ending"), "{said}");
}

#[test]
fn the_pull_of_its_image_hides_none_either() {
    let web = pod("web");
    let mut store = crashing(&web);
    let pull = web.pull("debug:1", 42_000, 300);
    store.apply(pull.clone().fails(Code::NotFound, "no such image"));
    let said = of(&store, 43_000);
    assert!(said.starts_with("container app keeps ending"), "{said}");
    let mut store = crashing(&web);
    store.apply(web.pull("debug:1", 42_000, 5000).under_way(None));
    let said = of(&store, 47_000);
    assert!(said.starts_with("container app keeps ending"), "{said}");
}

/// Nor a probe that fails, or a kill.
#[test]
fn it_is_told_where_nothing_else_is_the_matter() {
    let web = pod("web");
    let mut store = store(chain([web.run(0, 500)], up(&web, 600)));
    store.tick(at(20_000), &[]);
    store.apply(refused(&web, 42_000));
    let said = of(&store, 43_000);
    assert!(
        said.starts_with("container debugger cannot be created"),
        "{said}"
    );
}

/// A container that the kubelet has written down is no ephemeral one, however late it is.
#[test]
fn a_late_container_of_the_manifest_counts() {
    let web = pod("web");
    let mut store = crashing(&web);
    let names: Arc<[Box<str>]> = Arc::new(["app".into(), "debugger".into()]);
    store.expect(&web.0, names);
    store.apply(refused(&web, 42_000));
    let said = of(&store, 43_000);
    assert!(
        said.starts_with("container debugger cannot be created"),
        "{said}"
    );
}

/// The image of the container in the loop cannot be pulled any more: that is the newest trouble of it.
#[test]
fn the_pull_of_a_container_in_a_loop_counts() {
    let web = pod("web");
    let calls = chain([web.run(0, 500), web.pull("app:1", 510, 50)], up(&web, 600));
    let mut store = store(calls);
    for run in 0..3 {
        let from = 1000 + 13_000 * u64::from(run);
        let exit = web.exit(("app", run), 3, from - 200, from + 1000);
        store.note_exit(&web.0, None, exit);
        store.tick(at(from + 12_000), &[]);
        store.apply(web.pull("app:1", from + 12_400, 50));
        store.apply(web.create(("app", run + 1), from + 12_500, 50));
        store.apply(web.start(("app", run + 1), from + 12_600, 50));
    }
    store.tick(at(60_000), &[]);
    let pull = web.pull("app:1", 60_000, 300);
    store.apply(pull.fails(Code::NotFound, "no such image"));
    let said = of(&store, 61_000);
    assert!(said.starts_with("image app:1 cannot be pulled"), "{said}");
}
