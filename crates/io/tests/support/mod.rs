//! Helpers that tests of several backends share.

use std::fmt::Debug;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use fairlane_io::{Backend, Waiter};

/// Long enough never to matter on a machine that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Long enough for a packet that should not arrive, to arrive.
pub(crate) const GRACE: Duration = Duration::from_millis(50);

/// Receives until `count` have arrived, and then checks that no more do.
pub(crate) fn collect<B>(backend: &mut B, count: usize) -> Vec<B::Rx>
where
    B: Backend<Rx: Debug> + AsFd,
{
    let mut arrived = Vec::new();
    let mut waiter = Waiter::new();
    let deadline = Instant::now() + PATIENCE;
    while arrived.len() < count && Instant::now() < deadline {
        waiter.wait_readable(&[&*backend], GRACE).unwrap();
        backend.receive(&mut arrived, usize::MAX).unwrap();
    }
    waiter.wait_readable(&[&*backend], GRACE).unwrap();
    backend.receive(&mut arrived, usize::MAX).unwrap();
    assert_eq!(arrived.len(), count);
    arrived
}
