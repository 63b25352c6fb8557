//! Defaults of pods and containers of the built-in runtime.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use oci_spec::runtime::Capability;

use super::super::SeccompProfile;
use super::{UnparsedValue, ValueError, ValueKind, quoted, quoted_text};

/// The default capabilities of containerd.
const CONTAINERD_CAPABILITIES: [Capability; 14] = [
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fsetid,
    Capability::Fowner,
    Capability::Mknod,
    Capability::NetRaw,
    Capability::Setgid,
    Capability::Setuid,
    Capability::Setfcap,
    Capability::Setpcap,
    Capability::NetBindService,
    Capability::SysChroot,
    Capability::Kill,
    Capability::AuditWrite,
];

/// The default capabilities of CRI-O.
const CRIO_CAPABILITIES: [Capability; 9] = [
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fsetid,
    Capability::Fowner,
    Capability::Setgid,
    Capability::Setuid,
    Capability::Setpcap,
    Capability::NetBindService,
    Capability::Kill,
];

/// The capabilities of containerd, which workloads expect.
pub fn default_capabilities() -> Vec<Capability> {
    CONTAINERD_CAPABILITIES.to_vec()
}

/// A set of capabilities: by the name of the runtime whose default it is, or as a list.
#[derive(Clone, Copy, Debug)]
pub struct CapabilitySet;

impl ValueKind for CapabilitySet {
    type Value = Vec<Capability>;

    fn words(&self) -> String {
        "\"containerd\", \"crio\" or an array of capabilities such as [\"CHOWN\", \"KILL\"]"
            .to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<Vec<Capability>, ValueError> {
        let entries = match raw {
            UnparsedValue::Text("containerd") => return Ok(CONTAINERD_CAPABILITIES.to_vec()),
            UnparsedValue::Text("crio") => return Ok(CRIO_CAPABILITIES.to_vec()),
            UnparsedValue::List(entries) => entries,
            other => {
                return Err(ValueError::Type {
                    expected: self.words(),
                    found: other.found(),
                });
            }
        };
        let mut set = Vec::new();
        let mut unknown = Vec::new();
        for (i, entry) in entries.iter().enumerate() {
            match capability(&UnparsedValue::new(entry.get_ref())) {
                Ok(one) if set.contains(&one) => {}
                Ok(one) => set.push(one),
                Err(error) => unknown.push((i + 1, error)),
            }
        }
        if unknown.is_empty() {
            Ok(set)
        } else {
            Err(ValueError::Entries(unknown))
        }
    }

    fn show(&self, value: &Vec<Capability>) -> String {
        if *value == CONTAINERD_CAPABILITIES {
            return quoted("containerd");
        }
        if *value == CRIO_CAPABILITIES {
            return quoted("crio");
        }
        let names: Vec<_> = value.iter().map(quoted).collect();
        format!("[{}]", names.join(", "))
    }
}

fn capability(raw: &UnparsedValue<'_>) -> Result<Capability, ValueError> {
    let UnparsedValue::Text(text) = raw else {
        return Err(ValueError::Capability(raw.found()));
    };
    let upper = text.to_ascii_uppercase();
    let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
    Capability::from_str(bare).map_err(|_| ValueError::Capability(raw.found()))
}

/// A seccomp profile in the older string notation of the CRI.
#[derive(Clone, Copy, Debug)]
pub struct SeccompNotation;

impl ValueKind for SeccompNotation {
    type Value = SeccompProfile;

    fn words(&self) -> String {
        "\"unconfined\", \"runtime/default\" or \"localhost//path\"".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<SeccompProfile, ValueError> {
        let text = raw.text(self)?;
        match text {
            "unconfined" => Ok(SeccompProfile::Unconfined),
            "runtime/default" => Ok(SeccompProfile::RuntimeDefault),
            _ => match text.strip_prefix("localhost/") {
                Some(path) if path.starts_with('/') => {
                    Ok(SeccompProfile::Localhost(PathBuf::from(path)))
                }
                _ => Err(ValueError::Type {
                    expected: self.words(),
                    found: raw.found(),
                }),
            },
        }
    }

    fn show(&self, value: &SeccompProfile) -> String {
        match value {
            SeccompProfile::Unconfined => quoted("unconfined"),
            SeccompProfile::RuntimeDefault => quoted("runtime/default"),
            SeccompProfile::Localhost(path) => {
                quoted_text(&format!("localhost/{}", path.display()))
            }
        }
    }
}

/// Kernel parameters and their values.
#[derive(Clone, Copy, Debug)]
pub struct SysctlValues;

impl ValueKind for SysctlValues {
    type Value = BTreeMap<String, String>;

    fn words(&self) -> String {
        "a table of kernel parameters such as { \"net.core.somaxconn\" = \"1024\" }".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<Self::Value, ValueError> {
        let UnparsedValue::Table(table) = raw else {
            return Err(ValueError::Type {
                expected: self.words(),
                found: raw.found(),
            });
        };
        let mut all = BTreeMap::new();
        for (name, value) in table.iter() {
            let name = name.get_ref().to_string();
            if !is_namespaced(&name) {
                return Err(ValueError::Sysctl(name));
            }
            let value = match UnparsedValue::new(value.get_ref()) {
                UnparsedValue::Text(text) => text.to_owned(),
                UnparsedValue::Integer(number) => number.to_string(),
                other => {
                    return Err(ValueError::Type {
                        expected: format!("a string for {name}"),
                        found: other.found(),
                    });
                }
            };
            all.insert(name, value);
        }
        Ok(all)
    }

    fn show(&self, value: &Self::Value) -> String {
        let entries = value
            .iter()
            .map(|(name, value)| format!("{} = {}", quoted_text(name), quoted_text(value)));
        let entries: Vec<_> = entries.collect();
        if entries.is_empty() {
            return "{}".to_owned();
        }
        format!("{{ {} }}", entries.join(", "))
    }
}

/// Returns whether a parameter is namespaced, as in the list of the kubelet (`pkg/kubelet/sysctl`). The host name is set
/// from the pod's configuration.
fn is_namespaced(name: &str) -> bool {
    let name = name.replace('/', ".");
    let rest = ["net.", "kernel.shm", "kernel.msg", "fs.mqueue."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix));
    let whole = !name.split('.').any(str::is_empty);
    whole && (name == "kernel.sem" || rest.is_some_and(|rest| !rest.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::read_toml as read;
    use super::*;

    #[test]
    fn capabilities_are_sets_with_a_name_or_single_ones() {
        let all = |text| read(&CapabilitySet, text).expect("right");
        assert_eq!(all("\"containerd\"").len(), 14);
        assert_eq!(CapabilitySet.show(&all("\"crio\"")), "\"crio\"");
        let some = all(r#"["cap_chown", "KILL", "CHOWN"]"#);
        assert_eq!(CapabilitySet.show(&some), r#"["CHOWN", "KILL"]"#);
        assert_eq!(all("[]"), []);
        assert_eq!(
            read(&CapabilitySet, r#"["CHOWM", "KILL", 7]"#),
            Err(
                "entry 1: there is no capability \"CHOWM\"; entry 3: there is no capability 7"
                    .to_owned()
            )
        );
        assert!(read(&CapabilitySet, "\"docker\"").is_err());
    }

    #[test]
    fn profiles_read_what_they_write() {
        for text in [
            "\"unconfined\"",
            "\"runtime/default\"",
            "\"localhost//etc/seccomp/x.json\"",
        ] {
            let profile = read(&SeccompNotation, text).expect(text);
            assert_eq!(SeccompNotation.show(&profile), text);
        }
        for text in ["\"\"", "\"localhost/x.json\"", "\"default\"", "1"] {
            assert!(read(&SeccompNotation, text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_what_a_pod_can_have_of_its_own_is_set() {
        let text = r#"{ "net/core/somaxconn" = 1024, "kernel.sem" = "1 2 3 4" }"#;
        let all = read(&SysctlValues, text).expect("right");
        assert_eq!(
            SysctlValues.show(&all),
            r#"{ "kernel.sem" = "1 2 3 4", "net/core/somaxconn" = "1024" }"#
        );
        for name in [
            "vm.swappiness",
            "net.",
            "kernel.shm",
            "net..x",
            "net",
            "kernel.hostname",
        ] {
            assert_eq!(
                read(&SysctlValues, &format!("{{ {name:?} = \"1\" }}")),
                Err(format!(
                    "{name:?} is not a kernel parameter that a pod can set for itself"
                )),
            );
        }
        assert!(read(&SysctlValues, r#"{ "net.x" = true }"#).is_err());
    }
}
