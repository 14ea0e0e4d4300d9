//! The addition to a bound by estimated costs that are corrected after service.

use super::{Wfi, Work};

/// The distance of the estimates of a flow's requests from their true costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimates {
    /// Requests that were served and are still to be corrected, at most (n).
    pub in_flight: u32,
    /// The largest underestimate of one request plus the largest overestimate of another (E).
    pub error: u32,
}

impl Estimates {
    /// Every request costs as much as estimated.
    pub const EXACT: Estimates = Estimates {
        in_flight: 0,
        error: 0,
    };

    /// Returns the largest difference between a flow's service and its charges, over any interval: (n + 1) E.
    pub fn work(self) -> Work {
        Work((f64::from(self.in_flight) + 1.0) * f64::from(self.error))
    }
}

/// Returns the indexes of a flow whose requests, and those of others, are charged by estimates and
/// [corrected](crate::CostScheduler::correct) after service: in true costs. `wfi` is what its algorithm has for the
/// largest costs that flows declare, `share` is phi, `own` the flow's estimates, and `others` the sum of
/// [`Estimates::work`] of all other flows.
///
/// ```text
/// T-WFI R = algorithm's + others + (1 / phi - 1) own
/// B-WFI   = algorithm's + phi others + (1 - phi) own
/// ```
///
/// An algorithm keeps its bound in terms of its charges, t for a request of true cost a and estimate c. Let J be the
/// amount that a flow is still to be charged for its service: over all its service, `sum of t = sum of a - J`. Say that
/// a request becomes the first of its flow at a time when n others are served and not yet corrected, with the sum e of
/// their a - c. Then J = owed + e, and no correction changes that. The request is charged t, which is c + owed, cut off
/// at the largest cost L_k and at 1, and from its service on J is `owed + e + a - t`. Where t is L_k, that is no more
/// than before, as a <= L_k; otherwise it is at most e and the a - c of its own: n + 1 underestimates. From below
/// likewise: where t is 1, J is no less than before, as a >= 1; otherwise it is at least e + a - c, n + 1
/// overestimates. So over any interval J differs by no more than (n + 1) E, whatever the times of the corrections, and
/// also if the flow is idle for a while.
///
/// With that, the work W of the link and the service of the flow k over an interval are those by charges and the
/// differences D of all J: `phi W - W^k` is `phi` times the D of all others, less (1 - phi) times its own, plus the
/// bound of the algorithm. The same over phi is the T-WFI, which counts the flow's backlog by true costs too.
///
/// The cost of a request beyond the largest cost that its flow declared is charged to no flow and not included, nor is
/// the debt of a flow at its removal.
pub fn corrected(wfi: Wfi, share: f64, own: Estimates, others: Work) -> Wfi {
    let delay = others.bytes() + (1.0 / share - 1.0) * own.work().bytes();
    Wfi {
        turn: Work::ZERO,
        ..wfi + Wfi::of(share, delay)
    }
}
