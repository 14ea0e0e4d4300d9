//! A slow link: the kernel's token bucket filter (tbf) on an interface.

use fairlane_netlink::Message;

// Attributes of linux/rtnetlink.h and linux/pkt_sched.h.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const PARAMETERS: u16 = 1;
const BURST: u16 = 6;
/// Parent of the queue discipline that an interface has at its root.
const ROOT: u32 = u32::MAX;
/// Says that the rate counts Ethernet frames.
const ETHERNET: u8 = 1;

/// Returns a request to let at most `rate` bytes a second out of the interface at `index`, at most
/// `burst` of them at once, and to let at most `queue` bytes wait.
pub(crate) fn token_bucket(index: u32, rate: u32, burst: u32, queue: u32) -> Message {
    // struct tc_tbf_qopt: the rate, no peak rate, the queue, and two fields that the burst
    // replaces. A rate is six fields of 12 bytes, of which two matter.
    let mut parameters = vec![0; 36];
    parameters[1] = ETHERNET;
    parameters[8..12].copy_from_slice(&rate.to_ne_bytes());
    parameters[24..28].copy_from_slice(&queue.to_ne_bytes());
    let options = Message::default()
        .with(PARAMETERS, &parameters)
        .with_number(BURST, burst);

    // struct tcmsg: no family, the interface, no handle, the parent, and no info.
    let fixed: Vec<u8> = [0, index, 0, ROOT, 0]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    Message::new(fixed)
        .with_text(KIND, "tbf")
        .with_nested(OPTIONS, &options)
}
