//! Measurement of how long frames wait in the mailboxes of receive workers: Delta_A. The same measurement serves
//! transmit workers, for a part of Delta_D.
//!
//! Only polls have times: a frame that is in a mailbox at one poll and was not at the poll before has arrived in
//! between. It counts as if it had arrived right after the earlier poll, at most a round too early.

use fairlane_core::Nanos;
use std::collections::VecDeque;
/// The beginning of a round that looks at mailboxes.
#[derive(Clone, Copy, Debug)]
pub struct Poll {
    pub now: Nanos,
    /// The thread has waited since the last round, until a frame was handed on.
    pub has_waited: bool,
    /// The round takes as many frames as any round may. If egress is unshaped, the device may hold up all frames.
    pub takes_all: bool,
}

/// Measurements of the mailboxes at an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The longest time from look to look.
    pub longest_round: Nanos,
    /// The most rounds that a frame has waited for, including the one in which it arrived and the one that took it; 0
    /// before the first frame.
    pub rounds: usize,
    /// The longest time until the beginning of the latter.
    pub longest: Nanos,
    /// How often frames that arrived between two polls waited for more rounds than guaranteed.
    pub beyond: u64,
}

impl Waits {
    /// Combines the measurements of two successive interfaces.
    pub fn of_both(before: Option<Waits>, since: Option<Waits>) -> Option<Waits> {
        let (Some(before), Some(since)) = (before, since) else {
            return before.or(since);
        };
        Some(Waits {
            longest_round: before.longest_round.max(since.longest_round),
            rounds: before.rounds.max(since.rounds),
            longest: before.longest.max(since.longest),
            beyond: before.beyond + since.beyond,
        })
    }
}

/// Arrivals at a mailbox between two polls.
#[derive(Debug)]
struct Mark {
    /// Number of frames that had arrived by then.
    until: u64,
    /// The earlier look.
    since: Nanos,
    /// The number of the later one.
    look: u64,
}

/// The backlog of one mailbox, oldest first.
#[derive(Debug, Default)]
pub struct Marks {
    waiting: VecDeque<Mark>,
    /// Frames that were taken.
    taken: u64,
}

impl Marks {
    pub fn took(&mut self, frames: usize) {
        self.taken += frames as u64;
    }
}

/// The looks at all mailboxes of an interface.
#[derive(Debug)]
pub struct WaitMeter {
    /// The guaranteed number of rounds.
    most: usize,
    number: u64,
    /// The last one; none if not all were taken then.
    last: Option<Nanos>,
    waits: Waits,
}

/// A look, to each of the mailboxes.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// When the round began that ends with it.
    ended: Nanos,
    /// The earliest arrival time of new frames; `None` if they are not to be measured.
    since: Option<Nanos>,
}

impl WaitMeter {
    /// Creates the measurement for mailboxes from which each frame is taken within `most` rounds.
    pub fn within(most: usize) -> WaitMeter {
        WaitMeter {
            most,
            number: 0,
            last: None,
            waits: Waits::default(),
        }
    }

    /// Starts the next poll.
    pub fn poll(&mut self, poll: Poll) -> Seen {
        self.number += 1;
        let Poll { now, .. } = poll;
        let last = std::mem::replace(&mut self.last, poll.takes_all.then_some(now));
        let awake = last.filter(|_| !poll.has_waited);
        if let Some(last) = awake {
            self.waits.longest_round = self.waits.longest_round.max(now.since(last));
        }
        Seen {
            ended: last.unwrap_or(now),
            since: poll.takes_all.then(|| awake.unwrap_or(now)),
        }
    }

    /// Records a poll of a mailbox to which `handed` frames have been handed in all.
    pub fn see(&mut self, marks: &mut Marks, handed: u64, seen: Seen) {
        let Marks { waiting, taken } = marks;
        while let Some(mark) = waiting.front().filter(|mark| mark.until <= *taken) {
            // The last round took the rest of them; it came after the poll before this one.
            let rounds = (self.number - 1 - mark.look) as usize + 2;
            let waits = &mut self.waits;
            waits.rounds = waits.rounds.max(rounds);
            waits.longest = waits.longest.max(seen.ended.since(mark.since));
            waits.beyond += u64::from(rounds > self.most);
            waiting.pop_front();
        }
        let Some(since) = seen.since else {
            waiting.clear();
            return;
        };
        let until = waiting.back().map_or(*taken, |mark| mark.until);
        if handed > until {
            waiting.push_back(Mark {
                until: handed,
                since,
                look: self.number,
            });
        }
    }

    pub fn waits(&self) -> Waits {
        self.waits
    }
}
