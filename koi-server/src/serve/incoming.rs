//! Connections before anybody is known: at most so many, and none that stays silent.
//!
//! HTTP/2 pings every connection ([`super::listen`]), so one that says nothing for longer than
//! [`SILENCE_LIMIT`] never finished its handshake or is dead. Not authentication: that is per call.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::server::Connected;

/// A connection that says nothing for so long is closed.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_secs(20);
/// Descriptors kept for the database, files and listeners.
const KEPT_DESCRIPTORS: u64 = 256;
/// Most connections, however many descriptors there are.
const MAX_CONNECTIONS: u64 = 20_000;

/// Raises the limit of open files to what the system allows; returns the connections it leaves.
#[must_use]
pub(super) fn max_connections() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let left = descriptors.saturating_sub(KEPT_DESCRIPTORS);
    usize::try_from(left.clamp(16, MAX_CONNECTIONS)).unwrap_or(16)
}

/// Accepted connections; those above the limit are closed at once.
pub(super) fn incoming(
    listener: TcpListener,
    max_connections: usize,
    silence_limit: Duration,
) -> impl Stream<Item = std::io::Result<Guarded<TcpStream>>> {
    let room = Arc::new(Semaphore::new(max_connections));
    TcpListenerStream::new(listener).filter_map(move |accepted| match accepted {
        Ok(stream) => match Arc::clone(&room).try_acquire_owned() {
            Ok(permit) => {
                // Small answers are not held back.
                let _best_effort = stream.set_nodelay(true);
                Some(Ok(Guarded::new(stream, permit, silence_limit)))
            }
            Err(_) => {
                tracing::debug!(max_connections, "a connection too many was closed");
                None
            }
        },
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            None
        }
    })
}

/// A connection that ends when its peer is silent for too long.
pub(super) struct Guarded<S> {
    stream: S,
    silence_limit: Duration,
    deadline: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl<S> Guarded<S> {
    fn new(stream: S, permit: OwnedSemaphorePermit, silence_limit: Duration) -> Self {
        Self {
            stream,
            silence_limit,
            deadline: Box::pin(sleep_until(Instant::now() + silence_limit)),
            _permit: permit,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        match Pin::new(&mut this.stream).poll_read(cx, buf) {
            Poll::Ready(result) => {
                let deadline = Instant::now() + this.silence_limit;
                this.deadline.as_mut().reset(deadline);
                Poll::Ready(result)
            }
            Poll::Pending => match this.deadline.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Err(std::io::ErrorKind::TimedOut.into())),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: Connected> Connected for Guarded<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn accept(
        server: &mut (impl Stream<Item = std::io::Result<Guarded<TcpStream>>> + Unpin),
    ) -> Guarded<TcpStream> {
        server.next().await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn connections_above_the_limit_are_closed_and_others_come_after() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = Box::pin(incoming(listener, 1, Duration::from_millis(400)));
        let first = TcpStream::connect(address).await.unwrap();
        let held = accept(&mut server).await;
        let mut second = TcpStream::connect(address).await.unwrap();
        let closed = tokio::join!(second.read_u8(), async {
            let waited = tokio::time::timeout(Duration::from_millis(300), server.next());
            assert!(waited.await.is_err(), "the second is not handed on");
        });
        assert!(closed.0.is_err());
        drop((first, held));
        let _third = TcpStream::connect(address).await.unwrap();
        accept(&mut server).await;
    }

    #[tokio::test]
    async fn silence_ends_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = Box::pin(incoming(listener, 1, Duration::from_millis(400)));
        let _silent = TcpStream::connect(address).await.unwrap();
        let mut guarded = accept(&mut server).await;
        let begun = Instant::now();
        let error = guarded.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= Duration::from_millis(300));
    }
}
