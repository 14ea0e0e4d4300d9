//! What the tests share.
#![allow(dead_code)] // Each test uses a part.

use fairlane_core::{FlowConfig, Length, Rate, Weight};

pub fn length(bytes: u32) -> Length {
    Length::new(bytes).unwrap()
}

pub fn rate(bps: u64) -> Rate {
    Rate::from_bps(bps).unwrap()
}

/// A flow of this weight with packets up to `max_length`.
pub fn config(weight: u32, max_length: u32) -> FlowConfig {
    FlowConfig {
        max_length: length(max_length),
        ..FlowConfig::new(Weight::new(weight).unwrap())
    }
}
