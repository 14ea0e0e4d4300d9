//! Clients of a daemon, from C.

use std::ffi::c_char;

use fairlane_runtime::attach::{ConnectError, ProcessClient, PushRefused, connect};

use crate::entry::entry;
use crate::pointers;
use crate::status::fl_status::{self, *};
use crate::table::Table;
use crate::types::{fl_bytes, fl_client, fl_client_info};

static CLIENTS: Table<ProcessClient> = Table::new(2);

/// Attaches to the daemon that listens at a socket, as one client. Waits at most five seconds for its answer. If there
/// is none, or a rejection, `why` receives a sentence of at most `why_size` bytes with the zero, otherwise an empty
/// one; it may be null. Linux only, like all of fl_client.
///
/// # Safety
///
/// `socket` and `client` point to valid memory of their type, `why` to `why_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_client_open(
    socket: *const c_char,
    client: *mut fl_client,
    why: *mut c_char,
    why_size: usize,
) -> fl_status {
    entry(|| {
        // SAFETY: as the caller promises.
        unsafe { pointers::say(why, why_size, &"") };
        // SAFETY: likewise.
        unsafe { pointers::put(client, fl_client { id: 0 }) }?;
        // SAFETY: likewise.
        let socket = unsafe { pointers::text(socket) }?;
        let attached = connect(socket).map_err(|error| {
            // SAFETY: likewise.
            unsafe { pointers::say(why, why_size, &error) };
            match error {
                ConnectError::Unreachable { .. } => FL_ERR_UNREACHABLE,
                ConnectError::Refused(_) => FL_ERR_REFUSED,
                _ => FL_ERR_ANSWER,
            }
        })?;
        let id = CLIENTS.open(attached)?;
        // SAFETY: likewise.
        unsafe { pointers::put(client, fl_client { id }) }
    })
}

/// Pushes packets into the client's mailbox, in order, until one is rejected; `pushed` receives their number, and may
/// be null. Never waits. Each is copied. Returns FL_OK if all were pushed, otherwise the reason for the next one:
/// FL_ERR_MAILBOX_FULL, FL_ERR_GONE, FL_ERR_LENGTH (it is empty), FL_ERR_TOO_LONG (for its class).
///
/// # Safety
///
/// `packets` points to `count` of them, each of these to its bytes; `pushed` to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_client_push(
    client: fl_client,
    packets: *const fl_bytes,
    count: usize,
    pushed: *mut usize,
) -> fl_status {
    entry(|| {
        // SAFETY: as the caller promises.
        unsafe { pointers::put_if(pushed, 0) }?;
        // SAFETY: likewise.
        let packets = unsafe { pointers::array(packets, count) }?;
        let mut done = 0;
        let result = CLIENTS.with(client.id, |client| {
            for packet in packets {
                // SAFETY: likewise.
                let bytes = unsafe { pointers::array(packet.data.cast::<u8>(), packet.length) }?;
                client.push(bytes).map_err(|refused| match refused {
                    PushRefused::Full => FL_ERR_MAILBOX_FULL,
                    PushRefused::Length { given: 0, .. } => FL_ERR_LENGTH,
                    PushRefused::Length { .. } => FL_ERR_TOO_LONG,
                    _ => FL_ERR_GONE,
                })?;
                done += 1;
            }
            Ok(())
        })?;
        // SAFETY: likewise.
        unsafe { pointers::put_if(pushed, done) }?;
        result
    })
}

/// Returns the properties of a client and the daemon's counters for it. Costs a system call.
///
/// # Safety
///
/// `info` points to valid memory of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_client_get(client: fl_client, info: *mut fl_client_info) -> fl_status {
    entry(|| {
        let told = CLIENTS.with(client.id, |client| {
            let told = client.told();
            let mut class_name = [0; 64];
            let name = pointers::until(client.class(), class_name.len() - 1);
            for (to, from) in class_name.iter_mut().zip(name.bytes()) {
                *to = from as c_char;
            }
            fl_client_info {
                size: size_of::<fl_client_info>(),
                weight: client.weight().get(),
                max_length: client.max_length().get(),
                capacity: client.capacity() as u64,
                taken: told.accepted,
                dropped: told.dropped,
                gone: u32::from(client.is_abandoned()),
                reserved: 0,
                class_name,
            }
        })?;
        // SAFETY: as the caller promises.
        unsafe { pointers::write_sized(info, told) }
    })
}

/// Detaches from the daemon, which still sends the pushed packets.
#[unsafe(no_mangle)]
pub extern "C" fn fl_client_close(client: fl_client) -> fl_status {
    entry(|| CLIENTS.close(client.id, |_| ()))
}
