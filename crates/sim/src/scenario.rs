//! Sets of flows that tests and experiments share.

use fairlane_core::{FlowConfig, Length, Weight};

/// `flows` flows of weight 1.
pub fn equal(flows: u32, max_length: Length) -> Vec<FlowConfig> {
    skewed(flows, 1, max_length)
}

/// `flows` flows, of which the first has a quarter of the link and the others share the
/// rest: weights 333 and 1 for `highw(1000, ..)`, the `1k-highw` of the QFQ+ paper
/// (Section 8). A quarter to the unit where `flows - 1` is a multiple of 3.
pub fn highw(flows: u32, max_length: Length) -> Vec<FlowConfig> {
    skewed(flows, flows.saturating_sub(1) / 3, max_length)
}

/// `flows` flows, of which the first has half the link.
pub fn half(flows: u32, max_length: Length) -> Vec<FlowConfig> {
    skewed(flows, flows.saturating_sub(1), max_length)
}

/// `flows` flows of weight 1, but the first of weight `first`, as near as a weight can be.
pub fn skewed(flows: u32, first: u32, max_length: Length) -> Vec<FlowConfig> {
    let first =
        Weight::new(first.clamp(1, fairlane_core::units::MAX_WEIGHT)).unwrap_or(Weight::ONE);
    (0..flows)
        .map(|flow| FlowConfig::new(if flow == 0 { first } else { Weight::ONE }, max_length))
        .collect()
}
