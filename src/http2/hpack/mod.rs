//! HPACK (RFC 7541): a header that was sent before is sent as its place in a table.
//!
//! Tables hold headers as they are used, not as text: an index costs a look-up and two reference counts. A path is
//! parsed when it enters the table, and not again with each call.

pub(super) mod decode;
pub(super) mod encode;
mod huffman;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Method, StatusCode};

/// What an entry weighs beside its text (RFC 7541, 4.1), in bytes.
const OVERHEAD: usize = 32;

/// Size of a table unless said otherwise, and the largest here, in bytes.
pub(super) const TABLE_SIZE: usize = 4096;

/// The names of the static table after the pseudo headers, which has no values for them but one.
const STATIC_NAMES: &str = "accept-charset accept-encoding accept-language accept-ranges accept \
    access-control-allow-origin age allow authorization cache-control content-disposition content-encoding \
    content-language content-length content-location content-range content-type cookie date etag expect expires from \
    host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified link location max-forwards \
    proxy-authenticate proxy-authorization range referer refresh retry-after server set-cookie \
    strict-transport-security transfer-encoding user-agent vary via www-authenticate";

/// Entries of the static table before them.
const STATIC_PSEUDO: usize = 14;

/// Entries of the static table.
const STATIC: usize = 61;

/// The static table (RFC 7541, appendix A).
static FIELDS: LazyLock<Vec<(Field, usize)>> = LazyLock::new(|| {
    let pseudo = [
        (":authority", ""),
        (":method", "GET"),
        (":method", "POST"),
        (":path", "/"),
        (":path", "/index.html"),
        (":scheme", "http"),
        (":scheme", "https"),
        (":status", "200"),
        (":status", "204"),
        (":status", "206"),
        (":status", "304"),
        (":status", "400"),
        (":status", "404"),
        (":status", "500"),
    ];
    let value_of = |name| match name {
        "accept-encoding" => "gzip, deflate",
        _ => "",
    };
    let names = STATIC_NAMES.split(' ');
    let all = pseudo.into_iter().chain(names.map(|n| (n, value_of(n))));
    all.map(|(name, value)| {
        let field = Field::new(Name::new(name.as_bytes()), value.as_bytes());
        (field, name.len() + value.len() + OVERHEAD)
    })
    .collect()
});

/// The name of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Authority,
    Method,
    Path,
    Scheme,
    Status,
    Header(HeaderName),
    /// What no header may be called.
    Bad(Bytes),
}

impl Name {
    pub(super) fn new(name: &[u8]) -> Self {
        match name {
            b":authority" => Self::Authority,
            b":method" => Self::Method,
            b":path" => Self::Path,
            b":scheme" => Self::Scheme,
            b":status" => Self::Status,
            // Those that are about a connection of HTTP/1 (RFC 9113, 8.2.2).
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => Self::Bad(Bytes::copy_from_slice(name)),
            _ => match HeaderName::from_lowercase(name) {
                Ok(name) => Self::Header(name),
                Err(_) => Self::Bad(Bytes::copy_from_slice(name)),
            },
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Authority => ":authority".len(),
            Self::Method | Self::Scheme | Self::Status => ":method".len(),
            Self::Path => ":path".len(),
            Self::Header(name) => name.as_str().len(),
            Self::Bad(name) => name.len(),
        }
    }
}

/// A header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Authority(Authority),
    Method(Method),
    Path(PathAndQuery),
    Scheme(Scheme),
    Status(StatusCode),
    Header(HeaderName, HeaderValue),
    /// One that makes its message malformed.
    Bad(Name),
}

impl Field {
    pub(super) fn new(name: Name, value: &[u8]) -> Self {
        let field = match &name {
            Name::Authority => Some(Self::Authority(authority(value))),
            Name::Method => Method::from_bytes(value).ok().map(Self::Method),
            Name::Path if value.is_empty() => None,
            Name::Path => {
                let path = PathAndQuery::from_maybe_shared(Bytes::copy_from_slice(value));
                path.ok().map(Self::Path)
            }
            Name::Scheme => Scheme::try_from(value).ok().map(Self::Scheme),
            Name::Status => StatusCode::from_bytes(value).ok().map(Self::Status),
            Name::Header(name) if *name == http::header::TE && value != b"trailers" => None,
            Name::Header(header) => {
                let value = HeaderValue::from_bytes(value).ok();
                value.map(|value| Self::Header(header.clone(), value))
            }
            Name::Bad(_) => None,
        };
        field.unwrap_or(Self::Bad(name))
    }

    fn name(&self) -> Name {
        match self {
            Self::Authority(_) => Name::Authority,
            Self::Method(_) => Name::Method,
            Self::Path(_) => Name::Path,
            Self::Scheme(_) => Name::Scheme,
            Self::Status(_) => Name::Status,
            Self::Header(name, _) => Name::Header(name.clone()),
            Self::Bad(name) => name.clone(),
        }
    }
}

/// Kubelets and crictl up to 1.30 put the path of the socket into `:authority`, as it is or percent-encoded
/// (kubernetes/kubernetes#123463). That is no authority (RFC 3986, 3.2), and while gRPC servers in Go never look at it,
/// others refuse it. So it becomes `localhost`, which is what later versions send.
fn authority(value: &[u8]) -> Authority {
    let is_path = matches!(value.first(), None | Some(b'/' | b'%'));
    let parsed = match is_path {
        true => None,
        false => Authority::from_maybe_shared(Bytes::copy_from_slice(value)).ok(),
    };
    parsed.unwrap_or_else(|| Authority::from_static("localhost"))
}
