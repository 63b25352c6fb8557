//! What a header block says: the head of a request or an answer, or trailers.

use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, StatusCode, Uri, Version, header};

use super::MAX_HEADER_LIST;
use super::hpack::Field;
use super::hpack::decode::{Decoder, Unreadable};

/// The head of an answer.
pub(super) type ResponseHead = (StatusCode, HeaderMap);

/// A header block, as it was read.
#[derive(Debug, Default)]
pub(super) struct Block {
    method: Option<Method>,
    scheme: Option<Scheme>,
    authority: Option<Authority>,
    path: Option<PathAndQuery>,
    status: Option<StatusCode>,
    headers: HeaderMap,
    /// What the body is said to be long, in bytes.
    pub(super) content_length: Option<u64>,
    is_malformed: bool,
    /// Larger than [`MAX_HEADER_LIST`]; the rest was not kept.
    pub(super) is_too_large: bool,
    size: usize,
}

impl Block {
    /// Reads a whole block. One that is malformed or too large keeps the tables in step.
    pub(super) fn read(decoder: &mut Decoder, bytes: &[u8]) -> Result<Self, Unreadable> {
        let mut block = Self {
            // Most fields are indexed, and the map wants some room to spare.
            headers: HeaderMap::with_capacity((bytes.len() / 2).clamp(3, 12)),
            ..Self::default()
        };
        decoder.decode(bytes, |field, size| block.add(field, size))?;
        Ok(block)
    }

    fn add(&mut self, field: Field, size: usize) {
        self.size += size;
        if self.size > MAX_HEADER_LIST as usize {
            self.is_too_large = true;
        }
        if self.is_too_large || self.is_malformed {
            return;
        }
        let is_late = !self.headers.is_empty();
        let was_there = match field {
            Field::Header(name, value) => {
                if name == header::CONTENT_LENGTH {
                    let text = value.to_str().ok();
                    let length = text.and_then(|text| text.parse().ok());
                    self.is_malformed = length.is_none();
                    self.content_length = length;
                }
                // More names than a map can hold are too many.
                self.is_too_large |= self.headers.try_append(name, value).is_err();
                return;
            }
            Field::Method(method) => self.method.replace(method).is_some(),
            Field::Scheme(scheme) => self.scheme.replace(scheme).is_some(),
            Field::Authority(authority) => self.authority.replace(authority).is_some(),
            Field::Path(path) => self.path.replace(path).is_some(),
            Field::Status(status) => self.status.replace(status).is_some(),
            Field::Bad(_) => true,
        };
        // Pseudo headers come first, and once (RFC 9113, 8.3).
        self.is_malformed |= is_late || was_there;
    }

    fn is_request(&self) -> bool {
        self.method.is_some()
            || self.scheme.is_some()
            || self.authority.is_some()
            || self.path.is_some()
    }

    /// As the head of a request; `None` if it is malformed.
    pub(super) fn into_request(self) -> Option<Request<()>> {
        if self.is_malformed || self.status.is_some() {
            return None;
        }
        let mut parts = Parts::default();
        parts.path_and_query = Some(self.path?);
        // A scheme without an authority makes no address.
        parts.scheme = self.authority.as_ref().and(Some(self.scheme?));
        parts.authority = self.authority;
        let mut request = Request::new(());
        *request.method_mut() = self.method?;
        *request.uri_mut() = Uri::from_parts(parts).ok()?;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = self.headers;
        Some(request)
    }

    /// As the head of an answer; `None` if it is malformed.
    pub(super) fn into_response(self) -> Option<ResponseHead> {
        if self.is_malformed || self.is_request() {
            return None;
        }
        Some((self.status?, self.headers))
    }

    /// As trailers; `None` if it is malformed.
    pub(super) fn into_trailers(self) -> Option<HeaderMap> {
        if self.is_malformed || self.is_request() || self.status.is_some() {
            return None;
        }
        Some(self.headers)
    }
}
