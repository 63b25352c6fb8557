//! DEL when the cache has lost the parameters of the ADD, or a plugin is not installed.

use std::fs;
use std::path::PathBuf;

use criscope_cni::{AttachedNetwork, PortMapping, Protocol};
use serde_json::json;

use super::fake::{Fake, pod};

/// What can have become of the file of an entry.
const DAMAGES: [&str; 6] = [
    "",
    "{",
    "[]",
    "null",
    "{\"kind\":\"cniCacheV1\"}",
    "\0\0\0\0",
];

fn entry(fake: &Fake, name: &str) -> PathBuf {
    fake.dir.path().join("cache/results").join(name)
}

/// Reserves an address as host-local does.
fn reserve(fake: &Fake, network: &str, address: &str, text: &str) -> PathBuf {
    let dir = fake.dir.path().join("ipam").join(network);
    fs::create_dir_all(&dir).expect("directory");
    fs::write(dir.join(address), text).expect("an address");
    dir.join(address)
}

fn bridge(fake: &Fake) -> String {
    let dir = fake.dir.path().join("ipam");
    format!(
        r#"{{"type":"x","ipam":{{"type":"host-local","dataDir":"{}"}}}}"#,
        dir.display()
    )
}

fn port() -> PortMapping {
    PortMapping {
        host_port: 8080,
        container_port: 80,
        protocol: Protocol::Tcp,
        host_ip: String::new(),
    }
}

#[tokio::test]
async fn a_pod_with_a_damaged_entry_is_detached_with_its_recorded_configuration() {
    let fake = Fake::new();
    fake.plugin("x", "").plugin("y", "");
    for damage in DAMAGES {
        fake.list("a.conflist", "1.0.0", r#"{"type":"x","own":1}"#);
        let attached = fake.cni().add(&pod("c1")).await.expect("add");
        assert_eq!(attached.networks[0].interface, "eth0");
        // The record is JSON.
        let record = serde_json::to_string(&attached.networks).expect("JSON");
        let record: Vec<AttachedNetwork> = serde_json::from_str(&record).expect("JSON");
        fs::write(entry(&fake, "a-c1-eth0"), damage).expect("damaged");
        fs::remove_file(fake.dir.path().join("net.d/a.conflist")).expect("removed");
        fake.list("b.conflist", "1.0.0", r#"{"type":"y"}"#);
        fake.cni()
            .del_recorded(&pod("c1"), &record)
            .await
            .expect("del");
        assert_eq!(fake.told("x", "DEL")["own"], 1, "{damage}");
        assert_eq!(fake.told("x", "DEL")["name"], "a", "{damage}");
        assert!(!fake.log().contains(&"y DEL".to_owned()), "{damage}");
        assert!(fake.cached().is_empty(), "{damage}: {:?}", fake.cached());
        fs::remove_file(fake.dir.path().join("net.d/b.conflist")).expect("removed");
    }
}

#[tokio::test]
async fn without_a_record_the_network_of_the_name_is_used_and_addresses_are_released() {
    let mut fake = Fake::new();
    fake.settings.max_conf_num = 0;
    fake.plugin("x", "").plugin("y", "");
    let own = bridge(&fake);
    fake.list("a.conflist", "1.0.0", &own);
    fake.cni().add(&pod("c1")).await.expect("add");
    let address = reserve(&fake, "a", "10.1.2.3", "c1\r\neth0");
    let other = reserve(&fake, "a", "10.1.2.4", "c2\r\neth0");
    fs::write(entry(&fake, "a-c1-eth0"), "{").expect("damaged");
    // Now the second network, of another kind.
    fake.list("0.conflist", "1.0.0", r#"{"type":"y"}"#);
    fake.list("a.conflist", "1.0.0", &own.replace("\"x\"", "\"y\""));
    fake.cni().del(&pod("c1")).await.expect("del");
    assert_eq!(fake.told("y", "DEL")["name"], "a");
    assert!(fake.env("y", "DEL").contains("CNI_IFNAME=eth0"));
    assert!(!address.exists() && other.exists());
    assert!(fake.cached().is_empty());

    // Its network exists no more.
    for damage in DAMAGES {
        let address = reserve(&fake, "gone", "10.1.2.3", "c3\r\neth0");
        fs::write(entry(&fake, "gone-c3-eth0"), damage).expect("damaged");
        fake.cni().del(&pod("c3")).await.expect("del");
        assert!(!address.exists(), "{damage}");
        assert!(fake.cached().is_empty(), "{damage}");
    }
    // Nothing is configured at all.
    for name in ["0.conflist", "a.conflist"] {
        fs::remove_file(fake.dir.path().join("net.d").join(name)).expect("removed");
    }
    fs::write(entry(&fake, "gone-c3-eth0"), "{").expect("damaged");
    fake.cni().del(&pod("c3")).await.expect("del");
    assert!(fake.cached().is_empty());
}

#[tokio::test]
async fn a_cache_that_cannot_be_read_keeps_no_pod() {
    let fake = Fake::new();
    fake.plugin("x", "");
    fake.list("a.conflist", "1.0.0", r#"{"type":"x","own":1}"#);
    let attached = fake.cni().add(&pod("c1")).await.expect("add");
    let results = fake.dir.path().join("cache/results");
    fs::remove_dir_all(&results).expect("removed");
    fs::write(&results, "a file in place of the directory").expect("file");
    fake.list("a.conflist", "1.0.0", r#"{"type":"x","own":2}"#);
    let record = attached.networks;
    fake.cni()
        .del_recorded(&pod("c1"), &record)
        .await
        .expect("del");
    assert_eq!(fake.told("x", "DEL")["own"], 1);
    // The next pod gets a directory.
    fake.cni().add(&pod("c2")).await.expect("add");
    assert_eq!(fake.cached(), ["a-c2-eth0"]);
    // A directory in place of an entry.
    fs::remove_file(entry(&fake, "a-c2-eth0")).expect("removed");
    fs::create_dir_all(entry(&fake, "a-c2-eth0").join("in it")).expect("directory");
    fake.cni().del(&pod("c2")).await.expect("del");
    assert!(fake.cached().is_empty());
}

#[tokio::test]
async fn copies_of_an_entry_are_one_attachment() {
    let fake = Fake::new();
    fake.plugin("x", "")
        .list("a.conflist", "1.0.0", r#"{"type":"x"}"#);
    fake.cni().add(&pod("c1")).await.expect("add");
    fs::copy(entry(&fake, "a-c1-eth0"), entry(&fake, "b-c1-eth0")).expect("copy");
    fs::write(entry(&fake, ".a-c1-eth0.tmp"), "{").expect("temporary");
    fake.cni().del(&pod("c1")).await.expect("del");
    assert_eq!(fake.log(), ["x ADD", "x DEL"]);
    assert!(fake.cached().is_empty(), "{:?}", fake.cached());
}

#[tokio::test]
async fn a_plugin_that_is_gone_keeps_no_pod_and_is_called_when_it_is_back() {
    let fake = Fake::new();
    fake.plugin("first", "").plugin("x", "").plugin("last", "");
    let plugins = format!(r#"{{"type":"first"}},{},{{"type":"last"}}"#, bridge(&fake));
    fake.list("a.conflist", "1.0.0", &plugins);
    fake.cni().add(&pod("c1")).await.expect("add");
    let address = reserve(&fake, "a", "10.1.2.3", "c1\r\neth0");
    let before = fake.log().len();
    for name in ["x", "last"] {
        fs::remove_file(fake.bin().join(name)).expect("removed");
    }
    fake.cni().del(&pod("c1")).await.expect("del");
    assert_eq!(fake.log()[before..], ["first DEL"]);
    assert!(!address.exists(), "host-local is not installed either");
    let waiting = fs::read(entry(&fake, "a-c1-eth0")).expect("kept");
    let waiting: serde_json::Value = serde_json::from_slice(&waiting).expect("JSON");
    assert_eq!(waiting["criscopeLacksPlugins"], true);
    let attached = fake.cni().interfaces("c1").await.expect("interfaces");
    assert!(attached.is_empty());

    let below = || async {
        let cni = fake.cni();
        cni.attached_below("/proc/self/ns".as_ref())
            .await
            .expect("attached")
    };
    assert!(below().await.is_empty(), "it waits");
    fake.plugin("x", "").plugin("last", "");
    assert_eq!(below().await, ["c1"]);
    fake.cni().del(&pod("c1")).await.expect("del");
    assert!(
        fake.log()
            .ends_with(&["last DEL".into(), "x DEL".into(), "first DEL".into()])
    );
    assert!(fake.cached().is_empty());
}

#[tokio::test]
async fn the_plugin_of_addresses_is_called_in_place_of_one_that_is_gone() {
    let fake = Fake::new();
    fake.plugin("x", "").plugin("host-local", "");
    fake.list("a.conflist", "1.0.0", &bridge(&fake));
    fake.cni().add(&pod("c1")).await.expect("add");
    fs::remove_file(fake.bin().join("x")).expect("removed");
    fake.cni().del(&pod("c1")).await.expect("del");
    assert_eq!(fake.log(), ["x ADD", "host-local DEL"]);
    let told = fake.told("host-local", "DEL");
    assert_eq!(
        (&told["name"], &told["ipam"]["type"]),
        (&json!("a"), &json!("host-local"))
    );
    // One that fails is asked again, like any other.
    fake.plugin("x", "");
    fake.cni().add(&pod("c2")).await.expect("add");
    fs::remove_file(fake.bin().join("x")).expect("removed");
    fake.plugin("host-local", "DEL) exit 1;;");
    fake.cni().del(&pod("c2")).await.expect_err("it fails");
    assert!(fake.cached().contains(&"a-c2-eth0".to_owned()));
}

/// Whoever gets the address would get the connections to the port.
#[tokio::test]
async fn an_address_that_a_port_is_forwarded_to_is_not_released() {
    let fake = Fake::new();
    fake.plugin("x", "").plugin("ports", "");
    let plugins = format!(
        r#"{},{{"type":"ports","capabilities":{{"portMappings":true}}}}"#,
        bridge(&fake)
    );
    fake.list("a.conflist", "1.0.0", &plugins);
    let mut forwarded = pod("c1");
    forwarded.capabilities.port_mappings = vec![port()];
    for pod in [&forwarded, &pod("c2")] {
        fake.cni().add(pod).await.expect("add");
    }
    fs::remove_file(fake.bin().join("ports")).expect("removed");
    let before = fake.log().len();
    fake.cni().del(&forwarded).await.expect("del");
    assert_eq!(fake.log().len(), before, "x keeps the address");
    fake.cni().del(&pod("c2")).await.expect("del");
    assert_eq!(fake.log()[before..], ["x DEL"]);
    fake.plugin("ports", "");
    fake.cni().del(&forwarded).await.expect("del");
    assert_eq!(fake.log()[before + 1..], ["ports DEL", "x DEL"]);
    assert_eq!(fake.cached(), ["a-c2-eth0"], "it waits for the plugin");
}

#[tokio::test]
async fn damaged_files_of_ours_are_moved_aside_until_the_pod_is_detached() {
    let fake = Fake::new();
    fake.plugin("x", "")
        .list("a.conflist", "1.0.0", r#"{"type":"x"}"#);
    let attached = fake.cni().add(&pod("c1")).await.expect("add");
    fs::write(entry(&fake, "a-c1-eth0"), "{").expect("damaged");
    fs::write(entry(&fake, "a-other-eth0"), "{").expect("damaged");
    fake.cni().tidy_cache(|id| id == "c1").await;
    assert_eq!(fake.cached(), ["a-other-eth0"]);
    let error = fake.cni().attachments().await.expect_err("incomplete");
    assert!(error.to_string().contains("damaged"), "{error}");
    let record = attached.networks;
    let done = fake.cni().del_recorded(&pod("c1"), &record).await;
    done.expect("del");
    assert_eq!(fake.log(), ["x ADD", "x DEL"]);
    let aside = fs::read_dir(fake.dir.path().join("cache/damaged"));
    assert_eq!(aside.expect("directory").count(), 0);
    assert_eq!(fake.cached(), ["a-other-eth0"], "of another runtime");
}
