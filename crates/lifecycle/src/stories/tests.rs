//! Stories of pods, and their counts.

use super::*;
use crate::tests::scenario::read_calls;
use crate::tests::script::pod;
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
    let stories = stories(read_calls(
        "pod web/other; run 0 +9s; up app 9s +10; pod web; run 20s +10; pull web:1 20.1s +10 fails NOT_FOUND no",
    ));
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
            "the kubelet's syncPod failed: volume data is not mounted: context deadline exceeded ("
        ) && headline.ends_with(" ago); no call has named the pod"),
        "{headline}"
    );
    assert_eq!(story.cause, "kubelet_sync_failed");
    let next = story.next.as_deref();
    assert_eq!(next, Some("`kubectl describe pod -n shop web`"));
    let raw = story.raw_message.expect("the kubelet's error");
    assert_eq!(raw.from, "kubelet");
    stories.store().note_sync(pod("web").syncs(200_000, 10));
    assert_eq!(of(), None, "it is over");
}

/// Such as one with `hostUsers: false` where the runtime has no user namespaces: the kubelet makes no call for it.
#[test]
fn a_pod_that_no_call_has_named_is_not_an_earlier_one_of_its_name() {
    let second = pod("web").with_uid("other");
    let stories = stories(read_calls("run 10s +10; up app 10.1s +10"));
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
    assert_eq!(why, format!("the kubelet's syncPod failed: {text}"));
    assert!(
        whom.ends_with("this pod, only an earlier one of its name"),
        "{whom}"
    );
    assert_eq!(of(Some("uid-web")).headline, earlier);
}

/// Calls take most of the memory; a list is built without copying them, and has the same headlines.
#[test]
fn a_list_has_the_episodes_without_their_calls() {
    let stories = stories(read_calls(
        "run 0 +9s; pull web:1 9s +10; start app 9010 +10",
    ));
    let [listed] = &stories.recent(&[]).episodes[..] else {
        panic!("one episode")
    };
    let story = stories.pod_story("shop", "web", None, &[]).expect("known");
    assert_eq!((listed.calls.len(), story.episodes[0].calls.len()), (0, 3));
    assert_eq!(listed.headline, story.headline);
    assert_eq!(listed.phases, story.episodes[0].phases);
}
