//! A UDP proxy whose senders share the uplink fairly, with equal weights: `cargo run -p fairlane --example proxy --
//! 127.0.0.1:9000 127.0.0.1:9001 10mbit`

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fairlane::io::{Datagram, UdpBackend};
use fairlane::{Flow, Rate, spawn};
use tokio::net::UdpSocket;

const LONGEST: u32 = 1472;
/// A sender that was silent for so long is forgotten when another one appears.
const SILENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [listen, upstream, rate] = &arguments[..] else {
        return Err("write: proxy LISTEN UPSTREAM RATE".into());
    };
    let (upstream, rate): (SocketAddr, Rate) = (upstream.parse()?, rate.parse()?);
    let socket = UdpSocket::bind(listen).await?;
    let way_out = UdpBackend::<Datagram>::bind("0.0.0.0:0".parse()?)?;
    let (link, handle) = spawn(rate, way_out)?;
    println!("listening at {}", socket.local_addr()?);

    let mut senders = HashMap::new();
    let mut buffer = [0; LONGEST as usize];
    loop {
        let (bytes, from) = tokio::select! {
            received = socket.recv_from(&mut buffer) => received?,
            _ = tokio::signal::ctrl_c() => break,
        };
        let now = Instant::now();
        if !senders.contains_key(&from) {
            senders.retain(|_, (_, heard)| now - *heard < SILENCE);
            // With the maximum number of clients attached, datagrams of other senders are dropped.
            if let Ok(client) = link.client(Flow::weight(1).max_len(LONGEST)) {
                senders.insert(from, (client, now));
            }
        }
        if let (Some((client, heard)), Ok(len)) = (senders.get_mut(&from), bytes.try_into()) {
            *heard = now;
            let datagram = Datagram {
                peer: upstream,
                bytes: buffer[..bytes].to_vec(),
            };
            // If the client's queue is full, its datagram is dropped; other clients are not affected.
            let _ = client.push(len, datagram);
        }
    }
    let end = handle.drain(Duration::from_secs(2)).await?;
    println!("{} datagrams sent", end.total.sent.packets);
    Ok(())
}
