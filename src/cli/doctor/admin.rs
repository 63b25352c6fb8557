//! The address for metrics, health and pages.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::super::output::Finding;
use super::PATIENCE;

const TOPIC: &str = "admin";

/// As much of `/metrics` as is looked at, in bytes.
const ENOUGH: u64 = 1 << 20;

pub(super) async fn check(address: Option<SocketAddr>) -> Vec<Finding> {
    let Some(address) = address else {
        return vec![Finding::ok(TOPIC, "off")];
    };
    let mut findings = vec![occupant(address).await];
    if !address.ip().is_loopback() {
        let text = format!("{address} can be reached from elsewhere, without authentication");
        findings.push(Finding::warn(TOPIC, text).hint(
            "its pages show pod and image names: use 127.0.0.1, or let a firewall decide who may ask",
        ));
    }
    findings
}

async fn occupant(address: SocketAddr) -> Finding {
    match TcpListener::bind(address).await {
        Ok(_) => Finding::ok(TOPIC, format!("{address} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => match is_criscope(address).await {
            Ok(true) => Finding::ok(TOPIC, format!("criscope answers on {address}")),
            _ => Finding::fail(TOPIC, format!("another program listens on {address}"))
                .hint("set admin.listen to a free port"),
        },
        Err(error) => Finding::fail(TOPIC, format!("cannot listen on {address}: {error}"))
            .hint("set admin.listen to an address of this machine"),
    }
}

/// Asks for its metrics, which have our prefix.
async fn is_criscope(address: SocketAddr) -> io::Result<bool> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        // HTTP/1.0: the answer ends with the connection and is not chunked.
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
        let mut answer = Vec::new();
        stream.take(ENOUGH).read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        Ok(answer.lines().any(|line| line.starts_with("criscope_")))
    };
    timeout(PATIENCE, ask).await?
}

#[cfg(test)]
mod tests {
    use super::super::super::output::Level;
    use super::*;

    /// Answers one request with a text.
    async fn server(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            let mut request = [0; 64];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        });
        address
    }

    #[tokio::test]
    async fn our_own_port_is_told_from_a_foreign_one() {
        let ours = server("HTTP/1.0 200 OK\r\n\r\n# HELP x\ncriscope_build_info 1\n").await;
        assert_eq!(occupant(ours).await.level, Level::Ok);
        let foreign = server("HTTP/1.0 200 OK\r\n\r\nhello\n").await;
        let finding = occupant(foreign).await;
        assert_eq!(finding.level, Level::Fail);
        assert_eq!(
            finding.text,
            format!("another program listens on {foreign}")
        );
    }

    #[tokio::test]
    async fn an_open_address_is_warned_of() {
        let findings = check(Some(SocketAddr::from(([0, 0, 0, 0], 0)))).await;
        let levels: Vec<_> = findings.iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Ok, Level::Warn]);
        // TEST-NET-1 is no address of any machine.
        let findings = check(Some(SocketAddr::from(([192, 0, 2, 1], 0)))).await;
        assert_eq!(findings[0].level, Level::Fail);
        assert_eq!(check(None).await, [Finding::ok(TOPIC, "off")]);
    }
}
