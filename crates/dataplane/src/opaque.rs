//! Protocols that no filter looks into, by their part of the recent frames of a link.

use std::sync::Arc;

/// Seconds that a window lasts at least.
const WINDOW: f64 = 60.0;
/// The minimum number of frames in it, so that a hundredth of them is significant.
const FRAMES: u64 = 10_000;

/// Counts so far: frames of such protocols, and all frames offered to the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub opaque: u64,
    pub offered: u64,
}

impl Counts {
    fn since(self, former: Counts) -> Counts {
        Counts {
            opaque: self.opaque.saturating_sub(former.opaque),
            offered: self.offered.saturating_sub(former.offered),
        }
    }
}

/// The frames of a link in the window that is open, and the protocol of the window before it.
#[derive(Clone, Debug, Default)]
pub struct OpaqueWindow {
    /// Seconds after the start of the run.
    began: f64,
    before: Counts,
    /// In the window so far.
    pub counts: Counts,
    former: Option<Arc<str>>,
}

impl OpaqueWindow {
    /// Returns the protocol of many recent frames, by the counts so far and the protocol of most opaque frames.
    pub fn protocol(
        &mut self,
        seconds: f64,
        (opaque, ethertype): (u64, u16),
        offered: u64,
    ) -> Option<Arc<str>> {
        let now = Counts { opaque, offered };
        self.counts = now.since(self.before);
        let found = protocol(self.counts, ethertype);
        let shown = found.clone().or_else(|| self.former.clone());
        if seconds - self.began >= WINDOW && self.counts.offered >= FRAMES {
            (self.began, self.before, self.former) = (seconds, now, found);
        }
        shown
    }
}

/// Returns the protocol unknown to the filters, if many of these frames are of it.
fn protocol(counts: Counts, ethertype: u16) -> Option<Arc<str>> {
    const LEAST: u64 = 100;
    const PART: u64 = 100;
    let name = match ethertype {
        0x8864 => "PPPoE session",
        0x8847 | 0x8848 => "MPLS",
        0x22f3 => "TRILL",
        0x88e7 => "provider backbone bridging",
        0x88e5 => "MACsec",
        _ => "Ethernet type",
    };
    (counts.opaque >= LEAST && counts.opaque.saturating_mul(PART) > counts.offered)
        .then(|| format!("{name} ({ethertype:#06x})").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_reported_from_a_hundred_frames_and_more_than_one_percent_on() {
        let of = |opaque, offered| protocol(Counts { opaque, offered }, 0x8847);
        assert_eq!(of(99, 99), None);
        assert_eq!(of(100, 10_000), None);
        assert_eq!(of(101, 10_000).as_deref(), Some("MPLS (0x8847)"));
        let counts = Counts {
            opaque: 100,
            offered: 100,
        };
        let other = protocol(counts, 0x88b5);
        assert_eq!(other.as_deref(), Some("Ethernet type (0x88b5)"));
    }

    #[test]
    fn a_protocol_that_begins_after_weeks_is_reported_within_minutes_and_forgotten_after_it_ends() {
        let mut window = OpaqueWindow::default();
        let (mut opaque, mut offered, mut seconds) = (0, 0, 0.0);
        let mut minute = |each_second: u64| {
            let mut shown = false;
            for second in 0..60 {
                seconds += 1.0;
                offered += 1_000;
                opaque += each_second;
                let protocol = window.protocol(seconds, (opaque, 0x8864), offered);
                shown = if second < 30 {
                    protocol.is_some()
                } else {
                    shown
                };
            }
            shown
        };
        for _ in 0..10_000 {
            assert!(!minute(0));
        }
        // Every second frame, after 600 million.
        assert!(minute(500));
        assert!(minute(0), "the former window had many");
        assert!(!minute(0));
        // A quiet link needs as many frames as ever.
        let mut quiet = OpaqueWindow::default();
        let shown: Vec<bool> = (1..300)
            .map(|at| quiet.protocol(at as f64 * 10.0, (at, 0x8864), at).is_some())
            .collect();
        assert_eq!(shown.iter().position(|&it| it), Some(99));
        assert!(shown[99..].iter().all(|&it| it));
    }
}
