//! Rates, sizes and times as all output shows them: in the units of the site file, so that a value can be typed
//! back.

use fairlane_core::Nanos;

use crate::Size;

/// Returns a rate with four digits, in the largest unit below it: `46.99mbit`.
pub fn rate(bps: u64) -> String {
    let scales = [(1e12, "tbit"), (1e9, "gbit"), (1e6, "mbit"), (1e3, "kbit")];
    scaled(bps as f64, &scales, "bit")
}

/// Returns a size as the file writes it, rounded down to 1024 bytes: `64kb`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => Size(bytes),
        _ => Size(bytes >> 10 << 10),
    }
    .to_string()
}

/// Returns a time with four digits, in the largest unit below it: `15.7ms`.
pub fn time(nanos: Nanos) -> String {
    time_of(nanos.0 as f64)
}

/// Returns a time in microseconds, as reports have it, in the format of [`time`].
#[doc(hidden)]
pub fn micros(micros: f64) -> String {
    time_of(micros * 1e3)
}

fn time_of(nanos: f64) -> String {
    let scales = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
    scaled(nanos, &scales, "ns")
}

fn scaled(value: f64, scales: &[(f64, &str)], least: &str) -> String {
    let &(scale, unit) = scales
        .iter()
        .find(|(scale, _)| value >= *scale)
        .unwrap_or(&(1.0, least));
    let value = value / scale;
    let digits = 3usize.saturating_sub(value.max(1.0).log10() as usize);
    let text = format!("{value:.digits$}");
    let short = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{short}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_and_no_more_than_they_need() {
        for (bps, text) in [
            (0, "0bit"),
            (999, "999bit"),
            (64_000, "64kbit"),
            (24_800_000, "24.8mbit"),
            (1_234_567, "1.235mbit"),
            (123_456_789_000, "123.5gbit"),
            (1_000_000_000_000, "1tbit"),
        ] {
            assert_eq!(rate(bps), text);
        }
        assert_eq!(time(Nanos(8_587_976)), "8.588ms");
        assert_eq!(time(Nanos(16_891_811_000)), "16.89s");
        assert_eq!(micros(8_587.976), "8.588ms");
        assert_eq!(micros(0.04431), "44.31ns");
        assert_eq!(micros(0.0), "0ns");
    }
}
