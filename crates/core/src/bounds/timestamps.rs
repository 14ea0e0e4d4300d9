//! Algorithms with timestamps, exact or rounded, over flows or aggregates.

use super::{Terms, TermsError, Wfi, Work};

/// Which sigma the bound of an algorithm with slots takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The value in [`Qfq`](crate::sched::Qfq): the power of two next to L_k / phi, with the inverse weight rounded up
    /// to 40 bits of fraction, and no less than a 32nd of L over the sum of weights.
    Actual,
    /// 2 L_k / phi, as in the papers. A power of two is smaller, so it is larger than
    /// [`Slot::Actual`] wherever the 32nd of L does not decide.
    Loose,
}

/// Bits of fraction of QFQ's virtual time.
const FRACTION: u32 = 40;
/// A slot is at least 2^-5 of the longest packet's virtual time.
const FINEST: u32 = 5;

fn ceil_log2(x: u128) -> u32 {
    u128::BITS - x.saturating_sub(1).leading_zeros()
}

impl Slot {
    /// sigma of the flow, in work of the link: slot times sum of weights.
    pub fn of(self, terms: &Terms) -> Work {
        self.of_charges(terms, 1, 1)
    }

    /// Where `members` flows are charged as one and others are charged for up to `most`
    /// packets at once.
    fn of_charges(self, terms: &Terms, members: u32, most: u32) -> Work {
        if self == Slot::Loose {
            return Work(2.0 * terms.packet_service().0);
        }
        let (members, most) = (u128::from(members), u128::from(most));
        let weight = members * u128::from(terms.weight.get());
        let charge = members * u128::from(terms.length.get());
        let own = ceil_log2(charge * (1u128 << FRACTION).div_ceil(weight));
        let longest = (most * u128::from(terms.longest.get())) << FRACTION;
        let lag = longest / u128::from(terms.weight_sum) + 1;
        let floor = ceil_log2(lag).saturating_sub(FINEST).max(1);
        let units = (1u128 << own.max(floor)) as f64;
        Work(units * terms.weight_sum as f64 / (1u64 << FRACTION) as f64)
    }
}

/// The distance of an algorithm's rounded timestamps from the exact ones: A.4 of the QFQ+ paper, in work of the link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// DS-: the start at most this early.
    pub start: Work,
    /// DS+: the finish at most this late.
    pub finish: Finish,
}

/// The origin of DS+.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finish {
    /// From the exact finish F.
    AfterFinish(Work),
    /// From the exact start S (A.4), however short the packet is.
    AfterStart(Work),
}

impl Errors {
    /// None: WF2Q and WF2Q+.
    pub const EXACT: Errors = Errors {
        start: Work::ZERO,
        finish: Finish::AfterFinish(Work::ZERO),
    };

    /// GFQ: a slot and a slot.
    pub const fn gfq(slot: Work) -> Errors {
        Errors {
            start: slot,
            finish: Finish::AfterFinish(slot),
        }
    }

    /// QFQ and S-KPS: a slot; the finish is two slots after the rounded start.
    pub const fn qfq(slot: Work) -> Errors {
        Errors {
            start: slot,
            finish: Finish::AfterStart(Work(2.0 * slot.0)),
        }
    }

    /// DS+.
    fn late(&self) -> f64 {
        let (Finish::AfterFinish(finish) | Finish::AfterStart(finish)) = self.finish;
        finish.0
    }

    fn sum(&self) -> f64 {
        self.start.0 + self.late()
    }
}

/// SCHED: any algorithm with timestamps, by its errors (Eqs. 2 and 6 of the QFQ+ paper,
/// see [there](super#algorithms-with-timestamps)):
///
/// ```text
/// T-WFI R = DS- + DS+ + L_k / phi + L - L_k + Q
/// B-WFI   = phi T-WFI R, and (1 - phi) L_k if DS+ counts from F
/// latency = DS+ + L + Q
/// ```
pub fn sched(terms: &Terms, errors: Errors) -> Wfi {
    let own = terms.packet_service().0 - terms.length();
    let others = terms.longest() + terms.queued();
    let wfi = Wfi {
        latency: Work(errors.late() + others),
        ..Wfi::of(terms.share(), errors.sum() + own + others)
    };
    match errors.finish {
        Finish::AfterFinish(_) => wfi.with_service((1.0 - terms.share()) * terms.length()),
        Finish::AfterStart(_) => wfi,
    }
}

/// WF2Q: as [`wf2q_plus`]; the B-WFI only while the fluid server has packets of the flow too, so that it is
/// not [strict](Wfi::strict).
///
/// A packet is sent up to L / R after the fluid server has finished it. If the flow's next one
/// comes only then, the fluid server gives it nothing in between, and WF2Q does not make up
/// for that, though a packet of the flow was always waiting. The T-WFI counts from an arrival
/// and holds for all.
pub fn wf2q(terms: &Terms) -> Wfi {
    Wfi {
        strict: false,
        ..sched(terms, Errors::EXACT)
    }
}

/// WFQ, for a flow among others of which `slowest` is the largest L_j / phi_j, in work of the link:
///
/// ```text
/// T-WFI R = slowest + L + Q
/// B-WFI   = phi T-WFI R + L_k       while the fluid server has packets of the flow too
/// latency = Q
/// ```
///
/// `slowest` is N packets for N equal flows: WFQ has no worst-case fair index that does not grow with
/// the number of flows. A packet leaves at most L / R after the fluid server has finished it (Parekh and
/// Gallager, Theorem 1), but the flow may have been served ahead of that server. When a packet of finish
/// time F is selected, either no flow is ahead, so that F <= V + L_k / phi in virtual time, or some flow
/// j is behind, so that its head has started there, and F <= V + L_j / phi_j. So no flow's next start is
/// further after V than the largest of these, and a packet with B bytes of its flow in front finishes
/// in the fluid server within B / phi + `slowest` of work.
///
/// The latency has no packet besides that on the wire. V counts work when it begins, so for the fluid server a packet
/// arrives when the one on the wire ends, up to Q later. Let m be the last packet before p that is selected and
/// finishes there after p. All that is sent between m and p, and p, finishes no later than p, and was not there when m
/// was selected: it arrives in the fluid server when m ends or later. So that server does all of it in the same time
/// at the least, and p leaves no later than it finishes there.
pub fn wfq(terms: &Terms, slowest: Work) -> Wfi {
    let delay = slowest.0 + terms.longest() + terms.queued();
    Wfi {
        strict: false,
        latency: Work(terms.queued()),
        ..Wfi::of(terms.share(), delay).with_service(terms.length())
    }
}

/// WF2Q+, the least there is: T-WFI R = L_k / phi + L - L_k + Q.
///
/// B-WFI = (2 - 2 phi) L_k + phi (L + Q). Bennett and Zhang's L_k + phi (L - L_k)
/// is the same, for intervals that end with a packet of the flow, and Q = 0.
pub fn wf2q_plus(terms: &Terms) -> Wfi {
    sched(terms, Errors::EXACT)
}

/// GFQ with slots that are powers of two: T-WFI R = 2 sigma + L_k / phi + L - L_k + Q.
pub fn gfq(terms: &Terms, slot: Slot) -> Wfi {
    sched(terms, Errors::gfq(slot.of(terms)))
}

/// QFQ: T-WFI R = 3 sigma + L_k / phi + L - L_k + Q, and B-WFI phi times as much.
///
/// [`Slot::Loose`] makes it 7 L_k / phi + L - L_k + Q. Shares in force differ from weights
/// by less than 10^-6, which adds up over a long interval: see [`qfq_rounding`].
pub fn qfq(terms: &Terms, slot: Slot) -> Wfi {
    sched(terms, Errors::qfq(slot.of(terms)))
}

/// QFQ, for a flow whose packets are all of length L_k: T-WFI R = 3 sigma + L - L_k + Q,
/// with [`Slot::Loose`] the PSPAT paper's Eq. 2. The B-WFI is [`qfq`]'s.
///
/// The packet's own L_k (1 / phi - 1) drops out of the sum; and Lemma 2 of the QFQ report, with `phi (F' - F)` of the
/// packet itself, gives V - S <= L + (1 - phi) 2 sigma, in which phi sigma is no less than L_k.
pub fn qfq_equal_packets(terms: &Terms, slot: Slot) -> Wfi {
    let any = qfq(terms, slot);
    Wfi {
        delay: Work(any.delay.0 - terms.packet_service().0),
        ..any
    }
}

/// Returns the amount that QFQ's arithmetic adds to its bounds over an interval of `work` bytes.
///
/// An inverse weight is rounded up to 2^-40, so that a flow of weight w is charged for its
/// service up to w 2^-40 times too much. V advances by the inverse of the sum, rounded
/// down to 2^-64, for each byte, and is read rounded down to 2^-40.
pub fn qfq_rounding(terms: &Terms, work: u64) -> Wfi {
    rounding(terms, work, FRACTION)
}

/// Returns the amount that the arithmetic of algorithms with timestamps built for [costs](crate::sched::Costs) adds to
/// their bounds over an interval of `work` units: as [`qfq_rounding`], but for timestamps of 2^-24. In units of the
/// flow's service, these are a quarter at most.
pub fn cost_rounding(terms: &Terms, work: u64) -> Wfi {
    rounding(terms, work, FRACTION - 16)
}

/// Returns the same with `timestamps` bits of fraction.
fn rounding(terms: &Terms, work: u64, timestamps: u32) -> Wfi {
    let unit = 1.0 / (1u64 << FRACTION) as f64;
    let clock_unit = unit / (1u64 << (64 - FRACTION)) as f64;
    let stamp = 1.0 / (1u64 << timestamps) as f64;
    let (weight, work) = (f64::from(terms.weight.get()), work as f64);
    let charged = weight * unit * (work + terms.packet_service().0);
    let clock = terms.weight_sum as f64 * (clock_unit * work + 4.0 * stamp);
    Wfi::of(terms.share(), charged + clock)
}

/// S-KPS with slots that are released as they begin ([`SKps`](crate::sched::SKps)): as [`qfq`].
///
/// Its rounded start is up to a slot before S, its rounded finish two slots after that, and of all
/// that are eligible the one with the smallest rounded finish is served: no more of QFQ is used by
/// the proof. The QFQ report adds 3 sigma for slots that are released as they end.
pub fn s_kps(terms: &Terms, slot: Slot) -> Wfi {
    qfq(terms, slot)
}

/// A flow's aggregate: m_k flows of the same weight and longest packet, scheduled as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregate {
    flow: Terms,
    members: u32,
    most: u32,
}

impl Aggregate {
    /// The aggregate of `flow` has `members` flows (m_k), and none has more than `most` (M).
    pub fn new(flow: Terms, members: u32, most: u32) -> Result<Aggregate, TermsError> {
        if members == 0 || members > most {
            Err(TermsError::Members)
        } else if u64::from(members) * u64::from(flow.weight.get()) > flow.weight_sum {
            Err(TermsError::Weight)
        } else {
            Ok(Aggregate {
                flow,
                members,
                most,
            })
        }
    }

    fn slot(&self, slot: Slot) -> Work {
        slot.of_charges(&self.flow, self.members, self.most)
    }
}

/// SCHED+: an algorithm with timestamps over aggregates, with DRR inside, for one of the
/// flows:
///
/// ```text
/// T-WFI R   = (3 - 2 / m_k) L_k / phi + DS- + DS+ + M L - m_k L_k + Q
/// B-WFI/phi = (4 - 3 / m_k) L_k / phi + DS- + DS+ + M L - m_k L_k + Q
/// latency   = T-WFI R
/// ```
///
/// If DS+ counts from F, all have L_k / phi - m_k L_k more.
///
/// An aggregate is a flow with weight m_k phi and packets of its budget m_k L_k; those of
/// the others are up to M L, also where other aggregates' packets are longer or shorter.
/// So its start is up to `DS- + L_k / phi - m_k L_k` after V. V is up to `DS+ + M L` after its
/// start, and `L_k / phi - m_k L_k` more if DS+ counts from F. DRR inside sends up to
/// `m_k W + 3 (m_k - 1) L_k` of the aggregate until W of the flow is sent. It is
/// `2 (m_k - 1) L_k` if W ends with a packet of known length. The proofs are in `docs/proofs.md`.
///
/// Theorems 1 and 2 of the QFQ+ paper have (5 - 1 / m_k) L_k / phi in both: this is never less.
pub fn sched_plus(aggregate: &Aggregate, errors: Errors) -> Wfi {
    let flow = &aggregate.flow;
    let (members, most) = (f64::from(aggregate.members), f64::from(aggregate.most));
    let own = flow.packet_service().0;
    let ahead = own - members * flow.length();
    let behind = match errors.finish {
        Finish::AfterFinish(_) => ahead,
        Finish::AfterStart(_) => 0.0,
    };
    let outside = ahead + behind + errors.sum() + most * flow.longest() + flow.queued();
    let others = (1.0 - 1.0 / members) * own;
    Wfi::of(flow.share(), outside + 2.0 * others).with_service(flow.share() * others)
}

/// WF2Q++: WF2Q+ over aggregates, [`sched_plus`].
pub fn wf2q_plus_plus(aggregate: &Aggregate) -> Wfi {
    sched_plus(aggregate, Errors::EXACT)
}

/// GFQ+: GFQ over aggregates, [`sched_plus`].
pub fn gfq_plus(aggregate: &Aggregate, slot: Slot) -> Wfi {
    sched_plus(aggregate, Errors::gfq(aggregate.slot(slot)))
}

/// QFQ+: QFQ over aggregates, [`sched_plus`]. With [`Slot::Loose`] its T-WFI R is
/// (9 - 2 / m_k) L_k / phi + M L - m_k L_k + Q. Eq. 22 has 11 - 1 / m_k.
pub fn qfq_plus(aggregate: &Aggregate, slot: Slot) -> Wfi {
    sched_plus(aggregate, Errors::qfq(aggregate.slot(slot)))
}

/// S-KPS+: S-KPS over aggregates, as [`qfq_plus`].
pub fn s_kps_plus(aggregate: &Aggregate, slot: Slot) -> Wfi {
    qfq_plus(aggregate, slot)
}
