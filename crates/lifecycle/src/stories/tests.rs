//! Stories of pods, and their counts.

use super::*;
use crate::tests::script::pod;
use criscope_cri::status::Code;
use criscope_settings::SettingsReader;

pub(crate) fn stories(calls: impl IntoIterator<Item = EpisodeCall>) -> Stories {
    let settings = settings::StorySettings::read(&mut SettingsReader::empty(), "/nowhere".as_ref());
    let stories = Stories::new(&settings, Arc::default());
    for call in calls {
        stories.store().apply(call);
    }
    stories
}

#[test]
fn pods_that_had_the_same_name_are_told_apart_by_uid() {
    let (first, second) = (pod("web"), pod("web").with_uid("other"));
    let stories = stories([
        second.run(0, 9000),
        second.create(("app", 0), 9000, 10),
        second.start(("app", 0), 9010, 10),
        first.run(20_000, 10),
        first
            .pull("web:1", 20_100, 10)
            .fails(Code::NotFound, "no such image"),
    ]);
    let of = |uid| stories.pod_story("shop", "web", uid, &[]);
    let all = of(None).expect("both");
    let newest = of(Some("uid-web")).expect("known");
    assert_eq!(
        (newest.episodes.len(), &newest.headline),
        (1, &all.headline)
    );
    let other = of(Some("other")).expect("known");
    assert_eq!(
        (other.episodes.len(), &other.headline),
        (1, &all.episodes[0].headline)
    );
    assert_ne!(other.headline, newest.headline);
    assert_eq!(of(Some("none")), None);
}

#[test]
fn a_pod_that_no_call_has_named_is_known_by_the_spans_of_the_kubelet() {
    let stories = stories([]);
    let of = || stories.pod_story("shop", "web", None, &[]);
    assert_eq!(of(), None);
    let text = "unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: context deadline exceeded";
    stories
        .store()
        .note_sync(pod("web").sync_fails(0, 123_000, text));
    let story = of().expect("known");
    let headline = &story.headline;
    assert!(
        headline.starts_with(
            "kubelet: syncPod failed: volume data is not mounted: context deadline exceeded ("
        ) && headline.ends_with(" ago); no call has named the pod"),
        "{headline}"
    );
    assert_eq!(story.cause, "kubelet_sync_failed");
    stories.store().note_sync(pod("web").syncs(200_000, 10));
    assert_eq!(of(), None, "it is over");
}

/// Such as one with `hostUsers: false` where the runtime has no user namespaces: the kubelet makes no call for it.
#[test]
fn a_pod_that_no_call_has_named_is_not_an_earlier_one_of_its_name() {
    let (first, second) = (pod("web"), pod("web").with_uid("other"));
    let up = [
        first.run(10_000, 10),
        first.create(("app", 0), 10_100, 10),
        first.start(("app", 0), 10_200, 10),
    ];
    let stories = stories(up);
    let of = |uid| stories.pod_story("shop", "web", uid, &[]).expect("known");
    let earlier = of(None).headline;
    let text = "runtime does not support user namespaces";
    let fails = |from| second.sync_fails(from, 10, text);
    stories.store().note_sync(fails(5000));
    assert_eq!(of(None).headline, earlier, "it is the older one");
    stories.store().note_sync(second.syncs(6000, 10));
    stories.store().note_sync(fails(20_000));
    let said = of(None).headline;
    let (why, whom) = said.split_once(" (").expect("when");
    assert_eq!(why, format!("kubelet: syncPod failed: {text}"));
    assert!(
        whom.ends_with("this pod, only an earlier one of its name"),
        "{whom}"
    );
    assert_eq!(of(Some("uid-web")).headline, earlier);
}

/// One pod counts once, however often it is retried.
#[test]
fn pods_that_cannot_start_are_counted_by_what_fails() {
    let refused = |name: &str, from| {
        let pull = pod(name).pull("web:1", from, 10);
        pull.fails(Code::NotFound, "no such image")
    };
    let well = pod("well");
    let stories = stories([
        pod("one").run(0, 10),
        refused("one", 100),
        refused("one", 200),
        pod("one")
            .create(("app", 0), 300, 10)
            .fails(Code::Unknown, "no"),
        pod("two").run(0, 10),
        refused("two", 400),
        well.run(0, 10),
        refused("well", 500),
        well.pull("web:1", 600, 10),
    ]);
    let phases = [
        EpisodePhase::Sandbox,
        EpisodePhase::ImagePull,
        EpisodePhase::ContainerCreate,
    ];
    assert_eq!(stories.failing(&phases), [0, 2, 1]);
}

/// Calls take most of the memory; a list is built without copying them, and has the same headlines.
#[test]
fn a_list_has_the_episodes_without_their_calls() {
    let web = pod("web");
    let stories = stories([
        web.run(0, 9000),
        web.pull("web:1", 9000, 10),
        web.start(("app", 0), 9010, 10),
    ]);
    let [listed] = &stories.recent(&[]).episodes[..] else {
        panic!("one episode")
    };
    let story = stories.pod_story("shop", "web", None, &[]).expect("known");
    assert_eq!((listed.calls.len(), story.episodes[0].calls.len()), (0, 3));
    assert_eq!(listed.headline, story.headline);
    assert_eq!(listed.phases, story.episodes[0].phases);
}
