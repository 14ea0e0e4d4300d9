//! Where the packets are that a controller generates.

use anyhow::{Context, Result};
use fairlane_core::Length;

use crate::controller::{Dequeued, Packets};

/// Packets in memory, as a host has them (QFQ+ paper, Section 8, "Test environment"): each is a block as long as
/// the longest packet, with a header in front that gives its flow and its length, and blocks start at cache
/// lines only by chance. Nothing of a packet except its header is read or written.
///
/// The block that was returned last is handed out first; if none was returned, the next one in memory.
#[derive(Debug)]
pub struct Blocks {
    memory: Vec<u8>,
    stride: usize,
    /// The first of the returned blocks, by number; the header of each names the next.
    free: u32,
    /// Blocks that were never handed out begin here.
    fresh: u32,
}

/// Flow, or next free block; length.
const HEADER: usize = 8;
/// Ends the list of free blocks.
const NONE: u32 = u32::MAX;

impl Blocks {
    /// Room for `packets` of at most this length. All of it is written to here, so that the system gives it now.
    ///
    /// # Errors
    ///
    /// There is not as much memory.
    pub(crate) fn new(packets: u64, longest: Length) -> Result<Blocks> {
        let stride = (longest.get() as usize).max(HEADER);
        let bytes = packets.saturating_mul(stride as u64);
        let mut memory = Vec::new();
        memory.try_reserve_exact(bytes as usize).with_context(|| {
            format!("{packets} packets of {stride} bytes, {bytes} bytes in all, are more than there is memory for")
        })?;
        memory.resize(bytes as usize, 0);
        Ok(Blocks {
            memory,
            stride,
            free: NONE,
            fresh: 0,
        })
    }

    #[inline]
    fn read(&self, number: u32, at: usize) -> u32 {
        let at = number as usize * self.stride + at;
        u32::from_ne_bytes(self.memory[at..at + 4].try_into().expect("four bytes"))
    }

    #[inline]
    fn write(&mut self, number: u32, at: usize, value: u32) {
        let at = number as usize * self.stride + at;
        self.memory[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
}

impl Packets for Blocks {
    /// Writes its header.
    ///
    /// # Panics
    ///
    /// If more are out than there is room for.
    #[inline]
    fn generate(&mut self, flow: u32, len: Length) -> u32 {
        let number = match self.free {
            NONE => {
                self.fresh += 1;
                self.fresh - 1
            }
            number => {
                self.free = self.read(number, 0);
                number
            }
        };
        self.write(number, 0, flow);
        self.write(number, 4, len.get());
        number
    }

    /// Reads its header; its block is free.
    #[inline]
    fn dispose(&mut self, packet: Dequeued) -> u32 {
        let number = packet.packet;
        let flow = self.read(number, 0);
        self.write(number, 0, self.free);
        self.free = number;
        flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By its header, whatever the scheduler says.
    fn dispose(blocks: &mut Blocks, packet: u32) -> u32 {
        blocks.dispose(Dequeued { flow: 0, packet })
    }

    #[test]
    fn the_block_that_came_back_last_is_handed_out_first() {
        let len = |bytes| Length::new(bytes).unwrap();
        let mut blocks = Blocks::new(4, len(1_700)).unwrap();
        let [first, second] = [7, 8].map(|flow| blocks.generate(flow, len(100)));
        assert_eq!((first, second), (0, 1));
        assert_eq!(dispose(&mut blocks, first), 7);
        assert_eq!(dispose(&mut blocks, second), 8);
        let again = [9, 10, 11].map(|flow| blocks.generate(flow, len(1_700)));
        assert_eq!(again, [second, first, 2]);
        assert_eq!(
            again.map(|number| dispose(&mut blocks, number)),
            [9, 10, 11]
        );
    }

    #[test]
    fn more_than_there_is_memory_for_is_refused() {
        let refused = Blocks::new(u64::MAX / 2, Length::MAX).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("more than there is memory for")
        );
    }

    #[test]
    fn the_shortest_packets_have_room_for_their_header() {
        let mut blocks = Blocks::new(3, Length::new(1).unwrap()).unwrap();
        let all = [1, 2, 3].map(|flow| blocks.generate(flow, Length::new(1).unwrap()));
        assert_eq!(all.map(|number| dispose(&mut blocks, number)), [1, 2, 3]);
    }
}
