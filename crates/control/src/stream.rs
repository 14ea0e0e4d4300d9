//! A stream of states as server-sent events.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fairlane_daemon::Report;
use hyper::body::{Body, Frame};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::reading::{Evicted, Retained, Text, Weighed};

/// The states of a site.
pub(crate) type States = watch::Receiver<Arc<State>>;

/// A state, and its encoding as an event, which all streams share.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) report: Arc<Report>,
    event: OnceLock<Bytes>,
}

const BEFORE: &[u8] = b"event: state\ndata: ";
const AFTER: &[u8] = b"\n\n";

impl State {
    pub(crate) fn of(report: &Arc<Report>) -> State {
        State {
            report: Arc::clone(report),
            event: OnceLock::new(),
        }
    }

    /// Returns the event, encoded once for all streams.
    fn event(&self) -> Bytes {
        let event = self.event.get_or_init(|| {
            let mut event = BEFORE.to_vec();
            let written = serde_json::to_writer(&mut event, &*self.report);
            written.expect("a report has names for keys, and numbers");
            event.extend_from_slice(AFTER);
            event.into()
        });
        event.clone()
    }

    /// Returns the state as one JSON object.
    pub(crate) fn json(&self) -> Bytes {
        let event = self.event();
        event.slice(BEFORE.len()..event.len() - AFTER.len())
    }
}

/// Approximate memory of a class in a state and in its text, in bytes.
const OF_CLASS: usize = 2 << 10;

impl Weighed for State {
    fn weight(&self) -> usize {
        let links = self.report.links.iter();
        links.map(|link| link.classes.len() * OF_CLASS).sum()
    }
}

/// A stream with a permit.
#[derive(Debug)]
pub(crate) struct Events {
    states: States,
    place: OwnedSemaphorePermit,
}

impl Events {
    /// Opens a stream that begins with the current state; `None` if too many streams are open.
    pub(crate) fn open(states: States, places: &Arc<Semaphore>) -> Option<Events> {
        let place = Arc::clone(places).try_acquire_owned().ok()?;
        Some(Events { states, place })
    }

    /// Returns the body of the stream.
    pub(crate) fn read(self, retained: &Arc<Retained>) -> Stream {
        Stream {
            next: Box::pin(std::future::ready(Some(self.states))),
            event: None,
            retained: Arc::clone(retained),
            _place: self.place,
        }
    }
}

type Next = Pin<Box<dyn Future<Output = Option<States>> + Send>>;

/// A body with each state as an event, until the client closes it. A slow reader misses states; all readers share the
/// text of a state.
pub(crate) struct Stream {
    next: Next,
    /// The event being read.
    event: Option<Text<State>>,
    retained: Arc<Retained>,
    _place: OwnedSemaphorePermit,
}

async fn changed(mut states: States) -> Option<States> {
    states.changed().await.ok().map(|()| states)
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Evicted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Evicted>>> {
        loop {
            if let Some(piece) = self.event.as_mut().and_then(Text::piece) {
                return Poll::Ready(Some(piece.map(Frame::data)));
            }
            self.event = None;
            let Some(mut states) = ready!(self.next.as_mut().poll(context)) else {
                // The site has ended.
                return Poll::Ready(None);
            };
            let state = Arc::clone(&states.borrow_and_update());
            self.next = Box::pin(changed(states));
            self.event = Some(Text::of(&self.retained, state, State::event));
        }
    }
}
