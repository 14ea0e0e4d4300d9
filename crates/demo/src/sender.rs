//! The built-in senders: each offers more than the whole link.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use fairlane_core::{Length, Nanos};
use fairlane_runtime::{Client, Clock, Refusal};

use crate::flow::{Flow, OVERHEAD, Outgoing};

/// Packets a sender sends at a time. Equal for all, so that a sender with a higher load pushes more
/// often, and finds space in a full queue proportionally more often.
const BURST: u64 = 8;

/// Most packets made at a time: a late sender falls behind its load rather than keep a core busy
/// with packets that cannot pass.
const MOST: u64 = 1000;

/// Longest sleep: on a slow link the next burst may be minutes away, the end is not.
const LONGEST_SLEEP: Nanos = Nanos::from_millis(20);

/// A flow and the client to push with.
pub(crate) struct Outlet {
    pub number: u32,
    pub flow: Arc<Flow>,
    pub client: Client<Box<Outgoing>>,
}

impl Outlet {
    /// Pushes a datagram, and counts what becomes of it; a full mailbox is no error.
    pub(crate) fn push(&mut self, payload: Vec<u8>, now: Nanos) -> Result<(), Refusal> {
        let bytes = payload.len();
        // A datagram may be empty, a packet may not; none is above 65,535 bytes.
        let len = Length::new(bytes.max(1) as u32).unwrap_or(Length::MAX);
        self.flow.offered.add(bytes);
        let outgoing = Box::new(Outgoing {
            flow: self.number,
            pushed_at: now,
            peer: self.flow.sink,
            payload,
        });
        match self.client.push(len, outgoing) {
            Ok(_) => Ok(()),
            Err(refused) if refused.reason == Refusal::MailboxFull => {
                self.flow.backpressure.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(refused) => Err(refused.reason),
        }
    }
}

/// Offers `bits_per_second` in datagrams of `payload` bytes until `stop`.
pub(crate) fn run(
    mut outlet: Outlet,
    payload: usize,
    bits_per_second: f64,
    clock: Clock,
    stop: &AtomicBool,
) -> Result<()> {
    let packet_bits = (payload as u64 + u64::from(OVERHEAD)) as f64 * 8.0;
    let interval = 1e9 * packet_bits / bits_per_second;
    // The first burst is due at once: a slow link has work from the start.
    let mut made = (clock.now().0 as f64 / interval) as u64;
    while !stop.load(Ordering::Acquire) {
        let now = clock.now();
        let due = (now.0 as f64 / interval) as u64 + BURST;
        if due < made + BURST {
            let next = Nanos((made as f64 * interval) as u64);
            let wait = next.since(now).min(LONGEST_SLEEP);
            std::thread::sleep(Duration::from_nanos(wait.0));
            continue;
        }
        made = made.max(due.saturating_sub(MOST));
        while made < due {
            outlet.push(vec![0; payload], now)?;
            made += 1;
        }
    }
    Ok(())
}
