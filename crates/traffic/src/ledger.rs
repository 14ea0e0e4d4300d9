//! Accounting of every packet of a simulated link, by class.

use crate::digest_map::DigestMap;
use fairlane_config::class_report::{ClassReport, ClassTerms, DelayReport};
use fairlane_config::{Link, List};
use fairlane_core::tree::{ClassId, ClassQueue, ClassStats};
use fairlane_core::{Count, Length, Rejection};
use fairlane_sim::{ClassFlow, Completion, Delays, Now, Observer, PacketInfo, Picos, Work};

const MICROSECOND: Picos = Picos::from_micros(1);

/// Counts of one class.
#[derive(Clone, Debug, Default)]
struct Account {
    /// All counts except those that only the queue has.
    stats: ClassStats,
    delays: Delays,
    /// Packets that took longer than the bound.
    beyond: u64,
    /// Packets within the guaranteed rate and arrival burst of their class, or flow; and the longest that one took.
    conforming: u64,
    conforming_max: Picos,
}

/// When all that a class, or each of its flows, has sent would have left at its guaranteed rate.
#[derive(Debug, Default)]
struct Clocks(DigestMap<Picos>);

impl Clocks {
    /// Whether a packet that leaves conformed to rate and burst on arrival. Packets of a flow leave in order, and a
    /// dropped packet does not consume any of the rate.
    fn conforms(&mut self, packet: &PacketInfo<ClassFlow>, (bps, burst): (u64, u32)) -> bool {
        let span = |bytes| Work::from_bits(8 * u128::from(bytes)).0 / u128::from(bps.max(1));
        let done = self.0.entry(packet.flow.flow).or_default();
        *done = Picos(packet.arrival.max(*done).0 + span(packet.len.get()));
        (*done - packet.arrival).0 <= span(burst)
    }
}

/// Counts the fate of every packet of a link. O(1) per packet.
#[derive(Debug)]
pub(crate) struct Ledger {
    link: Link,
    /// The queues' numbers of the classes.
    ids: Vec<ClassId>,
    places: Places,
    terms: List<ClassTerms>,
    accounts: Vec<Account>,
    /// The queue's counts at the start.
    before: Vec<ClassStats>,
    clocks: Vec<Clocks>,
}

impl Ledger {
    /// `ids` are the queues' numbers of the link's classes.
    pub(crate) fn new(link: &Link, ids: &[ClassId]) -> Ledger {
        Ledger {
            link: link.clone(),
            ids: ids.to_vec(),
            places: Places::new(ids),
            terms: ClassTerms::of(link),
            accounts: vec![Account::default(); ids.len()],
            before: vec![ClassStats::default(); ids.len()],
            clocks: ids.iter().map(|_| Clocks::default()).collect(),
        }
    }

    /// Resets the counts, including the queue's, for which `before` has the current value of each class. Packets in
    /// transit are still tracked.
    pub(crate) fn restart(&mut self, before: Vec<ClassStats>) {
        self.accounts.fill(Account::default());
        self.before = before;
    }

    /// Returns the queue's own counts, by place.
    pub(crate) fn counts<P>(&self, queue: &impl ClassQueue<P>) -> Vec<ClassStats> {
        let ids = self.ids.iter();
        ids.map(|&id| queue.stats(id).unwrap_or_default()).collect()
    }

    /// Returns reports of all classes of the link over a period of this length, with the counts that only the queue
    /// has.
    pub(crate) fn report<P>(&self, queue: &impl ClassQueue<P>, time: Picos) -> Vec<ClassReport> {
        let accounts = self.accounts.iter();
        let mut all: Vec<ClassStats> = accounts.map(|account| account.stats).collect();
        // Parents come before their children.
        for at in (0..all.len()).rev() {
            if let Some(parent) = self.link.classes[at].parent {
                all[parent] = all[parent].plus(&all[at]);
            }
        }
        let top = self.terms.iter().zip(&all);
        let top = top.filter(|(terms, _)| terms.parent.is_none());
        let sent: u64 = top.map(|(_, stats)| stats.sent.bytes).sum();
        let mut rows = Vec::with_capacity(all.len());
        for (at, own) in self.counts(queue).iter().enumerate() {
            let stats = ClassStats {
                queued: own.queued,
                flows: own.flows,
                flow_table_full: own.flow_table_full - self.before[at].flow_table_full,
                overlimits: own.overlimits - self.before[at].overlimits,
                ..all[at]
            };
            let (account, terms) = (&self.accounts[at], &self.terms[at]);
            let micros = |time: Picos| time.0 as f64 / MICROSECOND.0 as f64;
            let delays = &account.delays;
            let none = Count::default();
            rows.push(ClassReport {
                delay_us: (delays.count() > 0).then(|| delays_in(MICROSECOND, delays)),
                late_packets: terms.bound.map(|_| account.beyond),
                conforming_packets: Some(account.conforming),
                conforming_max_us: (account.conforming > 0).then(|| micros(account.conforming_max)),
                ..ClassReport::counted(self.terms.share(at), &stats, none, time.as_secs_f64(), sent)
            });
        }
        rows
    }
}

impl Ledger {
    /// Counts a packet of `len` bytes that never reached the queue, since the link does not carry it.
    pub(crate) fn oversized(&mut self, to: ClassFlow, len: u64) {
        let dropped = &mut self.accounts[self.places.of(to.class)].stats.dropped;
        dropped.packets += 1;
        dropped.bytes += len;
    }
}

impl Observer<ClassFlow> for Ledger {
    fn arrived(&mut self, _: Now, packet: &PacketInfo<ClassFlow>) {
        let place = self.places.of(packet.flow.class);
        self.accounts[place].stats.accepted.add(packet.len);
    }

    fn dropped(&mut self, _: Now, to: ClassFlow, len: Length, _: Rejection) {
        let account = &mut self.accounts[self.places.of(to.class)];
        account.stats.dropped.add(len);
    }

    fn discarded(&mut self, _: Now, packet: &PacketInfo<ClassFlow>) {
        let place = self.places.of(packet.flow.class);
        self.accounts[place].stats.discarded.add(packet.len);
    }

    fn completed(&mut self, completion: &Completion<ClassFlow>) {
        let packet = &completion.packet;
        let place = self.places.of(packet.flow.class);
        let delay = completion.end.time - packet.arrival;
        let terms = &self.terms[place];
        let bps = match &terms.each {
            Some(each) => each.guaranteed_bps,
            None => terms.guaranteed_bps,
        };
        let contract = bps.filter(|&bps| bps > 0).zip(terms.arrival_burst);
        let clocks = &mut self.clocks[place];
        let conforms = contract.is_some_and(|contract| clocks.conforms(packet, contract));
        let account = &mut self.accounts[place];
        account.stats.sent.add(packet.len);
        account.stats.marked += u64::from(packet.marked);
        account.delays.record(delay);
        let bound = terms.bound.map(|bound| Picos::from_nanos(bound.0));
        if bound.is_some_and(|bound| delay > bound) {
            account.beyond += 1;
        }
        if conforms {
            account.conforming += 1;
            account.conforming_max = account.conforming_max.max(delay);
        }
    }
}

/// The place of each class of a link, by the number that the queues know it by.
#[derive(Debug)]
pub(crate) struct Places(Vec<usize>);

impl Places {
    /// `ids` are the queues' numbers by place.
    pub(crate) fn new(ids: &[ClassId]) -> Places {
        let numbers = ids.iter().map(|id| id.number() as usize + 1);
        let mut places = vec![0; numbers.max().unwrap_or(0)];
        for (place, id) in ids.iter().enumerate() {
            places[id.number() as usize] = place;
        }
        Places(places)
    }

    pub(crate) fn of(&self, class: ClassId) -> usize {
        self.0[class.number() as usize]
    }
}

/// Delays on a simulated link in this unit; of no packet, zero.
pub(crate) fn delays_in(unit: Picos, delays: &Delays) -> DelayReport {
    let in_units = |time: Picos| time.0 as f64 / unit.0 as f64;
    DelayReport {
        mean: Some(in_units(delays.mean())),
        p50: in_units(delays.percentile(50.0)),
        p99: in_units(delays.percentile(99.0)),
        max: in_units(delays.max()),
    }
}
