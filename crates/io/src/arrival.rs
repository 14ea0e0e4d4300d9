//! How packets arrived, beside their bytes.

use std::time::Duration;

/// What a device knows of how a packet arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// How long it had waited in the device when it was received; nothing where the device cannot
    /// tell.
    pub waited: Duration,
    /// Others were lost for want of room since the device's losses were last asked for, or just
    /// now: what it came among is a sample of what was lost.
    pub losing: bool,
}
