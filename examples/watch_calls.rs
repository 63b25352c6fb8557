//! Prints the calls in flight once a second, from the admin endpoint's unix socket. Needs the permissions of its owner.
//!
//! ```text
//! cargo run --example watch_calls -- /run/criscope/criscope.admin.sock
//! ```

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

/// The default of `admin.socket`.
const SOCKET: &str = "/run/criscope/criscope.admin.sock";

/// The fields that are printed.
#[derive(Deserialize)]
struct Call {
    method: String,
    duration_ms: f64,
    namespace: Option<String>,
    pod: Option<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args_os().nth(1);
    let socket = socket.map_or_else(|| PathBuf::from(SOCKET), PathBuf::from);
    loop {
        for call in calls(&socket)? {
            let subject = match (&call.namespace, &call.pod) {
                (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
                _ => "-".to_owned(),
            };
            println!("{:>10.0} ms  {}  {subject}", call.duration_ms, call.method);
        }
        println!();
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn calls(socket: &Path) -> Result<Vec<Call>, Box<dyn Error>> {
    let mut stream = UnixStream::connect(socket)?;
    // HTTP/1.0: the body ends with the connection.
    stream.write_all(b"GET /debug/calls?format=json HTTP/1.0\r\nhost: localhost\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let (head, body) = response.split_once("\r\n\r\n").ok_or("no HTTP response")?;
    if !head.contains(" 200 ") {
        return Err(head.lines().next().unwrap_or_default().into());
    }
    Ok(serde_json::from_str(body)?)
}
