//! Turning off a virtual device's offloads, and changing its number of queues (the kernel's ethtool over generic
//! netlink).

use std::io;

use fairlane_netlink::{Message, Protocol, Socket};

/// The features to lose: checksums left to the hardware, scattered buffers, and every way of
/// cutting a segment into frames that needs either of them.
const FEATURES: [&str; 4] = [
    "tx-checksum-ip-generic",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
    "tx-generic-segmentation",
];

// Numbers of linux/ethtool_netlink.h: the command, and attributes by the message they are in.
const FEATURES_SET: u8 = 12;
const CHANNELS_SET: u8 = 18;
/// Of either message.
const HEADER: u16 = 1;
const FEATURES_WANTED: u16 = 3;
const CHANNELS_RECEIVE: u16 = 6;
const CHANNELS_SEND: u16 = 7;
const HEADER_INDEX: u16 = 1;
const HEADER_FLAGS: u16 = 3;
const OMIT_REPLY: u32 = 2;
const BITSET_BITS: u16 = 3;
const BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;

// Numbers of linux/genetlink.h: the controller, its command, and the attributes of request and answer.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Bytes of struct genlmsghdr: command, version, and two of nothing.
const FIXED: usize = 4;

/// Turns the features off that this thread's namespace's interface has at `index`.
pub(crate) fn turn_offloads_off(index: u32) -> io::Result<()> {
    // A bit that is named without a value is turned off; the others stay.
    let mut bits = Message::default();
    for feature in FEATURES {
        let name = Message::default().with_text(BIT_NAME, feature);
        bits = bits.with_nested(BITS_BIT, &name);
    }
    let wanted = Message::default().with_nested(BITSET_BITS, &bits);
    set(index, FEATURES_SET, |message| {
        message.with_nested(FEATURES_WANTED, &wanted)
    })
}

/// Sets the numbers of receive and transmit queues of the interface at `index` in this thread's namespace.
pub(crate) fn set_queues(index: u32, receive: u32, send: u32) -> io::Result<()> {
    set(index, CHANNELS_SET, |message| {
        message
            .with_number(CHANNELS_RECEIVE, receive)
            .with_number(CHANNELS_SEND, send)
    })
}

/// Has a command done to an interface, without an answer.
fn set(index: u32, what: u8, to: impl Fn(Message) -> Message) -> io::Result<()> {
    let socket = Socket::open(Protocol::GENERIC)?;
    let header = Message::default()
        .with_number(HEADER_INDEX, index)
        .with_number(HEADER_FLAGS, OMIT_REPLY);
    let message = to(command(what).with_nested(HEADER, &header));
    socket.request(family(&socket)?, 0, &message).map(drop)
}

/// Returns the number under which this kernel knows ethtool.
fn family(socket: &Socket) -> io::Result<u16> {
    let question = command(GET_FAMILY).with_text(FAMILY_NAME, "ethtool");
    let answers = socket.request(CONTROL, 0, &question)?;
    let mut ids = answers.iter().filter_map(|answer| {
        let id = answer.attribute(FIXED, FAMILY_ID)?;
        Some(u16::from_ne_bytes(*id.first_chunk()?))
    });
    ids.next().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Begins a message of generic netlink.
fn command(command: u8) -> Message {
    Message::new([command, 1, 0, 0])
}
