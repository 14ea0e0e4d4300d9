//! The two directions of a site: the link of each, and the devices that its frames leave by.

use std::cell::Cell;

use fairlane_classify::Origin;
use fairlane_config::Role;
use fairlane_core::Discipline;
use fairlane_runtime::bridge::{Bridge, Came, Make, Side};
use fairlane_runtime::{Classified, FromPort};

use crate::classifier::FrameClassifier;
use crate::device::AnyDevice;
use crate::frame::{Frame, Received};

/// The frames of a link in its classes.
pub type Shaped = Classified<Received, Discipline<FromPort<Received>>, FrameClassifier>;

/// The bridge of a site.
pub type SiteBridge = Bridge<Shaped, AnyDevice, Maker>;

/// Converts a received frame into the form that the classes queue.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    /// Role of the interface on the left.
    pub near: Role,
}

impl Make<Frame, Received> for Maker {
    #[inline]
    fn make(&mut self, frame: Frame, arrived_at: Side, came: Came) -> Received {
        let from = match arrived_at {
            Side::Left => self.near,
            Side::Right => Role::Outside,
        };
        Received {
            frame,
            origin: Origin {
                ingress: from.ingress(),
                owner: None,
            },
            came: came.at,
            losing: came.losing,
            verdict: Cell::default(),
        }
    }
}
