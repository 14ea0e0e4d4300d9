//! The program with an algorithm of one's own, by name wherever an algorithm is named:
//!
//! ```text
//! cargo run -p fairlane-cli --example own_algorithm -- bench --alg start-time
//! ```

mod start_time;

use std::process::ExitCode;

fn main() -> ExitCode {
    fairlane_cli::Program::new()
        .algorithm::<start_time::StartTime>("start-time")
        .main()
}
