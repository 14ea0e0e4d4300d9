//! The effect of a queue on its senders before it is deployed, in a second simulated packet by packet: `cargo run -p
//! fairlane --example simulate --features sim`

use std::error::Error;

use fairlane::prelude::*;
use fairlane::sim::{ClassMeter, ClassSource, Lengths, Picos, Simulation, Traffic, TransmitQueue};
use fairlane::tree::{ClassConfig, ClassId, LeafConfig, Tree};

fn main() -> Result<(), Box<dyn Error>> {
    let len = Length::try_from(1000usize)?;
    let mut tree = Tree::new(Algorithm::Qfq, None, Default::default());
    let mut leaves = Vec::new();
    for weight in [3, 1] {
        let class = ClassConfig::new(Weight::try_from(weight)?, len);
        leaves.push(tree.add_leaf(ClassId::ROOT, class, LeafConfig::default())?);
    }
    let (rate, meter) = ("8mbit".parse()?, ClassMeter::new(Picos::from_millis(100)));
    let mut run = Simulation::of_classes(tree, rate, TransmitQueue::NONE, meter, 1);
    for &leaf in &leaves {
        // Always a few packets in the queue, as a TCP that has much to send.
        let source = ClassSource::new(leaf.into(), Traffic::Greedy(4), Lengths::Fixed(len));
        run.add_source(source)?;
    }
    run.run_until(Picos::from_secs(1));
    for leaf in leaves {
        let bytes: u64 = (0..10).map(|tenth| run.observer().bytes(leaf, tenth)).sum();
        println!("class {leaf}: {:.2} Mbit/s", bytes as f64 * 8e-6);
    }
    Ok(())
}
