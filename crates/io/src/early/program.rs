//! The kernel program that handles a frame before any receiver.
//!
//! Registers that keep their values from one part to the next:
//!
//! | register | |
//! | --- | --- |
//! | `R6` | the context |
//! | `R7` | start of the memory shared with this process |
//! | `R8` | length of the datagram, then of its payload |
//! | `R9` | the first word of the packet; then the rank and the class of the best match |
//!
//! A malformed frame shares a limit with all other malformed frames. A frame that is yet to be segmented passes. Where
//! later fragments follow the first one of their datagram, a table of datagrams has the class of each first fragment,
//! dropped or not.

use fairlane_wire::{Protocol, arp, ethernet, icmpv6, ipv4, ipv6, mpls, pppoe, transport, vlan};

use crate::bpf::{Assembler, Do, If, Label, Register, Register::*, Size};

use super::layout::{
    BUCKETS_SHIFT, CLASS_BYTES, CLASS_SHIFT, COST, EPOCH, FLOWS_MASK, FLOWS_SHIFT, HEADER,
    LIMIT_SHIFT, PROBE, TOTAL,
};
use super::search::{Compared, Search, Table};
use super::{Family, MIXES, WORDS};

/// Where in the kernel a program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// Before a packet socket: 0 drops a frame, and all ones keep all of it.
    Socket,
    /// At the interface (XDP).
    Interface,
}

/// The inputs of the program's construction.
pub(super) struct Parts<'a> {
    /// Descriptors of the shared memory and of the tables.
    pub memory: i32,
    pub tables: i32,
    pub classes: u32,
    /// Where the limits begin in the shared memory, and how many there are.
    pub limits_at: i32,
    pub limits: u32,
    /// The class of malformed frames, and their limit.
    pub unclear: (u32, u32),
    /// The descriptor of the table of datagrams, if later fragments follow the first one of theirs.
    pub datagrams: Option<i32>,
    /// By family.
    pub searches: &'a [Search; 3],
    /// The bits that distinguish flows, for each flow definition and family.
    pub flows: &'a [[[u64; WORDS]; 3]],
    pub hash: [u64; WORDS],
}

// The kernel's functions.
const MAP_LOOKUP_ELEM: i32 = 1;
const MAP_UPDATE_ELEM: i32 = 2;
/// Updates an entry of a map, and adds none.
const EXIST: i32 = 2;
const SKB_LOAD_BYTES: i32 = 26;
const XDP_GET_BUFF_LEN: i32 = 188;
const XDP_LOAD_BYTES: i32 = 189;
// Offsets in `struct __sk_buff`.
const LEN: i16 = 0;
const VLAN_PRESENT: i16 = 20;
const VLAN_TCI: i16 = 24;
const GSO_SIZE: i16 = 176;
/// The XDP verdict that drops a frame.
const XDP_DROP: i32 = 1;

// Offsets from the end of the stack.
/// The words of the packet.
const WORDS_AT: i16 = -40;
/// A key of the tables: the table's number and the words under its mask.
const KEY: i16 = WORDS_AT - 48;
/// Ports.
const PORTS: i16 = KEY - 8;
/// The IP header, up to 40 bytes. Before it was read, the end of an Ethernet header lies there, so
/// that the IP header would be in its place.
const IP: i16 = PORTS - 40;
const IDENTIFICATION: i16 = IP + ipv4::IDENTIFICATION as i16;
const ETHERNET: i16 = IP - ethernet::LENGTH as i16;
/// Offsets in the frame of the datagram and of its payload.
const OFFSET: i16 = IP - 24;
/// Bytes of the frame.
const LENGTH: i16 = OFFSET - 8;
/// The protocol of the next header.
const NEXT: i16 = LENGTH - 8;
/// A key of the table of datagrams, and its value: the class, and the epoch in which a fragment was dropped.
const DATAGRAM: i16 = NEXT - 8 * WORDS as i16;
const CLASS: i16 = DATAGRAM - 8;

// Bits of the first word, in addition to those of `super::search`.
const HAS_PORTS: i32 = 1;
const HAS_PROTOCOL: i32 = 2;
const FRAGMENT: i32 = 4;
/// It is not the first one; of no rule.
const LATER: i32 = 8;
const LATER_TO_EXIST: i32 = 2;
const _: () = assert!(LATER >> LATER_TO_EXIST == EXIST);
const LINK_CONTROL: i32 = 16;
const VLAN: i32 = 6;
const DSCP: i32 = 18;
const PROTOCOL: i32 = 24;
pub(super) const DESTINATION_PORT: i32 = 32;
pub(super) const SOURCE_PORT: i32 = 48;

/// Extension headers that the classifier follows, and the header behind them.
const MOST_EXTENSIONS: usize = ipv6::MOST_EXTENSIONS as usize + 1;
/// Types in an Ethernet header that are link-layer control.
const CONTROL_TYPES: [u16; 2] = [arp::TYPE, pppoe::DISCOVERY];

/// Returns what `of` has for each protocol for which it has something.
fn protocols<T>(of: impl Fn(Protocol) -> Option<T>) -> Vec<(i32, T)> {
    let all = (0..=u8::MAX).map(|number| (number.into(), of(Protocol(number))));
    all.filter_map(|(number, found)| Some((number, found?)))
        .collect()
}

/// Returns the place of a word on the stack.
const fn word(number: usize) -> i16 {
    WORDS_AT + 8 * number as i16
}

/// Writes what drops a frame early, or goes to `on`, with the context in `R6`; all other registers
/// are lost.
pub(super) fn write(asm: &mut Assembler, hook: Hook, parts: &Parts<'_>, on: Label) {
    let unclear = asm.label();
    let mut writer = Writer {
        asm,
        hook,
        parts,
        on,
        unclear,
    };
    writer.prologue();
    let [v4, v6] = writer.ethernet();
    writer.decide(Family::Other);
    writer.asm.place(v4);
    writer.v4();
    writer.decide(Family::V4);
    writer.asm.place(v6);
    writer.v6();
    writer.decide(Family::V6);
    writer.unclear();
}

/// The table of datagrams, and the key of those of a family besides addresses.
struct Datagrams {
    /// Its descriptor.
    table: i32,
    /// The size of an identification.
    identification: Size,
    /// Bits of the first word.
    bits: u64,
}

struct Writer<'a> {
    asm: &'a mut Assembler,
    hook: Hook,
    parts: &'a Parts<'a>,
    on: Label,
    unclear: Label,
}

impl Writer<'_> {
    /// Copies `bytes` of the frame, from the offset in `R2` on, to the stack. A frame that ends before is
    /// malformed.
    fn copy(&mut self, to: i16, bytes: i32) {
        self.copy_or(to, bytes, self.unclear);
    }

    /// The same; goes to `short` if the frame ends before.
    fn copy_or(&mut self, to: i16, bytes: i32, short: Label) {
        let asm = &mut *self.asm;
        asm.calculate_by(Do::Set, R1, R6);
        asm.calculate_by(Do::Set, R3, R10);
        asm.calculate(Do::Add, R3, to.into());
        asm.calculate(Do::Set, R4, bytes);
        asm.call(match self.hook {
            Hook::Socket => SKB_LOAD_BYTES,
            Hook::Interface => XDP_LOAD_BYTES,
        });
        asm.go_if(If::Differs, R0, 0, short);
    }

    /// Copies `bytes` of the frame from its next header on.
    fn copy_next(&mut self, to: i16, bytes: i32) {
        self.asm.load(Size::Double, R2, R10, OFFSET);
        self.copy(to, bytes);
    }

    /// Moves that place by `R1` bytes.
    fn skip(&mut self) {
        let asm = &mut *self.asm;
        asm.load(Size::Double, R2, R10, OFFSET);
        asm.calculate_by(Do::Add, R2, R1);
        asm.store(Size::Double, R10, OFFSET, R2);
    }

    /// `to` = two bytes of the stack in network order.
    fn half(&mut self, to: Register, at: i16) {
        self.asm.load(Size::Half, to, R10, at);
        self.asm.order_from_network(to, 16);
    }

    /// Skips to the end while no limit is set.
    fn prologue(&mut self) {
        let (on, asm) = (self.on, &mut *self.asm);
        asm.set_map_value(R7, self.parts.memory);
        asm.load(Size::Double, R1, R7, EPOCH);
        asm.go_if(If::Equal, R1, 0, on);
        match self.hook {
            Hook::Socket => {
                asm.load(Size::Word, R1, R6, GSO_SIZE);
                asm.go_if(If::Differs, R1, 0, on);
                asm.load(Size::Word, R8, R6, LEN);
            }
            Hook::Interface => {
                asm.calculate_by(Do::Set, R1, R6);
                asm.call(XDP_GET_BUFF_LEN);
                asm.calculate_by(Do::Set, R8, R0);
            }
        }
        asm.store(Size::Double, R10, LENGTH, R8);
    }

    /// Reads the headers before the datagram, and jumps to one of two labels if the frame carries IP.
    fn ethernet(&mut self) -> [Label; 2] {
        self.asm.calculate(Do::Set, R2, 0);
        self.copy(ETHERNET, ethernet::LENGTH as i32);
        self.half(R5, ETHERNET + ethernet::TYPE as i16);
        let asm = &mut *self.asm;
        asm.store_number(R10, OFFSET, ethernet::LENGTH as i32);
        asm.calculate(Do::Set, R9, 0);
        let [first, behind_outermost, known] = [(); 3].map(|()| asm.label());
        if self.hook == Hook::Socket {
            // The kernel has taken out the outermost tag.
            asm.load(Size::Word, R1, R6, VLAN_PRESENT);
            asm.go_if(If::Equal, R1, 0, first);
            asm.load(Size::Word, R9, R6, VLAN_TCI);
            asm.calculate(Do::And, R9, vlan::ID.into());
            asm.calculate(Do::ShiftLeft, R9, VLAN);
            asm.go(behind_outermost);
        }
        self.asm.place(first);
        for number in 0..vlan::MOST {
            if number == 1 {
                self.asm.place(behind_outermost);
            }
            self.tag(known);
        }
        self.asm.place(known);
        let asm = &mut *self.asm;
        asm.load(Size::Double, R2, R10, OFFSET);
        asm.calculate_by(Do::Subtract, R8, R2);
        for number in 1..WORDS {
            asm.store_number(R10, word(number), 0);
        }
        let [v4, v6] = [(); 2].map(|()| asm.label());
        asm.go_if(If::Equal, R5, ipv4::TYPE.into(), v4);
        asm.go_if(If::Equal, R5, ipv6::TYPE.into(), v6);
        let other = self.asm.label();
        self.session([v4, v6], other);
        self.labels([v4, v6], other);
        self.asm.place(other);
        self.not_ip();
        [v4, v6]
    }

    /// Reads the headers of a PPPoE session, and jumps to a label of `ip` if it carries IP. A frame of another type in `R5`
    /// continues; else it goes to `other`, with the type in `R5`.
    fn session(&mut self, [v4, v6]: [Label; 2], other: Label) {
        let unclear = self.unclear;
        let asm = &mut *self.asm;
        let [others, no_ip, ip] = [(); 3].map(|()| asm.label());
        asm.go_if(If::Differs, R5, pppoe::SESSION.into(), others);
        asm.load(Size::Double, R2, R10, OFFSET);
        self.copy_or(PORTS, pppoe::LENGTH as i32, no_ip);
        self.half(R1, PORTS);
        self.asm
            .go_if(If::Differs, R1, pppoe::IS_SESSION.into(), no_ip);
        self.half(R1, PORTS + pppoe::PROTOCOL as i16);
        for protocol in [pppoe::PPP_IPV4, pppoe::PPP_IPV6] {
            self.asm.go_if(If::Equal, R1, protocol.into(), ip);
        }
        let asm = &mut *self.asm;
        asm.place(no_ip);
        asm.calculate(Do::Set, R5, pppoe::SESSION.into());
        asm.go(other);
        asm.place(ip);
        // R1 = the length behind the header of PPPoE, which has the protocol of PPP.
        self.half(R1, PORTS + pppoe::PAYLOAD_LENGTH as i16);
        let asm = &mut *self.asm;
        asm.calculate(Do::Subtract, R8, pppoe::PROTOCOL as i32);
        asm.go_if_by(If::Greater, R1, R8, unclear);
        let protocol = (pppoe::LENGTH - pppoe::PROTOCOL) as i32;
        asm.go_if(If::Less, R1, protocol, unclear);
        asm.calculate_by(Do::Set, R8, R1);
        asm.calculate(Do::Subtract, R8, protocol);
        asm.calculate(Do::Set, R1, pppoe::LENGTH as i32);
        self.skip();
        self.half(R1, PORTS + pppoe::PROTOCOL as i16);
        let asm = &mut *self.asm;
        asm.go_if(If::Equal, R1, pppoe::PPP_IPV4.into(), v4);
        asm.go(v6);
        asm.place(others);
    }

    /// The same for MPLS labels.
    fn labels(&mut self, [v4, v6]: [Label; 2], other: Label) {
        let asm = &mut *self.asm;
        let [labels, bottom, no_ip] = [(); 3].map(|()| asm.label());
        for ethertype in [mpls::UNICAST, mpls::MULTICAST] {
            asm.go_if(If::Equal, R5, ethertype.into(), labels);
        }
        asm.go(other);
        asm.place(labels);
        for _ in 0..mpls::MOST {
            self.asm.load(Size::Double, R2, R10, OFFSET);
            self.copy_or(PORTS, mpls::LENGTH as i32, no_ip);
            self.asm.calculate(Do::Set, R1, mpls::LENGTH as i32);
            self.skip();
            let asm = &mut *self.asm;
            asm.calculate(Do::Subtract, R8, mpls::LENGTH as i32);
            asm.load(Size::Byte, R1, R10, PORTS + mpls::BOTTOM as i16);
            asm.calculate(Do::And, R1, mpls::IS_BOTTOM.into());
            asm.go_if(If::Differs, R1, 0, bottom);
        }
        let asm = &mut *self.asm;
        asm.go(no_ip);
        asm.place(bottom);
        asm.load(Size::Double, R2, R10, OFFSET);
        self.copy_or(PORTS, 1, no_ip);
        let asm = &mut *self.asm;
        asm.load(Size::Byte, R1, R10, PORTS);
        asm.calculate(Do::ShiftRight, R1, 4);
        asm.go_if(If::Equal, R1, 4, v4);
        asm.go_if(If::Equal, R1, 6, v6);
        asm.place(no_ip);
        asm.calculate(Do::Set, R5, mpls::UNICAST.into());
    }

    /// Reads a tag if the type in `R5` is that of one, and goes to `known` if it is not. The outermost VLAN that is
    /// not 0 counts.
    fn tag(&mut self, known: Label) {
        let asm = &mut *self.asm;
        let [tagged, has_one] = [(); 2].map(|()| asm.label());
        for tag in vlan::TYPES {
            asm.go_if(If::Equal, R5, tag.into(), tagged);
        }
        asm.go(known);
        asm.place(tagged);
        self.copy_next(PORTS, vlan::LENGTH as i32);
        self.asm.go_if(If::Differs, R9, 0, has_one);
        self.half(R9, PORTS);
        self.asm.calculate(Do::And, R9, vlan::ID.into());
        self.asm.calculate(Do::ShiftLeft, R9, VLAN);
        self.asm.place(has_one);
        self.asm.calculate(Do::Set, R1, vlan::LENGTH as i32);
        self.skip();
        self.half(R5, PORTS + vlan::TYPE as i16);
    }

    /// Notes the MAC addresses of a frame of the type in `R5`, and whether it is link-layer control.
    fn not_ip(&mut self) {
        let asm = &mut *self.asm;
        let [control, done] = [(); 2].map(|()| asm.label());
        // The source and the type behind it; two and four bytes, since the stack wants them aligned.
        asm.load(Size::Double, R1, R10, ETHERNET + ethernet::SOURCE as i16);
        asm.order_from_network(R1, 64);
        asm.calculate(Do::ShiftRight, R1, 16);
        asm.store(Size::Double, R10, word(1), R1);
        asm.load(Size::Half, R1, R10, ETHERNET);
        asm.order_from_network(R1, 16);
        asm.calculate(Do::ShiftLeft, R1, 32);
        asm.load(Size::Word, R2, R10, ETHERNET + 2);
        asm.order_from_network(R2, 32);
        asm.calculate_by(Do::Or, R1, R2);
        asm.store(Size::Double, R10, word(2), R1);
        asm.calculate(Do::ShiftRight, R1, ethernet::RESERVED_BITS as i32);
        asm.set(R2, ethernet::RESERVED >> ethernet::RESERVED_BITS);
        asm.go_if_by(If::Equal, R1, R2, control);
        for kind in CONTROL_TYPES {
            asm.go_if(If::Equal, R5, kind.into(), control);
        }
        asm.go_if(If::Differs, R5, pppoe::SESSION.into(), done);
        asm.load(Size::Double, R2, R10, OFFSET);
        asm.calculate(Do::Add, R2, pppoe::PROTOCOL as i32);
        self.copy_or(PORTS, 1, done);
        let asm = &mut *self.asm;
        asm.load(Size::Byte, R1, R10, PORTS);
        asm.go_if(If::Less, R1, pppoe::CONTROL.into(), done);
        asm.place(control);
        asm.calculate(Do::Or, R9, LINK_CONTROL);
        asm.place(done);
    }

    /// Reads IPv4.
    fn v4(&mut self) {
        let unclear = self.unclear;
        self.copy_next(IP, ipv4::LENGTH as i32);
        let asm = &mut *self.asm;
        asm.load(Size::Byte, R1, R10, IP);
        asm.calculate_by(Do::Set, R2, R1);
        asm.calculate(Do::ShiftRight, R2, 4);
        asm.go_if(If::Differs, R2, 4, unclear);
        // R1 = bytes of the header.
        asm.calculate(Do::And, R1, 0xf);
        asm.calculate(Do::ShiftLeft, R1, 2);
        asm.go_if(If::Less, R1, ipv4::LENGTH as i32, unclear);
        // R2 = those of the datagram.
        self.half(R2, IP + ipv4::TOTAL_LENGTH as i16);
        let asm = &mut *self.asm;
        asm.go_if_by(If::Greater, R2, R8, unclear);
        asm.go_if_by(If::Greater, R1, R2, unclear);
        asm.calculate_by(Do::Set, R8, R2);
        asm.calculate_by(Do::Subtract, R8, R1);
        self.skip();
        let asm = &mut *self.asm;
        asm.load(Size::Byte, R1, R10, IP + ipv4::TRAFFIC_CLASS as i16);
        asm.calculate(Do::ShiftRight, R1, 2);
        asm.calculate(Do::ShiftLeft, R1, DSCP);
        asm.calculate_by(Do::Or, R9, R1);
        asm.load(Size::Word, R1, R10, IP + ipv4::SOURCE as i16);
        asm.order_from_network(R1, 32);
        asm.calculate(Do::ShiftLeft, R1, 32);
        asm.load(Size::Word, R2, R10, IP + ipv4::DESTINATION as i16);
        asm.order_from_network(R2, 32);
        asm.calculate_by(Do::Or, R1, R2);
        asm.store(Size::Double, R10, word(1), R1);
        asm.load(Size::Byte, R5, R10, IP + ipv4::PROTOCOL as i16);
        self.protocol();
        self.half(R1, IP + ipv4::FRAGMENT as i16);
        let asm = &mut *self.asm;
        let (whole, carried) = (asm.label(), asm.label());
        asm.calculate_by(Do::Set, R2, R1);
        asm.calculate(
            Do::And,
            R2,
            (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET).into(),
        );
        asm.go_if(If::Equal, R2, 0, whole);
        asm.calculate(Do::Or, R9, FRAGMENT);
        asm.calculate(Do::And, R1, ipv4::FRAGMENT_OFFSET.into());
        asm.go_if(If::Equal, R1, 0, whole);
        // Only a first fragment has ports.
        asm.calculate(Do::Or, R9, LATER);
        asm.go(carried);
        asm.place(whole);
        self.transport(carried);
        self.asm.place(carried);
    }

    /// Reads IPv6.
    fn v6(&mut self) {
        let unclear = self.unclear;
        self.copy_next(IP, ipv6::LENGTH as i32);
        let asm = &mut *self.asm;
        asm.load(Size::Byte, R1, R10, IP);
        asm.calculate(Do::ShiftRight, R1, 4);
        asm.go_if(If::Differs, R1, 6, unclear);
        asm.calculate(Do::Subtract, R8, ipv6::LENGTH as i32);
        self.half(R1, IP + ipv6::PAYLOAD_LENGTH as i16);
        let asm = &mut *self.asm;
        asm.go_if_by(If::Greater, R1, R8, unclear);
        asm.calculate_by(Do::Set, R8, R1);
        asm.calculate(Do::Set, R1, ipv6::LENGTH as i32);
        self.skip();
        self.half(R1, IP);
        let asm = &mut *self.asm;
        asm.calculate(Do::ShiftRight, R1, 6);
        asm.calculate(Do::And, R1, 0x3f);
        asm.calculate(Do::ShiftLeft, R1, DSCP);
        asm.calculate_by(Do::Or, R9, R1);
        for number in 1..WORDS {
            asm.load(
                Size::Double,
                R1,
                R10,
                IP + ipv6::SOURCE as i16 + 8 * (number as i16 - 1),
            );
            asm.order_from_network(R1, 64);
            asm.store(Size::Double, R10, word(number), R1);
        }
        asm.load(Size::Byte, R5, R10, IP + ipv6::NEXT_HEADER as i16);
        self.neighbours();
        let [carried, known] = [(); 2].map(|()| self.asm.label());
        for _ in 0..MOST_EXTENSIONS {
            self.extension(known, carried);
        }
        // There are more than are followed.
        self.asm.go(unclear);
        self.asm.place(known);
        self.protocol();
        self.transport(carried);
        self.asm.place(carried);
    }

    /// Notes whether a datagram is one of neighbour discovery. `R5`, its protocol, stays.
    fn neighbours(&mut self) {
        let asm = &mut *self.asm;
        let others = asm.label();
        asm.go_if(If::Differs, R5, Protocol::ICMPV6.0.into(), others);
        asm.load(Size::Byte, R1, R10, IP + ipv6::HOP_LIMIT as i16);
        asm.go_if(If::Differs, R1, icmpv6::HOP_LIMIT.into(), others);
        asm.go_if(If::Equal, R8, 0, others);
        self.copy_next(PORTS, 1);
        let asm = &mut *self.asm;
        asm.calculate(Do::Set, R5, Protocol::ICMPV6.0.into());
        asm.load(Size::Byte, R1, R10, PORTS);
        let kinds = icmpv6::NEIGHBOUR_DISCOVERY;
        asm.go_if(If::Less, R1, (*kinds.start()).into(), others);
        asm.go_if(If::Greater, R1, (*kinds.end()).into(), others);
        asm.calculate(Do::Or, R9, LINK_CONTROL);
        asm.place(others);
    }

    /// Goes behind an extension header if the protocol in `R5` is one; else to `known`. Behind the header of a later
    /// fragment there is nothing to read: goes to `carried`.
    fn extension(&mut self, known: Label, carried: Label) {
        let unclear = self.unclear;
        let asm = &mut *self.asm;
        let [fixed, sized, next] = [(); 3].map(|()| asm.label());
        let all = protocols(ipv6::extension_unit).into_iter();
        let all: Vec<_> = all
            .map(|(number, unit)| (asm.label(), number, unit))
            .collect();
        for &(label, extension, _) in &all {
            asm.go_if(If::Equal, R5, extension, label);
        }
        asm.go(known);
        for (label, _, unit) in all {
            asm.place(label);
            // Bits that a length is shifted by to be one of bytes; of a fragment header, which has none, 0.
            asm.calculate(Do::Set, R1, unit.checked_ilog2().unwrap_or(0) as i32);
            asm.go(sized);
        }
        asm.place(sized);
        asm.store(Size::Double, R10, NEXT, R5);
        asm.store(Size::Double, R10, KEY, R1);
        asm.go_if(If::Less, R8, ipv6::EXTENSION as i32, unclear);
        self.copy_next(PORTS, ipv6::EXTENSION as i32);
        let asm = &mut *self.asm;
        // R1 = its bytes.
        asm.load(Size::Double, R2, R10, KEY);
        asm.calculate(Do::Set, R1, 0);
        asm.go_if(If::Equal, R2, 0, fixed);
        asm.load(Size::Byte, R1, R10, PORTS + 1);
        asm.calculate_by(Do::ShiftLeft, R1, R2);
        asm.place(fixed);
        asm.calculate(Do::Add, R1, ipv6::EXTENSION as i32);
        asm.go_if_by(If::Greater, R1, R8, unclear);
        asm.calculate_by(Do::Subtract, R8, R1);
        self.skip();
        let asm = &mut *self.asm;
        asm.load(Size::Double, R3, R10, NEXT);
        asm.load(Size::Byte, R5, R10, PORTS);
        asm.go_if(If::Differs, R3, ipv6::FRAGMENT_HEADER.into(), next);
        // Which datagram it is of, where that is in IPv4: the length that was there is known.
        let asm = &mut *self.asm;
        asm.load(Size::Word, R1, R10, PORTS + ipv6::IDENTIFICATION as i16);
        asm.store(Size::Word, R10, IDENTIFICATION, R1);
        self.half(R1, PORTS + ipv6::FRAGMENT as i16);
        let asm = &mut *self.asm;
        // The place of the fragment, and whether more follow; two bits between them say nothing.
        asm.calculate(
            Do::And,
            R1,
            (ipv6::FRAGMENT_OFFSET | ipv6::MORE_FRAGMENTS).into(),
        );
        asm.go_if(If::Equal, R1, 0, next);
        asm.calculate(Do::Or, R9, FRAGMENT);
        asm.go_if(If::Equal, R1, ipv6::MORE_FRAGMENTS.into(), next);
        asm.calculate(Do::Or, R9, LATER);
        self.protocol();
        self.asm.go(carried);
        self.asm.place(next);
    }

    /// Notes the protocol in `R5`, which stays there.
    fn protocol(&mut self) {
        let asm = &mut *self.asm;
        asm.calculate_by(Do::Set, R2, R5);
        asm.calculate(Do::ShiftLeft, R2, PROTOCOL);
        asm.calculate_by(Do::Or, R9, R2);
        asm.calculate(Do::Or, R9, HAS_PROTOCOL);
    }

    /// Notes the ports, if the protocol in `R5` has them; else goes to `carried`.
    fn transport(&mut self, carried: Label) {
        let unclear = self.unclear;
        let asm = &mut *self.asm;
        let [checked, whole] = [(); 2].map(|()| asm.label());
        let protocols = protocols(Protocol::header_with_ports).into_iter();
        let protocols: Vec<_> = protocols
            .map(|(protocol, (_, shortest))| (asm.label(), protocol, shortest as i32))
            .collect();
        for &(label, protocol, _) in &protocols {
            asm.go_if(If::Equal, R5, protocol, label);
        }
        asm.go(carried);
        for (label, _, shortest) in protocols {
            asm.place(label);
            asm.calculate(Do::Set, R1, shortest);
            asm.go(whole);
        }
        asm.place(whole);
        let unfragmented = asm.label();
        asm.calculate_by(Do::Set, R2, R9);
        asm.calculate(Do::And, R2, FRAGMENT);
        asm.go_if(If::Equal, R2, 0, unfragmented);
        asm.calculate(Do::Set, R1, transport::SHORTEST_FIRST as i32);
        asm.place(unfragmented);
        asm.go_if_by(If::AtLeast, R8, R1, checked);
        asm.go(unclear);
        asm.place(checked);
        self.copy_next(PORTS, transport::PORTS as i32);
        self.half(R1, PORTS);
        self.half(R2, PORTS + 2);
        let asm = &mut *self.asm;
        asm.calculate(Do::ShiftLeft, R1, SOURCE_PORT);
        asm.calculate(Do::ShiftLeft, R2, DESTINATION_PORT);
        asm.calculate_by(Do::Or, R9, R1);
        asm.calculate_by(Do::Or, R9, R2);
        asm.calculate(Do::Or, R9, HAS_PORTS);
    }

    /// Finds the class, and drops the frame if its limit is used up.
    fn decide(&mut self, family: Family) {
        let (on, parts) = (self.on, self.parts);
        let search = &parts.searches[family as usize];
        let of = self.datagrams(family);
        self.asm.store(Size::Double, R10, word(0), R9);
        let known = self.asm.label();
        if let Some(of) = &of {
            self.later_fragment(of, known);
        }
        self.asm.set(R9, search.otherwise);
        for table in &search.tables {
            self.look_up(table);
        }
        let found = self.asm.label();
        for compared in &search.compared {
            self.compare(compared, !search.tables.is_empty(), found);
        }
        self.asm.place(found);
        if let Some(undecided) = search.undecided {
            self.asm.set(R1, undecided);
            self.asm.go_if_by(If::AtLeast, R9, R1, on);
        }
        self.fit();
        self.asm.place(known);
        self.class();
        if of.is_some() {
            self.asm.store(Size::Double, R10, CLASS, R9);
        }
        self.asm.load(Size::Double, R9, R8, HEADER as i16);
        self.bucket(family);
        self.limit(of.as_ref());
    }

    /// `R9` = the class in its low half, and `R8` = its shared memory.
    fn class(&mut self) {
        let asm = &mut *self.asm;
        asm.calculate(Do::ShiftLeft, R9, 32);
        asm.calculate(Do::ShiftRight, R9, 32);
        // The tables hold classes that there are; the verifier does not know.
        asm.set(R1, self.parts.classes.into());
        asm.go_if_by(If::AtLeast, R9, R1, self.on);
        asm.calculate_by(Do::Set, R1, R9);
        asm.calculate(Do::ShiftLeft, R1, CLASS_SHIFT);
        asm.calculate_by(Do::Set, R8, R7);
        asm.calculate_by(Do::Add, R8, R1);
    }

    /// A frame that is longer than its class allows is of the default class, which goes to `R9`.
    fn fit(&mut self) {
        self.class();
        let asm = &mut *self.asm;
        let fits = asm.label();
        asm.load(Size::Double, R1, R8, (HEADER + 24) as i16);
        asm.load(Size::Double, R2, R10, LENGTH);
        asm.go_if_by(If::AtLeast, R1, R2, fits);
        asm.set(R9, self.parts.unclear.0.into());
        asm.place(fits);
    }

    /// A malformed frame has a class that is known, and a limit.
    fn unclear(&mut self) {
        let (class, limit) = self.parts.unclear;
        let asm = &mut *self.asm;
        asm.place(self.unclear);
        asm.calculate_by(Do::Set, R8, R7);
        asm.calculate(Do::Add, R8, (class as i32) << CLASS_SHIFT);
        asm.set(R9, limit.into());
        self.limit(None);
    }

    /// How later fragments of a family are found to be of a datagram, if they follow its first one.
    fn datagrams(&self, family: Family) -> Option<Datagrams> {
        let table = self.parts.datagrams?;
        let (identification, bits) = match family {
            Family::V4 => (Size::Half, 0xfff << VLAN | 0xff << PROTOCOL),
            // RFC 8200, 4.5: of any protocol.
            Family::V6 => (Size::Word, 0xfff << VLAN),
            Family::Other => return None,
        };
        Some(Datagrams {
            table,
            identification,
            bits,
        })
    }

    /// `R1` = the table of datagrams, and `R2` = the key of this fragment's.
    fn datagram(&mut self, of: &Datagrams) {
        let asm = &mut *self.asm;
        asm.load(of.identification, R1, R10, IDENTIFICATION);
        asm.calculate(Do::ShiftLeft, R1, 32);
        asm.load(Size::Double, R2, R10, word(0));
        asm.set(R3, of.bits);
        asm.calculate_by(Do::And, R2, R3);
        asm.calculate_by(Do::Or, R1, R2);
        asm.store(Size::Double, R10, DATAGRAM, R1);
        for number in 1..WORDS {
            asm.load(Size::Double, R1, R10, word(number));
            asm.store(Size::Double, R10, DATAGRAM + 8 * number as i16, R1);
        }
        asm.set_map(R1, of.table);
        asm.calculate_by(Do::Set, R2, R10);
        asm.calculate(Do::Add, R2, DATAGRAM.into());
    }

    /// A later fragment of a datagram in the table goes to `known`, with its class in `R9`; it is dropped if another one was
    /// before.
    fn later_fragment(&mut self, of: &Datagrams, known: Label) {
        let asm = &mut *self.asm;
        let others = asm.label();
        asm.calculate_by(Do::Set, R1, R9);
        asm.calculate(Do::And, R1, LATER);
        asm.go_if(If::Equal, R1, 0, others);
        self.datagram(of);
        let asm = &mut *self.asm;
        asm.call(MAP_LOOKUP_ELEM);
        asm.go_if(If::Equal, R0, 0, others);
        asm.load(Size::Double, R9, R0, 0);
        asm.load(Size::Double, R2, R7, EPOCH);
        asm.go_if(If::Equal, R2, 0, self.on);
        // An entry of an earlier epoch is ignored: identifications repeat.
        asm.calculate_by(Do::Set, R1, R9);
        asm.calculate(Do::ShiftRight, R1, 32);
        asm.go_if_by(If::Differs, R1, R2, known);
        self.class();
        self.drop();
        self.asm.place(others);
    }

    /// Notes the class of this frame for later fragments, if it is a first one or, with the `epoch` in `R2`, a fragment that is
    /// dropped.
    fn fragment(&mut self, of: &Datagrams, is_dropped: bool) {
        let asm = &mut *self.asm;
        let others = asm.label();
        asm.load(Size::Double, R1, R10, word(0));
        asm.calculate(Do::And, R1, FRAGMENT | LATER);
        match is_dropped {
            true => asm.go_if(If::Equal, R1, 0, others),
            false => asm.go_if(If::Differs, R1, FRAGMENT, others),
        }
        if is_dropped {
            asm.load(Size::Double, R1, R10, CLASS);
            asm.calculate(Do::ShiftLeft, R2, 32);
            asm.calculate_by(Do::Or, R1, R2);
            asm.store(Size::Double, R10, CLASS, R1);
        }
        self.datagram(of);
        let asm = &mut *self.asm;
        asm.calculate_by(Do::Set, R3, R10);
        asm.calculate(Do::Add, R3, CLASS.into());
        // A later fragment of an unknown datagram is not noted.
        asm.load(Size::Double, R4, R10, word(0));
        asm.calculate(Do::And, R4, LATER);
        asm.calculate(Do::ShiftRight, R4, LATER_TO_EXIST);
        asm.call(MAP_UPDATE_ELEM);
        self.asm.place(others);
    }

    /// Looks up the words in a table, and stores a better result in `R9`.
    fn look_up(&mut self, table: &Table) {
        let asm = &mut *self.asm;
        asm.store_number(R10, KEY, table.number as i32);
        for (number, &mask) in table.mask.iter().enumerate() {
            let to = KEY + 8 + 8 * number as i16;
            if mask == 0 {
                asm.store_number(R10, to, 0);
                continue;
            }
            under_mask(asm, word(number), mask);
            asm.store(Size::Double, R10, to, R1);
        }
        asm.set_map(R1, self.parts.tables);
        asm.calculate_by(Do::Set, R2, R10);
        asm.calculate(Do::Add, R2, KEY.into());
        asm.call(MAP_LOOKUP_ELEM);
        let next = asm.label();
        asm.go_if(If::Equal, R0, 0, next);
        asm.load(Size::Double, R1, R0, 0);
        asm.go_if_by(If::AtLeast, R1, R9, next);
        asm.calculate_by(Do::Set, R9, R1);
        asm.place(next);
    }

    /// Compares the words with one pattern; jumps to `found` if they match, or if a better result is known already.
    fn compare(&mut self, compared: &Compared, looked_up: bool, found: Label) {
        let asm = &mut *self.asm;
        let pattern = &compared.pattern;
        if looked_up {
            asm.set(R1, compared.result);
            asm.go_if_by(If::Less, R9, R1, found);
        }
        let next = asm.label();
        for number in 0..WORDS {
            if pattern.mask[number] == 0 {
                continue;
            }
            under_mask(asm, word(number), pattern.mask[number]);
            asm.set(R2, pattern.value[number]);
            asm.go_if_by(If::Differs, R1, R2, next);
        }
        for ((first, last), shift) in [
            (pattern.source_port, SOURCE_PORT),
            (pattern.destination_port, DESTINATION_PORT),
        ] {
            if super::search::is_masked(first, last) {
                continue;
            }
            asm.load(Size::Double, R1, R10, word(0));
            asm.calculate(Do::ShiftRight, R1, shift);
            asm.calculate(Do::And, R1, 0xffff);
            asm.go_if(If::Less, R1, first.into(), next);
            asm.go_if(If::Greater, R1, last.into(), next);
        }
        asm.set(R9, compared.result);
        asm.go(found);
        asm.place(next);
    }

    /// `R9` = the number of the limit of the class that says this, in its low half.
    fn bucket(&mut self, family: Family) {
        let asm = &mut *self.asm;
        let done = asm.label();
        let hashed = asm.label();
        asm.calculate_by(Do::Set, R2, R9);
        asm.calculate(Do::ShiftRight, R2, FLOWS_SHIFT);
        asm.calculate(Do::And, R2, FLOWS_MASK);
        asm.go_if(If::Equal, R2, 0, done);
        asm.calculate(Do::Set, R0, 0);
        for (kind, bits) in (1..).zip(self.parts.flows) {
            let next = asm.label();
            asm.go_if(If::Differs, R2, kind, next);
            for (number, &mask) in bits[family as usize].iter().enumerate() {
                if mask == 0 {
                    continue;
                }
                under_mask_by(asm, word(number), mask, R3);
                asm.set(R3, self.parts.hash[number]);
                asm.calculate_by(Do::Multiply, R1, R3);
                asm.calculate_by(Do::Add, R0, R1);
            }
            asm.go(hashed);
            asm.place(next);
        }
        asm.place(hashed);
        for (shift, number) in MIXES {
            asm.calculate_by(Do::Set, R1, R0);
            asm.calculate(Do::ShiftRight, R1, shift as i32);
            asm.calculate_by(Do::ExclusiveOr, R0, R1);
            asm.set(R3, self.parts.hash[number]);
            asm.calculate_by(Do::Multiply, R0, R3);
        }
        asm.calculate_by(Do::Set, R3, R9);
        asm.calculate(Do::ShiftRight, R3, BUCKETS_SHIFT);
        asm.calculate_by(Do::ShiftRight, R0, R3);
        asm.calculate_by(Do::Add, R9, R0);
        asm.place(done);
        asm.calculate(Do::ShiftLeft, R9, 32);
        asm.calculate(Do::ShiftRight, R9, 32);
    }

    /// Passes the frame to `on` if the limit in `R9` has not been set lately, or lets one more through; else drops it, of the
    /// class in `R8`. A fragment is noted in the table of datagrams, if there is one.
    fn limit(&mut self, of: Option<&Datagrams>) {
        let (on, parts) = (self.on, self.parts);
        let asm = &mut *self.asm;
        let (pass, drop) = (asm.label(), asm.label());
        asm.set(R1, parts.limits.into());
        asm.go_if_by(If::AtLeast, R9, R1, on);
        asm.calculate(Do::ShiftLeft, R9, LIMIT_SHIFT);
        asm.calculate(Do::Add, R9, parts.limits_at);
        asm.calculate_by(Do::Set, R3, R7);
        asm.calculate_by(Do::Add, R3, R9);
        asm.load(Size::Double, R1, R3, 0);
        asm.load(Size::Double, R2, R7, EPOCH);
        // Since the program began the last limit has ended.
        asm.go_if(If::Equal, R2, 0, on);
        asm.calculate(Do::Add, R1, 1);
        asm.go_if_by(If::Less, R1, R2, pass);
        asm.load(Size::Double, R1, R3, 8);
        asm.go_if(If::SignedLess, R1, COST as i32, drop);
        asm.calculate(Do::Set, R1, -(COST as i32));
        asm.add_at(R3, 8, R1);
        asm.place(pass);
        if let Some(of) = of {
            self.fragment(of, false);
        }
        let asm = &mut *self.asm;
        asm.go(on);
        asm.place(drop);
        let for_good = asm.label();
        asm.load(Size::Double, R1, R7, PROBE as i16);
        asm.go_if(If::Equal, R1, 0, for_good);
        asm.store_number(R7, PROBE as i16, 0);
        asm.go(pass);
        asm.place(for_good);
        // A class beyond its limit stays limited.
        asm.store(Size::Double, R3, 0, R2);
        if let Some(of) = of {
            self.fragment(of, true);
        }
        self.drop();
    }

    /// Drops the frame, and counts it for the class in `R8`.
    fn drop(&mut self) {
        let asm = &mut *self.asm;
        asm.calculate(Do::Set, R1, 1);
        asm.add_at(R8, (HEADER + 8) as i16, R1);
        asm.add_at(R7, TOTAL as i16, R1);
        asm.load(Size::Double, R1, R10, LENGTH);
        asm.add_at(R8, (HEADER + 16) as i16, R1);
        let answer = match self.hook {
            Hook::Socket => 0,
            Hook::Interface => XDP_DROP,
        };
        asm.calculate(Do::Set, R0, answer);
        asm.exit();
    }
}

/// `R1` = the eight bytes of the stack at `at`, under a mask; `R2` is lost.
fn under_mask(asm: &mut Assembler, at: i16, mask: u64) {
    under_mask_by(asm, at, mask, R2);
}

/// The same, with another register that is lost.
fn under_mask_by(asm: &mut Assembler, at: i16, mask: u64, lost: Register) {
    asm.load(Size::Double, R1, R10, at);
    if mask != u64::MAX {
        asm.set(lost, mask);
        asm.calculate_by(Do::And, R1, lost);
    }
}

const _: () = assert!(CLASS_BYTES == 1 << CLASS_SHIFT);
