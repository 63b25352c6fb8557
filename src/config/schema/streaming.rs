//! The keys of exec, attach and port-forward. Where containerd and CRI-O have the same knob, the defaults are theirs.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::value::{BaseUrl, Count, FilePath, Span, Switch, TcpAddress};
use super::{Described, Is, Key, Reload, Unset, table};

table! {
    STREAMING_LISTEN: TcpAddress, Is<SocketAddr> = Key {
        section: "streaming",
        name: "listen",
        kind: TcpAddress,
        default: Is(|| SocketAddr::from(([127, 0, 0, 1], 0))),
        reload: Reload::Restart,
        help: "Where the server listens; port 0 is one that the system chooses. The kubelet of the node is its client, so loopback is right unless something else must reach it. Whoever knows the URL of a session may use it, once and within a minute.",
    };
    STREAMING_BASE_URL: BaseUrl, Unset = Key {
        section: "streaming",
        name: "base_url",
        kind: BaseUrl,
        default: Unset("the address that is listened on"),
        reload: Reload::Restart,
        help: "What the URLs of sessions begin with, if clients reach the server under another name.",
    };
    STREAMING_TLS_CERT: FilePath, Unset = Key {
        section: "streaming",
        name: "tls_cert",
        kind: FilePath,
        default: Unset("no TLS"),
        reload: Reload::Restart,
        help: "A chain of certificates in PEM. The kubelet checks it against the authorities that the system knows.",
    };
    STREAMING_TLS_KEY: FilePath, Unset = Key {
        section: "streaming",
        name: "tls_key",
        kind: FilePath,
        default: Unset("no TLS"),
        reload: Reload::Restart,
        help: "Its private key in PEM.",
    };
    STREAMING_IDLE_TIMEOUT: Span, Is<Duration> = Key {
        section: "streaming",
        name: "idle_timeout",
        kind: Span { least: Duration::from_secs(1), most: Duration::from_secs(30 * 86400) },
        default: Is(|| Duration::from_secs(4 * 3600)),
        reload: Reload::Restart,
        help: "A session over which no byte came or went for so long is ended. Clients that ask whether the server is there keep theirs.",
    };
    STREAMING_CREATION_TIMEOUT: Span, Is<Duration> = Key {
        section: "streaming",
        name: "creation_timeout",
        kind: Span { least: Duration::from_millis(100), most: Duration::from_secs(600) },
        default: Is(|| Duration::from_secs(30)),
        reload: Reload::Restart,
        help: "How long a client may take to open the streams of its session.",
    };
    STREAMING_MAX_SESSIONS: Count, Is<usize> = Key {
        section: "streaming",
        name: "max_sessions",
        kind: Count { least: 1, most: 100_000 },
        default: Is(|| 1000),
        reload: Reload::Restart,
        help: "Sessions at a time; a further one is refused with 503, and one of an upstream is not led through criscope. One takes at most a few MiB of memory, whatever its client does.",
    };
    STREAMING_AUDIT_COMMANDS: Switch, Is<bool> = Key {
        section: "streaming",
        name: "audit_commands",
        kind: Switch,
        default: Is(|| false),
        reload: Reload::Restart,
        help: "Whether the line that is logged at the end of each session shows the command in full. Arguments may hold secrets; without it the line has the name of the program and the number of arguments.",
    };
    STREAMING_OBSERVE: Switch, Is<bool> = Key {
        section: "streaming",
        name: "observe",
        kind: Switch,
        default: Is(|| true),
        reload: Reload::Restart,
        help: "Whether the sessions of an upstream are led through criscope, so that they are seen: the URL in the answers of Exec, Attach and PortForward is then one of criscope, on a port of 127.0.0.1 that the system chooses. The bytes of a session pass untouched, and sessions end when criscope does. TLS is not ended here: the URL then has the upstream's own address with another port, for this session alone, and transport, protocol and exit code are not seen. With any doubt the upstream's own URL is passed on; so is one that is not on loopback.",
    };
}
