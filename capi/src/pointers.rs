//! C's memory: what it points to is copied before it is looked at, or seen as cells.

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
    /// What it was when it was first published: nobody was told of a smaller one.
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

/// The size that a struct begins with, if it may be one.
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

/// A copy of C's struct. Members that it is too old to have are 0; those that this library is too old
/// to know must be.
///
/// # Safety
///
/// `given` points to as much memory as it says, unless it is null or not aligned.
pub(crate) unsafe fn read_sized<T: BySize>(given: *const T) -> Result<T, fl_status> {
    // SAFETY: as the caller promises.
    let size = unsafe { size_of_given(given) }?;
    let known = size.min(size_of::<T>());
    let mut copy = MaybeUninit::<T>::zeroed();
    // SAFETY: there are `size` bytes to read, and no less room than `known` in a copy of its own.
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

/// Fills in C's struct as far as it goes; its size stays what it is, and what it has beyond becomes 0.
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

/// C's array, if it has so many elements.
///
/// # Safety
///
/// `first` points to `count` elements, which are there for `'a` and which nobody writes to, unless they are
/// cells and it is the thread that calls; or it is null or not aligned.
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

/// C's text.
///
/// # Safety
///
/// `text` points to bytes that end with a zero, which are there for `'a` and which nobody writes to; or
/// it is null.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, fl_status> {
    check(text)?;
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| FL_ERR_TEXT)
}

/// The same of one that may be null.
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

/// Where a result goes.
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

/// Where a result goes that need not be asked for: `to` may be null.
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

/// A sentence for a person, ended by a zero; what is too long is cut off. Nothing is written where there
/// is no room, or `to` is null.
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
    // SAFETY: there is room for `size` bytes, one more than the sentence has at most, and it is ours.
    unsafe { ptr::copy_nonoverlapping(sentence.as_ptr(), to.cast::<u8>(), sentence.len()) };
    // SAFETY: likewise.
    unsafe { to.add(sentence.len()).write(0) };
}

/// The beginning of a text, of so many bytes at most.
pub(crate) fn until(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Told of a packet that was accepted and will not come out: it is the caller's again, and packet->status says
/// why. packet is there until the callback returns. What is called with the same scheduler meanwhile returns
/// FL_ERR_BUSY. It must return: no longjmp, no exception.
pub type fl_discard = Option<unsafe extern "C" fn(argument: *mut c_void, packet: *const fl_packet)>;

/// Who is told of packets that are discarded.
#[derive(Clone, Copy)]
pub(crate) struct Discard {
    call: fl_discard,
    /// C's pointer, as a number: nobody here follows it.
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
            // SAFETY: as who made this promised; the packet is there until the call returns.
            unsafe { call(argument, packet) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flow's options as a later version might have them.
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
        // SAFETY: it is as large as the largest size that is given here and may be one.
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
