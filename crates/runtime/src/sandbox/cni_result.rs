//! The network of a pod in the form of containerd's `cniResult`, which is that of its library go-cni: interfaces by name, with
//! the addresses of each. Tools read `.cniResult.Interfaces.eth0.IPConfigs[0].IP`.

use criscope_cni::Interface;
use serde_json::{Map, Value, json};

/// `null` for a pod without attached networks, as in containerd.
pub(super) fn shown(attached: &[Interface]) -> Value {
    if attached.is_empty() {
        return Value::Null;
    }
    let mut interfaces = Map::new();
    let (mut dns, mut routes) = (Vec::new(), Vec::new());
    for one in attached {
        let own = &one.attachment.interface;
        interfaces.insert(own.clone(), config("", "", "", ""));
        let result = one.result.to_value();
        let listed = list(&result, "interfaces");
        for interface in listed {
            let config = config(
                text(interface, "mac"),
                text(interface, "sandbox"),
                text(interface, "pciID"),
                text(interface, "socketPath"),
            );
            interfaces.insert(text(interface, "name").to_owned(), config);
        }
        for ip in list(&result, "ips") {
            let index = ip.get("interface").and_then(Value::as_u64);
            let named = index.and_then(|index| listed.get(usize::try_from(index).ok()?));
            // Plugins need not name interfaces: the address is the pod's then.
            let name = named.map_or(own.as_str(), |named| text(named, "name"));
            let address = text(ip, "address").split('/').next().unwrap_or_default();
            let shown = json!({"IP": address, "Gateway": text(ip, "gateway")});
            let Some(interface) = interfaces.get_mut(name) else {
                continue;
            };
            match &mut interface["IPConfigs"] {
                Value::Array(all) => all.push(shown),
                none => *none = json!([shown]),
            }
        }
        dns.push(result.get("dns").cloned().unwrap_or_else(|| json!({})));
        routes.extend(list(&result, "routes").iter().cloned());
    }
    json!({
        "Interfaces": interfaces,
        "DNS": dns,
        // Go writes an empty list like this.
        "Routes": Some(routes).filter(|routes| !routes.is_empty()),
    })
}

fn config(mac: &str, sandbox: &str, pci: &str, socket: &str) -> Value {
    json!({"IPConfigs": null, "Mac": mac, "Sandbox": sandbox, "PciID": pci, "SocketPath": socket})
}

fn list<'a>(result: &'a Value, key: &str) -> &'a [Value] {
    result
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use criscope_cni::{Attachment, CniResult, Version};

    use super::*;

    fn attached(interface: &str, result: &Value) -> Interface {
        let result = CniResult::parse(result.to_string().as_bytes(), Version::V1_0_0);
        Interface {
            attachment: Attachment {
                network: "net".to_owned(),
                container: "pod".to_owned(),
                interface: interface.to_owned(),
            },
            result: result.expect("valid"),
        }
    }

    #[test]
    fn the_form_is_that_of_containerd() {
        let bridge = attached(
            "eth0",
            &json!({
                "interfaces": [{"name": "cni0", "mac": "aa"}, {"name": "eth0", "mac": "bb", "sandbox": "/run/netns/x"}],
                "ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1", "interface": 1}, {"address": "fd00::2/64", "interface": 1}],
                "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}],
                "dns": {"nameservers": ["10.0.0.10"]},
            }),
        );
        let bare = attached("eth1", &json!({"ips": [{"address": "10.1.0.2/24"}]}));
        assert_eq!(
            shown(&[bridge, bare]),
            json!({
                "Interfaces": {
                    "cni0": {"IPConfigs": null, "Mac": "aa", "Sandbox": "", "PciID": "", "SocketPath": ""},
                    "eth0": {
                        "IPConfigs": [{"IP": "10.0.0.2", "Gateway": "10.0.0.1"}, {"IP": "fd00::2", "Gateway": ""}],
                        "Mac": "bb", "Sandbox": "/run/netns/x", "PciID": "", "SocketPath": "",
                    },
                    "eth1": {"IPConfigs": [{"IP": "10.1.0.2", "Gateway": ""}], "Mac": "", "Sandbox": "", "PciID": "", "SocketPath": ""},
                },
                "DNS": [{"nameservers": ["10.0.0.10"]}, {}],
                "Routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}],
            })
        );
        assert_eq!(shown(&[]), Value::Null);
        // The interface of the pod is there even if the plugin says nothing, as in containerd.
        let silent = shown(&[attached("eth0", &json!({}))]);
        assert_eq!(silent["Interfaces"]["eth0"]["IPConfigs"], Value::Null);
        assert_eq!(
            (&silent["DNS"], &silent["Routes"]),
            (&json!([{}]), &Value::Null)
        );
    }
}
