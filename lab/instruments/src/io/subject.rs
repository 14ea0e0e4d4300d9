//! One backend under measurement: its transmission, reception and forwarding.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow};
use fairlane_core::sched::{Plus, Qfq};
use fairlane_core::{FlowConfig, Length, Nanos, PacketScheduler, Rate, Weight};
use fairlane_io::Backend;
use fairlane_runtime::{Arbiter, ArbiterConfig, Client, Clock, Link, Next, Straight, pin_to_core};

use super::lab::LONGEST;
use super::meter::{Round, Sample, Until, with_backlog, without_pause};
use super::wire::{BATCH, FLOWS, Generate, Sender, Wire};

/// Most flows in an aggregate: the M of QFQ+.
pub(super) const MEMBERS: NonZeroU32 = NonZeroU32::new(8).unwrap();
/// Of the link that the scheduler paces: more than any machine carries.
const RATE: &str = "1tbit";

/// The measurement of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// One thread sends, and the kernel at the far end drops.
    Transmit,
    /// One thread receives what another sends.
    Receive,
    /// One thread receives what another sends, and transmits it.
    Forward,
    /// The same, with the scheduler between.
    Scheduled,
}

/// A backend under measurement.
pub(super) trait Subject: Send {
    /// See [`Wire::mode`].
    fn mode(&self) -> Option<String>;

    fn measure(&mut self, what: What, until: Until) -> Result<Sample>;
}

/// The source of packets.
pub(super) struct Inlet<W: Wire> {
    pub backend: W::Backend,
    /// Sends to that backend.
    pub generator: Box<dyn Generate>,
}

/// The scheduler before the backend.
type Scheduled<W> =
    Arbiter<PacketScheduler<Plus<Qfq>, <W as Wire>::Packet>, Straight<<W as Wire>::Backend>>;

/// A backend to transmit through, perhaps with another to receive from.
pub(super) struct Bench<W: Wire> {
    sender: Sender<W>,
    inlet: Option<Inlet<W>>,
    /// Has the backend to transmit through.
    arbiter: Scheduled<W>,
    clients: Vec<Client<W::Packet>>,
    clock: Clock,
    /// The environment that the backends need.
    _lab: Box<dyn Send>,
}

impl<W: Wire> Bench<W> {
    pub(super) fn new(
        wire: W,
        outlet: W::Backend,
        inlet: Option<Inlet<W>>,
        lab: impl Send + 'static,
    ) -> Result<Bench<W>> {
        let clock = Clock::start();
        let rate: Rate = RATE.parse().map_err(|error| anyhow!("{RATE}: {error}"))?;
        let config = ArbiterConfig {
            max_clients: FLOWS.into(),
            // The same thread pushes: no cache line changes hands.
            read_interval: Nanos::ZERO,
            drain_limit: BATCH,
            release_limit: BATCH,
            ..ArbiterConfig::new(Link::new(rate))
        };
        let mut arbiter = Arbiter::new(Plus::new(MEMBERS), config, outlet, clock.now());
        let registrar = arbiter.registrar();
        let weights = (1..=u32::from(FLOWS)).filter_map(Weight::new);
        let clients = weights
            .map(|weight| registrar.register(FlowConfig::new(weight, LONGEST)))
            .collect::<Result<_, _>>()?;
        arbiter.step(clock.now())?;
        Ok(Bench {
            sender: Sender::new(wire),
            inlet,
            arbiter,
            clients,
            clock,
            _lab: Box::new(lab),
        })
    }
}

impl<W: Wire> Subject for Bench<W> {
    fn mode(&self) -> Option<String> {
        W::mode(self.arbiter.backend())
    }

    fn measure(&mut self, what: What, until: Until) -> Result<Sample> {
        let Bench {
            sender,
            inlet,
            arbiter,
            clients,
            clock,
            ..
        } = self;
        if what == What::Transmit {
            return pinned(|| {
                without_pause(until, || {
                    let done = sender.send(arbiter.backend_mut())?;
                    Ok(Round {
                        done,
                        ..Round::default()
                    })
                })
            });
        }
        let inlet = inlet.as_mut().context("nothing to receive from")?;
        let (input, wire) = (&mut inlet.backend, &sender.wire);
        let mut arrived = Vec::with_capacity(BATCH);
        // Packets of an earlier measurement.
        while input.receive(&mut arrived, BATCH)? > 0 {
            arrived.clear();
        }
        fed(&mut *inlet.generator, || match what {
            What::Transmit | What::Receive => with_backlog(until, || {
                let came = input.receive(&mut arrived, BATCH)?;
                arrived.clear();
                Ok(Round {
                    came,
                    done: came,
                    unfinished: false,
                })
            }),
            What::Forward => {
                let mut batch = VecDeque::with_capacity(BATCH);
                with_backlog(until, || {
                    let came = input.receive(&mut arrived, BATCH - batch.len())?;
                    batch.extend(arrived.drain(..).map(|mut packet| {
                        wire.pass_on(&mut packet);
                        packet
                    }));
                    let done = arbiter.backend_mut().transmit(&mut batch)?;
                    Ok(Round {
                        came,
                        done,
                        unfinished: !batch.is_empty(),
                    })
                })
            }
            What::Scheduled => with_backlog(until, || {
                let mut came = 0;
                if arbiter.waiting_for_backend() == 0 {
                    came = input.receive(&mut arrived, BATCH)?;
                    for mut packet in arrived.drain(..) {
                        wire.pass_on(&mut packet);
                        push(clients, W::bytes, packet)?;
                    }
                }
                let step = arbiter.step(clock.now())?;
                Ok(Round {
                    came,
                    done: step.transmitted,
                    unfinished: step.next != Next::WhenPushed,
                })
            }),
        })
    }
}

/// Hands a packet to the client of its flow.
#[inline]
fn push<P: Send>(
    clients: &mut [Client<P>],
    bytes: impl Fn(&P) -> &[u8],
    packet: P,
) -> io::Result<()> {
    let content = bytes(&packet);
    let flow = content.last().map_or(0, |last| last % FLOWS);
    let length = Length::new(content.len() as u32).ok_or(io::ErrorKind::InvalidData)?;
    match clients[usize::from(flow)].push(length, packet) {
        Ok(_) => Ok(()),
        // No more than a batch is under way, and a mailbox has room for several.
        Err(refused) => Err(io::Error::other(refused.reason)),
    }
}

/// Works on the last core, where there is more than one. A thread that may not be kept
/// there is merely a less quiet measurement.
fn pinned<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> Result<T> {
    let joined = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if cores() > 1 {
                let _ = pin_to_core(cores() - 1);
            }
            work()
        });
        thread.join()
    });
    Ok(joined.map_err(|_| anyhow!("the measuring thread panicked"))??)
}

/// Works while the generator sends from the first core.
fn fed<T: Send>(
    generator: &mut dyn Generate,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T> {
    let (started, done) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let generating = scope.spawn(|| {
            if cores() > 1 {
                let _ = pin_to_core(0);
            }
            let mut sent = Ok(0);
            while sent.is_ok() && !done.load(Ordering::Relaxed) {
                sent = generator.generate();
                started.store(true, Ordering::Release);
            }
            sent
        });
        let worked = pinned(|| {
            while !started.load(Ordering::Acquire) {
                thread::yield_now();
            }
            work()
        });
        done.store(true, Ordering::Relaxed);
        generating
            .join()
            .map_err(|_| anyhow!("the generator panicked"))?
            .context("generating packets")?;
        worked
    })
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairlane_io::{MemoryBackend, memory};

    use super::super::wire::{Bytes, Generator};
    use super::*;

    type Memory = Bytes<MemoryBackend<Vec<u8>, Vec<u8>>>;

    /// Returns a backend in memory that holds `room` packets, and the far end of its link.
    fn bench(room: usize) -> (Bench<Memory>, MemoryBackend<Vec<u8>, Vec<u8>>) {
        let (feed, input) = memory::pair(1_024);
        let (outlet, far) = memory::pair(room);
        let wire = || Memory::new(vec![7; 60]);
        let inlet = Inlet {
            backend: input,
            generator: Box::new(Generator {
                sender: Sender::new(wire()),
                backend: feed,
            }),
        };
        let bench = Bench::new(wire(), outlet, Some(inlet), ()).unwrap();
        (bench, far)
    }

    fn measure(bench: &mut Bench<Memory>, what: What) -> Sample {
        let stop = AtomicBool::new(false);
        let span = Duration::from_millis(200);
        bench.measure(what, Until { span, stop: &stop }).unwrap()
    }

    /// Returns the number of packets that the scheduler has sent of each flow.
    fn sent(bench: &Bench<Memory>) -> Vec<u64> {
        let clients = bench.arbiter.client_stats();
        clients.map(|(_, stats)| stats.flow.sent.packets).collect()
    }

    #[test]
    fn what_is_scheduled_passes_through_the_flow_that_its_last_byte_names() {
        let (mut bench, mut far) = bench(1 << 20);
        let sample = measure(&mut bench, What::Scheduled);
        let mut arrived = Vec::new();
        far.receive(&mut arrived, usize::MAX).unwrap();
        assert_eq!(
            arrived.len() as u64,
            sample.packets,
            "counted once, and sent"
        );
        let mut of_flow = vec![0; FLOWS.into()];
        for packet in &arrived {
            assert_eq!((packet.len(), &packet[..59]), (60, &[7; 59][..]));
            of_flow[usize::from(packet[59])] += 1;
        }
        assert_eq!(sent(&bench), of_flow);
        assert!(of_flow.iter().all(|&packets| packets > 0), "{of_flow:?}");
    }

    #[test]
    fn what_is_forwarded_or_received_passes_the_scheduler_by() {
        let (mut bench, mut far) = bench(1 << 20);
        let mut arrived = Vec::new();
        assert!(measure(&mut bench, What::Receive).packets > 0);
        assert_eq!(far.receive(&mut arrived, 1).unwrap(), 0);
        let sample = measure(&mut bench, What::Forward);
        far.receive(&mut arrived, usize::MAX).unwrap();
        assert_eq!(arrived.len() as u64, sample.packets);
        assert_eq!(sent(&bench), vec![0; FLOWS.into()]);
    }

    #[test]
    fn what_a_full_backend_does_not_take_is_not_counted() {
        for what in [What::Transmit, What::Forward, What::Scheduled] {
            let (mut bench, mut far) = bench(100);
            let sample = measure(&mut bench, what);
            let arrived = far.receive(&mut Vec::new(), usize::MAX).unwrap();
            assert_eq!(sample.packets, arrived as u64, "{what:?}");
            assert!((1..=100).contains(&arrived), "{what:?}: {arrived}");
        }
    }
}
