//! Where in the memory frames lie.

/// Bytes of a line of the processor's caches.
const LINE: u32 = 64;

/// Frames of one size, one behind the other or a line of the cache further apart.
///
/// A cache finds the place of a line by its address, modulo a power of two: the first lines of frames that lie 2048
/// bytes apart share a thirty-second of it, and push each other out while the rest has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    frame_size: u32,
    /// From the start of one frame to that of the next.
    stride: u32,
    /// 2^64 / `stride`, rounded up: a multiplier that replaces a division.
    inverse: u64,
}

impl Layout {
    /// One behind the other: each starts at a multiple of its size.
    pub(super) fn aligned(frame_size: u32) -> Layout {
        Layout::apart(frame_size, frame_size)
    }

    /// Returns a layout with frames one cache line further apart.
    pub(super) fn unaligned(frame_size: u32) -> Layout {
        Layout::apart(frame_size, frame_size + LINE)
    }

    fn apart(frame_size: u32, stride: u32) -> Layout {
        Layout {
            frame_size,
            stride,
            inverse: u64::MAX / u64::from(stride) + 1,
        }
    }

    pub(super) fn is_aligned(self) -> bool {
        self.stride == self.frame_size
    }

    pub(crate) fn frame_size(self) -> u32 {
        self.frame_size
    }

    /// Returns the size in bytes of a memory of `frames` frames.
    pub(super) fn bytes(self, frames: u32) -> usize {
        frames as usize * self.stride as usize
    }

    /// Returns where a frame starts. The frame is one of a memory of at most 4 GiB.
    pub(crate) fn start(self, frame: u32) -> u32 {
        frame * self.stride
    }

    /// Returns the number of the frame with this byte, or of that before it: exact below 4 GiB (`inverse` is wrong
    /// by less than `stride` / 2^64 of itself), and no number of a frame in 4 GiB else.
    #[inline]
    pub(crate) fn number(self, byte: u64) -> u64 {
        ((u128::from(byte) * u128::from(self.inverse)) >> 64) as u64
    }

    /// Returns how many bytes of its frame lie before this one, which lies below 4 GiB.
    #[inline]
    pub(super) fn ahead(self, byte: u32) -> u32 {
        byte - self.start(self.number(byte.into()) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layouts() -> impl Strategy<Value = Layout> {
        let size = prop_oneof![Just(2_048), Just(4_096)];
        (size, any::<bool>()).prop_map(|(size, is_aligned)| match is_aligned {
            true => Layout::aligned(size),
            false => Layout::unaligned(size),
        })
    }

    /// Returns a number of a frame, also the first and the last in 4 GiB.
    fn numbers(layout: Layout) -> impl Strategy<Value = u32> {
        let last = u32::MAX / layout.stride - 1;
        prop_oneof![Just(0), Just(1), Just(last), 0..=last]
    }

    fn offsets(layout: Layout) -> impl Strategy<Value = u32> {
        let (size, stride) = (layout.frame_size, layout.stride);
        prop_oneof![
            Just(0),
            Just(1),
            Just(size - 1),
            Just(stride - 1),
            0..stride
        ]
    }

    proptest! {
        #[test]
        fn a_byte_is_of_the_frame_before_it(
            (layout, number, offset) in layouts().prop_flat_map(|it| (Just(it), numbers(it), offsets(it)))
        ) {
            let byte = layout.start(number) + offset;
            prop_assert_eq!(layout.number(byte.into()), u64::from(number));
            prop_assert_eq!(layout.ahead(byte), offset);
        }

        #[test]
        fn what_lies_beyond_the_memory_is_of_no_frame_in_it(
            layout in layouts(),
            byte in prop_oneof![0..10_000_u64, 0..u64::MAX - (1 << 32)],
        ) {
            let most = (1_u64 << 32) / u64::from(layout.stride);
            prop_assert!(layout.number((1 << 32) + byte) >= most);
        }
    }

    #[test]
    fn first_lines_of_unaligned_frames_fill_a_cache_evenly() {
        let sets = |layout: Layout| {
            let mut sets = [0; 64];
            for frame in 0..6_400 {
                sets[(layout.start(frame) / LINE) as usize % 64] += 1;
            }
            sets
        };
        for size in [2_048, 4_096] {
            assert_eq!(sets(Layout::unaligned(size)), [100; 64]);
        }
        assert_eq!(
            sets(Layout::aligned(2_048))
                .iter()
                .filter(|&&of| of > 0)
                .count(),
            2
        );
    }
}
