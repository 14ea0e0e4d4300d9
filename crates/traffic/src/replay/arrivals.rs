//! Arrivals, one after another.

use std::io::BufRead;

use anyhow::{Result, anyhow};
use fairlane_core::tree::Payload;
use fairlane_sim::Picos;
use fairlane_wire::{Layer, mark_ce};

use super::csv::Rows;
use super::in_order::{Disorder, InOrder, Late};

/// A packet that arrives, for the one that `L` names.
#[derive(Clone, Debug)]
pub struct Arrival<L, B> {
    /// In nanoseconds, never before that of the arrival before.
    pub time: u64,
    /// The flow or class that it belongs to.
    pub to: L,
    /// In bytes, without overhead.
    pub len: u32,
    /// The part of the packet that is kept until it leaves.
    pub body: B,
}

impl<L, B> Arrival<L, B> {
    /// Returns its arrival time.
    pub fn at(&self) -> Picos {
        Picos::from_nanos(self.time)
    }
}

/// The part of a packet's bytes that is kept while it is queued.
pub trait Body: Payload {
    /// Keeps the required part of `bytes`; `headers` locates the headers that can be marked, if any.
    fn of(bytes: &[u8], headers: Option<(Layer, usize)>) -> Self;

    /// Returns the bytes kept.
    fn bytes(&self) -> &[u8];
}

/// Keeps no bytes: only the order matters.
impl Body for () {
    fn of(_: &[u8], _: Option<(Layer, usize)>) {}

    fn bytes(&self) -> &[u8] {
        &[]
    }
}

/// All that was captured.
pub struct Frame {
    bytes: Box<[u8]>,
    headers: Option<(Layer, usize)>,
}

impl Body for Frame {
    fn of(bytes: &[u8], headers: Option<(Layer, usize)>) -> Frame {
        Frame {
            bytes: bytes.into(),
            headers,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Payload for Frame {
    fn mark(&mut self) -> bool {
        let Some((layer, start)) = self.headers else {
            return false;
        };
        let headers = self.bytes.get_mut(start..);
        headers.is_some_and(|headers| mark_ce(headers, layer))
    }
}

/// A source of arrivals.
pub trait Arrivals<L, B> {
    /// Returns the next one; `None` at the end.
    fn next(&mut self) -> Result<Option<Arrival<L, B>>>;

    /// Returns the position of the last one, for errors.
    fn place(&self) -> String;

    /// Returns counts of the arrivals that were sorted.
    fn disorder(&self) -> Disorder;
}

/// Arrivals from rows; `read` parses the current one.
pub(super) struct Listed<R, F, L, const N: usize> {
    rows: Rows<R, N>,
    read: F,
    /// Each with its line.
    order: InOrder<(Arrival<L, ()>, u64)>,
    line: u64,
}

impl<R, F, L, const N: usize> Listed<R, F, L, N>
where
    R: BufRead,
    F: FnMut(&Rows<R, N>) -> Result<Arrival<L, ()>>,
{
    pub(super) fn new(rows: Rows<R, N>, read: F) -> Self {
        Listed {
            rows,
            read,
            order: InOrder::new(),
            line: 0,
        }
    }
}

impl<R, F, L, const N: usize> Arrivals<L, ()> for Listed<R, F, L, N>
where
    R: BufRead,
    F: FnMut(&Rows<R, N>) -> Result<Arrival<L, ()>>,
{
    fn next(&mut self) -> Result<Option<Arrival<L, ()>>> {
        loop {
            if let Some((arrival, line)) = self.order.pop() {
                self.line = line;
                return Ok(Some(arrival));
            }
            if self.order.is_over() {
                return Ok(None);
            }
            if !self.rows.next_row()? {
                self.order.end();
                continue;
            }
            let arrival = (self.read)(&self.rows)?;
            let time = arrival.time;
            let pushed = self.order.push(time, (arrival, self.rows.line()));
            pushed.map_err(|Late(latest)| {
                anyhow!(
                    "{}: time_ns {time} is before the {latest} of a row above: rows are in order \
                     of time, and put in order where they are up to 1 ms early",
                    self.rows.place()
                )
            })?;
        }
    }

    fn place(&self) -> String {
        self.rows.place_of(self.line)
    }

    fn disorder(&self) -> Disorder {
        self.order.disorder
    }
}
