//! The disk of the journal is full for a while: no call notices, metrics say so, and a restart afterwards knows every pod.

use super::pod::{Pod, runtime};
use super::proxy;
use crate::prelude::*;
use crate::recorder::SmallDisk;

fn waiting(scrape: &Scrape) -> f64 {
    scrape.metric("criscope_story_journal_waiting_lines").sum()
}

fn lost(scrape: &Scrape) -> f64 {
    let lost = scrape.metric("criscope_telemetry_dropped_total");
    lost.with("signal", "story").sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_a_full_disk_has_space_again() {
    let (fake, disk) = (Fake::new(), SmallDisk::new());
    runtime(&fake);
    let state = disk.directory();
    let first = proxy(&fake, state).await;
    let client = first.client().await;
    Pod::new("before").start(&client).await;
    let ballast = state.path().join("ballast");
    let full = fs::write(&ballast, vec![0; 1 << 20]).expect_err("the disk is full");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);

    // The last page of the journal takes some lines more.
    let mut pods = 0;
    while waiting(&first.scrape().await) < 20.0 {
        Pod::new(&format!("full-{pods}")).start(&client).await;
        pods += 1;
        assert!(pods < 1000, "no line waits");
    }
    first.wait_event("story.journal").await;
    fs::remove_file(&ballast).expect("removed");
    let scrape = first
        .wait_scrape("the lines on the disk", |scrape| waiting(scrape) == 0.0)
        .await;
    assert_eq!(lost(&scrape), 0.0);
    Pod::new("after").start(&client).await;
    first.stop().await;

    let second = proxy(&fake, state).await;
    let all = (0..pods).map(|n| format!("full-{n}"));
    for name in ["before".to_owned(), "after".to_owned()]
        .into_iter()
        .chain(all)
    {
        let story = second.json(&format!("/debug/pods/shop/{name}")).await;
        assert!(
            story.to_string().contains("StartContainer"),
            "{name}: {story}"
        );
    }
    second.stop().await;
}
