//! Making the interface that a TUN or TAP descriptor stands for.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, c_short};

use super::{count_or_error, interface};
use crate::tun::Layer;

/// Ties a descriptor of `/dev/net/tun` to the interface of this name, which is made if there is
/// none; a `%d` in the name stands for the first free number. Returns the name it got.
pub(crate) fn attach(device: BorrowedFd<'_>, name: &str, layer: Layer) -> io::Result<String> {
    let kind = match layer {
        Layer::Ip => libc::IFF_TUN,
        Layer::Ethernet => libc::IFF_TAP,
    };
    let mut request = interface::request(name)?;
    // Nothing is put before the packets.
    request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI) as c_short;
    // SAFETY: the kernel reads and writes one `ifreq`, which is ours, and follows no pointer in it.
    let attached: c_int =
        unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    count_or_error(attached)?;
    let name = request.ifr_name.iter().map(|&byte| byte as u8);
    Ok(String::from_utf8_lossy(&name.take_while(|&byte| byte != 0).collect::<Vec<_>>()).into())
}
