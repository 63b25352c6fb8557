//! Where a server may lead. What was asked for with TLS is fetched without TLS only from hosts that an administrator has named, and only
//! if a digest tells whether it is right: anybody on the way could change the rest.

use reqwest::header::LOCATION;
use reqwest::{Response, Url};

use super::node_address::{host_and_port, may_lead_to};

/// Most redirects that are followed for one request.
pub(super) const MAX_REDIRECTS: usize = 5;

/// The hosts that a server with TLS may lead to without TLS.
#[derive(Clone, Debug, Default)]
pub(super) struct InsecureHosts(Vec<String>);

/// The parts of a request that decide about redirects.
#[derive(Clone, Copy, Debug)]
pub(super) struct RedirectRule<'a> {
    /// The URL of the request.
    pub(super) first: &'a Url,
    /// Whether the content is compared with a digest that is known already.
    pub(super) is_checked: bool,
    /// Whether the registry itself may be asked without TLS.
    pub(super) is_insecure: bool,
    pub(super) hosts: &'a InsecureHosts,
}

impl InsecureHosts {
    /// From `host`, `host:port`, or `.domain` for all hosts below a domain.
    pub(super) fn new(hosts: &[String]) -> Self {
        let lower = hosts.iter().map(|host| host.to_ascii_lowercase());
        Self(lower.collect())
    }

    /// Returns whether the host of a URL is one of them.
    pub(super) fn contain(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
        let port = url.port_or_known_default().unwrap_or_default();
        let with_port = format!("{host}:{port}");
        self.0.iter().any(|entry| {
            let is_below = entry.starts_with('.') && host.ends_with(entry.as_str());
            is_below || *entry == host || *entry == with_port
        })
    }
}

impl RedirectRule<'_> {
    /// The target of a redirect.
    ///
    /// # Errors
    ///
    /// Why it may not be followed. URLs are not shown, because their queries may be signatures.
    pub(super) fn target(&self, from: &Url, response: &Response) -> Result<Url, String> {
        let location = response.headers().get(LOCATION);
        let location = location.and_then(|location| location.to_str().ok());
        let target = location.and_then(|location| from.join(location).ok());
        let target = target.ok_or("a redirect to nowhere")?;
        if !matches!(target.scheme(), "http" | "https") || !target.has_host() {
            return Err(format!(
                "a redirect to {}, which is neither https nor http",
                target.scheme()
            ));
        }
        self.check_tls(from, &target)?;
        if !may_lead_to(self.first, &target) {
            return Err("a redirect to an address of this node".to_owned());
        }
        Ok(target)
    }

    fn check_tls(&self, from: &Url, target: &Url) -> Result<(), String> {
        if from.scheme() != "https" || target.scheme() == "https" || self.is_insecure {
            return Ok(());
        }
        let [from, to] = [from, target].map(host_and_port);
        let what = format!("a redirect from https://{from} to http://{to}");
        if !self.is_checked {
            return Err(format!("{what}, where nothing checks the answer"));
        }
        if !self.hosts.contain(target) {
            return Err(format!(
                "{what}, which insecure_redirect_hosts does not allow"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    #[test]
    fn hosts_are_named_with_or_without_a_port() {
        let hosts = [
            "Store.example",
            "minio.example:9000",
            ".corp.example",
            "10.0.0.7",
            "[fd00::1]:80",
        ];
        let hosts = InsecureHosts::new(&hosts.map(str::to_owned));
        for (target, is_named) in [
            ("http://store.example/a", true),
            ("http://STORE.example:9000/a", true),
            ("http://minio.example:9000/a?x", true),
            ("http://minio.example/a", false),
            ("http://minio.example:90/a", false),
            ("http://a.corp.example/", true),
            ("http://corp.example/", false),
            ("http://evilcorp.example/", false),
            ("http://store.example.evil.example/", false),
            ("http://store.example@evil.example/", false),
            ("http://10.0.0.7:9000/", true),
            ("http://[fd00::1]/", true),
            ("http://[fd00::1]:81/", false),
        ] {
            assert_eq!(hosts.contain(&url(target)), is_named, "{target}");
        }
    }

    #[test]
    fn only_checked_content_comes_without_tls() {
        let hosts = InsecureHosts::new(&["store.example".to_owned()]);
        let first = url("https://r.example/v2/");
        let rule = RedirectRule {
            first: &first,
            is_checked: true,
            is_insecure: false,
            hosts: &hosts,
        };
        let (named, other) = (
            url("http://store.example/b?sig=s"),
            url("http://o.example:9000/b?sig=s"),
        );
        assert_eq!(rule.check_tls(&first, &named), Ok(()));
        let refused = rule.check_tls(&first, &other).expect_err("not named");
        assert_eq!(
            refused,
            "a redirect from https://r.example to http://o.example:9000, which insecure_redirect_hosts does not allow"
        );
        // From one without TLS on, or to one with.
        assert_eq!(rule.check_tls(&named, &other), Ok(()));
        assert_eq!(rule.check_tls(&first, &url("https://o.example/")), Ok(()));
        let unchecked = RedirectRule {
            is_checked: false,
            ..rule
        };
        let refused = unchecked.check_tls(&first, &named).expect_err("a tag");
        assert!(refused.contains("nothing checks the answer"), "{refused}");
        let insecure = RedirectRule {
            is_insecure: true,
            ..unchecked
        };
        assert_eq!(insecure.check_tls(&first, &other), Ok(()));
    }
}
