//! Checks the address for metrics, health and pages.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::super::http::get;
use super::super::output::ReportFinding;

const TOPIC: &str = "admin";

pub(super) async fn check(address: Option<SocketAddr>) -> Vec<ReportFinding> {
    let Some(address) = address else {
        return vec![ReportFinding::ok(TOPIC, "off")];
    };
    let mut findings = vec![occupant(address).await];
    if !address.ip().is_loopback() {
        let text = format!("{address} can be reached from elsewhere, without authentication");
        findings.push(ReportFinding::warn(TOPIC, text).hint(
            "its pages show pod and image names: use 127.0.0.1, or restrict access with a firewall",
        ));
    }
    findings
}

async fn occupant(address: SocketAddr) -> ReportFinding {
    match TcpListener::bind(address).await {
        Ok(_) => ReportFinding::ok(TOPIC, format!("{address} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            if is_criscope(address).await {
                ReportFinding::ok(TOPIC, format!("criscope answers on {address}"))
            } else {
                ReportFinding::fail(TOPIC, format!("another program listens on {address}"))
                    .hint("set admin.listen to a free port")
            }
        }
        Err(error) => ReportFinding::fail(TOPIC, format!("cannot listen on {address}: {error}"))
            .hint("set admin.listen to an address of this machine"),
    }
}

/// Requests its metrics, which have the prefix of criscope.
async fn is_criscope(address: SocketAddr) -> bool {
    get(&address.to_string(), "/metrics")
        .await
        .is_ok_and(|answer| {
            let text = String::from_utf8_lossy(&answer.body);
            text.lines().any(|line| line.starts_with("criscope_"))
        })
}

#[cfg(test)]
mod tests {
    use super::super::super::http::tests::serve_once;
    use super::super::super::output::FindingLevel;
    use super::*;

    #[tokio::test]
    async fn our_own_port_is_told_from_a_foreign_one() {
        let ours = serve_once("HTTP/1.0 200 OK\r\n\r\n# HELP x\ncriscope_build_info 1\n").await;
        assert_eq!(occupant(ours).await.level, FindingLevel::Ok);
        let foreign = serve_once("HTTP/1.0 200 OK\r\n\r\nhello\n").await;
        let finding = occupant(foreign).await;
        assert_eq!(finding.level, FindingLevel::Fail);
        assert_eq!(
            finding.text,
            format!("another program listens on {foreign}")
        );
    }

    #[tokio::test]
    async fn an_open_address_is_warned_of() {
        let findings = check(Some(SocketAddr::from(([0, 0, 0, 0], 0)))).await;
        let levels: Vec<_> = findings.iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [FindingLevel::Ok, FindingLevel::Warn]);
        // TEST-NET-1 is not an address of this machine.
        let findings = check(Some(SocketAddr::from(([192, 0, 2, 1], 0)))).await;
        assert_eq!(findings[0].level, FindingLevel::Fail);
        assert_eq!(check(None).await, [ReportFinding::ok(TOPIC, "off")]);
    }
}
