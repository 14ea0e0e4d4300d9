//! Schedulers, from C.

use std::ffi::{c_char, c_void};
use std::num::NonZeroU32;

use fairlane_config::Site;
use fairlane_core::{FlowConfig, Length, Limits, Nanos, SchedulerLimits, Weight};
use fairlane_wire::Layer;

use crate::entry::entry;
use crate::pointers::{self, Discard, fl_discard};
use crate::queues::{Classes, Queues, flat};
use crate::status::fl_status::{self, *};
use crate::table::Table;
use crate::types::{
    FL_ETHERNET, FL_IP, Room, fl_flow, fl_flow_options, fl_link_options, fl_packet, fl_scheduler,
    fl_scheduler_options, fl_stats,
};

/// The name in errors of a file without a name.
const SITE: &str = "site";

struct Scheduler {
    queues: Box<dyn Queues>,
    discard: Discard,
}

static SCHEDULERS: Table<Scheduler> = Table::new(1);

/// Returns `given`, or `usual` if it is 0.
const fn or(given: u32, usual: u32) -> u32 {
    match given {
        0 => usual,
        given => given,
    }
}

impl fl_scheduler_options {
    fn limits(&self) -> SchedulerLimits {
        let usual = SchedulerLimits::default();
        SchedulerLimits {
            packets: or(self.packets, usual.packets),
            bytes: match self.bytes {
                0 => usual.bytes,
                bytes => bytes,
            },
            per_flow: Limits {
                packets: or(self.flow_packets, usual.per_flow.packets),
                bytes: or(self.flow_bytes, usual.per_flow.bytes),
            },
        }
    }
}

impl fl_flow_options {
    fn config(&self) -> Result<FlowConfig, fl_status> {
        let weight = Weight::new(self.weight).ok_or(FL_ERR_WEIGHT)?;
        let longest = Length::new(self.max_length).ok_or(FL_ERR_LENGTH)?;
        let limits = Limits {
            packets: or(self.packets, Limits::NONE.packets),
            bytes: or(self.bytes, Limits::NONE.bytes),
        };
        Ok(FlowConfig {
            limits: (self.packets != 0 || self.bytes != 0).then_some(limits),
            ..FlowConfig::new(weight, longest)
        })
    }
}

/// Creates a handle for queues.
///
/// # Safety
///
/// As for [`fl_scheduler_open`].
unsafe fn open(
    queues: Box<dyn Queues>,
    discard: fl_discard,
    argument: *mut c_void,
    to: *mut fl_scheduler,
) -> Result<(), fl_status> {
    // SAFETY: as the caller promises.
    let discard = unsafe { Discard::new(discard, argument) };
    let id = SCHEDULERS.open(Scheduler { queues, discard })?;
    // SAFETY: likewise.
    unsafe { pointers::put(to, fl_scheduler { id }) }
}

/// Opens a scheduler of flows, initially without flows.
///
/// # Safety
///
/// `options` and `scheduler` point to valid memory of their type; `discard` may be called with `argument` until the
/// scheduler is closed, from any thread that calls with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_scheduler_open(
    options: *const fl_scheduler_options,
    scheduler: *mut fl_scheduler,
) -> fl_status {
    entry(|| {
        // SAFETY: as the caller promises.
        unsafe { pointers::put(scheduler, fl_scheduler { id: 0 }) }?;
        // SAFETY: likewise.
        let options = unsafe { pointers::read_sized(options) }?;
        // SAFETY: likewise.
        let name = unsafe { pointers::text_if(options.algorithm) }?.unwrap_or("qfq");
        let algorithm = fairlane_config::algorithms::named(name).ok_or(FL_ERR_ALGORITHM)?;
        let algorithm = match NonZeroU32::new(options.aggregate) {
            Some(members) => algorithm.with_members(members),
            None => algorithm,
        };
        let queues = flat(algorithm, options.limits());
        // SAFETY: likewise.
        unsafe { open(queues, options.discard, options.argument, scheduler) }
    })
}

/// Opens a scheduler of the classes of a link. If the text is invalid, `why` receives a sentence with its line, of at
/// most `why_size` bytes with the zero, otherwise an empty one; it may be null. The caller must keep to the link's
/// rate.
///
/// # Safety
///
/// As for fl_scheduler_open; `why` points to `why_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_link_open(
    options: *const fl_link_options,
    scheduler: *mut fl_scheduler,
    why: *mut c_char,
    why_size: usize,
) -> fl_status {
    entry(|| {
        // SAFETY: as the caller promises.
        unsafe { pointers::say(why, why_size, &"") };
        // SAFETY: likewise.
        unsafe { pointers::put(scheduler, fl_scheduler { id: 0 }) }?;
        // SAFETY: likewise.
        let options = unsafe { pointers::read_sized(options) }?;
        // SAFETY: likewise.
        let text = unsafe { pointers::text(options.text) }?;
        // SAFETY: likewise.
        let name = unsafe { pointers::text_if(options.link) }?;
        let queues = match classes(text, name) {
            Ok(classes) => Box::new(classes),
            Err(sentence) => {
                // SAFETY: likewise.
                unsafe { pointers::say(why, why_size, &sentence) };
                return Err(FL_ERR_SITE);
            }
        };
        // SAFETY: likewise.
        unsafe { open(queues, options.discard, options.argument, scheduler) }
    })
}

fn classes(text: &str, name: Option<&str>) -> Result<Classes, String> {
    let site = Site::parse(text, SITE).map_err(|error| error.to_string())?;
    let mut links = site.links.iter();
    let link = match name {
        None => links.next(),
        Some(name) => links.find(|link| link.name == name),
    };
    let link = link.ok_or_else(|| format!("{SITE}: no link has the name that was asked for"))?;
    Ok(Classes::new(link))
}

/// Closes a scheduler, after discarding its queued packets. Every other call rejects a closed one.
#[unsafe(no_mangle)]
pub extern "C" fn fl_scheduler_close(scheduler: fl_scheduler) -> fl_status {
    entry(|| {
        SCHEDULERS.close(scheduler.id, |scheduler| {
            let Scheduler { queues, discard } = scheduler;
            queues.flush(discard);
        })
    })
}

/// Adds a flow, initially idle.
///
/// # Safety
///
/// `options` and `flow` point to valid memory of their type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_flow_add(
    scheduler: fl_scheduler,
    options: *const fl_flow_options,
    flow: *mut fl_flow,
) -> fl_status {
    entry(|| {
        // SAFETY: as the caller promises.
        unsafe { pointers::put(flow, 0) }?;
        // SAFETY: likewise.
        let config = unsafe { pointers::read_sized(options) }?.config()?;
        let added = SCHEDULERS.with(scheduler.id, |s| s.queues.add_flow(config))??;
        // SAFETY: likewise.
        unsafe { pointers::put(flow, added) }
    })
}

/// Changes a flow's weight, maximum length and limits; queued packets stay.
///
/// # Safety
///
/// `options` points to valid memory of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_flow_change(
    scheduler: fl_scheduler,
    flow: fl_flow,
    options: *const fl_flow_options,
) -> fl_status {
    entry(|| {
        // SAFETY: as the caller promises.
        let config = unsafe { pointers::read_sized(options) }?.config()?;
        SCHEDULERS.with(scheduler.id, |s| s.queues.change_flow(flow, config))?
    })
}

/// Removes a flow, and discards its queued packets.
#[unsafe(no_mangle)]
pub extern "C" fn fl_flow_remove(scheduler: fl_scheduler, flow: fl_flow) -> fl_status {
    entry(|| SCHEDULERS.with(scheduler.id, |s| s.queues.remove_flow(flow, &s.discard))?)
}

/// Finds the class of a link by its name in the file.
///
/// # Safety
///
/// `name` and `found` point to valid memory of their type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_class_find(
    scheduler: fl_scheduler,
    name: *const c_char,
    found: *mut fl_flow,
) -> fl_status {
    entry(|| {
        // SAFETY: as the caller promises.
        unsafe { pointers::put(found, 0) }?;
        // SAFETY: likewise.
        let name = unsafe { pointers::text(name) }?;
        let class = SCHEDULERS.with(scheduler.id, |s| s.queues.class(name))??;
        // SAFETY: likewise.
        unsafe { pointers::put(found, class) }
    })
}

/// Returns the class and the digest of a packet by the filters of its link, from the bytes of its frame, which begins
/// with the header that `layer` selects (FL_ETHERNET, FL_IP). A frame that matches no filter or is malformed is of the
/// default class.
///
/// # Safety
///
/// `frame` points to `length` bytes, `flow` and `digest` to numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_classify(
    scheduler: fl_scheduler,
    layer: u32,
    frame: *const c_void,
    length: usize,
    flow: *mut fl_flow,
    digest: *mut u64,
) -> fl_status {
    entry(|| {
        // SAFETY: as the caller promises.
        unsafe { pointers::put(flow, 0) }?;
        // SAFETY: likewise.
        unsafe { pointers::put(digest, 0) }?;
        let layer = match layer {
            FL_ETHERNET => Layer::Ethernet,
            FL_IP => Layer::Ip,
            _ => return Err(FL_ERR_LAYER),
        };
        // SAFETY: likewise.
        let frame = unsafe { pointers::array(frame.cast::<u8>(), length) }?;
        let found = SCHEDULERS.with(scheduler.id, |s| s.queues.classify(frame, layer))??;
        // SAFETY: likewise.
        unsafe { pointers::put(flow, found.0) }?;
        // SAFETY: likewise.
        unsafe { pointers::put(digest, found.1) }
    })
}

/// Enqueues a burst, in order. Each packet's status has its result; accepted packets belong to the scheduler, rejected
/// ones to the caller. `accepted` receives the number of accepted ones, and may be null. Returns FL_OK if all were
/// accepted, otherwise the reason why the first of the others was rejected; statuses are set unless `accepted` is 0 and
/// the code is about the call itself. `now` is the caller's clock in nanoseconds, which only classes use.
///
/// # Safety
///
/// `packets` points to `count` packets, `accepted` to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_enqueue(
    scheduler: fl_scheduler,
    now: u64,
    packets: *mut fl_packet,
    count: usize,
    accepted: *mut usize,
) -> fl_status {
    entry(|| {
        // SAFETY: as the caller promises.
        unsafe { pointers::put_if(accepted, 0) }?;
        // SAFETY: likewise.
        let packets = unsafe { pointers::array(packets.cast_const(), count) }?;
        let offered = SCHEDULERS.with(scheduler.id, |s| {
            s.queues.enqueue(packets, Nanos(now), &s.discard)
        })?;
        // SAFETY: likewise.
        unsafe { pointers::put_if(accepted, offered.accepted) }?;
        offered.rejected
    })
}

/// Dequeues at most `most` packets, which belong to the caller again; `count` receives their number. `again`, which may
/// be null, receives the time of the next call: 0 if there may be more at once, UINT64_MAX if no packet is queued,
/// otherwise the time until which ceilings hold all queued packets.
///
/// # Safety
///
/// `packets` points to room for `most` packets, `count` and `again` to numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_dequeue(
    scheduler: fl_scheduler,
    now: u64,
    packets: *mut fl_packet,
    most: usize,
    count: *mut usize,
    again: *mut u64,
) -> fl_status {
    entry(|| {
        // SAFETY: as the caller promises.
        unsafe { pointers::put(count, 0) }?;
        // SAFETY: likewise.
        unsafe { pointers::put_if(again, 0) }?;
        // SAFETY: likewise.
        let rooms = unsafe { pointers::array(packets.cast_const().cast::<Room>(), most) }?;
        let taken = SCHEDULERS.with(scheduler.id, |s| {
            s.queues.dequeue(rooms, Nanos(now), &s.discard)
        })?;
        // SAFETY: likewise.
        unsafe { pointers::put(count, taken.packets) }?;
        // SAFETY: likewise.
        unsafe { pointers::put_if(again, taken.again) }
    })
}

/// Returns the counters of a flow or a class, or of all (0).
///
/// # Safety
///
/// `stats` points to valid memory of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_stats_get(
    scheduler: fl_scheduler,
    flow: fl_flow,
    stats: *mut fl_stats,
) -> fl_status {
    entry(|| {
        let counted = SCHEDULERS.with(scheduler.id, |s| s.queues.stats(flow))??;
        // SAFETY: as the caller promises.
        unsafe { pointers::write_sized(stats, counted) }
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::mem::MaybeUninit;
    use std::ptr;

    use super::*;

    /// The argument of a callback: the scheduler, and the number of calls.
    struct Told {
        scheduler: Cell<fl_scheduler>,
        packets: Cell<usize>,
    }

    unsafe extern "C" fn told(argument: *mut c_void, packet: *const fl_packet) {
        // SAFETY: it was given with the callback, and lives until the scheduler is closed.
        let told = unsafe { &*argument.cast::<Told>() };
        // SAFETY: the packet is valid until this returns.
        let packet = unsafe { &*packet };
        // SAFETY: the library has set it.
        let status = unsafe { packet.status.get().assume_init() };
        assert_eq!(status, FL_ERR_FLUSHED as i32);
        assert_eq!(fl_scheduler_close(told.scheduler.get()), FL_ERR_BUSY);
        told.packets.set(told.packets.get() + 1);
    }

    /// For Miri, which cannot run C: a burst in and out of memory that was never written.
    #[test]
    fn a_burst_goes_in_and_out_and_what_is_left_is_told() {
        let told_of = Told {
            scheduler: Cell::new(fl_scheduler { id: 0 }),
            packets: Cell::new(0),
        };
        let options = fl_scheduler_options {
            size: size_of::<fl_scheduler_options>(),
            algorithm: c"drr".as_ptr(),
            aggregate: 0,
            packets: 0,
            bytes: 0,
            flow_packets: 0,
            flow_bytes: 0,
            discard: Some(told),
            argument: ptr::from_ref(&told_of).cast_mut().cast(),
        };
        let config = fl_flow_options {
            size: size_of::<fl_flow_options>(),
            weight: 1,
            max_length: 100,
            packets: 0,
            bytes: 0,
        };
        let (mut link, mut flow, mut count) = (fl_scheduler { id: 0 }, 0, 0);
        let mut data = [1, 2, 3];
        let mut out = [const { MaybeUninit::<fl_packet>::uninit() }; 2];
        // SAFETY: all pointers are valid until the end of this function, and of the right type.
        unsafe {
            assert_eq!(fl_scheduler_open(&options, &mut link), FL_OK);
            assert_eq!(fl_flow_add(link, &config, &mut flow), FL_OK);
            let length = Length::new(100).unwrap();
            let mut burst = data.each_mut().map(|data| {
                let data = ptr::from_mut(data).expose_provenance();
                fl_packet::new(data, flow, length, FL_OK)
            });
            let offered = fl_enqueue(link, 0, burst.as_mut_ptr(), 3, &mut count);
            assert_eq!((offered, count), (FL_OK, 3));
            let to = out.as_mut_ptr().cast();
            let taken = fl_dequeue(link, 0, to, 2, &mut count, ptr::null_mut());
            assert_eq!((taken, count), (FL_OK, 2));
            for (packet, wanted) in out.iter().zip([1, 2]) {
                let packet = packet.assume_init_ref();
                assert_eq!(packet.data.get().cast::<i32>().read(), wanted);
            }
        }
        told_of.scheduler.set(link);
        assert_eq!(fl_scheduler_close(link), FL_OK);
        assert_eq!(told_of.packets.get(), 1);
    }
}
