//! Reads the headers of a packet: each is checked against the bytes there are before a
//! field of it is used, and no loop is longer than a constant.

use crate::encapsulated::{self, Inner};
use crate::{Header, Headers, Layer, Malformed, Reason, VlanId, ethernet, ipv4, ipv6, vlan};

/// Reads the headers of a packet whose first byte is of `layer`, up to the ports. O(1): at most four
/// VLAN tags, eight MPLS labels and eight IPv6 extension headers. The packet in a PPPoE session or behind MPLS labels counts.
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
                    _ => self.encapsulated(bytes, ip),
                }
            }
        }
    }

    /// Reads the IP packet behind other headers, or of a frame without one its MAC addresses and whether it is link-layer
    /// control. By itself: few frames are not plainly IP.
    #[inline(never)]
    fn encapsulated(&mut self, frame: &[u8], behind: &[u8]) -> Result<(), Malformed> {
        let is_control = match encapsulated::read(self.ethertype, behind)? {
            Inner::Ipv4 { at, end } => return ipv4::read(self.inner(behind, at, end), self),
            Inner::Ipv6 { at, end } => return ipv6::read(self.inner(behind, at, end), self),
            Inner::Control => true,
            Inner::Other => false,
        };
        let destination = ethernet::address(frame, ethernet::DESTINATION);
        self.destination = destination.into();
        self.source = ethernet::address(frame, ethernet::SOURCE).into();
        self.link_control = is_control || ethernet::is_reserved(destination);
        Ok(())
    }

    /// Returns the IP packet in these bytes, and notes where it begins.
    fn inner<'a>(&mut self, bytes: &'a [u8], at: usize, end: usize) -> &'a [u8] {
        self.ip_offset += at as u16;
        &bytes[at..end]
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
    let ip = match layer {
        Layer::Ip => Some(bytes),
        Layer::Ethernet => network(bytes).map(|(_, at)| &bytes[at..]),
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

// A call costs a sixth of a plain packet's instructions.
#[inline(always)]
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

/// Returns the ether type of the network protocol in a frame, and where its header begins: behind Ethernet, VLAN tags and, for
/// IP, the headers of PPPoE or MPLS. O(1).
///
/// ```
/// use fairlane_wire::{Build, network};
///
/// let tagged = [&[2; 12][..], &[0x81, 0x00, 0, 7, 0x08, 0x00, 0x45]].concat();
/// assert_eq!(network(&tagged), Some((0x0800, 18)));
/// assert_eq!(network(&tagged[..17]), None);
/// let session = Build::ethernet().pppoe(7).ipv6([1; 16], [2; 16]).payload(&[]);
/// assert_eq!(network(&session), Some((0x86dd, 22)));
/// ```
#[inline]
pub fn network(frame: &[u8]) -> Option<(u16, usize)> {
    let (link, rest) = link(frame).ok()?;
    let start = frame.len() - rest.len();
    if matches!(link.ethertype, ipv4::TYPE | ipv6::TYPE) {
        return Some((link.ethertype, start));
    }
    Some(match encapsulated::read(link.ethertype, rest).ok()? {
        Inner::Ipv4 { at, .. } => (ipv4::TYPE, start + at),
        Inner::Ipv6 { at, .. } => (ipv6::TYPE, start + at),
        Inner::Control | Inner::Other => (link.ethertype, start),
    })
}
