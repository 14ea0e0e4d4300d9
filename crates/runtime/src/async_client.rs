//! A client that is a task: it waits for room instead of being refused.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fairlane_core::Length;
use fairlane_mailbox::Room;
use futures_sink::Sink;

use crate::client::{Client, ClientId, Pushed, Refusal, Refused};

/// The arbiter's end of a task's wait for room.
#[derive(Debug)]
pub(crate) struct Waiting(pub(crate) Arc<Room>);

impl Drop for Waiting {
    /// There will be no more space: the task is woken to learn it. The mailbox is left by then.
    fn drop(&mut self) {
        self.0.freed();
    }
}

/// A sender's handle for a task of any executor: while the mailbox is full, the task waits until the
/// arbiter has made space. A [`Sink`] of packets with their lengths in bytes; one task at a time.
///
/// At most one packet waits in the handle itself. Dropping the handle ends the client: flushed packets
/// are still sent, a packet in the handle is dropped.
pub struct AsyncClient<P> {
    client: Client<P>,
    room: Arc<Room>,
    /// Accepted by `start_send` and not yet in the mailbox.
    held: Option<(Length, P)>,
}

impl<P: Send> AsyncClient<P> {
    pub(crate) fn new(client: Client<P>, room: Arc<Room>) -> Self {
        AsyncClient {
            client,
            room,
            held: None,
        }
    }

    /// The number the arbiter knows it by.
    pub fn id(&self) -> ClientId {
        self.client.id()
    }

    /// Packets that were dropped inside the arbiter, since the start.
    pub fn dropped(&self) -> u64 {
        self.client.dropped()
    }

    /// [`Client::push`]: never waits.
    pub fn try_push(&mut self, len: Length, packet: P) -> Result<Pushed, Refused<P>> {
        if self.held.is_some() {
            // Packets keep their order.
            let reason = Refusal::MailboxFull;
            return Err(Refused { packet, reason });
        }
        self.client.push(len, packet)
    }

    /// Hands over a packet of `len` bytes; waits while the mailbox is full.
    ///
    /// If the future is dropped before it is done, the packet may be held back and goes
    /// with the next send or flush.
    ///
    /// # Errors
    ///
    /// A packet is returned if it is too long, if the link ends, or if the arbiter is gone: this one,
    /// or one that was held back.
    pub async fn send(&mut self, len: Length, packet: P) -> Result<(), Refused<P>> {
        poll_fn(|cx| self.poll_held(cx)).await?;
        self.accept(len, packet)?;
        poll_fn(|cx| self.poll_held(cx)).await
    }

    /// Takes a packet: into the mailbox, or else into the handle, which holds none.
    fn accept(&mut self, len: Length, packet: P) -> Result<(), Refused<P>> {
        match self.client.offer(len, packet) {
            Ok(_) => Ok(()),
            Err(Refused {
                packet,
                reason: Refusal::MailboxFull,
            }) => {
                self.held = Some((len, packet));
                Ok(())
            }
            Err(refused) => Err(refused),
        }
    }

    /// Ready when the handle holds no packet any more.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refused<P>>> {
        let room = Arc::clone(&self.room);
        let mut outcome = Ok(());
        let ready = room.poll_room(cx, || {
            if let Some((len, packet)) = self.held.take() {
                outcome = self.accept(len, packet);
            }
            self.held.is_some()
        });
        ready.map(|()| outcome)
    }
}

// Nothing in it is pinned: a packet is moved whole.
impl<P> Unpin for AsyncClient<P> {}

impl<P: Send> Sink<(Length, P)> for AsyncClient<P> {
    type Error = Refused<P>;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Refused<P>>> {
        self.poll_held(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, (len, packet): (Length, P)) -> Result<(), Refused<P>> {
        assert!(self.held.is_none(), "start_send comes after poll_ready");
        self.accept(len, packet)
    }

    /// Ready when all that was sent is in the mailbox.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Refused<P>>> {
        self.poll_held(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Refused<P>>> {
        self.poll_held(cx)
    }
}

impl<P> fmt::Debug for AsyncClient<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncClient")
            .field("id", &self.client.id)
            .field("holds", &self.held.is_some())
            .finish_non_exhaustive()
    }
}
