//! `[server]`

use std::path::PathBuf;
use std::time::Duration;

use crate::settings::value::{
    BoundedDuration, ByteCount, OptionalValue, PermissionBits, SocketPath, UserAndGroup, secs,
};
use crate::settings::{FileOwner, settings};

settings! {
    /// The socket that the kubelet connects to.
    pub struct ServerSettings in "server" {
        /// The unix socket to listen on; its path has at most 107 bytes. With systemd socket activation the socket that
        /// systemd passes is used instead.
        listen: PathBuf = "/run/criscope/criscope.sock".into(), SocketPath;
        /// Permission bits of the socket. Write access to the socket is root access to the node. Ignored with socket
        /// activation, where the socket unit sets them.
        mode: u32 = 0o660, PermissionBits;
        /// Owner of the socket. Names are looked up on this machine. Ignored with socket activation.
        owner: Option<FileOwner> = None, OptionalValue(UserAndGroup), or "not changed" like "\"root:root\"";
        /// The largest request that is buffered to read pod names from it. Larger requests are forwarded without being
        /// inspected, and their signals carry no pod name.
        max_message_bytes: usize = 16 << 20, ByteCount::between(64 << 10, 1 << 30);
        /// How long calls in flight may take to finish after SIGTERM. Keep it below `TimeoutStopSec` of the unit.
        drain_timeout: Duration = secs(10), BoundedDuration::between(Duration::ZERO, secs(600));
        /// How long calls and sessions may go on in the old process after a restart that hands over to a new one. A restart does so under
        /// systemd with `criscope-handover.service`, in front of a runtime.
        handover_timeout: Duration = secs(3600), BoundedDuration::between(Duration::ZERO, secs(86_400));
    }
}
