//! Memory of C: copied before it is used, or accessed as cells.

use std::ffi::{CStr, c_char, c_void};
use std::fmt::Display;
use std::mem::MaybeUninit;
use std::{ptr, slice};

use crate::status::fl_status::{self, *};
use crate::types::{
    fl_client_info, fl_flow_options, fl_link_options, fl_packet, fl_scheduler_options, fl_stats,
};

/// A struct of C that begins with its own size, so that members can be added at its end.
///
/// # Safety
///
/// Its layout is C's, its first member is a `usize`, and all zeros are a value of it.
pub(crate) unsafe trait BySize: Copy {
    /// The size in the first published version: no caller has a smaller one.
    const FIRST: usize = size_of::<Self>();
}

// SAFETY: each is `repr(C)`, begins with `size: usize`, and has integers, pointers and nullable functions.
unsafe impl BySize for fl_scheduler_options {}
// SAFETY: likewise.
unsafe impl BySize for fl_link_options {}
// SAFETY: likewise.
unsafe impl BySize for fl_flow_options {}
// SAFETY: likewise.
unsafe impl BySize for fl_stats {}
// SAFETY: likewise.
unsafe impl BySize for fl_client_info {}

/// No struct is larger.
const MOST_SIZE: usize = 4096;

/// Returns the size that a struct begins with, if it is valid.
///
/// # Safety
///
/// `given` points to as much memory as it says, unless it is null or not aligned.
unsafe fn size_of_given<T: BySize>(given: *const T) -> Result<usize, fl_status> {
    check(given)?;
    // SAFETY: it is aligned, and begins with its size.
    let size = unsafe { given.cast::<usize>().read() };
    match size {
        size if (T::FIRST..=MOST_SIZE).contains(&size) => Ok(size),
        _ => Err(FL_ERR_SIZE),
    }
}

fn check<T>(pointer: *const T) -> Result<(), fl_status> {
    match pointer.is_null() || !pointer.is_aligned() {
        true => Err(FL_ERR_POINTER),
        false => Ok(()),
    }
}

/// Returns a copy of C's struct. Members that it is too old to have are 0; members that this library is too old to know
/// must be 0.
///
/// # Safety
///
/// `given` points to as much memory as it says, unless it is null or not aligned.
pub(crate) unsafe fn read_sized<T: BySize>(given: *const T) -> Result<T, fl_status> {
    // SAFETY: as the caller promises.
    let size = unsafe { size_of_given(given) }?;
    let known = size.min(size_of::<T>());
    let mut copy = MaybeUninit::<T>::zeroed();
    // SAFETY: there are `size` bytes to read, and at least `known` bytes in the copy.
    unsafe { ptr::copy_nonoverlapping(given.cast::<u8>(), copy.as_mut_ptr().cast(), known) };
    for beyond in known..size {
        // SAFETY: there are `size` bytes to read.
        if unsafe { given.cast::<u8>().add(beyond).read() } != 0 {
            return Err(FL_ERR_SIZE);
        }
    }
    // SAFETY: all zeros are a value of it, and so is what C wrote: integers, pointers and functions.
    Ok(unsafe { copy.assume_init() })
}

/// Fills in C's struct up to its size, which stays unchanged; unknown members become 0.
///
/// # Safety
///
/// `given` points to as much memory as it says, unless it is null or not aligned.
pub(crate) unsafe fn write_sized<T: BySize>(given: *mut T, value: T) -> Result<(), fl_status> {
    // SAFETY: as the caller promises.
    let size = unsafe { size_of_given(given) }?;
    let known = size.min(size_of::<T>());
    let first = size_of::<usize>();
    let (from, to) = (ptr::from_ref(&value).cast::<u8>(), given.cast::<u8>());
    // SAFETY: there are `size` bytes to write, no less than `known` to read, and `first` of either.
    unsafe { ptr::copy_nonoverlapping(from.add(first), to.add(first), known - first) };
    // SAFETY: there are `size` bytes to write.
    unsafe { ptr::write_bytes(to.add(known), 0, size - known) };
    Ok(())
}

/// Returns C's array of `count` elements.
///
/// # Safety
///
/// `first` points to `count` elements, which live for `'a` and are not written, except by the calling thread if they
/// are cells; or it is null or not aligned.
#[inline]
pub(crate) unsafe fn array<'a, T>(first: *const T, count: usize) -> Result<&'a [T], fl_status> {
    if count == 0 {
        return Ok(&[]);
    }
    check(first)?;
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(FL_ERR_LENGTH);
    }
    // SAFETY: it is neither null nor misaligned nor too long, and the rest is the caller's promise.
    Ok(unsafe { slice::from_raw_parts(first, count) })
}

/// Returns C's text.
///
/// # Safety
///
/// `text` points to bytes that end with a zero, which live for `'a` and are not written; or it is null.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, fl_status> {
    check(text)?;
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| FL_ERR_TEXT)
}

/// Returns C's text, which may be null.
///
/// # Safety
///
/// As [`text`].
pub(crate) unsafe fn text_if<'a>(given: *const c_char) -> Result<Option<&'a str>, fl_status> {
    match given.is_null() {
        true => Ok(None),
        // SAFETY: as the caller promises.
        false => unsafe { text(given) }.map(Some),
    }
}

/// Stores a result.
///
/// # Safety
///
/// `to` points to memory for a value, unless it is null or not aligned.
#[inline]
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), fl_status> {
    check(to)?;
    // SAFETY: as the caller promises.
    unsafe { to.write(value) };
    Ok(())
}

/// Stores an optional result: `to` may be null.
///
/// # Safety
///
/// As [`put`].
#[inline]
pub(crate) unsafe fn put_if<T>(to: *mut T, value: T) -> Result<(), fl_status> {
    match to.is_null() {
        true => Ok(()),
        // SAFETY: as the caller promises.
        false => unsafe { put(to, value) },
    }
}

/// Stores a sentence for the user, ended by a zero, truncated to the size. Writes nothing if the size is 0 or `to` is
/// null.
///
/// # Safety
///
/// `to` points to memory for `size` bytes, unless it is null.
pub(crate) unsafe fn say(to: *mut c_char, size: usize, sentence: &dyn Display) {
    if to.is_null() || size == 0 {
        return;
    }
    let sentence = sentence.to_string();
    let sentence = until(&sentence, size - 1);
    // SAFETY: there is room for `size` bytes, at least one more than the sentence has, and it does not overlap.
    unsafe { ptr::copy_nonoverlapping(sentence.as_ptr(), to.cast::<u8>(), sentence.len()) };
    // SAFETY: likewise.
    unsafe { to.add(sentence.len()).write(0) };
}

/// Returns the beginning of a text, of at most `most` bytes.
pub(crate) fn until(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Called for a packet that was accepted and will not be dequeued: it belongs to the caller again, and packet->status
/// has the reason. packet is valid until the callback returns. Calls with the same scheduler meanwhile return
/// FL_ERR_BUSY. It must return: no longjmp, no exception.
pub type fl_discard = Option<unsafe extern "C" fn(argument: *mut c_void, packet: *const fl_packet)>;

/// The callback for discarded packets.
#[derive(Clone, Copy)]
pub(crate) struct Discard {
    call: fl_discard,
    /// C's pointer, as a number: it is never dereferenced here.
    argument: usize,
}

impl Discard {
    /// # Safety
    ///
    /// For as long as this is used, `call` may be called with `argument`, from any thread.
    pub(crate) unsafe fn new(call: fl_discard, argument: *mut c_void) -> Self {
        let argument = argument.expose_provenance();
        Discard { call, argument }
    }

    pub(crate) fn tell(&self, packet: &fl_packet) {
        if let Some(call) = self.call {
            let argument = ptr::with_exposed_provenance_mut(self.argument);
            // SAFETY: as the caller of `new` promised; the packet is valid until the call returns.
            unsafe { call(argument, packet) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flow's options of a possible later version.
    #[repr(C)]
    struct Later {
        known: fl_flow_options,
        added: u64,
    }

    fn later(size: usize, added: u64) -> Result<u32, fl_status> {
        let known = fl_flow_options {
            size,
            weight: 5,
            max_length: 1,
            packets: 0,
            bytes: 0,
        };
        let later = Later { known, added };
        // SAFETY: it is as large as the largest valid size that this test uses.
        let read = unsafe { read_sized(ptr::from_ref(&later).cast::<fl_flow_options>()) };
        read.map(|options| options.weight)
    }

    #[test]
    fn a_later_struct_is_read_if_it_says_nothing_that_is_not_known() {
        assert_eq!(later(size_of::<fl_flow_options>(), 9), Ok(5));
        assert_eq!(later(size_of::<Later>(), 0), Ok(5));
        assert_eq!(later(size_of::<Later>(), 1 << 56), Err(FL_ERR_SIZE));
        for size in [
            0,
            8,
            size_of::<fl_flow_options>() - 1,
            MOST_SIZE + 1,
            usize::MAX,
        ] {
            assert_eq!(later(size, 0), Err(FL_ERR_SIZE), "{size}");
        }
    }

    #[test]
    fn a_sentence_is_cut_off_between_two_characters() {
        assert_eq!(until("für", 2), "f");
        assert_eq!(until("für", 3), "fü");
        assert_eq!(until("für", 100), "für");
        let mut buffer = [1; 4];
        // SAFETY: there is room for four bytes.
        unsafe { say(buffer.as_mut_ptr(), 3, &"für") };
        assert_eq!(buffer, [b'f'.cast_signed(), 0, 1, 1]);
    }
}
