//! Grants: guarantees given to a flow while a site runs, in addition to its file.
//!
//! A grant is a class with its filters that is not in the file. It stays in force across reloads
//! ([`Site::parse_beside`](crate::Site::parse_beside)): its class follows the file's classes, its filters precede the
//! file's. A text that would break grants is refused, with the names of those grants.

use fairlane_core::Nanos;

use crate::diagnostic::SiteError;
use crate::grant::{Offer, Terms, rounded};
use crate::guarantee::{Guarantee, NoGuarantee};
use crate::units::{Size, Time};

/// The reason why a grant is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotGranted {
    /// The site's own text is no longer valid.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// There is no such link.
    #[error("{0}")]
    NoLink(String),
    /// It is not possible at all, or not below this class.
    #[error("{0}")]
    Unfit(String),
    /// It would be possible if other classes had less.
    #[error("{}", refusal(.reason, .best))]
    Full {
        /// The reason: a sentence without its end.
        reason: String,
        /// The alternatives available now: the highest rate with the requested delay, and the shortest delay with the
        /// requested rate.
        best: Vec<Offer>,
    },
}

fn refusal(reason: &str, best: &[Offer]) -> String {
    let offers: Vec<_> = best.iter().map(Offer::to_string).collect();
    match offers[..] {
        [] => format!("not granted: {reason}; nothing could be had"),
        _ => format!(
            "not granted: {reason}; the best that could be had is {}",
            offers.join(", or ")
        ),
    }
}

impl Terms {
    /// Returns the delay that `has` bounds, of a class whose arrivals have this burst.
    pub fn delay_in(&self, has: &Guarantee) -> Result<Nanos, NoGuarantee> {
        has.delay.unwrap_or(Err(NoGuarantee::Inner))
    }

    /// Checks whether a class with these guarantees gets the granted terms, and returns the shortfall if not. Whole
    /// weights may cost up to a thousandth of the rate, as for any class.
    pub fn kept_by(&self, has: &Guarantee) -> Result<(), String> {
        self.compared(has, self.rate.bps() - self.rate.bps() / 1000)
    }

    /// Checks the same, without tolerance.
    pub(crate) fn exactly_kept_by(&self, has: &Guarantee) -> Result<(), String> {
        self.compared(has, self.rate.bps())
    }

    fn compared(&self, has: &Guarantee, least: u64) -> Result<(), String> {
        let nothing = |why: NoGuarantee| format!("nothing would be guaranteed, {why}");
        let bps = has.rate.map_err(nothing)?;
        if bps < least {
            return Err(format!("{bps}bit would be guaranteed, not {}", self.rate));
        }
        if let Some(burst) = self.burst
            && has.burst.is_none_or(|fits| fits < burst)
        {
            return Err(format!("a burst of {} would not fit", Size(burst)));
        }
        self.in_time(has)
    }

    /// Checks whether the delay alone is kept.
    pub(crate) fn in_time(&self, has: &Guarantee) -> Result<(), String> {
        let Some(delay) = self.delay else {
            return Ok(());
        };
        match self.delay_in(has) {
            Ok(would) if would <= delay => Ok(()),
            Ok(would) => Err(format!(
                "its packets could take {}, not {}",
                Time(rounded(would)),
                Time(delay)
            )),
            Err(why) => Err(format!("no delay would be guaranteed, {why}")),
        }
    }
}
