//! Network configurations from a template and the pod CIDR of the node, as with containerd's `conf_template`.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::template_text::{Values, fill};

/// Why no configuration was written.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// An invalid CIDR.
    #[error("{range:?} is not a pod CIDR")]
    Cidr {
        /// The invalid one of the comma-separated CIDRs.
        range: String,
    },
    /// The template has an unsupported action, or its result is not JSON.
    #[error("{}: {why}", path.display())]
    Template {
        /// Path of the template.
        path: PathBuf,
        /// Why it is invalid.
        why: String,
    },
    /// The template cannot be read, or the configuration cannot be written.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl TemplateError {
    fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::Io {
            action,
            path,
            source,
        }
    }

    fn template(path: &Path, why: String) -> Self {
        let path = path.to_owned();
        Self::Template { path, why }
    }
}

/// Fills in `template` for the pod CIDR, both families separated by a comma, and writes the result to `target` atomically.
/// The template has the fields of containerd's: `.PodCIDR`, the first range; `.PodCIDRRanges`, all of them; and `.Routes`,
/// the default route of each of their address families.
///
/// # Errors
/// If the template cannot be read, its result is not JSON, or the file cannot be written.
pub fn write_network(template: &Path, target: &Path, cidr: &str) -> Result<(), TemplateError> {
    let text = std::fs::read_to_string(template)
        .map_err(|source| TemplateError::io("read", template, source))?;
    let text = fill(&text, &values(cidr)?).map_err(|why| TemplateError::template(template, why))?;
    serde_json::from_str::<serde::de::IgnoredAny>(&text).map_err(|error| {
        TemplateError::template(template, format!("the result is not JSON: {error}"))
    })?;
    let dir = target.parent().unwrap_or(target);
    let draft = target.with_extension("new");
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&draft, text))
        .and_then(|()| std::fs::rename(&draft, target))
        .map_err(|source| TemplateError::io("write", target, source))
}

/// Fuzz target: fills in the text of a template.
pub(crate) fn made(cidr: &str, template: &str) -> Option<String> {
    fill(template, &values(cidr).ok()?).ok()
}

fn values(cidr: &str) -> Result<Values, TemplateError> {
    let ranges: Vec<_> = cidr
        .split(',')
        .map(|range| range.trim().to_owned())
        .collect();
    let mut routes: Vec<String> = Vec::new();
    for range in &ranges {
        let address = range.split_once('/').map(|(address, _)| address.parse());
        let route = match address {
            Some(Ok(IpAddr::V4(_))) => "0.0.0.0/0",
            Some(Ok(IpAddr::V6(_))) => "::/0",
            _ => {
                return Err(TemplateError::Cidr {
                    range: range.clone(),
                });
            }
        };
        if !routes.iter().any(|known| known == route) {
            routes.push(route.to_owned());
        }
    }
    Ok(Values {
        texts: BTreeMap::from([("PodCIDR", ranges[0].clone())]),
        lists: BTreeMap::from([("PodCIDRRanges", ranges), ("Routes", routes)]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `ipam` section in containerd's documentation.
    const TEMPLATE: &str = r#"{"ranges": [{{range $i, $range := .PodCIDRRanges}}{{if $i}}, {{end}}[{"subnet": "{{$range}}"}]{{end}}],
"routes": [{{range $i, $route := .Routes}}{{if $i}}, {{end}}{"dst": "{{$route}}"}{{end}}], "first": "{{.PodCIDR}}"}"#;

    #[test]
    fn ranges_and_routes_are_filled_in() {
        let dir = tempfile::tempdir().expect("dir");
        let (template, target) = (
            dir.path().join("t"),
            dir.path().join("net.d").join("99.conflist"),
        );
        std::fs::write(&template, TEMPLATE).expect("write");
        write_network(&template, &target, "10.1.0.0/24, fd00::/64").expect("a network");
        let made = std::fs::read(&target).expect("written");
        let made: serde_json::Value = serde_json::from_slice(&made).expect("JSON");
        let expected = serde_json::json!({
            "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
            "first": "10.1.0.0/24",
        });
        assert_eq!(made, expected);
    }

    #[test]
    fn invalid_networks_are_not_written() {
        let dir = tempfile::tempdir().expect("dir");
        let (template, target) = (dir.path().join("t"), dir.path().join("99.conflist"));
        for (text, cidr, expected) in [
            (
                "{{.Gateway}}",
                "10.1.0.0/24",
                "{{.Gateway}} is not understood",
            ),
            ("{{.PodCIDR}", "10.1.0.0/24", "{{ without }}"),
            ("{{.PodCIDR}}", "10.1.0.0/24", "not JSON"),
            ("{}", "10.1.0.0", "is not a pod CIDR"),
            ("{}", "a/24", "is not a pod CIDR"),
        ] {
            std::fs::write(&template, text).expect("write");
            let error = write_network(&template, &target, cidr).expect_err("refused");
            assert!(error.to_string().contains(expected), "{error}");
            assert!(!target.exists());
        }
    }
}
