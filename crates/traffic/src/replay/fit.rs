//! Captured frames that segmentation offload left longer than a link carries, cut so that they fit.
//!
//! A host captures the frames that it hands to its hardware: up to 64 KiB of a connection in one, and more
//! with BIG TCP. A capture does not have the size of their segments, so they are cut as long as the link
//! carries them, by the code that the daemon uses ([`fairlane_wire::segmentation`]).

use fairlane_wire::segmentation::{Cut, MOST_FRAMES};
use fairlane_wire::{Layer, network};

use super::capture::Packet;

/// Bytes of an Ethernet header and two VLAN tags: the difference of a link's longest frame and its MTU.
const BEFORE_IP: usize = 14 + 2 * 4;

/// Frames that were cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segmented {
    /// Frames that were too long.
    pub frames: u64,
    /// Frames that they were cut into.
    pub into: u64,
    /// The longest of the packets that were too long, in bytes.
    pub longest: u32,
}

/// Returns the segments of a frame longer than `longest` bytes, each with its captured bytes; `None` unless it is plain
/// TCP or UDP. O(length).
pub(super) fn cut(packet: &Packet, longest: u32) -> Option<Vec<Packet>> {
    let (layer, start) = packet.framing.layer(&packet.bytes).ok()?;
    let ip = match layer {
        Layer::Ip => start,
        Layer::Ethernet => network(&packet.bytes)?.1,
    };
    let mtu = (longest as usize).checked_sub(BEFORE_IP.max(ip))?;
    // A length that a damaged file states takes no memory.
    if packet.len as usize > MOST_FRAMES * mtu {
        return None;
    }
    let mut whole = packet.bytes.clone();
    whole.resize(packet.len as usize, 0);
    if !is_whole(&whole, ip) {
        return None;
    }
    let captured = packet.bytes.len() - remove_jumbo(&mut whole, ip);
    let cut = Cut::to_fit(&whole, ip, mtu).ok()?;
    let headers = cut.headers();
    let pieces = (0..cut.frames()).map(|number| {
        let mut bytes = cut.frame(&whole, number);
        let len = bytes.len() as u32;
        let before = headers + cut.part(number).start;
        bytes.truncate(captured.min(headers) + captured.saturating_sub(before));
        Packet {
            len,
            bytes,
            ..*packet
        }
    });
    Some(pieces.collect())
}

/// Whether the IP packet states the length that it has, or none, as in BIG TCP.
fn is_whole(frame: &[u8], ip: usize) -> bool {
    let half = |at: usize| {
        let field = frame.get(at..at + 2);
        field.map(|field| usize::from(u16::from_be_bytes([field[0], field[1]])))
    };
    let stated = match frame.get(ip).map(|first| first >> 4) {
        Some(4) => half(ip + 2),
        Some(6) => half(ip + 4).map(|payload| payload + usize::from(payload > 0) * 40),
        _ => None,
    };
    stated.is_some_and(|stated| stated == 0 || stated == frame.len() - ip)
}

/// Removes the IPv6 extension header with the BIG TCP length (RFC 2675), as the kernel does in segmentation. Returns
/// its length, or 0 if there is none.
fn remove_jumbo(frame: &mut Vec<u8>, ip: usize) -> usize {
    const HOP_BY_HOP: u8 = 0;
    const JUMBO: [u8; 2] = [0xc2, 4];
    let extension = ip + 40;
    match frame.get(extension..extension + 8) {
        Some(&[next, 0, option, length, ..])
            if frame[ip] >> 4 == 6
                && frame[ip + 4..ip + 7] == [0, 0, HOP_BY_HOP]
                && [option, length] == JUMBO =>
        {
            frame[ip + 6] = next;
            frame.drain(extension..extension + 8).count()
        }
        _ => 0,
    }
}
