//! How late a packet can be at worst, by algorithm: `cargo run -p fairlane --example guarantees`
//!
//! A flow of weight 5 with short packets shares 10 Mbit/s with 95 flows of weight 1, whatever those send. Its packet
//! arrives when the flow has no backlog.

use std::error::Error;

use fairlane::bounds::{Head, Siblings, Transmit};
use fairlane::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let rate: Rate = "10mbit".parse()?;
    let (weight, short) = (Weight::try_from(5)?, Length::try_from(200usize)?);
    let flows = [
        (weight, short, 1),
        (Weight::ONE, Length::try_from(1500usize)?, 95),
    ];
    for &algorithm in Algorithm::ALL {
        let siblings = Siblings::new(algorithm, flows);
        let terms = siblings.terms(weight, short, Transmit::Direct);
        let bound = siblings.bound(weight, short, Head::Known, Transmit::Direct);
        match terms.zip(bound) {
            Some((terms, bound)) => {
                let delay = terms.worst_delay(bound, short.get().into(), rate);
                println!("{algorithm}: {:.1} ms", delay.0 as f64 * 1e-6);
            }
            None => println!("{algorithm}: no bound"),
        }
    }
    Ok(())
}
