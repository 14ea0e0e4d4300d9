//! A slow link: the kernel's token bucket filter (tbf) on an interface.

use netlink_packet_core::DefaultNla;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};

// Attributes of linux/pkt_sched.h.
const PARAMETERS: u16 = 1;
const BURST: u16 = 6;
/// Says that the rate counts Ethernet frames.
const ETHERNET: u8 = 1;

/// A request to let at most `rate` bytes a second out of the interface at `index`, at most `burst`
/// of them at once, and to let at most `queue` bytes wait.
pub(crate) fn token_bucket(index: u32, rate: u32, burst: u32, queue: u32) -> TcMessage {
    // struct tc_tbf_qopt: the rate, no peak rate, the queue, and two fields that the burst
    // replaces. A rate is six fields of 12 bytes, of which two matter.
    let mut parameters = vec![0; 36];
    parameters[1] = ETHERNET;
    parameters[8..12].copy_from_slice(&rate.to_ne_bytes());
    parameters[24..28].copy_from_slice(&queue.to_ne_bytes());

    let mut message = TcMessage::with_index(index as i32);
    message.header.parent = TcHandle::ROOT;
    message.attributes = vec![
        TcAttribute::Kind("tbf".to_owned()),
        TcAttribute::Options(vec![
            TcOption::Other(DefaultNla::new(PARAMETERS, parameters)),
            TcOption::Other(DefaultNla::new(BURST, burst.to_ne_bytes().to_vec())),
        ]),
    ];
    message
}
