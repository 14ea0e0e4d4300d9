//! Properties of an interface, without opening it. Linux only.

use std::io;
use std::net::IpAddr;

use crate::moved;
use crate::network::Network;
use crate::sys::interface::Interface;

/// Returns the MTU of the interface of this name in the calling thread's network namespace, in
/// bytes: the longest payload of a frame, without its Ethernet header. Needs no privilege. A few
/// system calls.
///
/// # Errors
///
/// `NotFound` or another error of the system's if there is no such interface.
///
/// ```
/// use fairlane_io::interface::mtu;
///
/// println!("the loopback interface carries packets of {} bytes", mtu("lo")?);
/// assert!(mtu("nosuch0").is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn mtu(name: &str) -> io::Result<u32> {
    let mtu = Interface::find(name)?.mtu()?;
    Ok(u32::try_from(mtu).unwrap_or(u32::MAX))
}

/// Returns the number of receive queues of the interface `name` in the calling thread's network namespace: at least 1,
/// and 1 where its driver does not report it and `/sys` belongs to another namespace. Needs no privilege. A few system
/// calls.
///
/// # Errors
///
/// `NotFound` or another error of the system if there is no such interface.
///
/// ```
/// use fairlane_io::interface::rx_queues;
///
/// assert_eq!(rx_queues("lo")?, 1);
/// assert!(rx_queues("nosuch0").is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn rx_queues(name: &str) -> io::Result<u32> {
    Interface::find(name)?.rx_queues()
}

/// Returns the speed of the interface of this name in bit/s, as its driver reports it (`ETHTOOL_GSET`). `None` if the
/// driver knows none, as without a carrier, and for a virtual device. Needs no privilege. A few system calls.
///
/// # Errors
///
/// `NotFound` or another error of the system if there is no such interface, or its driver has no settings.
///
/// ```
/// use fairlane_io::interface::speed;
///
/// assert!(speed("nosuch0").is_err());
/// // The loopback interface has no speed.
/// assert_eq!(speed("lo").unwrap_or_default(), None);
/// ```
pub fn speed(name: &str) -> io::Result<Option<u64>> {
    Interface::find(name)?.speed()
}

/// Returns how many queues of the interface of this name transmit, as [`rx_queues`] says how many
/// receive.
///
/// # Errors
///
/// `NotFound` or another error of the system's if there is no such interface.
///
/// ```
/// use fairlane_io::interface::tx_queues;
///
/// assert_eq!(tx_queues("lo")?, 1);
/// assert!(tx_queues("nosuch0").is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn tx_queues(name: &str) -> io::Result<u32> {
    Interface::find(name)?.tx_queues()
}

/// Returns whether the interface `name`, in the calling thread's network namespace, is one end of a virtual cable
/// (veth): no device reads its frames, so AF_XDP copies them. False if its driver does not report its type. Needs no
/// privilege. A few system calls.
///
/// # Errors
///
/// `NotFound` or another error of the system if there is no such interface.
///
/// ```
/// use fairlane_io::interface::is_virtual_cable;
///
/// assert!(!is_virtual_cable("lo")?);
/// assert!(is_virtual_cable("nosuch0").is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn is_virtual_cable(name: &str) -> io::Result<bool> {
    Ok(Interface::find(name)?.is_cable().unwrap_or(false))
}

/// Checks that the interface of this name, in the calling thread's network namespace, carries Ethernet frames. Needs no
/// privilege. A few system calls.
///
/// # Errors
///
/// `InvalidInput` with a sentence if it carries something else; `NotFound` or another error of the system's if there
/// is no such interface.
///
/// ```
/// use fairlane_io::interface::check_ethernet;
///
/// check_ethernet("lo")?;
/// assert!(check_ethernet("nosuch0").is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn check_ethernet(name: &str) -> io::Result<()> {
    match Interface::find(name)?.carries_ethernet()? {
        true => Ok(()),
        false => Err(no_ethernet(name)),
    }
}

/// Returns whether the interface of this name, in the calling thread's network namespace, is a tap device. Needs no
/// privilege. A few system calls.
///
/// # Errors
///
/// The kernel cannot be asked.
///
/// ```
/// use fairlane_io::interface::is_tap;
///
/// assert!(!is_tap("lo")? && !is_tap("nosuch0")?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn is_tap(name: &str) -> io::Result<bool> {
    let is_tun = Network::read()?.kind(name) == Some("tun");
    Ok(is_tun && check_ethernet(name).is_ok())
}

/// Returns the IP addresses of the interface of this name, with the lengths of their prefixes, in the calling thread's
/// network namespace. Addresses of its link alone are left out. Needs no privilege.
///
/// # Errors
///
/// `NotFound` or another error of the system's if there is no such interface.
///
/// ```
/// use fairlane_io::interface::addresses;
///
/// println!("{:?}", addresses("lo")?);
/// assert!(addresses("nosuch0").is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn addresses(name: &str) -> io::Result<Vec<(IpAddr, u8)>> {
    Interface::find(name)?;
    Ok(Network::read()?.addresses(name))
}

/// Returns the gateways of default routes by the interface of this name, in the calling thread's network namespace.
/// Needs no privilege.
///
/// # Errors
///
/// `NotFound` or another error of the system's if there is no such interface.
///
/// ```
/// use fairlane_io::interface::gateways;
///
/// assert!(gateways("lo")?.is_empty());
/// assert!(gateways("nosuch0").is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn gateways(name: &str) -> io::Result<Vec<IpAddr>> {
    moved::gateways(Interface::find(name)?.index())
}

/// Returns the sentence for an interface that carries something else than Ethernet frames.
pub(crate) fn no_ethernet(name: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "{name} carries no Ethernet frames (a TUN, PPP or WireGuard device carries IP packets \
             alone): name an interface that does"
        ),
    )
}
