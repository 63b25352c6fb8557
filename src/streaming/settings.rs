//! `[streaming]`. Keys that containerd or CRI-O have too have the same defaults.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::settings::value::{
    BooleanValue, BoundedDuration, BoundedNumber, FilePath, HttpBaseUrl, OptionalValue, TcpAddress,
    ms, secs,
};
use crate::settings::{ConfigProblem, SettingKey, SettingsReader, settings};

settings! {
    /// Exec, attach and port-forward: the server behind the URLs that those calls return. It speaks SPDY and WebSocket.
    pub struct StreamingSettings in "streaming" {
        /// Address of the server; with port 0 the system chooses a port. Its client is the kubelet of the node, so loopback
        /// is right unless clients elsewhere must reach it. The URL of a session is its only authentication; it is valid
        /// once and for one minute.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 0)), TcpAddress;
        /// The base of the URLs of sessions, if clients reach the server under another name.
        base_url: Option<String> = None, OptionalValue(HttpBaseUrl),
            or "the address of the server" like "\"https://node.example:10010\"";
        /// A certificate chain in PEM. The kubelet verifies it with the authorities of its system. Renewed files are served
        /// within seconds, without a restart; unusable ones are reported and not served.
        tls_cert: Option<PathBuf> = None, OptionalValue(FilePath), or "no TLS" like "\"/etc/criscope/streaming.crt\"";
        /// The certificate's private key in PEM.
        tls_key: Option<PathBuf> = None, OptionalValue(FilePath), or "no TLS" like "\"/etc/criscope/streaming.key\"";
        /// A session without traffic in either direction for this long is closed. Pings of the client count as traffic.
        idle_timeout: Duration = secs(4 * 3600), BoundedDuration::between(secs(1), secs(30 * 86400));
        /// How long a client may take to open the streams of its session.
        creation_timeout: Duration = secs(30), BoundedDuration::between(ms(100), secs(600));
        /// The most concurrent sessions. Further ones are refused with 503; those of an upstream bypass criscope. A session
        /// takes at most a few MiB of memory, with any client.
        max_sessions: usize = 1000, BoundedNumber::between(1, 100_000);
        /// Shows the full command in the log line at the end of each session. Arguments may contain secrets; by default
        /// the line has the name of the program and the number of arguments.
        audit_commands: bool = false, BooleanValue;
        /// Passes the sessions of an upstream through criscope and observes them: the URL in the responses of Exec,
        /// Attach and PortForward is then one of criscope, on a port of 127.0.0.1 that the system chooses. The bytes of a
        /// session pass unchanged, and sessions end when criscope does. TLS is not terminated: the URL then has the address
        /// of the upstream with another port, for this session only, and transport, protocol and exit code are unknown. A
        /// URL that is not on loopback, or not understood, is passed on unchanged.
        observe: bool = true, BooleanValue;
    }
}

/// The files of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamingTls {
    /// The certificate chain, in PEM.
    pub cert: PathBuf,
    /// The private key, in PEM.
    pub key: PathBuf,
}

impl StreamingSettings {
    /// Reads the section; the two TLS files require each other.
    pub(crate) fn checked(reader: &mut SettingsReader<'_>) -> Self {
        let scope = reader.section("streaming");
        let streaming = Self::read_at(reader, &scope);
        let half: Option<(&SettingKey<Option<PathBuf>>, _)> =
            match (scope.has(&Self::tls_cert), scope.has(&Self::tls_key)) {
                (true, false) => Some((&Self::tls_cert, "tls_key")),
                (false, true) => Some((&Self::tls_key, "tls_cert")),
                _ => None,
            };
        if let Some((key, other)) = half {
            let problem = ConfigProblem::Conflict(format!("has no effect without {other}"));
            reader.fail_at(&scope, key, problem);
        }
        streaming
    }

    /// The files of TLS; `None` without TLS.
    #[must_use]
    pub fn tls(&self) -> Option<StreamingTls> {
        Some(StreamingTls {
            cert: self.tls_cert.clone()?,
            key: self.tls_key.clone()?,
        })
    }
}
