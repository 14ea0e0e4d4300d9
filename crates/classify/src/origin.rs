//! The origin of a packet.

/// The origin of a packet, which its bytes do not contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The caller's number of the interface that received it, or [`Origin::ATTACHED`].
    pub ingress: u16,
    /// The sender, for an attached process.
    pub owner: Option<Owner>,
}

impl Origin {
    /// The `ingress` of packets from a process instead of an interface.
    #[doc(hidden)]
    pub const ATTACHED: u16 = u16::MAX;
}

/// A process, as the kernel vouched for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process.
    pub pid: u32,
}
