//! Attaches a new network namespace to a chain of two plugins and detaches it. Needs root, but no plugins: the example
//! writes two shell scripts that print their input.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use criscope_cni::{Cni, Pod, Settings};
use criscope_linux::namespace::{Kind, Pins, Request};

const LIST: &str = r#"{"cniVersion": "1.0.0", "name": "example", "plugins": [{"type": "address"}, {"type": "tuning"}]}"#;
const RESULT: &str = r#"{"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/24"}]}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join("criscope-cni-example");
    fs::create_dir_all(dir.join("bin"))?;
    fs::create_dir_all(dir.join("net.d"))?;
    fs::write(dir.join("net.d/10-example.conflist"), LIST)?;
    for plugin in ["address", "tuning"] {
        let path = dir.join("bin").join(plugin);
        let script = format!(
            "#!/bin/sh\necho \"{plugin}: $CNI_COMMAND $CNI_IFNAME in $CNI_NETNS\" >> {log}\n\
             [ $CNI_COMMAND = ADD ] && echo '{RESULT}' || true\n",
            log = dir.join("log").display()
        );
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }

    let pins = Pins::new(dir.join("netns"));
    let request = Request {
        kinds: vec![Kind::Net],
        ..Request::default()
    };
    pins.make("pod", request).await?;

    let cni = Cni::new(Settings {
        conf_dir: dir.join("net.d"),
        bin_dirs: vec![dir.join("bin")],
        cache_dir: dir.join("cache"),
        ..Settings::default()
    });
    let pod = Pod {
        id: "pod".to_owned(),
        netns: Some(pins.path("pod", Kind::Net)),
        ..Pod::default()
    };
    let attached = cni.add(&pod).await?;
    println!("address: {:?}", attached.ip);
    cni.del(&pod).await?;
    pins.remove("pod").await?;
    print!("{}", fs::read_to_string(dir.join("log"))?);
    fs::remove_dir_all(dir)?;
    Ok(())
}
