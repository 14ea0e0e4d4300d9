//! Early drop: the kernel drops traffic above its share on arrival, while that is cheap. Linux only, and needs the
//! privilege `CAP_BPF`.
//!
//! A thread that receives less than arrives loses frames of every flow from its receive queue: a flood without a claim
//! to the link displaces flows that have one. A program in the kernel, ahead of that queue, classifies frames by the
//! scheduler's rules and drops those that the scheduler would drop in any case.
//!
//! # Limits
//!
//! Nothing is dropped unless the owner reports an overload ([`EarlyDrop::start`]). During an overload, the program
//! drops frames of a class or flow whose *limit* is used up. A limit is a window, as of a sender that waits for
//! acknowledgements: the number of frames that may be in the receive queue and the scheduler together.
//!
//! - A class or flow gets a limit when the scheduler has no space for one of its frames ([`EarlyDrop::no_room`]): its
//!   backlog and a few more frames. One that always finds space never gets a limit.
//! - Each frame that passes takes one from the window, each transmitted frame returns nine eighths
//!   ([`EarlyDrop::sent`]), and a frame that the scheduler rejected returns nothing. A window therefore follows the
//!   scheduler's available space.
//! - One frame above its limit passes for each call of [`EarlyDrop::probe`]: a window whose frames were lost on the
//!   way, and never transmitted, opens again.
//! - A class or flow without drops for one to two epochs, here or in the scheduler, loses its limit
//!   ([`EarlyDrop::renew`]). If the thread stalls, epochs stall too, and limits stay in force.
//!
//! A class with one queue has one limit. A class of flows has many; a hash keyed by secret random numbers selects a
//! flow's limit: a flow that shares one with a flood suffers its drops, one flow in [`FLOW_LIMITS`] for each flood. The
//! program distinguishes up to 32 flow definitions: a class with a further one has a single limit.
//!
//! # Undecided frames
//!
//! Malformed frames are of the default class and share one limit: that of the class, if it has one queue. A later
//! fragment takes the class of the first fragment of its datagram, if [rules say so](Rules::follows_fragments) and
//! that is among the last 16,384 first fragments; after a dropped fragment, the rest of the datagram is dropped too. A
//! frame of uncertain class passes: one that is yet to be segmented, or one that the rules leave open. For each
//! family, rules that test the same bits share a hash table, up to 16 tables, and 64 other rules are compared one by
//! one; further rules are ignored, and a frame that only they could classify passes.
//!
//! # Cost
//!
//! Five instructions a frame while no limit is set, overload or not. Otherwise some hundred, plus one lookup in each
//! table and each comparison; on transmission, a few nanoseconds a frame in the forwarding thread.
//!
//! # Example
//!
//! ```
//! use std::io;
//!
//! use fairlane_io::early::{Class, Dropped, Family, Gate, Pattern, Rules, Trial, WORDS};
//! use fairlane_io::{EarlyDrop, PacketBackend};
//!
//! // Class 1 has all IPv6 packets, and class 0 the others. Once a class has a limit,
//! // 2 frames more pass than wait by then.
//! let class = Class { flows: None, first: 2, most: 100, longest: u32::MAX };
//! let anything = Pattern {
//!     mask: [0; WORDS],
//!     value: [0; WORDS],
//!     source_port: (0, u16::MAX),
//!     destination_port: (0, u16::MAX),
//! };
//! let classes = vec![class; 2];
//! let mut rules = Rules { rules: Default::default(), default: 0, follows_fragments: false, classes };
//! rules.rules[Family::V6 as usize].push((anything, 1));
//!
//! /// How many of ten frames a class loses that the scheduler has no room for.
//! fn lost(rules: &Rules) -> io::Result<Dropped> {
//!     let early = EarlyDrop::new(rules)?;
//!     early.start();
//!     early.no_room(0, || None);
//!     let trial: Trial = early.trial(false)?;
//!     for _ in 0..10 {
//!         trial.drops(&[0; 60])?;
//!     }
//!     Ok(early.dropped(0))
//! }
//!
//! /// The same where frames really arrive.
//! fn attach(early: &EarlyDrop, device: &PacketBackend) -> io::Result<()> {
//!     let gate: Gate = device.gate();
//!     gate.put(early)
//! }
//!
//! match lost(&rules) {
//!     Ok(lost) => println!("{} frames, {} bytes", lost.frames, lost.bytes),
//!     Err(error) => println!("not without the privilege: {error}"),
//! }
//! ```

mod layout;
pub(crate) mod program;
mod search;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::bpf::{Assembler, Do, Instruction, Register::*};
use crate::sys::bpf::{self, HashTable, ProgramKind};
use crate::sys::memory::Mapped;
use crate::xdp::program::redirect;

use layout::{
    BUCKETS_SHIFT, CLASS_BYTES, COST, FLOWS_MASK, FLOWS_SHIFT, HEADER, LIMIT_BYTES, PROBE, RETURN,
    TOTAL,
};
use program::{Hook, Parts};
use search::Search;

/// Words that the headers of a packet are, as `fairlane_classify::words` has them.
pub const WORDS: usize = 5;

/// Limits of the flows of a class, at most.
pub const FLOW_LIMITS: u32 = 1_024;
/// Datagrams whose class is known to later fragments. A flood of 200,000 first fragments a second takes the place of one in 80 ms.
const DATAGRAMS: u32 = 1 << 14;
/// Of all classes of flows together.
const MOST_FLOW_LIMITS: u32 = 1 << 18;
/// The most flow definitions that can be distinguished; a class with another one has one limit, like a class with one
/// queue. A jump of the program goes over the code for all of them, 32,767 instructions at most.
const MOST_KINDS: usize = 32;
const _: () = assert!(MOST_KINDS <= FLOWS_MASK as usize);
/// The mixing steps of a hash after its sum of products: a right shift, and the index of the multiplier that follows.
const MIXES: [(u32, usize); 2] = [(32, 0), (29, 1)];

/// A rule's condition on the words of a packet: `value` under `mask`, and both ports within their ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The bits to test; of a range of ports, those in which its ends agree.
    pub mask: [u64; WORDS],
    /// Required values of the masked bits; zero elsewhere.
    pub value: [u64; WORDS],
    /// First and last.
    pub source_port: (u16, u16),
    /// First and last.
    pub destination_port: (u16, u16),
}

/// The network protocol of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// Anything else.
    Other,
}

/// A class, or one of flows.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// The bits of a packet's words that distinguish its flows, by [`Family`]; `None` for one queue.
    pub flows: Option<[[u64; WORDS]; 3]>,
    /// Frames that a new limit lets through in addition to the current backlog: of the class, or of each flow.
    pub first: u32,
    /// Frames that a limit lets through at once, at most: no fewer than there is room for that is kept
    /// for the class, or for each flow.
    pub most: u32,
    /// Bytes of its longest frame. A longer one is of the default class.
    pub longest: u32,
}

/// Rules that classify frames.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The rules for the packets of each [`Family`], in order of precedence, each with its class.
    pub rules: [Vec<(Pattern, u32)>; 3],
    /// The class of what no rule matches, and of malformed frames.
    pub default: u32,
    /// Whether later fragments follow the first one of their datagram.
    pub follows_fragments: bool,
    /// All classes, by number.
    pub classes: Vec<Class>,
}

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The tables of a program, which are shared with it.
///
/// Of its methods that change something, one thread at a time calls any; others may read meanwhile.
#[derive(Debug)]
pub struct EarlyDrop {
    classes: Vec<Shape>,
    /// The class of malformed frames, and where their limit is: that of the class, if it has one queue.
    unclear: (u32, Shape),
    /// Datagrams by their first fragments, with their class, if later ones follow.
    datagrams: Option<HashTable<WORDS>>,
    kinds: Vec<[[u64; WORDS]; 3]>,
    hash: [u64; WORDS],
    limits_at: usize,
    limits: u32,
    searches: [Search; 3],
    shared: Mapped,
    memory: OwnedFd,
    tables: HashTable<{ WORDS + 1 }>,
    /// The last epoch.
    epoch: AtomicU64,
    /// The same while there is an overload, else 0. The program sees it while any limit is set.
    overload: AtomicU64,
    /// The last known epoch in which a packet was rejected, or dropped here.
    limited: AtomicU64,
    /// Drops counted until the last epoch ended.
    counted: AtomicU64,
}

/// Where the limits of a class are.
#[derive(Clone, Copy, Debug)]
struct Shape {
    place: u64,
    first: i64,
    most: i64,
    longest: u64,
}

impl Shape {
    fn kind(self) -> usize {
        (self.place >> FLOWS_SHIFT) as usize & FLOWS_MASK as usize
    }
}

impl EarlyDrop {
    /// Tables for these rules, without overload. O(n log n), and a system call for each rule in a
    /// table.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` without the privilege `CAP_BPF`, `OutOfMemory`, or the error of a kernel before Linux 5.5,
    /// which lacks a needed feature.
    ///
    /// # Panics
    ///
    /// If there are no classes.
    pub fn new(rules: &Rules) -> io::Result<EarlyDrop> {
        let mut searches = Vec::with_capacity(3);
        let mut numbered = 0;
        for rules_of_family in &rules.rules {
            let search = Search::new(rules_of_family, rules.default, numbered);
            numbered += search.tables.len() as u32;
            searches.push(search);
        }
        let searches: [Search; 3] = searches.try_into().expect("there are three families");
        let (classes, kinds, mut limits) = shapes(&rules.classes);
        let mut unclear = classes[rules.default as usize];
        if unclear.kind() != 0 {
            unclear.place = limits.into();
            limits += 1;
        }
        let limits_at = HEADER + classes.len() * CLASS_BYTES;
        let bytes = limits_at + limits as usize * LIMIT_BYTES;
        let memory = bpf::shared_memory(bytes)?;
        let shared = bpf::map_shared(&memory, bytes)?;
        for (words, shape) in shared.as_ref()[HEADER / 8..]
            .chunks_exact(CLASS_BYTES / 8)
            .zip(&classes)
        {
            words[0].store(shape.place, Ordering::Relaxed);
            words[3].store(shape.longest, Ordering::Relaxed);
        }
        let entries = || searches.iter().flat_map(|search| &search.entries);
        let tables = HashTable::new(entries().count())?;
        for (key, result) in entries() {
            tables.insert(key, *result)?;
        }
        let datagrams = || HashTable::of_latest(DATAGRAMS);
        Ok(EarlyDrop {
            classes,
            unclear: (rules.default, unclear),
            datagrams: rules.follows_fragments.then(datagrams).transpose()?,
            kinds,
            hash: numbers(),
            limits_at,
            limits,
            searches,
            shared,
            memory,
            tables,
            // Limits that were never set are of an epoch before the last.
            epoch: AtomicU64::new(0),
            overload: AtomicU64::new(0),
            limited: AtomicU64::new(0),
            counted: AtomicU64::new(0),
        })
    }

    fn words(&self) -> &[AtomicU64] {
        self.shared.as_ref()
    }

    /// Returns whether there is an overload. O(1), one load.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.overload.load(Ordering::Relaxed) != 0
    }

    /// Returns whether any limit may be set: there is an overload, and a packet was rejected, or dropped here, in this
    /// epoch or the one before it. While none is set, the program inspects no frame. O(1), one load.
    #[inline]
    pub fn has_limits(&self) -> bool {
        self.words()[0].load(Ordering::Relaxed) != 0
    }

    /// Returns whether the flows of a class have limits of their own, which other flows may share.
    /// O(1).
    pub fn has_flows(&self, class: u32) -> bool {
        let shape = self.classes.get(class as usize);
        shape.is_some_and(|shape| shape.kind() > 0)
    }

    /// Reports an overload from now on; no limit is set yet.
    pub fn start(&self) {
        self.counted.store(self.total(), Ordering::Relaxed);
        self.forward(2);
    }

    /// Ends an epoch: a class or flow without drops in it and in the one before, here or in the scheduler, loses its
    /// limit.
    pub fn renew(&self) {
        let total = self.total();
        if self.counted.swap(total, Ordering::Relaxed) != total {
            let epoch = self.epoch.load(Ordering::Relaxed);
            self.limited.store(epoch, Ordering::Relaxed);
        }
        self.forward(1);
    }

    /// The next frame that is beyond its limit passes all the same. O(1).
    pub fn probe(&self) {
        // Without limits the program needs no credit; skipping the update keeps its cache line with the program.
        if self.has_limits() {
            self.words()[PROBE / 8].store(1, Ordering::Relaxed);
        }
    }

    fn forward(&self, epochs: u64) {
        let epoch = self.epoch.load(Ordering::Relaxed) + epochs;
        self.epoch.store(epoch, Ordering::Relaxed);
        self.overload.store(epoch, Ordering::Relaxed);
        let has_limits = self.limited.load(Ordering::Relaxed) + 1 >= epoch;
        self.words()[0].store(if has_limits { epoch } else { 0 }, Ordering::Relaxed);
    }

    /// There is no overload any more: nothing is dropped from now on.
    pub fn stop(&self) {
        self.overload.store(0, Ordering::Relaxed);
        self.words()[0].store(0, Ordering::Relaxed);
    }

    /// Reports that there was no space for a packet of a class, or that it was evicted. `words` returns the packet's
    /// words, or `None` if they do not determine its class; it is called for a class with flows. O(1).
    pub fn no_room(&self, class: u32, words: impl FnOnce() -> Option<(Family, [u64; WORDS])>) {
        let Some((shape, [set, left])) = self.limit(class, words) else {
            return;
        };
        let epoch = self.epoch.load(Ordering::Relaxed);
        // Otherwise the limit exists already and stays.
        if set.load(Ordering::Relaxed) + 1 < epoch {
            left.store((shape.first * COST) as u64, Ordering::Relaxed);
        }
        // Release: a reader that sees the epoch sees the limit's window too.
        set.store(epoch, Ordering::Release);
        if self.is_on() {
            self.limited.store(epoch, Ordering::Relaxed);
            // Once an epoch: the program reads this line for every frame.
            if self.words()[0].load(Ordering::Relaxed) != epoch {
                self.words()[0].store(epoch, Ordering::Release);
            }
        }
    }

    /// A packet of a class has been sent; `words` as in [`no_room`](Self::no_room). O(1).
    pub fn sent(&self, class: u32, words: impl FnOnce() -> Option<(Family, [u64; WORDS])>) {
        let Some((shape, [_, left])) = self.limit(class, words) else {
            return;
        };
        if (left.load(Ordering::Relaxed) as i64) < shape.most * COST {
            left.fetch_add(RETURN as u64, Ordering::Relaxed);
        }
    }

    /// Returns the limit of a packet.
    fn limit(
        &self,
        class: u32,
        words: impl FnOnce() -> Option<(Family, [u64; WORDS])>,
    ) -> Option<(Shape, &[AtomicU64; 2])> {
        let mut shape = *self.classes.get(class as usize)?;
        let mut number = shape.place & u64::from(u32::MAX);
        if let Some(kind) = shape.kind().checked_sub(1) {
            match words() {
                Some((family, words)) => {
                    let bits = &self.kinds[kind][family as usize];
                    number += hash(&words, bits, &self.hash) >> (shape.place >> BUCKETS_SHIFT);
                }
                None if class == self.unclear.0 => {
                    shape = self.unclear.1;
                    number = shape.place;
                }
                None => return None,
            }
        }
        let at = self.limits_at / 8 + number as usize * (LIMIT_BYTES / 8);
        Some((shape, self.words()[at..].first_chunk()?))
    }

    /// Returns the drops of a class.
    pub fn dropped(&self, class: u32) -> Dropped {
        let at = (HEADER + class as usize * CLASS_BYTES) / 8;
        let count = |word: usize| {
            let word = self.words()[..self.limits_at / 8].get(at + word);
            word.map_or(0, |word| word.load(Ordering::Relaxed))
        };
        Dropped {
            frames: count(1),
            bytes: count(2),
        }
    }

    /// Frames that were dropped, of all classes. O(1).
    pub fn total(&self) -> u64 {
        self.words()[TOTAL / 8].load(Ordering::Relaxed)
    }

    /// Builds the program; `go_on` appends the instructions for frames that are not dropped.
    fn program(&self, hook: Hook, go_on: impl FnOnce(&mut Assembler)) -> Vec<Instruction> {
        let mut asm = Assembler::default();
        let on = asm.label();
        asm.calculate_by(Do::Set, R6, R1);
        let parts = Parts {
            memory: self.memory.as_raw_fd(),
            tables: self.tables.descriptor(),
            classes: self.classes.len() as u32,
            unclear: (self.unclear.0, self.unclear.1.place as u32),
            datagrams: self.datagrams.as_ref().map(HashTable::descriptor),
            limits_at: self.limits_at as i32,
            limits: self.limits,
            searches: &self.searches,
            flows: &self.kinds,
            hash: self.hash,
        };
        program::write(&mut asm, hook, &parts, on);
        asm.place(on);
        go_on(&mut asm);
        asm.finish()
    }

    fn filter(&self) -> io::Result<OwnedFd> {
        let program = self.program(Hook::Socket, |asm| {
            asm.calculate(Do::Set, R0, -1);
            asm.exit();
        });
        bpf::load(ProgramKind::SocketFilter, &program)
    }

    /// Loads the program for trial runs without traffic: that of a packet socket or, if `by_xdp`, of an interface. For
    /// tests.
    ///
    /// # Errors
    ///
    /// The kernel's error on loading the program.
    pub fn trial(&self, by_xdp: bool) -> io::Result<Trial> {
        let program = match by_xdp {
            true => {
                let program = self.program(Hook::Interface, |asm| {
                    asm.calculate(Do::Set, R0, bpf::XDP_PASS);
                    asm.exit();
                });
                bpf::load(ProgramKind::Xdp, &program)?
            }
            false => self.filter()?,
        };
        Ok(Trial { program, by_xdp })
    }
}

/// A program to be tried.
#[derive(Debug)]
pub struct Trial {
    program: OwnedFd,
    by_xdp: bool,
}

impl Trial {
    /// Returns whether the program drops a whole Ethernet frame of at least 14 bytes, and counts the drop.
    ///
    /// # Errors
    ///
    /// The kernel's error on running the program.
    pub fn drops(&self, frame: &[u8]) -> io::Result<bool> {
        if self.by_xdp {
            return Ok(bpf::run(&self.program, frame)? == bpf::XDP_DROP);
        }
        // A trial run begins behind an Ethernet header, a socket at one.
        let behind = [&[0; 14], frame].concat();
        Ok(bpf::run(&self.program, &behind)? == 0)
    }
}

/// Returns the secret random numbers that key a hash.
fn numbers() -> [u64; WORDS] {
    [(); WORDS].map(|()| RandomState::new().hash_one(0) | 1)
}

/// Returns the hash of the words' selected bits; its highest bits select the flow's limit. A sum of products alone is
/// linear: for one choice of numbers in a thousand, a tenth of a range of ports or addresses shares the limit of the
/// first, and so of a flood from it. `program` does the same.
fn hash(words: &[u64; WORDS], bits: &[u64; WORDS], by: &[u64; WORDS]) -> u64 {
    let sum = (0..WORDS).fold(0u64, |sum, word| {
        sum.wrapping_add((words[word] & bits[word]).wrapping_mul(by[word]))
    });
    MIXES.iter().fold(sum, |mixed, &(shift, number)| {
        (mixed ^ mixed >> shift).wrapping_mul(by[number])
    })
}

/// How the classes' limits are laid out, which kinds of flows there are, and how many limits.
fn shapes(classes: &[Class]) -> (Vec<Shape>, Vec<[[u64; WORDS]; 3]>, u32) {
    let mut kinds = Vec::new();
    let with_flows = classes.iter().filter(|class| class.flows.is_some()).count() as u32;
    let buckets = (MOST_FLOW_LIMITS / with_flows.max(1)).clamp(2, FLOW_LIMITS);
    // A power of two.
    let bits = buckets.ilog2();
    let mut limits = 0;
    let shapes = classes.iter().map(|class| {
        let mut place = u64::from(limits);
        let kind = class.flows.and_then(|flows| {
            let known = kinds.iter().position(|kind| *kind == flows);
            known.or_else(|| {
                (kinds.len() < MOST_KINDS).then(|| {
                    kinds.push(flows);
                    kinds.len() - 1
                })
            })
        });
        match kind {
            Some(kind) => {
                let shift = u64::from(u64::BITS - bits);
                place |= (kind as u64 + 1) << FLOWS_SHIFT | shift << BUCKETS_SHIFT;
                limits += 1 << bits;
            }
            None => limits += 1,
        }
        Shape {
            place,
            first: class.first.into(),
            most: class.most.into(),
            longest: class.longest.into(),
        }
    });
    let shapes = shapes.collect();
    (shapes, kinds, limits)
}

/// Where frames arrive at a backend, to put an early drop before: as long as that backend is there.
#[derive(Clone, Debug)]
pub struct Gate(pub(crate) Target);

#[derive(Clone, Debug)]
pub(crate) enum Target {
    Socket(Weak<bpf::Filtered>),
    Interface(Weak<bpf::Program>),
    All(Vec<Target>),
}

impl Gate {
    /// Returns all of these gates as one: where several backends share what arrives at an
    /// interface.
    pub fn of_all(gates: impl IntoIterator<Item = Gate>) -> Gate {
        let mut all: Vec<Target> = Vec::new();
        for Gate(target) in gates {
            // One program serves all queues, whichever backend receives from them.
            if !all.iter().any(|one| one.is_program(&target)) {
                all.push(target);
            }
        }
        Gate(Target::All(all))
    }

    /// Applies these tables, and no others, to all arriving frames, atomically. No effect if the backend is gone.
    ///
    /// # Errors
    ///
    /// The kernel's error on loading the program: `PermissionDenied` without the privilege `CAP_BPF`, and errors of
    /// kernels that lack a needed feature (before Linux 5.8, with AF_XDP before 5.18). Nothing has changed then: each
    /// of several gates keeps its former tables.
    pub fn put(&self, early: &EarlyDrop) -> io::Result<()> {
        self.0.put(early)
    }
}

/// The replaced program or filter of a gate.
enum Former {
    Socket(Arc<bpf::Filtered>, bpf::Heard),
    Interface(Arc<bpf::Program>, Arc<OwnedFd>),
}

impl Former {
    fn put_back(self) {
        // It stood there before: nothing is known that the kernel could have against it.
        let _ = match self {
            Former::Socket(socket, hears) => socket.exchange(hears).map(drop),
            Former::Interface(of, program) => of.exchange(program).map(drop),
        };
    }
}

impl Target {
    /// Returns whether both are the same program of an interface.
    fn is_program(&self, other: &Target) -> bool {
        match (self, other) {
            (Target::Interface(one), Target::Interface(other)) => Weak::ptr_eq(one, other),
            _ => false,
        }
    }

    fn put(&self, early: &EarlyDrop) -> io::Result<()> {
        let mut former = Vec::new();
        let put = self.exchange(early, &mut None, &mut former);
        if put.is_err() {
            former.into_iter().rev().for_each(Former::put_back);
        }
        put
    }

    /// Puts it at each of them, until one refuses it, and appends what stood there. `filter` is the program of
    /// all sockets, once it is loaded.
    fn exchange(
        &self,
        early: &EarlyDrop,
        filter: &mut Option<Arc<OwnedFd>>,
        former: &mut Vec<Former>,
    ) -> io::Result<()> {
        match self {
            Target::All(all) => {
                let mut all = all.iter();
                return all.try_for_each(|one| one.exchange(early, filter, former));
            }
            Target::Socket(socket) => {
                if let Some(socket) = socket.upgrade() {
                    let program = match filter {
                        Some(program) => Arc::clone(program),
                        None => Arc::clone(filter.insert(Arc::new(early.filter()?))),
                    };
                    let before = socket.exchange(bpf::Heard::By(program))?;
                    former.push(Former::Socket(socket, before));
                }
            }
            Target::Interface(program) => {
                if let Some(program) = program.upgrade() {
                    let go_on = |asm: &mut Assembler| redirect(asm, program.sockets());
                    let instructions = early.program(Hook::Interface, go_on);
                    let loaded = bpf::load(ProgramKind::Xdp, &instructions)?;
                    let before = program.exchange(Arc::new(loaded))?;
                    former.push(Former::Interface(program, before));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::{FLOW_LIMITS, Gate, Target, WORDS, hash, numbers};

    #[test]
    fn a_program_that_serves_several_receivers_is_put_once_and_each_socket_has_its_own() {
        let interface = || Gate(Target::Interface(Weak::new()));
        let socket = || Gate(Target::Socket(Weak::new()));
        for (gates, count) in [([interface(), interface()], 1), ([socket(), socket()], 2)] {
            let Gate(Target::All(all)) = Gate::of_all(gates) else {
                panic!("all of them");
            };
            assert_eq!(all.len(), count);
        }
    }

    /// Neighbours, such as the flows of one host and the hosts of one network, share a limit no more often than others
    /// do, for any random numbers: 100 of them with a tenth, on average.
    #[test]
    fn few_neighbours_share_a_limit_whatever_the_numbers() {
        let bits = [!0; WORDS];
        let limit =
            |words: [u64; WORDS], by: &_| hash(&words, &bits, by) >> (64 - FLOW_LIMITS.ilog2());
        for (word, shift) in [(0, 48), (0, 32), (1, 32), (1, 0), (1, 40), (3, 0), (4, 0)] {
            let mut shared = 0;
            for _ in 0..5_000 {
                let by = numbers();
                let words = |number: u64| {
                    let mut words = [7 << 48 | 5_000 << 32, 0x0a00_0001_0a00_0002, 0, 1, 1];
                    words[word] += number << shift;
                    words
                };
                let first = limit(words(0), &by);
                let share = (1..=100).filter(|&n| limit(words(n), &by) == first);
                let share = share.count();
                assert!(share < 10, "{share} by {by:x?}");
                shared += share;
            }
            assert!((300..700).contains(&shared), "{shared} at {word}, {shift}");
        }
    }
}
