//! Knowledge of the next packet when the algorithm decides whether an aggregate's turn continues.

use crate::units::Charge;
use core::fmt::Debug;

/// Whether SCHED+ sees the length of the next packet: [`Seen`] or [`Unseen`].
pub trait NextPacket: Kept + Copy + Default + Debug + Send + Sync + 'static {
    /// Whether it does.
    const SEEN: bool;
}

/// The recorded part of a flow's head.
pub trait Kept {
    /// Returns the recorded part of a head of `head` bytes.
    fn of(head: Charge) -> Self;
    /// Returns its bytes; 0 where it is not seen.
    fn bytes(self) -> i32;
}

/// A turn continues while the rest of the budget covers L^k, whatever the next packet is: for flows whose next packet
/// may be replaced before it is sent, such as classes. With M = 1 a turn is one packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unseen;

/// A turn continues while the rest of the budget covers the next packet, as in the paper: for flows whose heads are
/// sent as declared, such as those of a [`PacketScheduler`](crate::PacketScheduler). Where packets are shorter than
/// L^k, fewer turns end early; each packet costs one more access to the next flow's record. Where a class's head is
/// given as L^k, it behaves as [`Unseen`].
///
/// ```
/// use fairlane_core::sched::{NextPacket, Plus, Seen, Unseen, Wf2qPlus};
/// use fairlane_core::{FlowConfig, Length, PacketScheduler, Weight};
///
/// /// Packets that leave before another aggregate has its turn.
/// fn in_a_row<H: NextPacket>(algorithm: Plus<Wf2qPlus, H>) -> usize {
///     let mut link = PacketScheduler::new(algorithm, Default::default());
///     let [longest, short] = [1500, 500].map(|bytes| Length::new(bytes).unwrap());
///     let config = FlowConfig::new(Weight::ONE, longest);
///     let flows = [(); 4].map(|()| link.add_flow(config).unwrap());
///     for flow in flows {
///         (0..9).for_each(|n| link.enqueue(flow, short, n).unwrap());
///     }
///     // Flows 0 and 1 are one aggregate, 2 and 3 the other.
///     let sent = std::iter::from_fn(|| link.dequeue());
///     let aggregates: Vec<u32> = sent.map(|packet| packet.owner.number() / 2).collect();
///     aggregates.iter().take_while(|&&of| of == aggregates[0]).count()
/// }
///
/// let two = 2.try_into()?;
/// // A budget of 3000 bytes: four packets leave 1000, and six nothing.
/// assert_eq!(in_a_row::<Unseen>(Plus::new(two)), 4);
/// assert_eq!(in_a_row::<Seen>(Plus::seeing(Wf2qPlus::new(), two)), 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen(u32);

impl NextPacket for Unseen {
    const SEEN: bool = false;
}

impl NextPacket for Seen {
    const SEEN: bool = true;
}

impl Kept for Unseen {
    #[inline(always)]
    fn of(_: Charge) -> Self {
        Unseen
    }
    #[inline(always)]
    fn bytes(self) -> i32 {
        0
    }
}

impl Kept for Seen {
    #[inline(always)]
    fn of(head: Charge) -> Self {
        Seen(head.get())
    }
    #[inline(always)]
    fn bytes(self) -> i32 {
        self.0 as i32
    }
}
