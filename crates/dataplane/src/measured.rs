//! The way of a frame through an idle site between two devices in memory, for measurements.

use std::collections::VecDeque;
use std::io;

use fairlane_config::{Role, Site};
use fairlane_core::{FlowConfig, Length, Nanos, Weight};
use fairlane_io::{Backend, MemoryBackend, memory};
use fairlane_runtime::bridge::{Bridge, Lane, Side};

use crate::bridge::Maker;
use crate::frame::Frame;
use crate::passing::watches;
use crate::plan::Plan;

/// Frames that a device holds at once.
const ROOM: usize = 64;

/// The path of frames from one device to the other.
#[derive(Clone, Copy, Debug)]
pub enum Through<'a> {
    /// No stage.
    Nothing,
    /// The link of a site that leads outside, without passive TCP observation.
    Link(&'a Site),
    /// The same link, with passive TCP observation.
    Watched(&'a Site),
}

/// Sends `count` frames, one each millisecond, from those given in turn, after `renew` has made the next of each.
/// Returns the number that came out.
///
/// # Errors
///
/// None: devices in memory do not fail.
///
/// # Panics
///
/// The site has no link outside.
pub fn pass(
    way: Through<'_>,
    frames: Vec<Vec<u8>>,
    count: u64,
    mut renew: impl FnMut(&mut [u8]),
) -> io::Result<u64> {
    let (mut lan, left) = memory::pair(ROOM);
    let (right, mut wan) = memory::pair(ROOM);
    let mut waiting: VecDeque<Frame> = frames.into_iter().map(Frame::from).collect();
    let mut through = through(way, left, right);
    let (mut batch, mut arrived, mut passed) = (VecDeque::new(), Vec::new(), 0);
    for number in 1..=count {
        if let Some(mut frame) = waiting.pop_front() {
            renew(frame.bytes_mut());
            batch.push_back(frame);
        }
        lan.transmit(&mut batch)?;
        through(Nanos::from_millis(number))?;
        passed += wan.receive(&mut arrived, ROOM)? as u64;
        waiting.extend(arrived.drain(..));
    }
    Ok(passed)
}

type Memory = MemoryBackend<Frame>;

/// Returns the stage that forwards frames from one device to the other at a given time.
fn through(
    way: Through<'_>,
    mut left: Memory,
    mut right: Memory,
) -> Box<dyn FnMut(Nanos) -> io::Result<()>> {
    let site = match way {
        Through::Link(site) | Through::Watched(site) => site,
        Through::Nothing => {
            let (mut arrived, mut batch) = (Vec::new(), VecDeque::new());
            return Box::new(move |_| {
                left.receive(&mut arrived, ROOM)?;
                batch.extend(arrived.drain(..));
                right.transmit(&mut batch).map(drop)
            });
        }
    };
    let mut links = site.links.iter();
    let link = links.rfind(|link| link.to == Role::Outside);
    let link = link.expect("a link outside");
    let (_, mut arbiter) = Plan::start(link, Side::Right, right, 0, None, Nanos::ZERO);
    let [_, (watch, mut findings)] = watches().expect("room for what is found");
    if let Through::Watched(_) = way {
        arbiter.queue_mut().classifier_mut().watch = Some(Box::new(watch));
    }
    let frames = FlowConfig::new(Weight::ONE, Length::MAX);
    let shaped = Lane::Shaped(Box::new(arbiter), frames);
    let bridge = Bridge::new(Lane::Open(left), shaped, Maker { near: Role::Inside });
    let mut bridge = bridge.expect("a flow for what is received");
    Box::new(move |now| {
        // In a site, the control thread's business.
        while findings.pop().is_some() {}
        bridge.round(now).map(drop)
    })
}
