//! Response bodies that are produced as they are read. A connection holds one piece of its answer at a time, however
//! slowly it reads, and the data that pieces are made from is limited in bytes. Beyond the limit the oldest data is
//! evicted, and the answers that read it are cut short.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, SizeHint};

use crate::metrics::{Exposition, Format};
use crate::stream::{Events, State};

/// Approximate size of one piece, in bytes.
pub(crate) const PIECE: usize = 64 << 10;
/// Bytes retained for the readers of a port: about three states of 10,000 classes.
const RETAINED: usize = 64 << 20;

/// The error that cuts an answer short.
#[derive(Debug, thiserror::Error)]
#[error("it was read too slowly: others are read by now")]
pub(crate) struct Evicted;

pub(crate) type Read = UnsyncBoxBody<Bytes, Evicted>;

/// The content of an answer.
#[derive(Debug)]
pub(crate) enum Content {
    /// This text.
    Text(Bytes),
    /// A state, as one object.
    State(Arc<State>),
    /// The metrics of a state.
    Metrics(Arc<State>, Format),
    /// The states from now on, as events.
    Events(Events),
}

impl Content {
    /// Returns the body that a client of a port reads.
    pub(crate) fn read(self, retained: &Arc<Retained>) -> Read {
        match self {
            Content::Text(text) if text.len() <= PIECE => {
                let whole = Full::new(text).map_err(|never| match never {});
                whole.boxed_unsync()
            }
            Content::Text(text) => Text::of(retained, Arc::new(text), Bytes::clone).boxed_unsync(),
            Content::State(state) => Text::of(retained, state, State::json).boxed_unsync(),
            Content::Metrics(state, format) => Reading {
                of: retained.lend(state),
                telling: Exposition::new(format),
            }
            .boxed_unsync(),
            Content::Events(events) => events.read(retained).boxed_unsync(),
        }
    }
}

/// Data that answers are made from.
pub(crate) trait Weighed: fmt::Debug + Send + Sync + 'static {
    /// Returns the approximate number of bytes of memory it takes.
    fn weight(&self) -> usize;
}

impl Weighed for Bytes {
    fn weight(&self) -> usize {
        self.len()
    }
}

/// Data retained for the readers of one port, newest last.
#[derive(Debug)]
pub(crate) struct Retained {
    all: Mutex<VecDeque<Arc<dyn Weighed>>>,
    /// Maximum number of bytes retained, not counting the newest entry.
    most: usize,
}

impl Default for Retained {
    fn default() -> Retained {
        Retained::within(RETAINED)
    }
}

impl Retained {
    fn within(most: usize) -> Retained {
        Retained {
            all: Mutex::default(),
            most,
        }
    }

    /// Retains an entry for one more reader. O(retained entries).
    pub(crate) fn lend<T: Weighed>(self: &Arc<Self>, thing: Arc<T>) -> EntryRef<T> {
        let lent = EntryRef {
            thing: Arc::downgrade(&thing),
            retained: Arc::clone(self),
        };
        let thing: Arc<dyn Weighed> = thing;
        // Evicted entries are freed after the lock is released.
        let mut gone = Vec::new();
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|other| Arc::ptr_eq(other, &thing)) {
            all.push_back(thing);
        }
        let mut sum: usize = all.iter().map(|thing| thing.weight()).sum();
        while sum > self.most && all.len() > 1 {
            let oldest = all.pop_front();
            sum -= oldest.as_ref().map_or(0, |oldest| oldest.weight());
            gone.extend(oldest);
        }
        drop(all);
        drop(gone);
        lent
    }

    /// Releases entries without readers.
    fn tidy_up(&self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let (read, unread) = (all.drain(..)).partition(|thing| Arc::weak_count(thing) > 0);
        *all = read;
        drop(all);
        let unread: VecDeque<_> = unread;
        drop(unread);
    }
}

/// A reader's reference to an entry, valid while that is retained.
#[derive(Debug)]
pub(crate) struct EntryRef<T: Weighed> {
    thing: Weak<T>,
    retained: Arc<Retained>,
}

impl<T: Weighed> EntryRef<T> {
    pub(crate) fn get(&self) -> Result<Arc<T>, Evicted> {
        self.thing.upgrade().ok_or(Evicted)
    }
}

impl<T: Weighed> Drop for EntryRef<T> {
    fn drop(&mut self) {
        drop(std::mem::take(&mut self.thing));
        self.retained.tidy_up();
    }
}

/// Produces the text of an answer piece by piece.
pub(crate) trait Telling<T>: Unpin {
    /// Returns the next piece; `None` at the end.
    fn piece(&mut self, of: &T) -> Option<Bytes>;

    /// Returns true if all pieces have been produced.
    fn is_told(&self) -> bool;

    /// Returns the number of bytes still to come, as far as it is known.
    fn left(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// A body whose pieces are produced from a retained entry.
#[derive(Debug)]
pub(crate) struct Reading<T: Weighed, P> {
    of: EntryRef<T>,
    telling: P,
}

impl<T: Weighed, P: Telling<T>> Reading<T, P> {
    /// Returns the next piece; `None` at the end.
    pub(crate) fn piece(&mut self) -> Option<Result<Bytes, Evicted>> {
        if self.telling.is_told() {
            return None;
        }
        match self.of.get() {
            Ok(thing) => self.telling.piece(&thing).map(Ok),
            Err(gone) => Some(Err(gone)),
        }
    }
}

impl<T: Weighed, P: Telling<T>> Body for Reading<T, P> {
    type Data = Bytes;
    type Error = Evicted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Evicted>>> {
        Poll::Ready(self.piece().map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.telling.is_told()
    }

    fn size_hint(&self) -> SizeHint {
        self.telling.left()
    }
}

/// A body of a text that is complete from the start.
pub(crate) type Text<T> = Reading<T, TextRest<T>>;

/// The rest of a text.
#[derive(Debug)]
pub(crate) struct TextRest<T> {
    text: fn(&T) -> Bytes,
    at: usize,
    end: usize,
}

impl<T: Weighed> Text<T> {
    /// Returns the body for the text of `thing`. `text` must return the same bytes on each call.
    pub(crate) fn of(retained: &Arc<Retained>, thing: Arc<T>, text: fn(&T) -> Bytes) -> Text<T> {
        let end = text(&thing).len();
        Reading {
            of: retained.lend(thing),
            telling: TextRest { text, at: 0, end },
        }
    }
}

impl<T> Telling<T> for TextRest<T> {
    /// Copies the piece, so that the whole text is not kept alive by a reader of one piece.
    fn piece(&mut self, of: &T) -> Option<Bytes> {
        let end = self.end.min(self.at + PIECE);
        let piece = Bytes::copy_from_slice(&(self.text)(of)[self.at..end]);
        self.at = end;
        Some(piece)
    }

    fn is_told(&self) -> bool {
        self.at == self.end
    }

    fn left(&self) -> SizeHint {
        SizeHint::with_exact((self.end - self.at) as u64)
    }
}

/// Metrics of a state, formatted as they are read.
impl Telling<State> for Exposition {
    fn piece(&mut self, of: &State) -> Option<Bytes> {
        Exposition::piece(self, &of.report)
    }

    fn is_told(&self) -> bool {
        Exposition::is_told(self)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::metrics::tests::report;

    fn text(bytes: usize) -> Arc<Bytes> {
        Arc::new((0..bytes).map(|at| at as u8).collect())
    }

    fn held(retained: &Retained) -> usize {
        retained.all.lock().unwrap().len()
    }

    #[test]
    fn text_is_read_in_pieces_and_freed_with_its_last_reader() {
        let retained = Arc::<Retained>::default();
        for bytes in [PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 1] {
            let whole = text(bytes);
            let mut readers = [0; 2].map(|_| Text::of(&retained, Arc::clone(&whole), Bytes::clone));
            let expected = whole.to_vec();
            drop(whole);
            assert_eq!(held(&retained), 1, "both read the same");
            for reader in &mut readers {
                let mut read = Vec::new();
                while let Some(piece) = reader.piece() {
                    let piece = piece.unwrap();
                    assert!(piece.len() <= PIECE && !piece.is_empty());
                    read.extend_from_slice(&piece);
                }
                assert!(read == expected, "{bytes}");
            }
            let [first, second] = readers;
            drop(first);
            assert_eq!(held(&retained), 1, "the other reads it");
            drop(second);
            assert_eq!(held(&retained), 0);
        }
    }

    #[test]
    fn oldest_text_is_evicted_and_its_readers_get_an_error() {
        let retained = Arc::new(Retained::within(4 * PIECE));
        let read = |bytes| Text::of(&retained, text(bytes), Bytes::clone);
        let (mut oldest, mut older) = (read(2 * PIECE), read(2 * PIECE));
        assert!(oldest.piece().is_some_and(|piece| piece.is_ok()));
        assert_eq!(held(&retained), 2, "as much as there is room for");
        let mut newest = read(PIECE + 1);
        assert!(oldest.piece().is_some_and(|piece| piece.is_err()));
        assert!(older.piece().is_some_and(|piece| piece.is_ok()));
        assert!(newest.piece().is_some_and(|piece| piece.is_ok()));
        // An entry larger than the limit is retained alone.
        let mut long = read(9 * PIECE);
        assert_eq!(held(&retained), 1);
        for _ in 0..9 {
            assert!(long.piece().is_some_and(|piece| piece.is_ok()));
        }
        assert!(long.piece().is_none());
        assert!(older.piece().is_some_and(|piece| piece.is_err()));
        assert!(newest.piece().is_some_and(|piece| piece.is_err()));
    }

    #[test]
    fn metrics_answer_completes_after_its_state_is_evicted() {
        for retains_to_the_end in [true, false] {
            let retained = Arc::new(Retained::within(PIECE));
            let mut metrics = Reading {
                of: retained.lend(Arc::new(State::of(&Arc::new(report())))),
                telling: Exposition::new(Format::Plain),
            };
            let mut next = || {
                let mut context = Context::from_waker(Waker::noop());
                Pin::new(&mut metrics).poll_frame(&mut context)
            };
            if retains_to_the_end {
                assert!(matches!(next(), Poll::Ready(Some(Ok(_)))));
            }
            let _other = Text::of(&retained, text(2 * PIECE), Bytes::clone);
            match retains_to_the_end {
                true => assert!(matches!(next(), Poll::Ready(None))),
                false => assert!(matches!(next(), Poll::Ready(Some(Err(_))))),
            }
        }
    }
}
