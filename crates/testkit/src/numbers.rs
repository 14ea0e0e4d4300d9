//! Conversions from plain numbers to typed values. The checks keep to the ranges.

use fairlane_core::{Charge, FlowConfig, Length, PacketScheduler, Scheduler, SchedulerLimits};
use fairlane_core::{Share, Weight};

/// Returns a length in bytes.
///
/// # Panics
///
/// If it is not from 1 to 65,535.
pub fn length(bytes: u32) -> Length {
    Length::new(bytes).unwrap_or_else(|| panic!("a packet of {bytes} bytes"))
}

/// Returns a weight.
///
/// # Panics
///
/// If it is not from 1 to 10^6.
pub fn weight(number: u32) -> Weight {
    Weight::new(number).unwrap_or_else(|| panic!("a weight of {number}"))
}

/// Returns a flow of this weight with packets up to `max_length` bytes.
///
/// # Panics
///
/// Those of [`weight`] and [`length`].
pub fn config(of_weight: u32, max_length: u32) -> FlowConfig {
    FlowConfig::new(weight(of_weight), length(max_length))
}

/// Returns a packet scheduler of an algorithm, with the default limits.
pub fn scheduler<A: Scheduler, P>(algorithm: A) -> PacketScheduler<A, P> {
    PacketScheduler::new(algorithm, SchedulerLimits::default())
}

pub(crate) fn share(of_weight: u32, max_length: u32) -> Share {
    Share::new(weight(of_weight), length(max_length))
}

pub(crate) fn charge(bytes: u32) -> Charge {
    Charge::from(length(bytes))
}
