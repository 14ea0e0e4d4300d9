//! Privileges that a daemon gives up once it has started: capabilities, the means to gain others by starting
//! programs, and system calls that it never makes.
//!
//! Capabilities are each thread's own, and a thread inherits those of its creator. So they are given
//! up before there is a second thread, and after temporary uses, such as raising a limit.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::calls;

/// The lowest that a limit of priorities can be: nice -20.
const FIRST: u64 = 40;

/// The operations that a daemon needs after giving up the rest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// Interfaces are opened, changed and put right again.
    pub interfaces: bool,
    /// Programs are put into the kernel.
    pub programs: bool,
    /// Memory is shared with the kernel, where it must stay.
    pub shared_memory: bool,
    /// A port below 1,024 is listened at.
    pub low_port: bool,
}

/// The remaining privileges. By default, all.
#[derive(Debug, Default)]
pub struct Left {
    /// Whether it could use any file before, and now only those that its user may.
    pub lost_files: bool,
    /// Why system calls could not be taken away, if so: a sentence to warn of.
    pub complaint: Option<String>,
}

impl Needs {
    fn capabilities(self) -> CapabilitySet {
        let mut kept = CapabilitySet::empty();
        if self.interfaces {
            kept |= CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
        }
        if self.programs {
            kept |= CapabilitySet::NET_ADMIN | CapabilitySet::BPF | CapabilitySet::PERFMON;
        }
        if self.low_port {
            kept |= CapabilitySet::NET_BIND_SERVICE;
        }
        // The forwarding thread goes before others, and memory is locked: where a limit does not
        // allow it, the capability does.
        if !raise(Resource::Nice, Some(FIRST)) {
            kept |= CapabilitySet::SYS_NICE;
        }
        let locks = self.programs || self.shared_memory;
        if locks && !raise(Resource::Memlock, None) && self.shared_memory {
            kept |= CapabilitySet::IPC_LOCK;
        }
        kept
    }
}

/// Gives up all unneeded privileges, for this process and all threads that it starts from now on;
/// existing threads lose only system calls. It gains nothing that the process does not have.
///
/// # Errors
///
/// The kernel does not allow dropping capabilities; some may be gone by then.
pub fn give_up(needs: Needs) -> io::Result<Left> {
    let had = capabilities(None)?;
    let kept = had.permitted & needs.capabilities();
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if !kept.contains(capability) {
            // Without CAP_SETPCAP it stays, and nothing that this process starts gets it all the same.
            // There are fewer capabilities than bits, too.
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
    // As far as there is such a set.
    let _ = clear_ambient_capability_set();
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept & had.effective,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    set_no_new_privs(true)?;
    let complaint = calls::take_away(needs).err();
    Ok(Left {
        lost_files: had.effective.contains(CapabilitySet::DAC_OVERRIDE),
        complaint,
    })
}

/// Raises a limit to so much, or to no limit. Returns whether it is that high.
fn raise(resource: Resource, to: Option<u64>) -> bool {
    let reaches = |limit: Option<u64>| match (limit, to) {
        (None, _) => true,
        (Some(limit), Some(to)) => limit >= to,
        (Some(_), None) => false,
    };
    let limit = getrlimit(resource);
    if reaches(limit.current) {
        return true;
    }
    let maximum = match reaches(limit.maximum) {
        true => limit.maximum,
        false => to,
    };
    let raised = Rlimit {
        current: to,
        maximum,
    };
    setrlimit(resource, raised).is_ok()
}
