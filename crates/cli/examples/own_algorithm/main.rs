//! The program with an algorithm of one's own, by name wherever an algorithm is named:
//!
//! ```text
//! cargo run -p fairlane-cli --example own_algorithm -- bench --alg start-time
//! ```
//!
//! And with one that only a laboratory needs: S-KPS whose slots are released as they end, as the QFQ
//! report has it (`--alg s-kps-late`).

mod start_time;

use std::process::ExitCode;

use fairlane_core::sched::SKps;

fn main() -> ExitCode {
    fairlane_cli::Program::new()
        .algorithm::<start_time::StartTime>("start-time")
        .algorithm::<SKps<true>>("s-kps-late")
        .main()
}
