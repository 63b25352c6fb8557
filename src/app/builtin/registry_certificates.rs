//! When the certificates that pulls show to registries expire. Each pull reads the files anew; here they are only looked at.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use crate::runtime::Runtime;
use crate::tls::ClientCertificates;

/// How often the directories are read.
const CERTIFICATE_READ_INTERVAL: Duration = Duration::from_secs(60);

/// Looks at the certificates for ever.
pub(super) async fn watch(clients: Arc<ClientCertificates>, runtime: Arc<Runtime>) {
    let mut tick = interval(CERTIFICATE_READ_INTERVAL);
    // A disk that hangs must not be followed by a burst.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let (clients, images) = (Arc::clone(&clients), runtime.images());
        let looking = spawn_blocking(move || {
            let found = images.client_certificates().into_iter();
            let files: Vec<_> = found.map(|one| (one.cert, one.key)).collect();
            clients.refresh(&files);
        });
        // A panic is logged by the hook; the next look may do better.
        let _ended = looking.await;
    }
}
