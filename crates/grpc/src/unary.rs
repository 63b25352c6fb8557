//! criscope's own unary calls: one request message, one response message.

use bytes::{Buf, BytesMut};
use http_body_util::{BodyExt, Limited};
use prost::Message;
use tonic::Code;
use tower::{Service, ServiceExt};

use super::frame::{self, FrameHeader};
use super::status::Status;
use super::{Body, BoxError, Request, Response};

/// Largest response accepted, in bytes: a list of some ten thousand containers.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Largest element of a list that is read element by element, in bytes.
const MAX_ELEMENT_BYTES: usize = 16 << 20;

/// A request of criscope's own to `path` (`/runtime.v1.RuntimeService/Version`).
///
/// # Errors
/// `INVALID_ARGUMENT` if the message is too large for a frame or the path is invalid.
pub fn request(path: &str, message: &[u8]) -> Result<Request, Status> {
    let framed = frame::frame(message).map_err(invalid_argument)?;
    http::Request::post(format!("http://localhost{path}"))
        .version(http::Version::HTTP_2)
        .header(http::header::CONTENT_TYPE, "application/grpc")
        .header(http::header::TE, "trailers")
        .header(
            http::header::USER_AGENT,
            concat!("criscope/", env!("CARGO_PKG_VERSION")),
        )
        .body(Body::full(framed))
        .map_err(invalid_argument)
}

fn invalid_argument(error: impl std::fmt::Display) -> Status {
    Status::new(Code::InvalidArgument, error.to_string())
}

/// Sends a request and waits for the response headers.
async fn begin<S, Q>(service: &mut S, path: &str, message: &Q) -> Result<Response, Status>
where
    S: Service<Request, Response = Response, Error = BoxError>,
    Q: Message,
{
    let request = request(path, &message.encode_to_vec())?;
    let response = service
        .ready()
        .await
        .map_err(unavailable)?
        .call(request)
        .await
        .map_err(unavailable)?;
    match frame::status(response.headers()) {
        Some((code, message)) if code != Code::Ok => {
            Err(Status::from_backend(code, message.unwrap_or_default()))
        }
        _ => Ok(response),
    }
}

#[allow(clippy::needless_pass_by_value)]
fn unavailable(error: BoxError) -> Status {
    Status::unavailable(error.to_string())
}

/// Checks the status at the end of a response.
fn end(head: &http::response::Parts, trailers: Option<&http::HeaderMap>) -> Result<(), Status> {
    let status = trailers.and_then(frame::status);
    match status.or_else(|| frame::status(&head.headers)) {
        Some((Code::Ok, _)) => Ok(()),
        Some((code, message)) => Err(Status::from_backend(code, message.unwrap_or_default())),
        None => {
            let text = format!(
                "the answer has no grpc-status (http status {})",
                head.status
            );
            Err(Status::new(frame::code_of_http(head.status), text))
        }
    }
}

fn not_a_message() -> Status {
    Status::new(Code::Internal, "the answer is not one whole message")
}

/// Makes a call.
///
/// # Errors
/// The status of the response, or `UNAVAILABLE` without one, or `INTERNAL` if the message does not decode.
pub async fn call<S, Q, A>(service: &mut S, path: &str, message: &Q) -> Result<A, Status>
where
    S: Service<Request, Response = Response, Error = BoxError>,
    Q: Message,
    A: Message + Default,
{
    let (head, body) = begin(service, path, message).await?.into_parts();
    let collected = Limited::new(body, MAX_RESPONSE_BYTES)
        .collect()
        .await
        .map_err(unavailable)?;
    end(&head, collected.trailers())?;
    let bytes = collected.to_bytes();
    let message = frame::message(&bytes).ok_or_else(not_a_message)?;
    A::decode(message).map_err(|_| not_a_message())
}

/// Makes a call whose response is a list in field 1, and passes the elements on one by one, so that the list is never in
/// memory as a whole. Returns the number of elements.
///
/// # Errors
/// As [`call`]; elements may have been passed on before.
pub async fn each<S, Q, I>(
    service: &mut S,
    path: &str,
    message: &Q,
    mut give: impl FnMut(I),
) -> Result<usize, Status>
where
    S: Service<Request, Response = Response, Error = BoxError>,
    Q: Message,
    I: Message + Default,
{
    let (head, mut body) = begin(service, path, message).await?.into_parts();
    let mut buffer = BytesMut::new();
    let mut missing = None;
    let mut count = 0;
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        match frame.map_err(unavailable)?.into_data() {
            Ok(data) => buffer.extend_from_slice(&data),
            Err(frame) => {
                trailers = frame.into_trailers().ok();
                break;
            }
        }
        if missing.is_none() {
            missing = FrameHeader::read(&buffer);
            match missing {
                Some(head) if head.compressed => return Err(not_a_message()),
                Some(_) => buffer.advance(frame::HEADER_LENGTH),
                None => continue,
            }
        }
        while let Some(field) = take_field(&mut buffer)? {
            if let Some(element) = field {
                give(I::decode(element).map_err(|_| not_a_message())?);
                count += 1;
            }
        }
    }
    end(&head, trailers.as_ref())?;
    if missing.is_none() || !buffer.is_empty() {
        return Err(not_a_message());
    }
    Ok(count)
}

/// Consumes a complete field of the buffer: `Some(Some(bytes))` for an element of field 1, `Some(None)` for any other
/// field, `None` if the field is incomplete (Protobuf encoding, "message structure").
fn take_field(buffer: &mut BytesMut) -> Result<Option<Option<BytesMut>>, Status> {
    use prost::encoding::{WireType, decode_key, decode_varint};
    /// The longest key and length: two varints of ten bytes.
    const LONGEST_HEAD: usize = 20;
    /// The result for a varint that cannot be read: it may be truncated at the end of the buffer; otherwise it is malformed.
    fn incomplete<T>(buffer: &[u8]) -> Result<Option<T>, Status> {
        if buffer.len() < LONGEST_HEAD {
            Ok(None)
        } else {
            Err(not_a_message())
        }
    }
    let mut rest = &buffer[..];
    if rest.is_empty() {
        return Ok(None);
    }
    let Ok((tag, wire_type)) = decode_key(&mut rest) else {
        return incomplete(buffer);
    };
    let len = match wire_type {
        WireType::Varint => match decode_varint(&mut rest) {
            Ok(_) => 0,
            Err(_) => return incomplete(buffer),
        },
        WireType::SixtyFourBit => 8,
        WireType::ThirtyTwoBit => 4,
        WireType::LengthDelimited => match decode_varint(&mut rest) {
            Ok(len) => usize::try_from(len).unwrap_or(usize::MAX),
            Err(_) => return incomplete(buffer),
        },
        WireType::StartGroup | WireType::EndGroup => return Err(not_a_message()),
    };
    if len > MAX_ELEMENT_BYTES {
        let text = format!("an element of the list has {len} bytes");
        return Err(Status::new(Code::ResourceExhausted, text));
    }
    if rest.len() < len {
        return Ok(None);
    }
    let head = buffer.len() - rest.len();
    buffer.advance(head);
    let field = buffer.split_to(len);
    let is_element = tag == 1 && wire_type == WireType::LengthDelimited;
    Ok(Some(is_element.then_some(field)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use criscope_cri::v1;
    use http_body::Frame;
    use http_body_util::StreamBody;

    /// A service that answers with these bytes in pieces of `size`.
    fn answering(
        bytes: Vec<u8>,
        size: usize,
        code: i32,
    ) -> impl Service<Request, Response = Response, Error = BoxError, Future: Send> {
        tower::service_fn(move |_| {
            let bytes = bytes.clone();
            async move {
                let mut frames: Vec<Result<Frame<bytes::Bytes>, BoxError>> = bytes
                    .chunks(size)
                    .map(|c| Ok(Frame::data(bytes::Bytes::copy_from_slice(c))))
                    .collect();
                let mut trailers = http::HeaderMap::new();
                trailers.insert("grpc-status", code.into());
                frames.push(Ok(Frame::trailers(trailers)));
                let body = StreamBody::new(futures_util::stream::iter(frames));
                Ok(Response::new(Body::boxed(body)))
            }
        })
    }

    fn list() -> Vec<u8> {
        let items = (0..50)
            .map(|i| v1::PodSandbox {
                id: format!("id-{i}"),
                runtime_handler: "x".repeat(i),
                ..Default::default()
            })
            .collect();
        let message = v1::ListPodSandboxResponse { items }.encode_to_vec();
        frame::frame(&message).expect("small").to_vec()
    }

    #[tokio::test]
    async fn a_list_in_pieces_of_any_size_has_every_element() {
        for size in [1, 2, 3, 7, 64, 100_000] {
            let mut ids = Vec::new();
            let count = each(
                &mut answering(list(), size, 0),
                "/x",
                &(),
                |s: v1::PodSandbox| {
                    ids.push(s.id);
                },
            )
            .await
            .map_err(|e| e.message);
            assert_eq!(count, Ok(50), "pieces of {size}");
            assert_eq!(ids[49], "id-49");
        }
    }

    #[tokio::test]
    async fn a_list_that_is_cut_or_fails_is_an_error() {
        let mut cut = list();
        cut.truncate(cut.len() - 1);
        for (bytes, code) in [
            (cut, 0),
            (list(), 14),
            (vec![], 0),
            (vec![0, 0, 0, 0, 1, 0xff], 0),
        ] {
            let got = each(
                &mut answering(bytes, 64, code),
                "/x",
                &(),
                |_: v1::PodSandbox| {},
            )
            .await;
            assert!(got.is_err());
        }
    }
}
