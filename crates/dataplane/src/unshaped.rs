//! The wire between two interfaces while no daemon shapes it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use fairlane_config::{Interfaces, Near, Role};
use fairlane_core::Nanos;
use fairlane_runtime::bridge::{BATCH, Bridge, Lane, Side};
use fairlane_runtime::{Clock, Idling, drive};

use crate::bridge::{Maker, SiteBridge};
use crate::device::{self, open};
use crate::error::{Result, unfit};
use crate::threads::raise_priority;

/// The longest time that an idle wire takes to notice a stop request.
const LONGEST_SLEEP: Nanos = Nanos::from_millis(1);
/// Most rounds in which the last frames leave.
const LAST_ROUNDS: usize = 1_000;

/// Two interfaces that forward frames in order of arrival in both directions, without shaping. For a process that
/// watches over a shaping daemon: both interfaces are open beforehand and receive nothing, so that nothing has to be
/// opened when the daemon has died.
///
/// It does not hold the interfaces against other programs, and does not change their settings.
pub struct Unshaped {
    bridge: SiteBridge,
    clock: Clock,
}

impl Unshaped {
    /// Opens both interfaces of a site, through packet sockets regardless of the site's backend.
    ///
    /// # Errors
    ///
    /// The site is not between two interfaces: a tap device goes with the daemon. An interface cannot
    /// be used.
    pub fn open(interfaces: &Interfaces) -> Result<Unshaped> {
        let Near::Inside(inside) = &interfaces.near else {
            return unfit(
                "nothing can pass without the daemon unless [interfaces] names both inside and \
                 outside: a tap device goes with it",
            );
        };
        let lane = |name: &str| open::unheld(name).map(Lane::Open);
        let (left, right) = (lane(inside)?, lane(&interfaces.outside)?);
        let bridge = Bridge::new(left, right, Maker { near: Role::Inside });
        let bridge = bridge.map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Unshaped {
            bridge,
            clock: Clock::start(),
        })
    }

    /// Forwards frames, including those that have arrived, until `stop`, which it checks every millisecond. It must be
    /// reopened before the next use.
    ///
    /// # Errors
    ///
    /// An interface cannot be used any more and must be reopened.
    pub fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        raise_priority();
        start_receiving(&mut self.bridge)?;
        let idling = Idling {
            longest_sleep: LONGEST_SLEEP,
            ..Idling::default()
        };
        drive(&mut self.bridge, &self.clock, idling, |_, _, _| {
            !stop.load(Ordering::Relaxed)
        })?;
        for _ in 0..LAST_ROUNDS {
            if self.bridge.round(self.clock.now())?.moved() == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Starts to receive at both devices.
pub fn start_receiving(bridge: &mut SiteBridge) -> io::Result<()> {
    Side::BOTH
        .into_iter()
        .try_for_each(|side| bridge.device(side).set_receiving(true))
}

/// Receives and drops the frames that have arrived at both devices, unless no other receiver heard them.
pub fn drop_arrived(bridge: &mut SiteBridge) -> io::Result<()> {
    let mut heard = Side::BOTH.into_iter();
    heard.try_for_each(|side| match bridge.device(side).is_sole_receiver() {
        true => Ok(()),
        // Frames keep arriving; a batch that is not full was the last of those that had arrived.
        false => device::drop_frames(bridge.device_mut(side), BATCH).1,
    })
}
