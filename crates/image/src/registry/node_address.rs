//! Addresses that only the node itself reaches. A registry may not lead the node to them: services there trust every caller, as the
//! metadata services of clouds do (CVE-2026-33990, CVE-2026-48978).

use std::net::IpAddr;

use reqwest::Url;

/// Host and port of a URL, without the rest.
pub(super) fn host_and_port(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Returns whether a registry may name this URL as its token service or as the target of a redirect: it must not lead to the node
/// itself, unless the registry has the same host.
pub(super) fn may_lead_to(registry: &Url, target: &Url) -> bool {
    target.host_str() == registry.host_str() || !is_of_node(target)
}

/// True if the host of a URL is a loopback, link-local or unspecified address, or a name of the node (RFC 6761, section 6.3). Other
/// names are not resolved.
fn is_of_node(url: &Url) -> bool {
    let Some(host) = url.host_str() else {
        return true;
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return is_local(address.to_canonical());
    }
    let name = host.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

fn is_local(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    is_link_local || address.is_loopback() || address.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_leads_to_no_address_of_the_node() {
        let url = |text: &str| Url::parse(text).expect("a URL");
        let registry = url("https://registry.example/v2/");
        for (target, allowed) in [
            ("https://auth.example/token", true),
            ("https://10.1.2.3/token", true),
            ("https://registry.example:8443/token", true),
            ("http://169.254.169.254/latest", false),
            ("http://[fe80::1]/", false),
            ("http://127.1/", false),
            ("http://2130706433/", false),
            ("http://[::ffff:127.0.0.1]/", false),
            ("http://[::1]:9478/", false),
            ("http://0.0.0.0/", false),
            ("http://[::]/", false),
            ("http://LOCALHOST./", false),
            ("http://a.localhost/", false),
        ] {
            assert_eq!(may_lead_to(&registry, &url(target)), allowed, "{target}");
        }
        let here = url("http://127.0.0.1:5000/v2/");
        assert!(may_lead_to(&here, &url("http://127.0.0.1:5001/token")));
        assert!(!may_lead_to(&here, &url("http://127.0.0.2/token")));
    }
}
