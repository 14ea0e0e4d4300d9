//! Classifies socket errors by their meaning for the packets, and contains the loops that act on
//! them.
//!
//! Separate from the system calls so that tests can try every answer of the kernel.

use std::collections::VecDeque;
use std::io;

/// How often in a row the kernel may complain before the datagram at the front is held to be the
/// cause.
///
/// A socket reports what became of an *earlier* datagram (an ICMP message) as the error of the
/// next call, whatever that call does; the report is then gone and the same call succeeds. The
/// datagram's own fault stays. The third attempt is for a report that arrives between two.
pub(crate) const ATTEMPTS: u32 = 3;

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// A signal came first.
    Interrupted,
    /// No room to send, or nothing to receive.
    Later,
    /// About one datagram, this one or an earlier one.
    Complaint,
    /// About the socket or the device.
    Fatal,
}

/// Returns an error that is not known falls to `Fatal`: it keeps the packets and is seen, where a
/// wrong `Complaint` would throw away a whole queue in silence.
fn judge(error: &io::Error) -> Verdict {
    match error.raw_os_error() {
        Some(libc::EINTR) => Verdict::Interrupted,
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Verdict::Later,
        Some(
            libc::EMSGSIZE
            | libc::EPERM
            | libc::EACCES
            | libc::EINVAL
            | libc::EAFNOSUPPORT
            | libc::EADDRNOTAVAIL
            | libc::ECONNREFUSED
            | libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::ENOPROTOOPT
            | libc::EPROTO,
        ) => Verdict::Complaint,
        _ => Verdict::Fatal,
    }
}

/// Sends `batch` by repeated calls of `send`, which is to try a run of packets from the front and
/// return how many were taken. Returns how many were accepted and adds to `refused`.
pub(crate) fn transmit<F>(
    batch: &mut VecDeque<F>,
    refused: &mut u64,
    mut send: impl FnMut(&VecDeque<F>) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut accepted = 0;
    let mut complaints = 0;
    while !batch.is_empty() {
        match send(batch) {
            Ok(0) => break,
            Ok(count) => {
                batch.drain(..count);
                accepted += count;
                complaints = 0;
            }
            Err(error) => match judge(&error) {
                Verdict::Interrupted => {}
                Verdict::Later => break,
                Verdict::Complaint => {
                    complaints += 1;
                    if complaints == ATTEMPTS {
                        batch.pop_front();
                        *refused += 1;
                        complaints = 0;
                    }
                }
                Verdict::Fatal if accepted > 0 => break,
                Verdict::Fatal => return Err(error),
            },
        }
    }
    Ok(accepted)
}

/// Receives until `max` datagrams are there or the queue is empty, by repeated calls of `take`.
///
/// `take(room)` must make one attempt at up to `room` datagrams and return how many it requested,
/// how many arrived, and how many of those were delivered.
pub(crate) fn receive(
    max: usize,
    mut take: impl FnMut(usize) -> io::Result<Taken>,
) -> io::Result<usize> {
    let mut delivered = 0;
    let mut complaints = 0;
    while delivered < max {
        match take(max - delivered) {
            Ok(taken) => {
                delivered += taken.delivered;
                complaints = 0;
                // Fewer than requested: the queue is empty, and another call would only confirm
                // that.
                if taken.came < taken.asked {
                    break;
                }
            }
            Err(error) => match judge(&error) {
                Verdict::Interrupted => {}
                Verdict::Later => break,
                Verdict::Complaint if complaints + 1 < ATTEMPTS => complaints += 1,
                Verdict::Complaint | Verdict::Fatal if delivered > 0 => break,
                Verdict::Complaint | Verdict::Fatal => return Err(error),
            },
        }
    }
    Ok(delivered)
}

/// The outcome of one attempt to receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) asked: usize,
    pub(crate) came: usize,
    /// At most `came`: the others were dropped.
    pub(crate) delivered: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn errno(code: i32) -> io::Error {
        io::Error::from_raw_os_error(code)
    }

    /// Offers 0, 1, .. to a kernel that gives these answers and then takes nothing more.
    fn offer(
        packets: u32,
        answers: &[Result<usize, i32>],
    ) -> (io::Result<usize>, u64, VecDeque<u32>, Vec<u32>) {
        let mut batch: VecDeque<u32> = (0..packets).collect();
        let mut refused = 0;
        let mut taken = Vec::new();
        let mut answers = answers.iter();
        let result = transmit(&mut batch, &mut refused, |batch| match answers.next() {
            Some(Ok(count)) => {
                let count = (*count).min(batch.len());
                taken.extend(batch.iter().take(count));
                Ok(count)
            }
            Some(Err(code)) => Err(errno(*code)),
            None => Err(errno(libc::EAGAIN)),
        });
        (result, refused, batch, taken)
    }

    #[test]
    fn a_full_device_leaves_the_rest_in_order() {
        for full in [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM] {
            let (result, refused, left, taken) = offer(5, &[Ok(2), Err(full), Ok(3)]);
            assert_eq!(result.unwrap(), 2);
            assert_eq!(refused, 0);
            assert_eq!(left, [2, 3, 4]);
            assert_eq!(taken, [0, 1]);
        }
    }

    #[test]
    fn a_device_full_from_the_start_takes_nothing_and_is_no_error() {
        let (result, refused, left, _) = offer(3, &[Err(libc::EAGAIN)]);
        assert_eq!((result.unwrap(), refused, left.len()), (0, 0, 3));
    }

    #[test]
    fn a_kernel_that_takes_nothing_without_an_error_ends_the_call() {
        let (result, refused, left, _) = offer(3, &[Ok(0), Ok(3)]);
        assert_eq!((result.unwrap(), refused, left.len()), (0, 0, 3));
    }

    #[test]
    fn an_interrupted_call_is_made_again() {
        let interrupted = [Err(libc::EINTR); 20];
        let (result, refused, left, _) = offer(3, &[&interrupted[..], &[Ok(3)]].concat());
        assert_eq!((result.unwrap(), refused, left.len()), (3, 0, 0));
    }

    #[test]
    fn a_report_about_an_earlier_datagram_costs_the_present_one_nothing() {
        let report = Err(libc::ECONNREFUSED);
        let (result, refused, left, taken) =
            offer(4, &[Ok(1), report, Ok(1), report, report, Ok(2)]);
        assert_eq!((result.unwrap(), refused, left.len()), (4, 0, 0));
        assert_eq!(taken, [0, 1, 2, 3]);
    }

    #[test]
    fn a_datagram_complained_of_three_times_running_is_refused_and_the_rest_go_on() {
        let complaint = Err(libc::EMSGSIZE);
        let (result, refused, left, taken) =
            offer(4, &[Ok(1), complaint, complaint, complaint, Ok(2)]);
        assert_eq!((result.unwrap(), refused, left.len()), (3, 1, 0));
        assert_eq!(taken, [0, 2, 3]);
    }

    #[test]
    fn the_complaints_of_one_datagram_do_not_count_against_the_next() {
        let complaint = Err(libc::EPERM);
        let (result, refused, _, taken) = offer(
            3,
            &[
                complaint,
                complaint,
                Ok(1),
                complaint,
                complaint,
                complaint,
                complaint,
                complaint,
                Ok(1),
            ],
        );
        assert_eq!((result.unwrap(), refused), (2, 1));
        assert_eq!(taken, [0, 2]);
    }

    #[test]
    fn a_fatal_error_is_reported_and_leaves_the_batch_alone() {
        for fatal in [libc::EBADF, libc::ENETDOWN, libc::EPIPE, libc::ENOTSOCK] {
            let (result, refused, left, _) = offer(3, &[Err(fatal), Ok(3)]);
            assert_eq!(result.unwrap_err().raw_os_error(), Some(fatal));
            assert_eq!(refused, 0);
            assert_eq!(left, [0, 1, 2]);
        }
    }

    #[test]
    fn a_fatal_error_behind_accepted_packets_waits_for_the_next_call() {
        let (result, _, left, _) = offer(3, &[Ok(1), Err(libc::ENETDOWN)]);
        assert_eq!(result.unwrap(), 1);
        assert_eq!(left, [1, 2]);
    }

    /// Receives at most `max` from a kernel that gives these answers, each `(came, delivered)`.
    fn collect(
        max: usize,
        answers: &[Result<(usize, usize), i32>],
    ) -> (io::Result<usize>, Vec<usize>) {
        let mut asked = Vec::new();
        let mut answers = answers.iter();
        let result = receive(max, |room| {
            asked.push(room.min(64));
            match answers.next() {
                Some(&Ok((came, delivered))) => Ok(Taken {
                    asked: room.min(64),
                    came,
                    delivered,
                }),
                Some(&Err(code)) => Err(errno(code)),
                None => Err(errno(libc::EAGAIN)),
            }
        });
        (result, asked)
    }

    #[test]
    fn receiving_goes_on_until_the_room_is_used() {
        let (result, asked) = collect(100, &[Ok((64, 64)), Ok((36, 36))]);
        assert_eq!(result.unwrap(), 100);
        assert_eq!(asked, [64, 36]);
    }

    #[test]
    fn receiving_stops_after_a_short_answer() {
        let (result, asked) = collect(100, &[Ok((64, 64)), Ok((5, 5)), Ok((31, 31))]);
        assert_eq!(result.unwrap(), 69);
        assert_eq!(asked, [64, 36]);
    }

    #[test]
    fn datagrams_thrown_away_do_not_end_the_reception() {
        let (result, asked) = collect(10, &[Ok((10, 8)), Ok((2, 2))]);
        assert_eq!(result.unwrap(), 10);
        assert_eq!(asked, [10, 2]);
    }

    #[test]
    fn a_report_about_something_sent_does_not_end_the_reception() {
        let (result, _) = collect(10, &[Err(libc::ECONNREFUSED), Ok((4, 4))]);
        assert_eq!(result.unwrap(), 4);
    }

    #[test]
    fn complaints_without_end_are_an_error_rather_than_an_endless_loop() {
        let (result, asked) = collect(10, &[Err(libc::EINVAL); 10]);
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(asked.len(), ATTEMPTS as usize);
    }

    #[test]
    fn an_error_behind_received_datagrams_waits_for_the_next_call() {
        let (result, _) = collect(100, &[Ok((64, 64)), Err(libc::EBADF)]);
        assert_eq!(result.unwrap(), 64);
        let (result, _) = collect(100, &[Err(libc::EBADF)]);
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    fn answer() -> impl Strategy<Value = Result<usize, i32>> {
        prop_oneof![
            4 => (1..5_usize).prop_map(Ok),
            1 => Just(Err(libc::EINTR)),
            1 => Just(Err(libc::EAGAIN)),
            4 => Just(Err(libc::EMSGSIZE)),
            4 => Just(Err(libc::ECONNREFUSED)),
            1 => Just(Err(libc::ENETDOWN)),
        ]
    }

    proptest! {
        #[test]
        fn whatever_the_kernel_answers_accepted_refused_and_left_make_up_what_was_offered(
            packets in 0..40_u32,
            answers in prop::collection::vec(answer(), 0..40),
        ) {
            let (result, refused, left, taken) = offer(packets, &answers);
            prop_assert_eq!(
                taken.len() + refused as usize + left.len(),
                packets as usize
            );
            prop_assert!(left.iter().copied().eq(packets - left.len() as u32..packets));
            prop_assert!(taken.is_sorted());
            prop_assert!(taken.last().is_none_or(|last| left.front().is_none_or(|next| last < next)));
            match result {
                Ok(accepted) => prop_assert_eq!(accepted, taken.len()),
                Err(_) => prop_assert!(taken.is_empty()),
            }
        }
    }
}
