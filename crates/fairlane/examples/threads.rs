//! Eight threads that send as fast as they can share a link by weight, 1 to 8:
//! `cargo run -p fairlane --example threads`

use std::error::Error;
use std::thread;
use std::time::Duration;

use fairlane::io::memory;
use fairlane::runtime::Refusal;
use fairlane::{Flow, Length, Rate, spawn};

fn main() -> Result<(), Box<dyn Error>> {
    // A device in memory whose far end is not read: a real one is a UdpBackend, say.
    let (near, _far) = memory::pair::<Vec<u8>, Vec<u8>>(1 << 20);
    let (link, handle) = spawn("200mbit".parse::<Rate>()?, near)?;
    let len = Length::try_from(1000u32)?;
    let mut threads = Vec::new();
    for weight in 1..=8 {
        let mut client = link.client(Flow::weight(weight).max_len(1000))?;
        threads.push((
            client.id(),
            thread::spawn(move || {
                loop {
                    match client.push(len, vec![0; 1000]) {
                        Ok(_) => {}
                        Err(refused) if refused.reason == Refusal::MailboxFull => {
                            thread::sleep(Duration::from_micros(200));
                        }
                        // The link ends.
                        Err(_) => return,
                    }
                }
            }),
        ));
    }
    thread::sleep(Duration::from_secs(1));
    let clients = handle.client_stats()?;
    let all: u64 = clients.iter().map(|(_, of)| of.flow.sent.packets).sum();
    for (weight, (id, of)) in (1..).zip(&clients) {
        assert_eq!(*id, threads[weight - 1].0);
        let share = 100.0 * of.flow.sent.packets as f64 / all.max(1) as f64;
        println!(
            "weight {weight}: {share:.1}% of the link, {:.1}% are its part",
            weight as f64 / 0.36
        );
    }
    let end = handle.stop()?;
    println!("{} packets were sent", end.total.sent.packets);
    for (_, thread) in threads {
        thread.join().map_err(|_| "a sender panicked")?;
    }
    Ok(())
}
