//! States as they are told, one after the other: server-sent events.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fairlane_site::Report;
use hyper::body::{Body, Frame};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Streams that are open at a time.
pub(crate) const STREAMS: usize = 1_200;

/// The states of a site.
pub(crate) type States = watch::Receiver<Arc<State>>;

/// A state, and the same as JSON for all who ask.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) report: Arc<Report>,
    json: OnceLock<Bytes>,
}

impl State {
    pub(crate) fn of(report: &Arc<Report>) -> State {
        State {
            report: Arc::clone(report),
            json: OnceLock::new(),
        }
    }

    /// One object.
    pub(crate) fn json(&self) -> Bytes {
        let json = self.json.get_or_init(|| {
            let json = serde_json::to_vec(&*self.report);
            json.expect("a report has names for keys, and numbers")
                .into()
        });
        json.clone()
    }
}

type Next = Pin<Box<dyn Future<Output = Option<States>> + Send>>;

/// Each state as an event, as long as somebody reads. Whoever reads slowly is told the last one: for
/// nobody more than one is kept.
pub(crate) struct Events {
    next: Next,
    _place: OwnedSemaphorePermit,
}

impl Events {
    /// Beginning with the present one; nothing where there are too many streams.
    pub(crate) fn open(states: States, places: &Arc<Semaphore>) -> Option<Events> {
        let place = Arc::clone(places).try_acquire_owned().ok()?;
        Some(Events {
            next: Box::pin(std::future::ready(Some(states))),
            _place: place,
        })
    }
}

async fn changed(mut states: States) -> Option<States> {
    states.changed().await.ok().map(|()| states)
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(mut states) = ready!(self.next.as_mut().poll(context)) else {
            // The site has ended.
            return Poll::Ready(None);
        };
        let state = Arc::clone(&states.borrow_and_update());
        self.next = Box::pin(changed(states));
        let event = [&b"event: state\ndata: "[..], &state.json(), b"\n\n"].concat();
        Poll::Ready(Some(Ok(Frame::data(event.into()))))
    }
}
