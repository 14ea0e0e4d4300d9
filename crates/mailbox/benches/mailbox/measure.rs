//! One measurement: two threads on two cores, a queue between them.

use std::{
    hint::{black_box, spin_loop},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::queues::{Pop, Push};

/// A measurement, in nanoseconds per item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// Both ends at full speed, one by one: the whole cost of an item.
    Single,
    /// The same in batches.
    Batch,
    /// The producer works between pushes, and the consumer reads without a pause: the time that a push adds to the
    /// work.
    EmptyEager,
    /// The same, and the consumer reads once a microsecond.
    EmptyPaced,
    /// The consumer works between pops, and the producer retries without a pause: the time that a pop adds to the work.
    Full,
}

pub(crate) const CASES: [Case; 5] = [
    Case::Single,
    Case::Batch,
    Case::EmptyEager,
    Case::EmptyPaced,
    Case::Full,
];

/// Values in a batch.
const BATCH: u64 = 32;

/// Time between the reads of a paced consumer.
const PAUSE: Duration = Duration::from_micros(1);

/// A value in the queues.
pub(crate) trait Payload: Copy + Send + 'static {
    fn new(number: u64) -> Self;
    fn fold(self) -> u64;
}

impl Payload for u64 {
    fn new(number: u64) -> Self {
        number
    }

    fn fold(self) -> u64 {
        self
    }
}

impl Payload for [u64; 2] {
    fn new(number: u64) -> Self {
        [number, number]
    }

    fn fold(self) -> u64 {
        self[0] ^ self[1]
    }
}

/// Takes some 160 ns on a core at 4 to 5 GHz: dependent multiplications.
#[inline(never)]
fn work() {
    let mut x = black_box(3_u64);
    for _ in 0..200 {
        x = x.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 1;
    }
    black_box(x);
}

/// Returns the nanoseconds that `work` alone takes, on the core of the end that works.
pub(crate) fn work_alone(case: Case, items: u64) -> f64 {
    pin(usize::from(case == Case::Full));
    let start = Instant::now();
    for _ in 0..items {
        work();
    }
    start.elapsed().as_nanos() as f64 / items as f64
}

/// Returns the cores of the two ends, if there are two and the system reports them.
pub(crate) fn cores() -> Option<[usize; 2]> {
    /// Queried once: a pinned thread sees only its own core.
    static CORES: LazyLock<Option<[usize; 2]>> = LazyLock::new(|| {
        let mut cores = system::own_cores().into_iter();
        Some([cores.next()?, cores.next()?])
    });
    *CORES
}

/// Pins the thread to the core of the producer, 0, or of the consumer, 1.
fn pin(end: usize) {
    if let Some(cores) = cores() {
        system::keep_to(cores[end]);
    }
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    pub(super) fn own_cores() -> Vec<usize> {
        let set = sched_getaffinity(None).unwrap_or_default();
        let own = (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core));
        own.collect()
    }

    pub(super) fn keep_to(core: usize) {
        let mut only = CpuSet::new();
        only.set(core);
        sched_setaffinity(None, &only).expect("the thread may use its core");
    }
}

/// On other systems threads are not pinned.
#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn own_cores() -> Vec<usize> {
        Vec::new()
    }

    pub(super) fn keep_to(_: usize) {}
}

/// Yields the core to the other end if there is only one.
fn wait(alone: bool) {
    if alone {
        thread::yield_now();
    } else {
        spin_loop();
    }
}

/// Returns the nanoseconds per item; see [`Case`]. The time of `work` is included.
pub(crate) fn measure<T: Payload>(
    (mut producer, mut consumer): (impl Push<T>, impl Pop<T>),
    case: Case,
    items: u64,
) -> f64 {
    let alone = cores().is_none();
    let ready = Arc::new(AtomicU32::new(0));
    let meet = move |ready: &AtomicU32| {
        ready.fetch_add(1, Ordering::AcqRel);
        while ready.load(Ordering::Acquire) < 2 {
            wait(alone);
        }
        Instant::now()
    };

    // A new thread starts on the core of its creator.
    pin(1);
    let popping = thread::spawn({
        let ready = Arc::clone(&ready);
        move || {
            let start = meet(&ready);
            pop_all(&mut consumer, case, items, alone);
            (start, Instant::now())
        }
    });
    pin(0);
    let start = meet(&ready);
    push_all(&mut producer, case, items, alone);
    let pushed = Instant::now();
    let (popping_start, popped) = popping.join().expect("popping does not panic");

    let time = match case {
        Case::Single | Case::Batch => popped - start.min(popping_start),
        Case::EmptyEager | Case::EmptyPaced => pushed - start,
        Case::Full => popped - popping_start,
    };
    time.as_nanos() as f64 / items as f64
}

/// A loop for each case, so that none pays for another's branches.
fn push_all<T: Payload>(producer: &mut impl Push<T>, case: Case, items: u64, alone: bool) {
    let mut push = |number| {
        let mut value = T::new(number);
        while let Err(back) = producer.push(value) {
            value = back;
            wait(alone);
        }
    };
    match case {
        Case::Single | Case::Full => (0..items).for_each(push),
        Case::EmptyEager | Case::EmptyPaced => {
            for number in 0..items {
                work();
                push(number);
            }
        }
        Case::Batch => {
            for first in (0..items).step_by(BATCH as usize) {
                let mut left = BATCH.min(items - first) as usize;
                let mut values = (first..first + left as u64).map(T::new);
                while left > 0 {
                    let pushed = producer.push_many(&mut values, left);
                    left -= pushed;
                    if pushed == 0 {
                        wait(alone);
                    }
                }
            }
        }
    }
}

fn pop_all<T: Payload>(consumer: &mut impl Pop<T>, case: Case, items: u64, alone: bool) {
    let mut popped = 0;
    let mut sum = 0;
    match case {
        Case::Single | Case::EmptyEager => {
            while popped < items {
                match consumer.pop() {
                    Some(value) => {
                        sum ^= value.fold();
                        popped += 1;
                    }
                    None => wait(alone),
                }
            }
        }
        Case::Full => {
            while popped < items {
                work();
                match consumer.pop() {
                    Some(value) => {
                        sum ^= value.fold();
                        popped += 1;
                    }
                    None => wait(alone),
                }
            }
        }
        Case::Batch => {
            while popped < items {
                let count = consumer.pop_many(BATCH as usize, |value| sum ^= value.fold());
                popped += count as u64;
                if count == 0 {
                    wait(alone);
                }
            }
        }
        Case::EmptyPaced => {
            while popped < items {
                popped += consumer.pop_many(BATCH as usize, |value| sum ^= value.fold()) as u64;
                let read = Instant::now();
                while read.elapsed() < PAUSE {
                    wait(alone);
                }
            }
        }
    }
    black_box(sum);
}
