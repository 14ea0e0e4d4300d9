//! Which datagrams go to the kernel as one message that it cuts again: UDP segmentation offload.
//!
//! Kept apart from the system calls so that every answer the kernel could give can be tried.

use std::io;

use crate::MAX_DATAGRAM;

/// Consecutive datagrams to one peer that make one message: all of one length, the last perhaps shorter. An empty
/// datagram is a run of its own, for the kernel could not detect it in a longer one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// Of the first and, unless it is alone, of all but the last.
    length: usize,
    datagrams: usize,
    bytes: usize,
    /// The last was shorter.
    ended: bool,
}

impl Run {
    /// Returns the first of a run.
    pub(crate) fn of(length: usize) -> Self {
        Self {
            length,
            datagrams: 1,
            bytes: length,
            ended: false,
        }
    }

    /// Takes one more of `length` bytes to the same peer, if datagrams of up to `longest` bytes may be
    /// cut from a message and this one can; whether it did.
    pub(crate) fn takes(&mut self, length: usize, longest: usize) -> bool {
        let fits = !self.ended
            && self.length <= longest
            && (1..=self.length).contains(&length)
            && self.bytes + length <= MAX_DATAGRAM;
        if fits {
            self.datagrams += 1;
            self.bytes += length;
            self.ended = length < self.length;
        }
        fits
    }

    pub(crate) fn datagrams(&self) -> usize {
        self.datagrams
    }

    /// Of each datagram but the last, if the kernel is to cut there.
    pub(crate) fn cut(&self) -> Option<u16> {
        let length = u16::try_from(self.length).ok()?;
        (self.datagrams > 1).then_some(length)
    }
}

/// The datagrams that were not transmitted, and the error.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub(crate) error: io::Error,
    /// The message at the front.
    pub(crate) front: Run,
}

/// State of the kernel's segmentation on one socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segmentation {
    /// Longest datagram that may be cut from a message; 0 if none may be.
    longest: usize,
}

impl Segmentation {
    pub(crate) fn new(possible: bool) -> Self {
        Self {
            longest: if possible { MAX_DATAGRAM } else { 0 },
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.longest > 0
    }

    /// For one batch.
    pub(crate) fn sending(&mut self) -> Sending<'_> {
        Sending {
            longest: &mut self.longest,
            alone_until: usize::MAX,
        }
    }
}

/// The calls that send one batch. A message of several datagrams that the kernel does not take goes
/// again at once, each datagram by itself: so what becomes of them, and how often the kernel must have
/// complained of one before it is refused, is as without segmentation.
#[derive(Debug)]
pub(crate) struct Sending<'a> {
    longest: &'a mut usize,
    /// Datagrams are transmitted one by one until only this many are left.
    alone_until: usize,
}

impl Sending<'_> {
    /// Sends from the front of `left` datagrams by `send(most, longest)`: `most` of them at most, and as
    /// one message what [`Run::takes`].
    pub(crate) fn attempt(
        &mut self,
        left: usize,
        mut send: impl FnMut(usize, usize) -> Result<usize, Unsent>,
    ) -> io::Result<usize> {
        let mut doubtful = None;
        if left <= self.alone_until {
            match send(left, *self.longest) {
                Ok(sent) => return Ok(sent),
                Err(unsent) => {
                    let code = unsent.error.raw_os_error();
                    let again = matches!(code, Some(libc::EINTR | libc::EAGAIN));
                    if again || unsent.front.datagrams == 1 {
                        return Err(unsent.error);
                    }
                    self.alone_until = left - unsent.front.datagrams;
                    match code {
                        // Longer than the way's MTU has room for.
                        Some(libc::EMSGSIZE) => *self.longest = unsent.front.length - 1,
                        // That too, in older kernels; or a fault of the datagrams, which they have by themselves too.
                        Some(libc::EINVAL) => doubtful = Some(unsent.front.length),
                        // The way has none.
                        Some(libc::EIO) => *self.longest = 0,
                        _ => {}
                    }
                }
            }
        }
        let sent = send(left - self.alone_until, 0).map_err(|unsent| unsent.error)?;
        if let Some(length) = doubtful {
            *self.longest = length - 1;
        }
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// The runs that datagrams of these peers and lengths make.
    fn runs(datagrams: &[(u8, usize)], longest: usize) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut last = None;
        for &(peer, length) in datagrams {
            let joins = last == Some(peer)
                && (runs.last_mut()).is_some_and(|run| run.takes(length, longest));
            if !joins {
                runs.push(Run::of(length));
                last = Some(peer);
            }
        }
        runs
    }

    fn counts(lengths: &[usize]) -> Vec<usize> {
        let datagrams: Vec<_> = lengths.iter().map(|&length| (0, length)).collect();
        let runs = runs(&datagrams, MAX_DATAGRAM);
        runs.iter().map(Run::datagrams).collect()
    }

    #[test]
    fn a_run_is_of_one_length_and_ends_with_a_shorter_one() {
        assert_eq!(counts(&[9, 9, 9]), [3]);
        assert_eq!(counts(&[9, 9, 8, 8, 8]), [3, 2]);
        assert_eq!(counts(&[8, 9, 9]), [1, 2]);
        assert_eq!(counts(&[9, 8, 9]), [2, 1]);
    }

    #[test]
    fn an_empty_datagram_is_in_no_run() {
        assert_eq!(counts(&[0, 0, 5, 0, 5]), [1, 1, 1, 1, 1]);
    }

    #[test]
    fn a_message_is_no_longer_than_a_datagram_may_be() {
        let half = MAX_DATAGRAM / 2;
        assert_eq!(counts(&[half, half, half]), [2, 1]);
        assert_eq!(counts(&[half + 1, half]), [2]);
        assert_eq!(counts(&[half + 1, half + 1]), [1, 1]);
        assert_eq!(counts(&[1 << 20, 5]), [1, 1]);
    }

    #[test]
    fn a_run_has_one_peer_and_no_datagram_that_is_too_long_to_cut() {
        let datagrams = [(1, 9), (1, 9), (2, 9), (1, 9)];
        let several: Vec<_> = runs(&datagrams, 9).iter().map(Run::datagrams).collect();
        assert_eq!(several, [2, 1, 1]);
        assert_eq!(runs(&datagrams, 8).len(), 4);
    }

    /// A kernel that answers each datagram by its fault, and a message of several datagrams by its support for
    /// segmentation.
    struct Kernel {
        /// The error that each datagram has, if any.
        faults: Vec<Option<i32>>,
        /// Errors about earlier datagrams, or of the moment, each for one call.
        reports: VecDeque<Option<i32>>,
        cuts: Result<usize, i32>,
        /// The error of a message whose datagrams are longer than can be cut.
        too_long: i32,
        arrived: Vec<usize>,
        calls: usize,
    }

    impl Kernel {
        fn send(
            &mut self,
            left: &VecDeque<(usize, u8, usize)>,
            most: usize,
            longest: usize,
        ) -> Result<usize, Unsent> {
            self.calls += 1;
            let of: Vec<_> = (left.iter().take(most.min(64)))
                .map(|&(_, peer, length)| (peer, length))
                .collect();
            let mut sent = 0;
            for run in runs(&of, longest) {
                let members = || left.iter().skip(sent).take(run.datagrams);
                let fault = (self.reports.pop_front().flatten())
                    .or_else(|| members().find_map(|&(number, ..)| self.faults[number]))
                    .or(match self.cuts {
                        Err(code) if run.datagrams > 1 => Some(code),
                        Ok(mtu) if run.datagrams > 1 && run.length > mtu => Some(self.too_long),
                        _ => None,
                    });
                match fault {
                    Some(code) if sent == 0 => {
                        let error = io::Error::from_raw_os_error(code);
                        return Err(Unsent { error, front: run });
                    }
                    Some(_) => break,
                    None => {
                        self.arrived.extend(members().map(|&(number, ..)| number));
                        sent += run.datagrams;
                    }
                }
            }
            Ok(sent)
        }
    }

    struct Outcome {
        result: Result<usize, Option<i32>>,
        refused: u64,
        left: usize,
        kernel: Kernel,
        segmentation: Segmentation,
    }

    fn offer(on: bool, datagrams: &[(u8, usize, Option<i32>)], mut kernel: Kernel) -> Outcome {
        let mut batch: VecDeque<_> = (0..)
            .zip(datagrams)
            .map(|(number, &(peer, length, _))| (number, peer, length))
            .collect();
        kernel.faults = datagrams.iter().map(|&(.., fault)| fault).collect();
        let (mut refused, mut segmentation) = (0, Segmentation::new(on));
        let mut sending = segmentation.sending();
        let result = verdict::transmit(&mut batch, &mut refused, |batch| {
            sending.attempt(batch.len(), |most, longest| {
                kernel.send(batch, most, longest)
            })
        });
        Outcome {
            result: result.map_err(|error| error.raw_os_error()),
            refused,
            left: batch.len(),
            kernel,
            segmentation,
        }
    }

    fn kernel(cuts: Result<usize, i32>) -> Kernel {
        Kernel {
            faults: Vec::new(),
            reports: VecDeque::new(),
            cuts,
            too_long: libc::EMSGSIZE,
            arrived: Vec::new(),
            calls: 0,
        }
    }

    #[test]
    fn a_way_that_cuts_nothing_is_asked_once() {
        let datagrams = vec![(1, 9, None); 200];
        let outcome = offer(true, &datagrams, kernel(Err(libc::EIO)));
        assert_eq!((outcome.result, outcome.refused), (Ok(200), 0));
        assert!(outcome.kernel.arrived.into_iter().eq(0..200));
        assert_eq!(outcome.kernel.calls, 1 + 4);
        assert!(!outcome.segmentation.is_on());
    }

    #[test]
    fn what_is_longer_than_the_mtu_goes_by_itself_and_the_rest_is_cut() {
        let datagrams: Vec<_> = (0..192)
            .map(|number| (1, if number < 128 { 2_000 } else { 100 }, None))
            .collect();
        // The latter in older kernels.
        for too_long in [libc::EMSGSIZE, libc::EINVAL] {
            let told = Kernel {
                too_long,
                ..kernel(Ok(1_472))
            };
            let outcome = offer(true, &datagrams, told);
            assert_eq!((outcome.result, outcome.refused), (Ok(192), 0));
            assert!(outcome.kernel.arrived.into_iter().eq(0..192));
            assert_eq!(outcome.segmentation.longest, 1_999);
        }
    }

    #[test]
    fn a_datagram_to_nowhere_does_not_shorten_what_is_cut() {
        let datagrams = [(1, 9, Some(libc::EINVAL)); 5];
        let outcome = offer(true, &datagrams, kernel(Ok(1_472)));
        assert_eq!((outcome.result, outcome.refused), (Ok(0), 5));
        assert_eq!(outcome.segmentation.longest, MAX_DATAGRAM);
    }

    #[test]
    fn a_report_about_an_earlier_datagram_does_not_end_the_cutting() {
        let mut told = kernel(Ok(1_472));
        told.reports = [Some(libc::ECONNREFUSED)].into();
        let outcome = offer(true, &vec![(1, 9, None); 128], told);
        assert_eq!((outcome.result, outcome.refused), (Ok(128), 0));
        // The first call, its 64 by themselves, and the others as one message.
        assert_eq!(outcome.kernel.calls, 3);
        assert!(outcome.segmentation.is_on());
    }

    #[test]
    fn a_full_socket_is_asked_once_and_keeps_all() {
        let mut full = kernel(Ok(1_472));
        full.reports = [Some(libc::EAGAIN)].into();
        let outcome = offer(true, &[(1, 9, None); 5], full);
        assert_eq!((outcome.result, outcome.left), (Ok(0), 5));
        assert_eq!(outcome.kernel.calls, 1);
    }

    fn fault() -> impl Strategy<Value = Option<i32>> {
        prop_oneof![
            12 => Just(None),
            1 => Just(Some(libc::EPERM)),
            1 => Just(Some(libc::EINVAL)),
            1 => Just(Some(libc::EMSGSIZE)),
        ]
    }

    proptest! {
        /// Generates peers, lengths and faults of datagrams, and the kernel's segmentation support.
        #[test]
        fn each_datagram_arrives_or_is_refused_as_without_segmentation(
            datagrams in prop::collection::vec((0..2_u8, prop_oneof![Just(0), Just(7), Just(9), Just(30_000)], fault()), 0..150),
            cuts in prop_oneof![Just(Ok(1_472)), Just(Ok(65_507)), Just(Ok(8)), Just(Err(libc::EIO)), Just(Err(libc::EINVAL))],
        ) {
            let with = offer(true, &datagrams, kernel(cuts));
            let without = offer(false, &datagrams, kernel(cuts));
            prop_assert_eq!(with.result, without.result);
            prop_assert_eq!(with.refused, without.refused);
            prop_assert_eq!(with.left, without.left);
            prop_assert_eq!(with.kernel.arrived, without.kernel.arrived);
        }

        /// The times of reports vary, so only sums can be equal.
        #[test]
        fn reports_between_calls_cost_no_datagram(
            datagrams in prop::collection::vec((0..2_u8, 7..9_usize), 1..150),
            reports in prop::collection::vec(prop_oneof![3 => Just(None), 1 => Just(Some(libc::ECONNREFUSED))], 0..20),
        ) {
            // No two in a row: of a third the datagram would be held to be the cause.
            let apart = reports.into_iter().flat_map(|report| [report, None]).collect();
            let datagrams: Vec<_> = datagrams.into_iter().map(|(peer, length)| (peer, length, None)).collect();
            let mut told = kernel(Ok(1_472));
            told.reports = apart;
            let outcome = offer(true, &datagrams, told);
            prop_assert_eq!(outcome.result, Ok(datagrams.len()));
            prop_assert_eq!((outcome.refused, outcome.left), (0, 0));
            prop_assert!(outcome.kernel.arrived.into_iter().eq(0..datagrams.len()));
        }
    }
}
