//! Metadata about received packets.

use std::time::Duration;

/// Metadata about one received packet, as far as the device knows it.
///
/// ```
/// use fairlane_io::{Arrival, Backend};
/// use std::time::Duration;
///
/// /// Receives arrivals, and returns how long the oldest was in the device.
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
    /// Time the packet waited in the device before it was received; zero where the device does
    /// not record it.
    pub waited: Duration,
    /// Whether the device dropped packets for lack of space since its drops were last queried, or
    /// just now. Such packets are a sample of the traffic that suffers drops.
    pub losing: bool,
}
