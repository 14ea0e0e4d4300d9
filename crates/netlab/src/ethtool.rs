//! Turning off what a virtual device leaves to hardware (the kernel's ethtool over generic
//! netlink).

use std::io;

use netlink_packet_core::{DecodeError, DefaultNla, Emitable, ParseableParametrized};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::{Socket, protocols};

use crate::netlink;

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
const FEATURES_HEADER: u16 = 1;
const FEATURES_WANTED: u16 = 3;
const HEADER_INDEX: u16 = 1;
const HEADER_FLAGS: u16 = 3;
const OMIT_REPLY: u32 = 2;
const BITSET_BITS: u16 = 3;
const BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
/// Says of an attribute that it holds others.
const NESTED: u16 = 1 << 15;

/// Turns the features off that this thread's namespace's interface has at `index`.
pub(crate) fn turn_offloads_off(index: u32) -> io::Result<()> {
    let socket = netlink::open(protocols::NETLINK_GENERIC)?;
    let header = [
        DefaultNla::new(HEADER_INDEX, index.to_ne_bytes().to_vec()),
        DefaultNla::new(HEADER_FLAGS, OMIT_REPLY.to_ne_bytes().to_vec()),
    ];
    // A bit that is named without a value is to be off; those not named stay.
    let bits = FEATURES.map(|feature| {
        let name = [feature.as_bytes(), &[0]].concat();
        nested(BITS_BIT, &[DefaultNla::new(BIT_NAME, name)])
    });
    let mut message = GenlMessage::from_payload(Ethtool {
        attributes: vec![
            nested(FEATURES_HEADER, &header),
            nested(FEATURES_WANTED, &[nested(BITSET_BITS, &bits)]),
        ],
    });
    message.set_resolved_family_id(family(&socket)?);
    netlink::request(&socket, message, 0).map(drop)
}

/// The number under which this kernel knows ethtool.
fn family(socket: &Socket) -> io::Result<u16> {
    let question = GenlMessage::from_payload(GenlCtrl {
        cmd: GenlCtrlCmd::GetFamily,
        nlas: vec![GenlCtrlAttrs::FamilyName(Ethtool::family_name().to_owned())],
    });
    netlink::request(socket, question, 0)?
        .into_iter()
        .flat_map(|answer| answer.payload.nlas)
        .find_map(|attribute| match attribute {
            GenlCtrlAttrs::FamilyId(id) => Some(id),
            _ => None,
        })
        .ok_or_else(|| io::ErrorKind::Unsupported.into())
}

fn nested(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    let mut value = vec![0; attributes.buffer_len()];
    attributes.emit(&mut value);
    DefaultNla::new(kind | NESTED, value)
}

/// A request to change features.
#[derive(Debug)]
struct Ethtool {
    attributes: Vec<DefaultNla>,
}

impl GenlFamily for Ethtool {
    fn family_name() -> &'static str {
        "ethtool"
    }

    fn command(&self) -> u8 {
        FEATURES_SET
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Ethtool {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

/// The request says that no reply is wanted, so there is nothing in one to read.
impl ParseableParametrized<[u8], GenlHeader> for Ethtool {
    fn parse_with_param(_: &[u8], _: GenlHeader) -> Result<Self, DecodeError> {
        Ok(Self {
            attributes: Vec::new(),
        })
    }
}
