//! Errors of [`mailbox`](crate::mailbox) and [`push`](crate::Producer::push).

use core::fmt;

/// The requested number of slots is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a mailbox cannot have {given} slots: the number must be a power of two from {least} to {most}"
)]
pub struct CapacityError {
    /// The requested number of slots.
    pub given: usize,
    /// The smallest number allowed.
    pub least: usize,
    /// The largest number allowed.
    pub most: usize,
}

/// The mailbox was full. Contains the value, which still belongs to the caller.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the mailbox is full")]
pub struct Full<T>(pub T);

// Not derived, so that `unwrap` on a push does not require `T: Debug`.
impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}
