//! The metrics endpoint of a daemon under measurement.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::error::{IoContext, Result};

/// An unused port on loopback.
///
/// # Errors If there is none.
pub fn free_port() -> Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .during(|| "looking for a free port".to_owned())
}

/// Scrapes `path`; the answer with its HTTP header.
///
/// # Errors If there is no answer.
pub async fn scrape(address: SocketAddr, path: &str) -> Result<String> {
    let answer = async {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    answer
        .await
        .during(|| format!("scraping http://{address}{path}"))
}
