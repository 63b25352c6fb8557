//! `pods/proxy`: without the user's credentials, and without a look at the pod's certificate, as API servers do it.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{State, json_response, status};

impl State {
    pub(super) async fn proxy(&self, name: &str, head: &Parts) -> Response<Full<Bytes>> {
        let parts: Vec<_> = name.split(':').collect();
        let ["https", pod, "9479"] = parts[..] else {
            panic!("the agent serves https on 9479: {name}");
        };
        let address = self.agents.lock().expect("agents").get(pod).copied();
        let path = head.uri.path_and_query().expect("a path").as_str();
        let (_, rest) = path.split_once("/proxy").expect("proxied");
        let reached = async {
            let stream = TcpStream::connect(address.expect("an agent")).await?;
            get(stream, rest, head).await
        };
        reached.await.unwrap_or_else(|error: std::io::Error| {
            let code = StatusCode::SERVICE_UNAVAILABLE;
            json_response(
                code,
                &status(code, &format!("error trying to reach service: {error}")),
            )
        })
    }
}

async fn get(
    stream: TcpStream,
    path: &str,
    head: &Parts,
) -> std::io::Result<Response<Full<Bytes>>> {
    let stream = connect(stream).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(std::io::Error::other)?;
    tokio::spawn(connection);
    let mut request = Request::get(path)
        .body(Full::<Bytes>::default())
        .expect("a request");
    *request.headers_mut() = head.headers.clone();
    request.headers_mut().remove(header::AUTHORIZATION);
    let response = sender
        .send_request(request)
        .await
        .map_err(std::io::Error::other)?;
    let (head, body) = response.into_parts();
    let body = body
        .collect()
        .await
        .map_err(std::io::Error::other)?
        .to_bytes();
    Ok(Response::from_parts(head, Full::new(body)))
}

/// TLS with a peer whose certificate does not matter.
pub(crate) async fn connect(
    stream: TcpStream,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let provider = Arc::new(ring::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(algorithms)))
        .with_no_client_auth();
    let name = ServerName::try_from("agent").expect("a name");
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

#[derive(Debug)]
struct Anybody(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
