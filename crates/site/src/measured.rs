//! The way of a frame through an idle site between two devices in memory, for measurements.

use std::collections::VecDeque;
use std::io;

use fairlane_config::{Role, Site};
use fairlane_core::{FlowConfig, Length, Nanos, Weight};
use fairlane_io::{Backend, MemoryBackend, memory};
use fairlane_runtime::bridge::{Bridge, Lane, Side};

use crate::daemon::maker;
use crate::frame::Frame;
use crate::plan::Plan;

/// Frames that a device holds at once.
const ROOM: usize = 64;

/// Sends `count` frames, one each millisecond, through the link of a site that leads outside, in
/// turn those given; without a site, from one device to the other. How many came out.
///
/// # Errors
///
/// None: what is in memory does not break.
///
/// # Panics
///
/// The site has no link outside.
pub fn pass(site: Option<&Site>, frames: Vec<Vec<u8>>, count: u64) -> io::Result<u64> {
    let (mut lan, left) = memory::pair(ROOM);
    let (right, mut wan) = memory::pair(ROOM);
    let mut waiting: VecDeque<Frame> = frames.into_iter().map(Frame::Bytes).collect();
    let mut through = through(site, left, right);
    let (mut batch, mut arrived, mut passed) = (VecDeque::new(), Vec::new(), 0);
    for number in 1..=count {
        batch.extend(waiting.pop_front());
        lan.transmit(&mut batch)?;
        through(Nanos::from_millis(number))?;
        passed += wan.receive(&mut arrived, ROOM)? as u64;
        waiting.extend(arrived.drain(..));
    }
    Ok(passed)
}

type Memory = MemoryBackend<Frame>;

/// What carries frames from the one device to the other, at a time.
fn through(
    site: Option<&Site>,
    mut left: Memory,
    mut right: Memory,
) -> Box<dyn FnMut(Nanos) -> io::Result<()>> {
    let Some(site) = site else {
        let (mut arrived, mut batch) = (Vec::new(), VecDeque::new());
        return Box::new(move |_| {
            left.receive(&mut arrived, ROOM)?;
            batch.extend(arrived.drain(..));
            right.transmit(&mut batch).map(drop)
        });
    };
    let mut links = site.links.iter();
    let link = links.rfind(|link| link.to == Role::Outside);
    let link = link.expect("a link outside");
    let (_, arbiter) = Plan::start(link, Side::Right, right, 0, None, Nanos::ZERO);
    let frames = FlowConfig::new(Weight::ONE, Length::MAX);
    let shaped = Lane::Shaped(Box::new(arbiter), frames);
    let bridge = Bridge::new(Lane::Open(left), shaped, maker(Role::Inside));
    let mut bridge = bridge.expect("a flow for what is received");
    Box::new(move |now| bridge.round(now).map(drop))
}
