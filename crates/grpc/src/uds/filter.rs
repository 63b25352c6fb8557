//! A stream that passes another one on, with some of its steps changed.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The steps of a stream that a filter changes. Each is passed on unless the filter has one of its own.
pub trait StreamFilter<S: AsyncRead + AsyncWrite + Unpin> {
    /// See [`AsyncRead::poll_read`].
    fn poll_read(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(inner).poll_read(cx, buf)
    }

    /// See [`AsyncWrite::poll_write_vectored`]; a write of one slice comes here too.
    fn poll_write(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(inner).poll_write_vectored(cx, bufs)
    }

    /// See [`AsyncWrite::poll_flush`].
    fn poll_flush(&mut self, inner: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(inner).poll_flush(cx)
    }

    /// Writes what the filter holds back, before [`AsyncWrite::poll_shutdown`].
    fn poll_release(&mut self, _: &mut S, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A stream and its filter.
#[derive(Debug)]
pub struct FilteredStream<S, F> {
    /// The stream below the filter.
    pub inner: S,
    filter: F,
}

impl<S, F> FilteredStream<S, F> {
    /// Passes `inner` through the filter.
    pub const fn new(inner: S, filter: F) -> Self {
        Self { inner, filter }
    }
}

impl<S, F> AsyncRead for FilteredStream<S, F>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: StreamFilter<S> + Unpin,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { inner, filter } = &mut *self;
        filter.poll_read(inner, cx, buf)
    }
}

impl<S, F> AsyncWrite for FilteredStream<S, F>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: StreamFilter<S> + Unpin,
{
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { inner, filter } = &mut *self;
        filter.poll_write(inner, cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { inner, filter } = &mut *self;
        filter.poll_flush(inner, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { inner, filter } = &mut *self;
        ready!(filter.poll_release(inner, cx))?;
        Pin::new(inner).poll_shutdown(cx)
    }
}
