//! Frames received one by one, as they were on the wire. Linux only.

use std::io;

use crate::sys::interface::{Interface, Joins};

/// While this lives, received segments of one connection are not joined into a longer one, so that
/// each received frame can be sent again. Dropping it turns on again what was on before.
///
/// What the *kernel* joins (GRO) it knows to take apart, and says how: a
/// [`PacketBackend`](crate::PacketBackend) does it, as the kernel's own bridge would, and
/// needs this [of the device](Self::of_device) alone (LRO), as that bridge does. An
/// [`XdpBackend`](crate::XdpBackend) hears frames before the kernel joins them, but in
/// [generic mode](crate::XdpMode::Generic), where it needs both.
#[derive(Debug)]
pub struct SingleFrames {
    interface: Interface,
    turned_off: Vec<Joins>,
}

impl SingleFrames {
    /// Neither the kernel nor the device joins what arrives at the interface of this name in the
    /// calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such interface, `PermissionDenied` without the privilege
    /// `CAP_NET_ADMIN` where something is to be turned off. A driver that knows of no such thing
    /// has nothing to turn off.
    pub fn on(name: &str) -> io::Result<Self> {
        Self::turn_off(name, &[Joins::Kernel, Joins::Device])
    }

    /// The same of the device alone.
    ///
    /// # Errors
    ///
    /// Those of [`on`](Self::on).
    pub fn of_device(name: &str) -> io::Result<Self> {
        Self::turn_off(name, &[Joins::Device])
    }

    fn turn_off(name: &str, joins: &[Joins]) -> io::Result<Self> {
        let interface = Interface::find(name).map_err(|error| explain(name, error))?;
        let mut frames = SingleFrames {
            interface,
            turned_off: Vec::new(),
        };
        for &by in joins {
            if let Ok(true) = frames.interface.joins_segments(by) {
                let off = frames.interface.join_segments(by, false);
                off.map_err(|error| explain(name, error))?;
                frames.turned_off.push(by);
            }
        }
        Ok(frames)
    }
}

impl Drop for SingleFrames {
    fn drop(&mut self) {
        for &by in &self.turned_off {
            // The interface may be gone by now, and its offloads with it.
            let _ = self.interface.join_segments(by, true);
        }
    }
}

/// The sentence for an error.
fn explain(name: &str, error: io::Error) -> io::Error {
    let (kind, sentence) = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => (
            io::ErrorKind::PermissionDenied,
            format!(
                "to turn off the receive offloads of {name} the privilege CAP_NET_ADMIN is needed: \
                 run as root, or grant it to the program (setcap cap_net_admin+ep)"
            ),
        ),
        Some(libc::ENODEV | libc::ENXIO) => (
            io::ErrorKind::NotFound,
            format!("there is no interface {name} in this network namespace"),
        ),
        _ => (
            error.kind(),
            format!("the receive offloads of {name} cannot be turned off: {error}"),
        ),
    };
    io::Error::new(kind, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlane_netlab::{cable, or_skip};

    #[test]
    fn received_segments_are_joined_again_when_it_is_over() {
        let Some((link, _far)) = or_skip("receive offloads", cable(1_500)) else {
            return;
        };
        link.namespace().run(|| {
            let interface = Interface::find(link.name()).unwrap();
            interface.join_segments(Joins::Kernel, true).unwrap();
            let single = SingleFrames::on(link.name()).unwrap();
            assert!(!interface.joins_segments(Joins::Kernel).unwrap());
            // Who finds it off leaves it off.
            drop(SingleFrames::on(link.name()).unwrap());
            assert!(!interface.joins_segments(Joins::Kernel).unwrap());
            drop(single);
            assert!(interface.joins_segments(Joins::Kernel).unwrap());
        });
    }

    #[test]
    fn what_the_kernel_joins_is_left_to_it_where_that_is_asked_for() {
        let Some((link, _far)) = or_skip("offloads of a device", cable(1_500)) else {
            return;
        };
        link.namespace().run(|| {
            let interface = Interface::find(link.name()).unwrap();
            interface.join_segments(Joins::Kernel, true).unwrap();
            let _single = SingleFrames::of_device(link.name()).unwrap();
            assert!(interface.joins_segments(Joins::Kernel).unwrap());
        });
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let error = SingleFrames::on("nosuch0").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("nosuch0"), "{error}");
    }
}
