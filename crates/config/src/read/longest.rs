//! The longest packet of a link, from the file or the interface's MTU, and that of a class.

use fairlane_core::Length;
use fairlane_core::units::MAX_LENGTH;

use super::surroundings::Surroundings;
use crate::diagnostic::Report;
use crate::file;
use crate::site::{Interfaces, LongestBy, Near, Role, SHORTEST_FRAME};
use crate::units::Size;
use crate::written::Text;

/// Bytes of an Ethernet header.
const HEADER: u32 = 14;
/// Bytes of a VLAN tag, which an MTU does not count.
const TAG: u32 = 4;
/// The MTU that is assumed for an unknown interface.
const MTU: u32 = 1_500;

/// Returns the longest packet with its overhead. Warns of frames that the interfaces send and the link does not carry.
pub(super) fn read(
    written: &file::Link,
    to: Role,
    around: &Surroundings,
    overhead: u32,
    report: &mut Report,
) -> Option<(Length, LongestBy)> {
    let (frame, by) = match (&written.longest, around.mtu(to)) {
        (Some(text), _) => (text.read::<Size>("longest", report)?.0, LongestBy::File),
        (None, Some(mtu)) => (default(mtu), LongestBy::Interface { mtu }),
        (None, None) => (default(MTU), LongestBy::Assumed),
    };
    let place = written.longest.as_ref().map(|text| text.span());
    let place = place.unwrap_or_else(|| written.name.span());
    let most = MAX_LENGTH.saturating_sub(overhead);
    let fits = u32::try_from(frame).ok().filter(|&frame| frame <= most);
    let fits = match by {
        LongestBy::File => fits.filter(|&frame| frame >= SHORTEST_FRAME),
        // The loopback device's MTU is longer than any packet.
        LongestBy::Interface { .. } => {
            Some(fits.unwrap_or(most)).filter(|_| most >= SHORTEST_FRAME)
        }
        LongestBy::Assumed => fits,
    };
    let Some(frame) = fits else {
        report.error(
            &place,
            format!(
                "longest '{}': it is from {SHORTEST_FRAME} bytes, the shortest frame of Ethernet, to \
                 {most}: with {overhead} bytes of overhead, a packet has up to {MAX_LENGTH}",
                Size(frame)
            ),
        );
        return None;
    };
    if let Some((side, mtu)) = around.comes_from(to, by) {
        let tagged = mtu + HEADER + TAG;
        if frame < tagged.min(most) {
            report.warning(
                &place,
                format!(
                    "longest '{}': {} sends frames of up to {tagged} bytes with a VLAN tag (its \
                     MTU is {mtu}), and those that are longer than this are dropped",
                    Size(frame.into()),
                    side.name()
                ),
            );
        }
    }
    Some((Length::new(frame + overhead)?, by))
}

/// Returns the longest packet of a class, with its overhead: no longer than that of the link.
pub(super) fn of_class(
    text: &Text,
    (longest, shortest): (Length, Length),
    report: &mut Report,
) -> Option<Length> {
    let frame: Size = text.read("longest", report)?;
    let overhead = shortest.get() - SHORTEST_FRAME;
    let most = longest.get() - overhead;
    let fits = u32::try_from(frame.0).ok();
    let Some(frame) = fits.filter(|frame| (SHORTEST_FRAME..=most).contains(frame)) else {
        report.error(
            &text.span(),
            format!(
                "longest '{}': out of range (from {SHORTEST_FRAME} bytes, the shortest frame of Ethernet, to {most}, the \
                 longest frame of the link)",
                text.value()
            ),
        );
        return None;
    };
    Length::new(frame + overhead)
}

/// Returns the longest frame that an interface of this MTU sends.
fn default(mtu: u32) -> u64 {
    u64::from(mtu) + u64::from(HEADER + 2 * TAG)
}

impl Surroundings<'_> {
    fn interfaces(&self) -> Option<&Interfaces> {
        self.interfaces.flatten()
    }

    /// Returns the MTU of the interface on this side, if there is one.
    fn mtu(&self, side: Role) -> Option<u32> {
        (self.mtu)(self.interfaces()?.named(side)?)
    }

    /// Returns the side whose frames a link to `to` carries, with its MTU. If that is unknown, and the longest frame
    /// does not depend on it, returns the side `to`.
    fn comes_from(&self, to: Role, by: LongestBy) -> Option<(Role, u32)> {
        let from = match (to, self.interfaces().map(|interfaces| &interfaces.near)) {
            (Role::Inside | Role::Tap, _) => Some(Role::Outside),
            (_, Some(Near::Inside(_))) => Some(Role::Inside),
            (_, Some(Near::Tap(_))) => Some(Role::Tap),
            _ => None,
        };
        let known = |side| Some((side, self.mtu(side)?));
        from.and_then(known).or_else(|| match by {
            LongestBy::Interface { .. } => None,
            LongestBy::File | LongestBy::Assumed => known(to),
        })
    }
}
