//! Two threads, each on a core of its own where there are two: the cost of a handover from one to the other.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use fairlane_mailbox::mailbox;
use fairlane_runtime::pin_to_core;

use super::frames::FRAMES;
use super::rounds::{Amount, Figure, Rounds, Stopwatch, Taken, measured};
use super::stages::{BURST, Back, Front};

/// Slots of the arbiter's mailbox.
const SLOTS: usize = 1_024;

/// Looks of a thread that waits, each after a microsecond or so, before it lets others have its core.
const LOOKS: u32 = 1_024;

/// Two threads that go through rounds together.
pub(super) struct Pair {
    cores: Option<[usize; 2]>,
    /// Arrivals of either thread at the barrier.
    arrived: AtomicUsize,
    goes_on: AtomicBool,
}

impl Pair {
    pub(super) fn new(cores: Option<[usize; 2]>) -> Pair {
        Pair {
            cores,
            arrived: AtomicUsize::new(0),
            goes_on: AtomicBool::new(false),
        }
    }

    /// Returns the results of both threads.
    fn run<A: Send, B: Send>(
        &self,
        leader: impl FnOnce() -> A + Send,
        follower: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        // A thread that may not stay there is measured wherever it runs.
        let stay = |which: usize| self.cores.map(|cores| pin_to_core(cores[which]));
        thread::scope(|scope| {
            let leader = scope.spawn(move || {
                let _ = stay(0);
                leader()
            });
            let follower = scope.spawn(move || {
                let _ = stay(1);
                follower()
            });
            let leader = leader.join().expect("the first thread panicked");
            (leader, follower.join().expect("the second thread panicked"))
        })
    }

    /// Returns whether each thread has a core of its own.
    pub(super) fn has_cores(&self) -> bool {
        self.cores.is_some()
    }

    fn patience(&self) -> Patience {
        Patience {
            looks: 0,
            // With a single core, the thread must yield to the other one.
            most: if self.has_cores() { LOOKS } else { 1 },
        }
    }

    /// Waits for the other thread at the barrier. All that either did before is seen by both.
    fn meet(&self) {
        let here = self.arrived.fetch_add(1, Ordering::AcqRel) + 1;
        let both = here.next_multiple_of(2);
        let mut patience = self.patience();
        while self.arrived.load(Ordering::Acquire) < both {
            patience.wait();
        }
    }

    /// Of the leader: whether there is another round, which begins for both then.
    fn leads(&self, rounds: &mut Rounds) -> bool {
        let more = rounds.more();
        self.goes_on.store(more, Ordering::Relaxed);
        self.meet();
        more
    }

    /// Of the follower: whether there is another round, which has to have another meeting.
    fn follows(&self) -> bool {
        self.meet();
        self.goes_on.load(Ordering::Relaxed)
    }
}

/// Of a thread that waits.
struct Patience {
    looks: u32,
    most: u32,
}

impl Patience {
    /// So that the other one has its cache lines to itself for a while.
    fn wait(&mut self) {
        for _ in 0..BURST {
            spin_loop();
        }
        self.looks += 1;
        if self.looks.is_multiple_of(self.most) {
            thread::yield_now();
        }
    }
}

/// Measures a push of these items into a mailbox, and a pop on the other core: bursts fill the mailbox, then bursts
/// empty it, so that neither side waits and each finds the entries in the other's cache.
///
/// # Errors
///
/// There is no such mailbox.
pub(super) fn hand_over<T: Copy + Send + Sync>(
    items: &[T],
    pair: &Pair,
    amount: Amount,
) -> Result<[Figure; 2]> {
    let (mut producer, mut consumer) = mailbox::<T>(SLOTS)?;
    let push = move || {
        let (mut rounds, mut taken) = (Rounds::new(amount), Vec::new());
        let mut watch = Stopwatch::of_this_thread();
        while pair.leads(&mut rounds) {
            let mut round = Taken::NOTHING;
            for part in items.chunks(SLOTS) {
                round += watch.timed(|| {
                    for burst in part.chunks(BURST) {
                        producer.push_batch(&mut burst.iter().copied());
                    }
                });
                pair.meet();
                pair.meet();
            }
            taken.push(round);
        }
        Figure::of(&taken)
    };
    let pop = move || {
        let (mut taken, mut popped) = (Vec::new(), Vec::with_capacity(BURST));
        let mut watch = Stopwatch::of_this_thread();
        while pair.follows() {
            let mut round = Taken::NOTHING;
            for _ in items.chunks(SLOTS) {
                pair.meet();
                round += watch.timed(|| {
                    while consumer.pop_batch(BURST, |item| popped.push(item)) > 0 {
                        black_box(&popped);
                        popped.clear();
                    }
                });
                pair.meet();
            }
            taken.push(round);
        }
        Figure::of(&taken)
    };
    let (pushed, popped) = pair.run(push, pop);
    Ok([pushed, popped])
}

/// Measures RX, classifier, arbiter and TX in turn on this thread, whose caches they share, with a reading of the
/// clock in between. Instructions are not counted, since reading their count is a system call.
pub(super) fn together(front: &mut Front<'_>, back: &mut Back, amount: Amount) -> [Figure; 4] {
    let (mut rounds, mut taken) = (Rounds::new(amount), [const { Vec::new() }; 4]);
    while rounds.more() {
        front.arrive();
        let mut round = [Duration::ZERO; 4];
        let mut last = Instant::now();
        let mut stage_ends = |stage: usize| {
            let now = Instant::now();
            round[stage] += now - last;
            last = now;
        };
        while front.receive() {
            stage_ends(0);
            let classified = front.classify_received();
            stage_ends(1);
            back.decide(classified);
            stage_ends(2);
            back.transmit();
            stage_ends(3);
        }
        back.leave();
        for (taken, round) in taken.iter_mut().zip(round) {
            taken.push(round.into());
        }
    }
    taken.map(|taken| Figure::of(&taken))
}

/// Measures all stages on this thread, without a hand-over.
pub(super) fn one_core(front: &mut Front<'_>, back: &mut Back, amount: Amount) -> Figure {
    measured(amount, |watch| {
        front.arrive();
        let taken = watch.timed(|| {
            while front.receive() {
                back.decide(front.classify_received());
                back.transmit();
            }
        });
        back.leave();
        taken
    })
}

/// Measures all stages up to the arbiter's mailbox on one core, and the arbiter and all later ones on another,
/// which returns transmitted frames.
///
/// # Errors
///
/// There is no such mailbox.
pub(super) fn two_cores(
    front: &mut Front<'_>,
    back: &mut Back,
    pair: &Pair,
    amount: Amount,
) -> Result<Figure> {
    let (mut to_arbiter, mut arriving) = mailbox(SLOTS)?;
    let (mut give_back, mut returned) = mailbox(FRAMES)?;
    let before = move || {
        let (mut rounds, mut taken) = (Rounds::new(amount), Vec::new());
        front.arrive();
        while pair.leads(&mut rounds) {
            let begun = Instant::now();
            while front.receive() {
                let classified = front.classify_received();
                returned.pop_batch(BURST, |frame| _ = black_box(frame));
                let mut left = classified.iter().copied();
                let mut patience = pair.patience();
                while left.len() > 0 {
                    if to_arbiter.push_batch(&mut left) == 0 {
                        patience.wait();
                    }
                }
            }
            pair.meet();
            taken.push(begun.elapsed().into());
            returned.pop_batch(usize::MAX, |frame| _ = black_box(frame));
            front.arrive();
        }
        Figure::of(&taken)
    };
    let behind = move || {
        let mut classified = Vec::with_capacity(BURST);
        while pair.follows() {
            let (mut left, mut patience) = (FRAMES, pair.patience());
            while left > 0 {
                classified.clear();
                let popped = arriving.pop_batch(BURST, |one| classified.push(one));
                if popped == 0 {
                    patience.wait();
                    continue;
                }
                left -= popped;
                back.decide(&classified);
                give_back.push_batch(&mut back.out.iter().copied());
                back.transmit();
            }
            pair.meet();
            back.leave();
        }
    };
    let (figure, ()) = pair.run(before, behind);
    Ok(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_two_threads_sees_what_the_other_did_before_they_met() {
        for cores in [None, Some([0, 0])] {
            let pair = Pair::new(cores);
            let word = AtomicUsize::new(0);
            let rounds = pair.run(
                || {
                    let mut rounds = Rounds::new(Amount::Packets(5 * FRAMES as u64));
                    let mut number = 0;
                    while pair.leads(&mut rounds) {
                        number += 1;
                        word.store(number, Ordering::Relaxed);
                        pair.meet();
                        pair.meet();
                    }
                    number
                },
                || {
                    let mut seen = Vec::new();
                    while pair.follows() {
                        pair.meet();
                        seen.push(word.load(Ordering::Relaxed));
                        pair.meet();
                    }
                    seen
                },
            );
            assert_eq!(rounds, (6, vec![1, 2, 3, 4, 5, 6]));
        }
    }
}
