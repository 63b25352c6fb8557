//! criscope's own troubles: a caller makes it late, its collector is gone, and its configuration is invalid.

use super::{Fired, Node, Ordinary, pace, stays};
use crate::prelude::*;

pub(super) async fn drill(node: Node<'_>, it: &Ordinary, collector: &Collector) -> Fired {
    let kubelet = it.kubelet().await;
    node.is_well_while(async || {
        kubelet.plain("StopContainer").await;
        pace(100).await;
    })
    .await;
    collector.stop();
    it.proxy.reload("no_such_table = true");
    // The body comes late, and until it is there the runtime is not asked.
    let call = Call::plain("StopContainer");
    let late = async || {
        let mut open = kubelet.client().begin(&call).await;
        pace(30).await;
        open.send(call.pieces[0].clone(), true);
        open.finish().await
    };
    let (overhead, telemetry, reload) = tokio::join!(
        node.fires("CriscopeOverheadHigh", late),
        node.fires("CriscopeTelemetryDropping", late),
        node.fires("CriscopeConfigReloadFailed", stays),
    );
    vec![overhead, telemetry, reload]
}
