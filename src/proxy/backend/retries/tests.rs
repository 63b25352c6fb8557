//! The kubelet's retries, in front of a runtime that answers when it is told to.

mod rig;

use tokio::time::advance;
use tonic::Code;

use self::rig::{Asked, FAR, PASSED, Rig, made, settle};
use super::kept::KeptCallEnd;
use super::*;
use crate::call::Client;
use crate::cri::Method;

#[tokio::test(start_paused = true)]
async fn a_retry_gets_the_answer_of_the_call_that_was_given_up() {
    for asked in [Asked::sandbox("web", "1"), Asked::container("s", 0)] {
        let rig = Rig::new();
        rig.give_up(&asked, PASSED).await;
        assert_eq!((rig.kept.len(), rig.cancelled()), (1, 0));
        assert_eq!(rig.made(&asked).await, made(1, true));
        assert_eq!((rig.asked(), rig.kept.len()), (1, 0));
        assert_eq!(rig.ended(KeptCallEnd::Joined), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_came_before_the_retry_is_given_to_it_once() {
    let rig = Rig::new();
    let asked = Asked::container("s", 0);
    rig.give_up(&asked, PASSED).await;
    rig.answer_one().await;
    let (_, answer) = rig.call(&asked, FAR);
    assert!(answer.await.is_ok());
    assert_eq!(rig.asked(), 1);
    // The next one is for another container, even if the request is the same.
    assert_eq!(rig.made(&asked).await, made(2, false));
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_given_up_is_joined_by_the_next() {
    let rig = Rig::new();
    let asked = Asked::sandbox("web", "1");
    for _ in 0..3 {
        rig.give_up(&asked, PASSED).await;
    }
    assert_eq!(rig.made(&asked).await, made(1, true));
    assert_eq!((rig.asked(), rig.cancelled()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_runtime_gets_more_time_and_only_for_these_calls() {
    let rig = Rig::new();
    let (_, answer) = rig.call(&Asked::sandbox("web", "1"), Some(Duration::from_secs(240)));
    rig.answer_one().await;
    answer.await.expect("an answer");
    rig.about(Method::StopPodSandbox, "s").await;
    let by_hand = Asked::sandbox("db", "1").by(Client::Crictl);
    assert_eq!(rig.made(&by_hand).await, made(3, false));
    let asked = rig.runtime.asked.lock().expect("lock").clone();
    let timeouts: Vec<_> = asked.iter().map(|(_, timeout)| timeout.as_str()).collect();
    assert_eq!(timeouts, ["1141S", "", ""]);
}

#[tokio::test(start_paused = true)]
async fn another_request_never_gets_the_answer() {
    // The kubelet was restarted; another attempt; another pod.
    let others = [
        (Asked::sandbox("web", "1"), Asked::sandbox("web", "2"), 1),
        (Asked::container("s", 0), Asked::container("s", 1), 0),
        (Asked::container("s", 0), Asked::container("other", 0), 1),
        (Asked::sandbox("web", "1"), Asked::sandbox("db", "1"), 0),
        (Asked::container("s", 0), Asked::sandbox("web", "1"), 0),
    ];
    for (first, other, ended) in others {
        let rig = Rig::new();
        rig.give_up(&first, PASSED).await;
        let (call, answer) = rig.call(&other, FAR);
        let answer = tokio::spawn(answer);
        settle().await;
        assert_eq!(rig.asked(), 2, "the other request is passed on");
        assert_eq!(rig.ended(KeptCallEnd::OtherRequest), ended);
        assert_eq!(rig.cancelled(), usize::try_from(ended).expect("small"));
        rig.runtime.permits.add_permits(2);
        answer.await.expect("no panic").expect("an answer");
        assert_eq!(call.joined(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn another_caller_neither_keeps_nor_joins_a_call() {
    let rig = Rig::new();
    let asked = Asked::sandbox("web", "1");
    rig.give_up(&asked.clone().by(Client::Crictl), PASSED).await;
    assert_eq!((rig.kept.len(), rig.cancelled()), (0, 1));
    rig.give_up(&asked, PASSED).await;
    let (call, answer) = rig.call(&asked.clone().by(Client::Other), FAR);
    rig.runtime.permits.add_permits(2);
    answer.await.expect("an answer");
    assert_eq!((call.joined(), rig.kept.len()), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_cancels_before_its_deadline_ends_the_call() {
    let rig = Rig::new();
    let asked = Asked::sandbox("web", "1");
    rig.give_up(&asked, FAR).await;
    rig.give_up(&asked, None).await;
    assert_eq!((rig.kept.len(), rig.cancelled()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn two_requests_at_the_same_time_get_two_answers() {
    let rig = Rig::new();
    let asked = Asked::container("s", 0);
    let (_, first) = rig.call(&asked, FAR);
    let first = tokio::spawn(first);
    settle().await;
    let (call, second) = rig.call(&asked, FAR);
    let second = tokio::spawn(second);
    settle().await;
    assert_eq!(rig.asked(), 2, "containerd decides on the second");
    rig.runtime.permits.add_permits(2);
    assert!(first.await.is_ok() && second.await.is_ok());
    assert_eq!(call.joined(), None);
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_when_its_sandbox_is_stopped_or_removed() {
    for method in [Method::StopPodSandbox, Method::RemovePodSandbox] {
        let rig = Rig::new();
        let asked = Asked::container("s", 0);
        rig.give_up(&asked, PASSED).await;
        rig.about(method, "another").await;
        assert_eq!(rig.kept.len(), 1);
        rig.about(method, "s").await;
        settle().await;
        assert_eq!((rig.kept.len(), rig.cancelled()), (0, 1), "{method}");
        assert_eq!(rig.ended(KeptCallEnd::SubjectChanged), 1);
        assert_eq!(rig.made(&asked).await, made(4, false));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_ends_when_what_it_names_is_used_or_removed() {
    let cases = [
        (Asked::container("s", 0), Method::RemoveContainer),
        (Asked::container("s", 0), Method::StopContainer),
        (Asked::container("s", 0), Method::StartContainer),
        (Asked::sandbox("web", "1"), Method::StopPodSandbox),
        (Asked::sandbox("web", "1"), Method::RemovePodSandbox),
    ];
    for (asked, method) in cases {
        let rig = Rig::new();
        rig.give_up(&asked, PASSED).await;
        rig.answer_one().await;
        rig.about(method, "made-1").await;
        assert_eq!(rig.kept.len(), 0, "{method}");
        assert_eq!(rig.made(&asked).await, made(3, false), "{method}");
    }
    // The kubelet found the sandbox in a list.
    let rig = Rig::new();
    rig.give_up(&Asked::sandbox("web", "1"), PASSED).await;
    rig.answer_one().await;
    let in_it = rig.made(&Asked::container("made-1", 0)).await;
    assert_eq!(in_it, made(2, false));
    assert_eq!(rig.ended(KeptCallEnd::SubjectChanged), 1);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_removed_before_its_id_is_answered_is_not_given_away() {
    let removals = [
        (Asked::container("s", 0), Method::RemoveContainer),
        (Asked::sandbox("web", "1"), Method::StopPodSandbox),
    ];
    for (asked, method) in removals {
        for answered_before_retry in [true, false] {
            let rig = Rig::new();
            rig.give_up(&asked, PASSED).await;
            rig.about(method, "made-1").await;
            assert_eq!(rig.kept.len(), 1);
            if answered_before_retry {
                rig.answer_one().await;
            }
            let (_, retry) = rig.call(&asked, FAR);
            let retry = tokio::spawn(retry);
            settle().await;
            rig.runtime.permits.add_permits(3);
            let retry = retry.await.expect("no panic").expect("an answer");
            let bytes = retry.into_body().collect().await.expect("body").to_bytes();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            assert!(text.ends_with("made-3"), "{method}: {text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_nobody_waits_for_is_dropped() {
    let rig = Rig::new();
    let asked = Asked::sandbox("web", "1");
    rig.give_up(&asked, PASSED).await;
    *rig.runtime.code.lock().expect("lock") = Code::Unknown;
    rig.answer_one().await;
    *rig.runtime.code.lock().expect("lock") = Code::Ok;
    assert_eq!(rig.made(&asked).await, made(2, false));
    assert_eq!(rig.ended(KeptCallEnd::Failed), 1);
    // A retry that waits gets it.
    rig.give_up(&asked, PASSED).await;
    *rig.runtime.code.lock().expect("lock") = Code::Unknown;
    assert_eq!(rig.made(&asked).await, (Err(Code::Unknown), true));
}

#[tokio::test(start_paused = true)]
async fn a_call_is_kept_for_two_minutes_without_a_caller() {
    let rig = Rig::new();
    let asked = Asked::sandbox("web", "1");
    rig.give_up(&asked, PASSED).await;
    advance(Duration::from_secs(119)).await;
    settle().await;
    assert_eq!(rig.kept.len(), 1);
    // Being joined begins a new time.
    rig.give_up(&asked, PASSED).await;
    advance(Duration::from_secs(119)).await;
    settle().await;
    assert_eq!((rig.kept.len(), rig.cancelled()), (1, 0));
    advance(Duration::from_secs(2)).await;
    settle().await;
    assert_eq!((rig.kept.len(), rig.cancelled()), (0, 1));
    assert_eq!(rig.ended(KeptCallEnd::Unclaimed), 1);
    assert_eq!(rig.made(&asked).await, made(2, false));
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_on_for_a_quarter_of_an_hour_at_most() {
    let rig = Rig::new();
    let asked = Asked::sandbox("web", "1");
    for _ in 0..9 {
        rig.give_up(&asked, PASSED).await;
        advance(Duration::from_secs(110)).await;
        settle().await;
    }
    assert_eq!((rig.asked(), rig.cancelled()), (1, 1), "990 seconds");
    assert_eq!(rig.made(&asked).await, made(2, false));
}

#[tokio::test(start_paused = true)]
async fn the_number_and_the_size_of_kept_calls_are_bounded() {
    let rig = Rig::new();
    for pod in 0..65 {
        rig.give_up(&Asked::sandbox(&pod.to_string(), "1"), PASSED)
            .await;
    }
    assert_eq!((rig.kept.len(), rig.cancelled()), (64, 1));
    assert_eq!(rig.ended(KeptCallEnd::NoRoom), 1);
    let rig = Rig::new();
    let large = "x".repeat(300 << 10);
    rig.give_up(&Asked::sandbox("web", &large), PASSED).await;
    assert_eq!((rig.kept.len(), rig.cancelled()), (0, 1));
}
