//! Defaults of pods and containers of the built-in runtime.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use oci_spec::runtime::Capability;

use super::super::SeccompProfile;
use super::{Kind, Raw, ValueError, quoted, quoted_text};

/// The default capabilities of containerd.
const CONTAINERD: [Capability; 14] = [
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
const CRIO: [Capability; 9] = [
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

/// Those of containerd, which workloads expect.
pub fn default_capabilities() -> Vec<Capability> {
    CONTAINERD.to_vec()
}

/// A set of capabilities: by the name of the runtime whose default it is, or as a list.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities;

impl Kind for Capabilities {
    type Value = Vec<Capability>;

    fn words(&self) -> String {
        "\"containerd\", \"crio\" or an array of capabilities such as [\"CHOWN\", \"KILL\"]"
            .to_owned()
    }

    fn read(&self, raw: &Raw<'_>) -> Result<Vec<Capability>, ValueError> {
        let wrong = |raw: &Raw<'_>| ValueError::Type {
            expected: self.words(),
            found: raw.found(),
        };
        let entries = match raw {
            Raw::Text("containerd") => return Ok(CONTAINERD.to_vec()),
            Raw::Text("crio") => return Ok(CRIO.to_vec()),
            Raw::List(entries) => entries,
            other => return Err(wrong(other)),
        };
        let mut set = Vec::new();
        let mut unknown = Vec::new();
        for (i, entry) in entries.iter().enumerate() {
            match capability(&Raw::new(entry.get_ref())) {
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
        if *value == CONTAINERD {
            return quoted("containerd");
        }
        if *value == CRIO {
            return quoted("crio");
        }
        let names: Vec<_> = value.iter().map(quoted).collect();
        format!("[{}]", names.join(", "))
    }
}

fn capability(raw: &Raw<'_>) -> Result<Capability, ValueError> {
    let Raw::Text(text) = raw else {
        return Err(ValueError::Capability(raw.found()));
    };
    let upper = text.to_ascii_uppercase();
    let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
    Capability::from_str(bare).map_err(|_| ValueError::Capability(raw.found()))
}

/// A seccomp profile in the older string notation of the CRI.
#[derive(Clone, Copy, Debug)]
pub struct Profile;

impl Kind for Profile {
    type Value = SeccompProfile;

    fn words(&self) -> String {
        "\"unconfined\", \"runtime/default\" or \"localhost//path\"".to_owned()
    }

    fn read(&self, raw: &Raw<'_>) -> Result<SeccompProfile, ValueError> {
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
pub struct Sysctls;

impl Kind for Sysctls {
    type Value = BTreeMap<String, String>;

    fn words(&self) -> String {
        "a table of kernel parameters such as { \"net.core.somaxconn\" = \"1024\" }".to_owned()
    }

    fn read(&self, raw: &Raw<'_>) -> Result<Self::Value, ValueError> {
        let Raw::Table(table) = raw else {
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
            let value = match Raw::new(value.get_ref()) {
                Raw::Text(text) => text.to_owned(),
                Raw::Integer(number) => number.to_string(),
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
        let all = |text| read(&Capabilities, text).expect("right");
        assert_eq!(all("\"containerd\"").len(), 14);
        assert_eq!(Capabilities.show(&all("\"crio\"")), "\"crio\"");
        let some = all(r#"["cap_chown", "KILL", "CHOWN"]"#);
        assert_eq!(Capabilities.show(&some), r#"["CHOWN", "KILL"]"#);
        assert_eq!(all("[]"), []);
        assert_eq!(
            read(&Capabilities, r#"["CHOWM", "KILL", 7]"#),
            Err(
                "entry 1: there is no capability \"CHOWM\"; entry 3: there is no capability 7"
                    .to_owned()
            )
        );
        assert!(read(&Capabilities, "\"docker\"").is_err());
    }

    #[test]
    fn profiles_read_what_they_write() {
        for text in [
            "\"unconfined\"",
            "\"runtime/default\"",
            "\"localhost//etc/seccomp/x.json\"",
        ] {
            let profile = read(&Profile, text).expect(text);
            assert_eq!(Profile.show(&profile), text);
        }
        for text in ["\"\"", "\"localhost/x.json\"", "\"default\"", "1"] {
            assert!(read(&Profile, text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_what_a_pod_can_have_of_its_own_is_set() {
        let text = r#"{ "net/core/somaxconn" = 1024, "kernel.sem" = "1 2 3 4" }"#;
        let all = read(&Sysctls, text).expect("right");
        assert_eq!(
            Sysctls.show(&all),
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
                read(&Sysctls, &format!("{{ {name:?} = \"1\" }}")),
                Err(format!(
                    "{name:?} is no kernel parameter that a pod can have its own value of"
                )),
            );
        }
        assert!(read(&Sysctls, r#"{ "net.x" = true }"#).is_err());
    }
}
