//! Creates a network and a UTS namespace, shows the interfaces of the former, and removes both. Needs root.

use criscope_linux::namespace::{Error, Kind, Pins, Request};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let pins = Pins::new(std::env::temp_dir().join("criscope-linux-example"));
    let request = Request {
        kinds: vec![Kind::Net, Kind::Uts],
        hostname: Some("example".to_owned()),
        ..Request::default()
    };
    pins.make("pod", request).await?;
    println!("pinned at {}", pins.path("pod", Kind::Net).display());
    for interface in pins.counters("pod").await? {
        println!("{}: {} bytes received", interface.name, interface.rx_bytes);
    }
    pins.remove("pod").await
}
