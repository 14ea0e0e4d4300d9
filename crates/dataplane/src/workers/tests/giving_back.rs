//! Emptied buffers return to the receive workers.

use super::*;

/// Produces frames of this many bytes endlessly, in reused memory as sockets do, and notes its addresses.
pub(super) struct Endless {
    pub(super) bytes: usize,
    /// The memory of frames, if shared with a kernel; then there are as many as are free.
    pub(super) umem: Option<Umem>,
    /// Number of calls to `poll_transmit`.
    pub(super) attended: Arc<AtomicU64>,
    pub(super) places: HashSet<usize>,
    pub(super) ready: OwnedFd,
}

impl Endless {
    pub(super) fn new(bytes: usize) -> Endless {
        Endless {
            bytes,
            umem: None,
            attended: Arc::default(),
            places: HashSet::new(),
            ready: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
        }
    }
}

impl Backend for Endless {
    type Tx = Frame;
    type Rx = Frame;

    fn transmit(&mut self, batch: &mut VecDeque<Frame>) -> io::Result<usize> {
        Ok(batch.drain(..).count())
    }

    fn receive(&mut self, into: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        let bytes = vec![0_u8; self.bytes];
        for came in 0..max {
            let frame = match &self.umem {
                None => Frame::from(&bytes[..]),
                Some(umem) => match umem.frame_from(&bytes) {
                    Some(frame) => Frame::Shared(frame),
                    None => return Ok(came),
                },
            };
            self.places.insert(frame.bytes().as_ptr() as usize);
            into.push(frame);
        }
        Ok(max)
    }

    fn in_flight(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn refused(&self) -> u64 {
        0
    }
}

impl AsFd for Endless {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Receive for Endless {
    fn losses(&mut self) -> io::Result<Losses> {
        Ok(Losses {
            lost: 7,
            uncut: 3,
            ..Losses::default()
        })
    }

    fn is_sole_receiver(&self) -> bool {
        true
    }
}

impl Transmit for Endless {
    fn poll_transmit(&mut self) -> io::Result<()> {
        self.attended.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Handover for Endless {}

impl Device for Endless {
    fn backend(&self) -> String {
        "memory".to_owned()
    }
}

/// Starts a worker on a thread of its own, which takes a step at each call of the returned function; that returns the
/// number of buffers its frames have used so far.
pub(super) fn endless(bytes: usize) -> (impl FnMut() -> usize, WorkerHandles<Endless>) {
    stepping(Endless::new(bytes))
}

pub(super) fn stepping(device: Endless) -> (impl FnMut() -> usize, WorkerHandles<Endless>) {
    let options = options(Role::Inside);
    let (mut worker, handle) = one(device, &options, 128);
    let (step, steps) = channel();
    let (tell, told) = channel();
    thread::spawn(move || {
        for () in steps {
            worker.step(Nanos::ZERO).unwrap();
            tell.send(worker.device.places.len()).unwrap();
        }
    });
    let step = move || {
        step.send(()).unwrap();
        told.recv().unwrap()
    };
    (step, handle)
}

#[test]
fn what_frames_were_in_goes_back_as_far_as_there_is_room_and_as_much_as_comes() {
    let (mut step, mut handle) = endless(60);
    let mut frames = Vec::new();
    for round in 1..=20 {
        assert_eq!(step(), round * BATCH, "nothing came back");
        handle.take(&mut frames, BATCH).unwrap();
        frames.clear();
    }
    handle.return_buffers();
    // Buffers beyond the return mailbox's space stay here.
    let rest: Vec<_> = handle.each[0].owed.pay().collect();
    assert!((15 * BATCH..20 * BATCH).contains(&rest.len()));
    // The returned buffers are reused for the next frames.
    assert_eq!([step(), step()], [21 * BATCH; 2]);
}

#[test]
fn memory_goes_back_to_whoever_receives_frames_of_its_length() {
    const ROUNDS: usize = 100;
    for lengths in [[1_500, 60], [60, 1_500]] {
        let mut both = lengths.map(endless);
        let mut places = [0; 2];
        for _ in 0..ROUNDS {
            let mut frames = Vec::new();
            for ((step, handle), places) in both.iter_mut().zip(&mut places) {
                *places = step();
                assert_eq!(handle.take(&mut frames, BATCH).unwrap(), BATCH);
            }
            drop(frames);
            both.iter_mut()
                .for_each(|(_, handle)| handle.return_buffers());
        }
        // Buffers in transit, in store, and in the return mailbox.
        let few = places.iter().all(|&places| places <= ROUNDS * BATCH / 10);
        assert!(few, "{places:?} for {} frames each", ROUNDS * BATCH);
    }
}
