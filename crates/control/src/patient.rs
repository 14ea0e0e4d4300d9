//! A connection with a time limit on a peer that does not read.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Bytes that the peer must accept to restart the time limit.
const LITTLE: usize = 64 << 10;

/// Fails with `TimedOut` if for the given time the peer has accepted neither all data written nor [`LITTLE`] bytes.
/// Reads have no limit.
pub(crate) struct Patient<S> {
    stream: S,
    patience: Duration,
    /// Runs while data is pending.
    waiting: Option<Pin<Box<Sleep>>>,
    /// Bytes accepted since the timer started.
    taken: usize,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Patient<S> {
        Patient {
            stream,
            patience,
            waiting: None,
            taken: 0,
        }
    }

    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        done: Poll<io::Result<T>>,
        taken: impl FnOnce(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(Ok(done)) = &done {
            self.taken = self.taken.saturating_add(taken(done));
            if self.taken >= LITTLE {
                (self.waiting, self.taken) = (None, 0);
            }
        }
        if done.is_ready() {
            return done;
        }
        let patience = self.patience;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written, |&bytes| bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        // A completed flush means that all data was accepted.
        self.watch(context, flushed, |()| LITTLE)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(context, shut, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Returns the result of writing `bytes` at once to a peer that accepts `taken` bytes at a time.
    async fn written(bytes: usize, taken: usize) -> io::Result<()> {
        let patience = Duration::from_millis(100);
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let reader = tokio::spawn(async move {
            let mut some = vec![0; taken];
            while theirs.read_exact(&mut some).await.is_ok() {
                sleep(patience / 5).await;
            }
        });
        let mut ours = Patient::new(ours, patience);
        let written = match ours.write_all(&vec![0; bytes]).await {
            Ok(()) => ours.flush().await,
            Err(error) => Err(error),
        };
        drop(ours);
        reader.await.unwrap();
        written
    }

    #[test]
    fn slow_readers_have_one_total_time_limit() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        // Paused time advances only when all tasks are idle.
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let written = |bytes, taken| runtime.block_on(written(bytes, taken));
        let slow = written(4 * LITTLE, 16).unwrap_err();
        assert_eq!(slow.kind(), io::ErrorKind::TimedOut);
        // The whole transfer takes about ten times the limit.
        written(12 * LITTLE, LITTLE / 4).unwrap();
    }
}
