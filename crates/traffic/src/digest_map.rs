//! Tables by the digest of a flow, or its number.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map with a fast hash. An attacker cannot choose its keys: they are digests, or counters.
pub(crate) type DigestMap<V> = HashMap<u64, V, BuildHasherDefault<Folded>>;

/// A multiplication spreads numbers that are near each other; a digest is spread already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Folded(u64);

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (number ^ number >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
