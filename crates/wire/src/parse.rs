//! Reads the headers of a packet: each is checked against the bytes there are before a
//! field of it is used, and no loop is longer than a constant.

use crate::{
    Header, Headers, Layer, Malformed, Reason, VlanId, arp, ethernet, ipv4, ipv6, pppoe, vlan,
};

/// Reads the headers of a packet whose first byte is of `layer`, up to the ports. O(1): at most four
/// VLAN tags and eight IPv6 extension headers.
///
/// A packet other than IP is no error, but of [`Family::Other`](crate::Family::Other). Padding behind the datagram is
/// ignored. Not verified: the header's checksum, and anything behind the ports.
///
/// # Errors
///
/// A packet that ends within a header, or contradicts itself: which header, and how.
#[inline]
pub fn parse(bytes: &[u8], layer: Layer) -> Result<Headers, Malformed> {
    let mut headers = Headers::default();
    headers.read(bytes, layer)?;
    Ok(headers)
}

impl Headers {
    /// Reads them as [`parse`] does, in place; `self` is the default.
    ///
    /// # Errors
    ///
    /// As [`parse`]; the fields are those that precede the fault.
    #[inline]
    pub fn read(&mut self, bytes: &[u8], layer: Layer) -> Result<(), Malformed> {
        match layer {
            Layer::Ip => match bytes.first().map(|first| first >> 4) {
                Some(6) => ipv6::read(bytes, self),
                Some(4) => ipv4::read(bytes, self),
                Some(version) => Err(Malformed::new(Header::IPV4, Reason::Version(version))),
                None => Err(Malformed::new(Header::IPV4, Reason::Short(20))),
            },
            Layer::Ethernet => {
                let (link, ip) = link(bytes)?;
                self.ethertype = link.ethertype;
                self.vlan = link.vlan;
                self.ip_offset = (bytes.len() - ip.len()) as u16;
                match link.ethertype {
                    ipv4::TYPE => ipv4::read(ip, self),
                    ipv6::TYPE => ipv6::read(ip, self),
                    _ => {
                        self.not_ip(bytes, ip);
                        Ok(())
                    }
                }
            }
        }
    }

    /// Reads the MAC addresses of a frame that has an Ethernet header, and whether it is link-layer control.
    /// By itself: few frames are not IP.
    #[inline(never)]
    fn not_ip(&mut self, frame: &[u8], behind: &[u8]) {
        let destination = ethernet::address(frame, ethernet::DESTINATION);
        self.destination = destination.into();
        self.source = ethernet::address(frame, ethernet::SOURCE).into();
        self.link_control = match self.ethertype {
            arp::TYPE | pppoe::DISCOVERY => true,
            pppoe::SESSION if pppoe::is_control(behind) => true,
            _ => ethernet::is_reserved(destination),
        };
    }
}

/// Like [`parse`], but for a malformed packet returns the fields from the IP header on that precede the
/// fault: the addresses of a datagram with a truncated TCP header, for example.
pub fn parse_partly(bytes: &[u8], layer: Layer) -> (Headers, Option<Malformed>) {
    let wrong = match parse(bytes, layer) {
        Ok(headers) => return (headers, None),
        Err(wrong) => wrong,
    };
    let mut headers = Headers::default();
    let ip = match (layer, link(bytes)) {
        (Layer::Ip, _) => Some(bytes),
        (Layer::Ethernet, Ok((_, ip))) => Some(ip),
        (Layer::Ethernet, Err(_)) => None,
    };
    // One of the two does not apply to the packet, and changes nothing.
    let _ = ip.map(|ip| ipv4::read(ip, &mut headers).or_else(|_| ipv6::read(ip, &mut headers)));
    (headers, Some(wrong))
}

/// The headers before the network protocol's.
struct Link {
    ethertype: u16,
    vlan: Option<VlanId>,
}

#[inline]
fn link(bytes: &[u8]) -> Result<(Link, &[u8]), Malformed> {
    let (ethertype, mut rest) = ethernet::read(bytes)?;
    let mut link = Link {
        ethertype,
        vlan: None,
    };
    for _ in 0..vlan::MOST {
        if !vlan::is_tag(link.ethertype) {
            break;
        }
        let (vlan, ethertype, behind) = vlan::read(rest)?;
        link.ethertype = ethertype;
        link.vlan = link.vlan.or(vlan);
        rest = behind;
    }
    Ok((link, rest))
}

/// Returns the ether type of the header behind Ethernet and VLAN tags, and where it begins in the
/// frame. O(1).
///
/// ```
/// use fairlane_wire::network;
///
/// let tagged = [&[2; 12][..], &[0x81, 0x00, 0, 7, 0x08, 0x00, 0x45]].concat();
/// assert_eq!(network(&tagged), Some((0x0800, 18)));
/// assert_eq!(network(&tagged[..17]), None);
/// ```
pub fn network(frame: &[u8]) -> Option<(u16, usize)> {
    let (link, rest) = link(frame).ok()?;
    Some((link.ethertype, frame.len() - rest.len()))
}
