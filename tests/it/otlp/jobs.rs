//! Background jobs at a collector.

use criscope::telemetry::BackgroundJob;

use super::{INTERNAL, assert_attributes, start};
use crate::harness::collector::{Collector, Manner};
use crate::harness::pods;
use crate::harness::until;

const UNSET: i32 = 0;
const ERROR: i32 = 2;

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_proxy_are_spans() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = pods::runtime();
    let proxy = start(&fake, &collector, "").ready().await;
    let replay = collector.wait_job(BackgroundJob::JournalReplay).await;
    assert_attributes(&replay, &[("criscope.lines", Some("0"))]);
    let connect = collector.wait_job(BackgroundJob::BackendConnect).await;
    let attributes = [
        ("criscope.backend", Some("upstream")),
        ("criscope.attempts", Some("1")),
    ];
    assert_attributes(&connect, &attributes);
    let resync = collector.wait_job(BackgroundJob::IndexResync).await;
    let attributes = [("criscope.backend", Some("upstream")), ("error.type", None)];
    assert_attributes(&resync, &attributes);

    let otlp = format!(
        "[telemetry.otlp]\nendpoint = \"{}\"\n",
        collector.endpoint()
    );
    proxy.reload(&format!("{otlp}[telemetry.log]\nlevel = \"debug\"\n"));
    let reload = collector.wait_job(BackgroundJob::ConfigReload).await;
    let changed = [("criscope.config.changed", Some("telemetry.log.level"))];
    assert_attributes(&reload, &changed);
    for span in [replay, connect, resync, reload] {
        assert_eq!(span.kind, INTERNAL);
        assert_eq!(span.parent_span_id, [0_u8; 0], "the root of its trace");
        assert_eq!(span.status.unwrap_or_default().code, UNSET, "{}", span.name);
    }

    proxy.reload(&format!("{otlp}[telemetry.log]\nlevel = 7\n"));
    let rejected = until("a reload that fails", || async {
        let mut jobs = collector.jobs().into_iter();
        jobs.find(|span| {
            span.status
                .as_ref()
                .is_some_and(|status| status.code == ERROR)
        })
    })
    .await;
    assert_eq!(rejected.name, BackgroundJob::ConfigReload.name());
    assert_attributes(&rejected, &[("error.type", Some("rejected"))]);
    let status = rejected.status.expect("a status");
    assert!(
        status.message.contains("telemetry.log.level"),
        "{}",
        status.message
    );
    proxy.stop().await;
}
