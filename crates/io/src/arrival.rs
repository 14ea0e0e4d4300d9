//! How packets arrived, beside their bytes.

use std::time::Duration;

/// What a device knows of how a packet arrived.
///
/// ```
/// use fairlane_io::{Arrival, Backend};
/// use std::time::Duration;
///
/// /// Receives what has come, and says how long the oldest of it lay in the device.
/// fn receive<B: Backend>(from: &mut B, into: &mut Vec<B::Rx>) -> std::io::Result<Duration> {
///     from.receive(into, 64)?;
///     let waits = from.arrivals().iter().map(|arrival: &Arrival| arrival.waited);
///     Ok(waits.max().unwrap_or_default())
/// }
///
/// // A queue in memory does not know.
/// let (mut near, _far) = fairlane_io::memory::pair::<Vec<u8>, Vec<u8>>(2);
/// assert_eq!(receive(&mut near, &mut Vec::new())?, Duration::ZERO);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// How long it had waited in the device when it was received; nothing where the device cannot
    /// tell.
    pub waited: Duration,
    /// Others were lost for want of room since the device's losses were last asked for, or just
    /// now: what it came among is a sample of what was lost.
    pub losing: bool,
}
