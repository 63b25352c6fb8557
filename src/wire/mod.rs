//! What both ends of the request path share: the socket stream, the message body, HTTP/2 settings, and answers that
//! criscope gives itself. A leaf.

pub mod authority;
pub mod body;
pub mod frame;
pub mod http2;
pub mod status;
pub mod stream;
pub mod unary;

use std::error::Error;

pub use body::Body;
pub use stream::Stream;

/// Any error on the request path.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A CRI call.
pub type Request = http::Request<Body>;

/// Its answer.
pub type Response = http::Response<Body>;

/// A service that answers CRI calls: the seam between listener, router and backends.
pub type CriService = tower::util::BoxCloneSyncService<Request, Response, BoxError>;
