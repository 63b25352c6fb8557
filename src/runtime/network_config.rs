//! UpdateRuntimeConfig: the node's pod CIDR, from which a network can be made.

mod template;

use std::collections::BTreeMap;
use std::path::Path;

use self::template::Values;
use super::Runtime;
use super::error::{Error, Result};
use super::sandbox::teardown::blocking;
use crate::cri::v1;

/// Name of the configuration made from the template: late in the directory, so that a real one wins.
const MADE: &str = "99-criscope-net.conflist";

impl Runtime {
    /// Takes note of the pod CIDR. With a template of a network configuration, and no network there yet, one is made. The
    /// template knows what containerd's know: `.PodCIDR`, the first range; `.PodCIDRRanges`, all of them; and `.Routes`,
    /// the default route of each family among them.
    ///
    /// # Errors
    /// The template cannot be read, it makes no network, or that cannot be written.
    pub async fn update_runtime_config(
        &self,
        request: &v1::UpdateRuntimeConfigRequest,
    ) -> Result<()> {
        let config = request.runtime_config.as_ref();
        let cidr = config
            .and_then(|config| config.network_config.as_ref())
            .map_or("", |network| network.pod_cidr.as_str())
            .to_owned();
        let Some(template) = self.settings.cni_template.clone() else {
            return Ok(());
        };
        if cidr.is_empty() || self.handlers.get("")?.cni.ready().await.is_ok() {
            return Ok(());
        }
        let target = self.settings.cni.conf_dir.join(MADE);
        blocking(move || write(&template, &target, &cidr)).await
    }
}

fn write(template: &Path, target: &Path, cidr: &str) -> Result<()> {
    let text = std::fs::read_to_string(template).map_err(|e| Error::io("read", template, e))?;
    let wrong = |why: String| Error::invalid(format!("{}: {why}", template.display()));
    let text = template::fill(&text, &values(cidr)?).map_err(wrong)?;
    serde_json::from_str::<serde::de::IgnoredAny>(&text)
        .map_err(|error| wrong(format!("what it makes is no JSON: {error}")))?;
    let dir = target.parent().unwrap_or(target);
    let draft = target.with_extension("new");
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&draft, text))
        .and_then(|()| std::fs::rename(&draft, target))
        .map_err(|e| Error::io("write", target, e))
}

/// Reads a text as a pod CIDR in its first line and a template in the others, for the fuzzer.
///
/// # Panics
/// If more is made of it than there may be.
#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(text: &str) {
    let (cidr, template) = text
        .split_once('\n')
        .unwrap_or(("10.0.0.0/8,fd00::/8", text));
    if let Ok(values) = values(cidr)
        && let Ok(made) = template::fill(template, &values)
    {
        assert!(made.len() <= 2 * (1 << 20) + text.len());
    }
}

/// Both families come in one text, with a comma between.
fn values(cidr: &str) -> Result<Values> {
    let ranges: Vec<_> = cidr
        .split(',')
        .map(|range| range.trim().to_owned())
        .collect();
    let mut routes: Vec<String> = Vec::new();
    for range in &ranges {
        let address = range.split_once('/').map(|(address, _)| address.parse());
        let route = match address {
            Some(Ok(std::net::IpAddr::V4(_))) => "0.0.0.0/0",
            Some(Ok(std::net::IpAddr::V6(_))) => "::/0",
            _ => return Err(Error::invalid(format!("{range:?} is no pod CIDR"))),
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

    /// The `ipam` that containerd's documentation shows.
    const TEMPLATE: &str = r#"{"ranges": [{{range $i, $range := .PodCIDRRanges}}{{if $i}}, {{end}}[{"subnet": "{{$range}}"}]{{end}}],
"routes": [{{range $i, $route := .Routes}}{{if $i}}, {{end}}{"dst": "{{$route}}"}{{end}}], "first": "{{.PodCIDR}}"}"#;

    #[test]
    fn ranges_and_routes_take_their_place_in_the_template() {
        let dir = tempfile::tempdir().expect("dir");
        let (template, target) = (dir.path().join("t"), dir.path().join("net.d").join(MADE));
        std::fs::write(&template, TEMPLATE).expect("write");
        write(&template, &target, "10.1.0.0/24, fd00::/64").expect("a network");
        let made = std::fs::read(&target).expect("there");
        let made: serde_json::Value = serde_json::from_slice(&made).expect("JSON");
        let expected = serde_json::json!({
            "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
            "first": "10.1.0.0/24",
        });
        assert_eq!(made, expected);
    }

    #[test]
    fn nothing_is_written_that_is_no_network() {
        let dir = tempfile::tempdir().expect("dir");
        let (template, target) = (dir.path().join("t"), dir.path().join(MADE));
        for (text, cidr, expected) in [
            (
                "{{.Gateway}}",
                "10.1.0.0/24",
                "{{.Gateway}} is not understood",
            ),
            ("{{.PodCIDR}", "10.1.0.0/24", "{{ without }}"),
            ("{{.PodCIDR}}", "10.1.0.0/24", "no JSON"),
            ("{}", "10.1.0.0", "is no pod CIDR"),
            ("{}", "a/24", "is no pod CIDR"),
        ] {
            std::fs::write(&template, text).expect("write");
            let error = write(&template, &target, cidr).expect_err("refused");
            assert!(error.to_string().contains(expected), "{error}");
            assert!(!target.exists());
        }
    }
}
