//! The parser reads the headers that another library wrote, and rejects malformed packets.

use etherparse::{
    IpAuthHeader, IpFragOffset, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv4Options,
    Ipv6Extensions, Ipv6FlowLabel, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader,
    Ipv6RoutingExtensions, NetSlice, PacketBuilder, SlicedPacket, TransportSlice,
};
use fairlane_wire::{
    Dscp, Family, Fragment, Header, Headers, Layer, Malformed, Ports, Protocol, Reason, VlanId,
    parse, parse_partly,
};
use proptest::option::of;
use proptest::prelude::*;

/// The ingredients of a frame.
#[derive(Clone, Debug)]
struct Recipe {
    v6: bool,
    tags: Vec<u16>,
    source: u128,
    destination: u128,
    traffic_class: u8,
    protocol: u8,
    ports: (u16, u16),
    /// Offset in eight bytes, and whether there are more.
    fragment: Option<(u16, bool)>,
    /// IPv4: words of options. IPv6: eight bytes each of destination options.
    options: u8,
    /// IPv6: hop-by-hop options, routing, authentication.
    extensions: [bool; 3],
    payload: usize,
    padding: usize,
}

const IDENTIFICATION: u16 = 0x1234;

fn recipe() -> impl Strategy<Value = Recipe> {
    let protocols = prop::sample::select(vec![1u8, 6, 17, 33, 47, 50, 58, 59, 132, 136, 200]);
    let fragment = of((prop_oneof![Just(0u16), 1..8191u16], any::<bool>()));
    let place = (any::<bool>(), prop::collection::vec(0..4096u16, 0..3));
    let addresses = (any::<u128>(), any::<u128>());
    (
        (place, addresses, any::<u8>(), protocols),
        (any::<(u16, u16)>(), fragment, 0..11u8, any::<[bool; 3]>()),
        (0..200usize, 0..20usize),
    )
        .prop_map(|(first, second, (payload, padding))| {
            let ((v6, tags), (source, destination), traffic_class, protocol) = first;
            let (ports, fragment, options, extensions) = second;
            let narrow = |address: u128| if v6 { address } else { address & 0xffff_ffff };
            Recipe {
                v6,
                tags,
                source: narrow(source),
                destination: narrow(destination),
                traffic_class,
                protocol,
                ports,
                fragment,
                options,
                extensions,
                payload: payload + 20,
                padding,
            }
        })
}

impl Recipe {
    fn has_ports(&self) -> bool {
        Protocol(self.protocol).has_ports() && self.fragment() != Fragment::Later
    }

    fn fragment(&self) -> Fragment {
        match self.fragment {
            None | Some((0, false)) => Fragment::No,
            Some((0, true)) => Fragment::First,
            Some(_) => Fragment::Later,
        }
    }

    /// Bytes of extension headers behind the fragment header.
    fn behind_fragment(&self) -> usize {
        let authentication = 24 * usize::from(self.v6 && self.extensions[2]);
        let has_options = self.v6 && self.extensions[1] && self.options > 0;
        authentication + usize::from(has_options) * (8 + 8 * usize::from(self.options))
    }

    fn headers(&self) -> Headers {
        let outermost = self.tags.iter().find_map(|&id| VlanId::new(id));
        // A later fragment does not say what follows the destination options in it.
        let behind = self.v6 && self.fragment() == Fragment::Later;
        let protocol = match () {
            () if behind && self.extensions[2] => 51,
            () if behind && self.options > 0 && self.extensions[1] => 60,
            () => self.protocol,
        };
        let (offset, has_more) = self.fragment.unwrap_or_default();
        let (identification, bytes) = match self.fragment() {
            Fragment::No => (0, 0),
            _ => (IDENTIFICATION.into(), self.payload + self.behind_fragment()),
        };
        let all = match self.fragment() {
            Fragment::Later if !has_more => u32::from(offset) * 8 + bytes as u32,
            _ => 0,
        };
        Headers {
            family: if self.v6 { Family::V6 } else { Family::V4 },
            source: self.source,
            destination: self.destination,
            protocol: Some(Protocol(protocol)),
            ports: self.has_ports().then_some(Ports {
                source: self.ports.0,
                destination: self.ports.1,
            }),
            dscp: Dscp::new(self.traffic_class >> 2).unwrap(),
            ecn: self.traffic_class & 3,
            vlan: outermost,
            fragment: self.fragment(),
            identification,
            fragment_bytes: bytes as u16,
            fragmented_bytes: all,
            link_control: false,
            ethertype: if self.v6 { 0x86dd } else { 0x0800 },
            ip_offset: 14 + 4 * self.tags.len() as u16,
        }
    }

    fn frame(&self) -> Vec<u8> {
        let mut payload = vec![0x5a; self.payload];
        payload[..2].copy_from_slice(&self.ports.0.to_be_bytes());
        payload[2..4].copy_from_slice(&self.ports.1.to_be_bytes());
        // Whatever is TCP has a header of 20 bytes.
        payload[12] = 0x50;
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let vlan = |id: u16| etherparse::VlanId::try_new(id).unwrap();
        let ip = self.ip();
        let builder = match self.tags[..] {
            [] => ethernet.ip(ip),
            [id] => ethernet.single_vlan(vlan(id)).ip(ip),
            [outer, inner, ..] => ethernet.double_vlan(vlan(outer), vlan(inner)).ip(ip),
        };
        let mut frame = Vec::new();
        let number = IpNumber(self.protocol);
        builder.write(&mut frame, number, &payload).unwrap();
        frame.resize(frame.len() + self.padding, 0);
        frame
    }

    fn ip(&self) -> IpHeaders {
        let (offset, more) = self.fragment.unwrap_or_default();
        let fragment_offset = IpFragOffset::try_new(offset).unwrap();
        if !self.v6 {
            let options = [1u8; 40];
            let options = &options[..usize::from(self.options.min(10)) * 4];
            let header = Ipv4Header {
                dscp: (self.traffic_class >> 2).try_into().unwrap(),
                ecn: (self.traffic_class & 3).try_into().unwrap(),
                more_fragments: more,
                fragment_offset,
                identification: IDENTIFICATION,
                time_to_live: 64,
                source: (self.source as u32).to_be_bytes(),
                destination: (self.destination as u32).to_be_bytes(),
                options: Ipv4Options::try_from(options).unwrap(),
                ..Ipv4Header::default()
            };
            return IpHeaders::Ipv4(header, Ipv4Extensions::default());
        }
        let [hop_by_hop, routing, authentication] = self.extensions;
        let raw = |eights: u8| {
            let bytes = vec![1; 6 + 8 * usize::from(eights)];
            Ipv6RawExtHeader::new_raw(IpNumber(59), &bytes).unwrap()
        };
        let options = (self.options > 0).then(|| raw(self.options));
        let extensions = Ipv6Extensions {
            hop_by_hop_options: hop_by_hop.then(|| raw(0)),
            destination_options: options.clone().filter(|_| !routing),
            routing: routing.then(|| Ipv6RoutingExtensions {
                routing: raw(1),
                final_destination_options: options,
            }),
            fragment: self.fragment.map(|_| {
                Ipv6FragmentHeader::new(IpNumber(59), fragment_offset, more, IDENTIFICATION.into())
            }),
            auth: authentication.then(|| IpAuthHeader::new(IpNumber(59), 1, 2, &[3; 12]).unwrap()),
        };
        let header = Ipv6Header {
            traffic_class: self.traffic_class,
            flow_label: Ipv6FlowLabel::try_new(0xf_ffff).unwrap(),
            hop_limit: 64,
            source: self.source.to_be_bytes(),
            destination: self.destination.to_be_bytes(),
            ..Ipv6Header::default()
        };
        IpHeaders::Ipv6(header, extensions)
    }
}

/// Source, destination and traffic class.
type Network = (u128, u128, u8);
/// The IP part, and its ports.
type Sliced = (Option<Network>, Option<(u16, u16)>);

/// Parses with the other library; `None` unless it reads everything.
fn as_sliced(frame: &[u8]) -> Option<Sliced> {
    let sliced = SlicedPacket::from_ethernet(frame).ok()?;
    let addresses = match sliced.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            let address = |bytes: [u8; 4]| u128::from(u32::from_be_bytes(bytes));
            let class = header.dcp().value() << 2 | header.ecn().value();
            Some((
                address(header.source()),
                address(header.destination()),
                class,
            ))
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header();
            let address = u128::from_be_bytes;
            let class = header.traffic_class();
            Some((
                address(header.source()),
                address(header.destination()),
                class,
            ))
        }
        _ => None,
    };
    let ports = match sliced.transport {
        Some(TransportSlice::Udp(udp)) => Some((udp.source_port(), udp.destination_port())),
        Some(TransportSlice::Tcp(tcp)) => Some((tcp.source_port(), tcp.destination_port())),
        _ => None,
    };
    Some((addresses, ports))
}

proptest! {
    #[test]
    fn what_was_written_is_read(recipe in recipe()) {
        let frame = recipe.frame();
        prop_assert_eq!(parse(&frame, Layer::Ethernet), Ok(recipe.headers()));
        let offset = usize::from(recipe.headers().ip_offset);
        let bare = Headers { vlan: None, ethertype: 0, ip_offset: 0, ..recipe.headers() };
        prop_assert_eq!(parse(&frame[offset..], Layer::Ip), Ok(bare));
    }

    #[test]
    fn a_frame_that_ends_early_is_malformed(recipe in recipe(), at in any::<prop::sample::Index>()) {
        let recipe = Recipe { padding: 0, ..recipe };
        let frame = recipe.frame();
        prop_assert!(parse(&frame[..at.index(frame.len())], Layer::Ethernet).is_err());
    }

    #[test]
    fn a_damaged_frame_is_read_as_another_library_reads_it(
        recipe in recipe(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut frame = recipe.frame();
        let headers = frame.len() - recipe.payload - recipe.padding + 20;
        for (at, byte) in damage {
            frame[at.index(headers)] = byte;
        }
        if let (Ok(read), Some((addresses, ports))) =
            (parse(&frame, Layer::Ethernet), as_sliced(&frame))
        {
            if let Some((source, destination, class)) = addresses {
                prop_assert_eq!((read.source, read.destination), (source, destination));
                prop_assert_eq!(read.dscp.get() << 2 | read.ecn, class);
            }
            if let Some(ports) = ports {
                // Behind an authentication header in IPv4, or in an order of extension
                // headers that only one of the two follows, there may be more to see.
                if let Some(read) = read.ports {
                    prop_assert_eq!((read.source, read.destination), ports);
                }
            }
        }
    }

    #[test]
    fn no_bytes_bring_it_down(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        start in 0..5usize,
        ip in any::<bool>(),
    ) {
        // Let many of them get further than the first check.
        let starts: [&[u8]; 5] = [&[], &[0x08, 0x00, 0x45], &[0x86, 0xdd, 0x60], &[0x81, 0], &[0x88, 0xa8]];
        let at = if ip { 0 } else { 12 };
        if bytes.len() > at + 3 {
            bytes[at..at + starts[start].len()].copy_from_slice(starts[start]);
        }
        let layer = if ip { Layer::Ip } else { Layer::Ethernet };
        let read = parse(&bytes, layer);
        if let Ok(read) = read {
            prop_assert!(usize::from(read.ip_offset) <= bytes.len());
        }
        let before = bytes.clone();
        if !fairlane_wire::mark_ce(&mut bytes, layer) {
            prop_assert_eq!(bytes, before);
        }
    }
}

fn wrong(bytes: &[u8], layer: Layer) -> (Header, Reason) {
    let Malformed { header, reason } = parse(bytes, layer).unwrap_err();
    (header, reason)
}

/// Whole, UDP from port 1 to 2, in 28 bytes.
fn udp() -> Vec<u8> {
    let mut ip = vec![
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    ip.extend([0, 1, 0, 2, 0, 8, 0, 0]);
    ip
}

/// Like it, IPv6, with extension headers of eight bytes before.
fn udp6(extensions: &[u8]) -> Vec<u8> {
    let mut ip = vec![0; 40];
    ip[0] = 0x60;
    ip[6] = extensions.first().copied().unwrap_or(17);
    for at in 0..extensions.len() {
        let next = extensions.get(at + 1).copied().unwrap_or(17);
        ip.extend([next, 0, 0, 0, 0, 0, 0, 0]);
    }
    ip.extend([0, 1, 0, 2, 0, 8, 0, 0]);
    ip[5] = (ip.len() - 40) as u8;
    ip
}

#[test]
fn the_header_that_is_wrong_is_named() {
    assert_eq!(
        wrong(&[0; 13], Layer::Ethernet),
        (Header::ETHERNET, Reason::Short(14))
    );
    let mut tagged = vec![0; 12];
    tagged.extend([0x81, 0, 0, 7, 8]);
    assert_eq!(
        wrong(&tagged, Layer::Ethernet),
        (Header::VLAN, Reason::Short(4))
    );
    assert_eq!(wrong(&[], Layer::Ip), (Header::IPV4, Reason::Short(20)));
    assert_eq!(
        wrong(&[0x50; 40], Layer::Ip),
        (Header::IPV4, Reason::Version(5))
    );
    assert_eq!(
        wrong(&udp()[..19], Layer::Ip),
        (Header::IPV4, Reason::Short(20))
    );
    assert_eq!(
        wrong(&udp()[..27], Layer::Ip),
        (Header::IPV4, Reason::TotalLength(28))
    );
    assert_eq!(
        wrong(&udp6(&[])[..39], Layer::Ip),
        (Header::IPV6, Reason::Short(40))
    );
    assert_eq!(
        wrong(&udp6(&[])[..47], Layer::Ip),
        (Header::IPV6, Reason::TotalLength(48))
    );
}

#[test]
fn an_ethertype_and_a_version_that_disagree_are_malformed() {
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00]);
    frame.extend(udp6(&[]));
    assert_eq!(
        wrong(&frame, Layer::Ethernet),
        (Header::IPV4, Reason::Version(6))
    );
    let mut frame = vec![0; 12];
    frame.extend([0x86, 0xdd]);
    frame.extend(udp());
    frame.extend([0; 20]);
    assert_eq!(
        wrong(&frame, Layer::Ethernet),
        (Header::IPV6, Reason::Version(4))
    );
}

#[test]
fn lengths_that_contradict_each_other_are_malformed_and_the_smallest_that_do_not_are_read() {
    let with = |at: usize, byte: u8| {
        let mut ip = udp();
        ip[at] = byte;
        ip
    };
    assert_eq!(
        wrong(&with(0, 0x44), Layer::Ip),
        (Header::IPV4, Reason::HeaderLength(16))
    );
    assert_eq!(
        wrong(&with(3, 19), Layer::Ip),
        (Header::IPV4, Reason::TotalLength(19))
    );
    assert_eq!(
        wrong(&with(3, 29), Layer::Ip),
        (Header::IPV4, Reason::TotalLength(29))
    );
    // Padding is no part of the datagram, even where ports would fit into it.
    assert_eq!(
        wrong(&with(3, 27), Layer::Ip),
        (Header::UDP, Reason::Short(8))
    );
    assert_eq!(
        wrong(&with(3, 20), Layer::Ip),
        (Header::UDP, Reason::Short(8))
    );
    assert!(parse(&udp(), Layer::Ip).is_ok());
    let mut without_payload = with(9, 1);
    without_payload[3] = 20;
    assert_eq!(parse(&without_payload, Layer::Ip).unwrap().ports, None);
}

#[test]
fn each_transport_has_a_header_of_its_own_length() {
    for (protocol, header, least) in [
        (6, Header::TCP, 20),
        (17, Header::UDP, 8),
        (33, Header::DCCP, 12),
        (132, Header::SCTP, 12),
        (136, Header::UDP_LITE, 8),
    ] {
        let of = |len: u8| {
            let mut ip = udp();
            (ip[3], ip[9]) = (20 + len, protocol);
            ip.resize(20 + usize::from(len), 0);
            ip
        };
        assert_eq!(
            wrong(&of(least - 1), Layer::Ip),
            (header, Reason::Short(least.into()))
        );
        let ports = Some(Ports {
            source: 1,
            destination: 2,
        });
        assert_eq!(parse(&of(least), Layer::Ip).unwrap().ports, ports);
        // Of a first fragment, eight bytes.
        let fragment = |len| {
            let mut ip = of(len);
            ip[6] = 0x20;
            ip
        };
        assert_eq!(wrong(&fragment(7), Layer::Ip), (header, Reason::Short(8)));
        assert_eq!(parse(&fragment(8), Layer::Ip).unwrap().ports, ports);
    }
}

#[test]
fn later_fragments_have_no_ports_however_short_they_are() {
    let mut ip = udp();
    (ip[7], ip[3]) = (1, 21);
    let read = parse(&ip, Layer::Ip).unwrap();
    assert_eq!((read.fragment, read.ports), (Fragment::Later, None));
    assert_eq!(read.protocol, Some(Protocol::UDP));
}

#[test]
fn any_bit_of_an_offset_makes_a_later_fragment() {
    for bit in 0..13 {
        let place = 1u16 << bit;
        let mut ip = udp();
        ip[6..8].copy_from_slice(&place.to_be_bytes());
        assert_eq!(parse(&ip, Layer::Ip).unwrap().fragment, Fragment::Later);
        let mut ip = udp6(&[44]);
        ip[42..44].copy_from_slice(&(place << 3).to_be_bytes());
        assert_eq!(parse(&ip, Layer::Ip).unwrap().fragment, Fragment::Later);
    }
    // The neighbouring bits: "evil", "don't fragment" and "more fragments".
    for (flags, expected) in [
        (0x80, Fragment::No),
        (0x40, Fragment::No),
        (0x20, Fragment::First),
    ] {
        let mut ip = udp();
        ip[6] = flags;
        assert_eq!(parse(&ip, Layer::Ip).unwrap().fragment, expected);
    }
}

#[test]
fn eight_extension_headers_are_followed_and_nine_are_too_many() {
    let read = parse(&udp6(&[60; 8]), Layer::Ip).unwrap();
    assert_eq!(
        read.ports,
        Some(Ports {
            source: 1,
            destination: 2
        })
    );
    let nine = wrong(&udp6(&[60; 9]), Layer::Ip);
    assert_eq!(nine, (Header::IPV6_EXTENSION, Reason::TooMany(8)));
}

#[test]
fn an_extension_header_longer_than_the_packet_is_malformed() {
    let mut ip = udp6(&[0]);
    ip[41] = 1;
    assert!(parse(&ip, Layer::Ip).is_err_and(|e| e.header == Header::UDP));
    ip[41] = 2;
    assert_eq!(
        wrong(&ip, Layer::Ip),
        (Header::IPV6_EXTENSION, Reason::Short(24))
    );
}

#[test]
fn a_fragment_header_around_a_whole_datagram_makes_no_fragment_of_it() {
    let read = parse(&udp6(&[44]), Layer::Ip).unwrap();
    assert_eq!(read.fragment, Fragment::No);
    assert!(read.ports.is_some());
}

#[test]
fn what_is_not_ip_is_not_malformed() {
    for ethertype in [0x0806u16, 0x88cc, 0x8864, 46] {
        let mut frame = vec![0; 12];
        frame.extend([0x81, 0, 0xe0, 7]);
        frame.extend(ethertype.to_be_bytes());
        let read = parse(&frame, Layer::Ethernet).unwrap();
        let expected = Headers {
            vlan: VlanId::new(7),
            ethertype,
            link_control: ethertype == 0x0806,
            ip_offset: 18,
            ..Headers::default()
        };
        assert_eq!(read, expected);
    }
}

/// STP, LLDP and LACP go to reserved addresses; the other kinds say it in their headers.
#[test]
fn link_layer_control_is_recognised() {
    const ANY: [u8; 6] = [2; 6];
    let frame = |to: [u8; 6], ethertype: u16, behind: &[u8]| {
        let from = [2, 0, 0, 0, 0, 7];
        [&to, &from, &ethertype.to_be_bytes()[..], behind].concat()
    };
    let reserved = |last| frame([0x01, 0x80, 0xc2, 0, 0, last], 0x88cc, &[0; 46]);
    let session = |protocol: u16| {
        let [high, low] = protocol.to_be_bytes();
        frame(ANY, 0x8864, &[0x11, 0, 0, 1, 0, 2, high, low])
    };
    let icmpv6 = |hop_limit, kind| {
        let mut datagram = vec![0x60, 0, 0, 0, 0, 8, 58, hop_limit];
        datagram.extend([0x20; 32]);
        datagram.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
        frame(ANY, 0x86dd, &datagram)
    };
    for (bytes, is_control) in [
        (frame(ANY, 0x0806, &[0; 28]), true),
        (frame(ANY, 0x8863, &[0x11, 9, 0, 0, 0, 0]), true),
        (reserved(0x00), true),
        (reserved(0x0f), true),
        (reserved(0x10), false),
        (session(0xc021), true),
        (session(0x8021), true),
        (frame(ANY, 0x8864, &[0x11, 0, 0, 1]), false),
        (frame(ANY, 0x8847, &[0xff; 46]), false),
        (icmpv6(255, 133), true),
        (icmpv6(255, 137), true),
        (icmpv6(255, 128), false),
        (icmpv6(64, 135), false),
    ] {
        let headers = parse(&bytes, Layer::Ethernet).unwrap();
        assert_eq!(headers.link_control, is_control, "{bytes:x?}");
        if headers.family == Family::Other {
            assert_eq!(headers.source, 0x0200_0000_0007);
        }
    }
}

#[test]
fn tags_are_followed_four_deep_and_a_priority_tag_is_no_vlan() {
    let tagged = |tags: usize| {
        let mut frame = vec![0; 12];
        (0..tags).for_each(|tag| frame.extend([0x88, 0xa8, 0x20, tag as u8 * 3]));
        frame.extend([8, 0]);
        frame.extend(udp());
        parse(&frame, Layer::Ethernet).unwrap()
    };
    assert_eq!(tagged(1).vlan, None);
    assert_eq!(tagged(2).vlan, VlanId::new(3));
    assert_eq!(tagged(3).vlan, VlanId::new(3), "the outermost");
    assert_eq!(tagged(4).family, Family::V4);
    assert_eq!(tagged(5).family, Family::Other);
}

#[test]
fn what_was_read_before_an_error_is_what_there_is_without_it() {
    let whole = udp();
    let read = parse(&whole, Layer::Ip).unwrap();
    assert_eq!(parse_partly(&whole, Layer::Ip), (read, None));
    // It ends within the UDP header: whose it is, is known.
    let mut short = whole.clone();
    short[3] = 20 + 3;
    let (partly, wrong) = parse_partly(&short, Layer::Ip);
    assert_eq!(wrong, parse(&short, Layer::Ip).err());
    assert!(wrong.is_some() && partly.ports.is_none());
    assert_eq!(
        (partly.family, partly.source, partly.destination),
        (read.family, read.source, read.destination)
    );
    // It is cut within the IP header: nothing is.
    let (partly, wrong) = parse_partly(&whole[..19], Layer::Ip);
    assert!(wrong.is_some());
    assert_eq!(partly, Headers::default());
}
