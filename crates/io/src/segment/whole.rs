//! Frames that their sender left uncut, as tests make them.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use fairlane_wire::checksum::{fold, internet_sum};
use fairlane_wire::segmentation::HEADER;

/// The flag by which a sender of TCP says that it has reduced its window.
pub(crate) const CWR: u8 = 0x80;

/// A TCP or UDP frame, and its pending offloads.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    /// VLAN tags, the outer one first.
    pub(crate) tags: Vec<u16>,
    pub(crate) ip: Ip,
    pub(crate) transport: Transport,
    pub(crate) payload: Vec<u8>,
    /// Payload in each of the frames; `None` if it is not to be cut.
    pub(crate) size: Option<u16>,
}

#[derive(Clone, Debug)]
pub(crate) enum Ip {
    Four {
        tos: u8,
        number: u16,
        dont_fragment: bool,
        /// Words of options.
        options: Vec<u32>,
    },
    Six {
        class: u8,
        /// Eights of bytes in each extension header beyond its first.
        extensions: Vec<u8>,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Transport {
    Tcp {
        sequence: u32,
        flags: u8,
        /// Words of options.
        options: Vec<u32>,
    },
    Udp,
}

/// Whole frames that a sender may make.
pub(crate) fn wholes() -> impl Strategy<Value = Whole> {
    let options = || vec(any::<u32>(), 0..=10);
    let ip = prop_oneof![
        (any::<u8>(), 1..=u16::MAX, any::<bool>(), options()).prop_map(
            |(tos, number, dont_fragment, options)| Ip::Four {
                tos,
                number,
                dont_fragment,
                options,
            }
        ),
        (any::<u8>(), vec(0..3_u8, 0..=4))
            .prop_map(|(class, extensions)| Ip::Six { class, extensions }),
    ];
    let transport = prop_oneof![
        3 => (any::<u32>(), any::<u8>(), options()).prop_map(|(sequence, flags, options)| {
            Transport::Tcp { sequence, flags, options }
        }),
        1 => Just(Transport::Udp),
    ];
    (
        vec(0..4_096_u16, 0..=2),
        ip,
        transport,
        vec(any::<u8>(), 0..9_000),
        option::weighted(0.9, 100..1_250_u16),
    )
        .prop_map(|(tags, ip, transport, payload, size)| Whole {
            tags,
            ip,
            transport,
            // A frame that needs no segmentation is one frame.
            payload: match size {
                Some(_) => payload,
                None => payload[..payload.len().min(1_000)].to_vec(),
            },
            size,
        })
}

impl Whole {
    pub(crate) fn is_four(&self) -> bool {
        matches!(self.ip, Ip::Four { .. })
    }

    fn protocol(&self) -> u8 {
        match self.transport {
            Transport::Tcp { .. } => 6,
            Transport::Udp => 17,
        }
    }

    /// Returns the number of its segments.
    pub(crate) fn frames(&self) -> usize {
        let size = self.size.map_or(usize::MAX, usize::from);
        self.payload.len().div_ceil(size).max(1)
    }

    fn transport_header(&self) -> Vec<u8> {
        let mut header = vec![0x12, 0x34, 0x00, 0x09];
        match &self.transport {
            Transport::Tcp {
                sequence,
                flags,
                options,
            } => {
                header.extend(sequence.to_be_bytes());
                header.extend([1, 2, 3, 4, ((5 + options.len()) << 4) as u8, *flags]);
                header.extend([5, 6, 0, 0, 0, 0]);
                header.extend(options.iter().flat_map(|word| word.to_be_bytes()));
            }
            Transport::Udp => {
                let length = (8 + self.payload.len()) as u16;
                header.extend(length.to_be_bytes());
                header.extend([0, 0]);
            }
        }
        header
    }

    /// Returns the network header, and the sum of its addresses.
    fn network_header(&self, behind: usize) -> (Vec<u8>, u16) {
        let mut header = Vec::new();
        match &self.ip {
            Ip::Four {
                tos,
                number,
                dont_fragment,
                options,
            } => {
                let length = 20 + 4 * options.len();
                header.extend([0x40 | (length / 4) as u8, *tos]);
                header.extend(((length + behind) as u16).to_be_bytes());
                header.extend(number.to_be_bytes());
                header.extend([if *dont_fragment { 0x40 } else { 0 }, 0]);
                header.extend([64, self.protocol(), 0, 0]);
                header.extend([10, 0, 0, 1, 10, 0, 0, 2]);
                header.extend(options.iter().flat_map(|word| word.to_be_bytes()));
                let checksum = !internet_sum(&header);
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
                let sum = internet_sum(&header[12..20]);
                (header, sum)
            }
            Ip::Six { class, extensions } => {
                // Hop-by-hop options first, then the others in any order.
                let kinds = [0, 60, 43, 60];
                let mut next = kinds[..extensions.len()]
                    .iter()
                    .copied()
                    .chain([self.protocol()]);
                let mut more = Vec::new();
                let first = next.next().unwrap();
                for (eights, next) in extensions.iter().zip(next) {
                    more.extend([next, *eights]);
                    // A segment that is routed no further; as options, padding of four bytes, and
                    // so all that follow.
                    more.extend([1, 4, 0, 0, 0, 0]);
                    for _ in 0..*eights {
                        more.extend([1, 6, 0, 0, 0, 0, 0, 0]);
                    }
                }
                header.extend([0x60 | class >> 4, class << 4, 0, 0]);
                header.extend(((more.len() + behind) as u16).to_be_bytes());
                header.extend([first, 64]);
                header.extend((0..32).map(|n: u8| n ^ 0xc5));
                let sum = internet_sum(&header[8..40]);
                header.extend(more);
                (header, sum)
            }
        }
    }

    /// Returns the frame and the header by which the kernel would describe it.
    pub(crate) fn made(&self) -> ([u8; HEADER], Vec<u8>) {
        let mut transport = self.transport_header();
        let behind = transport.len() + self.payload.len();
        let (network, addresses) = self.network_header(behind);
        let field = match self.transport {
            Transport::Tcp { .. } => 16,
            Transport::Udp => 6,
        };
        // As a sender leaves it: the sum of the pseudo-header.
        let sum = u64::from(addresses) + u64::from(self.protocol()) + behind as u64;
        transport[field..field + 2].copy_from_slice(&fold(sum).to_be_bytes());

        let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1];
        for (number, tag) in self.tags.iter().enumerate() {
            let service = self.tags.len() == 2 && number == 0;
            frame.extend(if service { [0x88, 0xa8] } else { [0x81, 0x00] });
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(if self.is_four() {
            [0x08, 0x00]
        } else {
            [0x86, 0xdd]
        });
        frame.extend(network);
        let start = frame.len();
        frame.extend(transport);
        let headers = frame.len();
        frame.extend(&self.payload);

        let kind = match (self.size, &self.transport) {
            (None, _) => 0,
            (_, Transport::Udp) => 5,
            (_, Transport::Tcp { flags, .. }) => {
                let protocol = if self.is_four() { 1 } else { 4 };
                protocol | if flags & CWR != 0 { 0x80 } else { 0 }
            }
        };
        let mut header = [1, kind, 0, 0, 0, 0, 0, 0, 0, 0];
        let numbers = [
            headers as u16,
            self.size.unwrap_or(0),
            start as u16,
            field as u16,
        ];
        for (at, number) in header[2..]
            .chunks_exact_mut(2)
            .zip(numbers.map(u16::to_ne_bytes))
        {
            at.copy_from_slice(&number);
        }
        (header, frame)
    }
}
