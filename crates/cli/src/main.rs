//! The fairlane program.
fn main() {}
