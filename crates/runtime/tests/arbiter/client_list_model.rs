//! The client list compared with a model: whatever clients do and whenever, each is served, once
//! and in order, and the list holds those whose mailboxes may have packets.

use std::time::Duration;

use fairlane_core::Nanos;
use fairlane_core::sched::Qfq;
use fairlane_runtime::{ArbiterConfig, RegisterError, Woken};
use proptest::prelude::*;

use crate::remote::RemoteSender;
use crate::rig::{Rig, Sender, fast, us, weight};

#[derive(Clone, Copy, Debug)]
enum Operation {
    Join {
        remote: bool,
    },
    Push {
        who: usize,
        packets: u8,
    },
    Ring {
        who: usize,
    },
    Leave {
        who: usize,
    },
    Step {
        nanos: u32,
    },
    /// The operations of `drive` when there is no work.
    Sleep,
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    scan_limit: usize,
    drain_limit: usize,
    read_interval: Nanos,
    linger: Nanos,
}

fn setup() -> impl Strategy<Value = Setup> {
    let span = || prop_oneof![Just(0_u64), 1_u64..20_000];
    (1_usize..6, 1_usize..8, span(), span()).prop_map(
        |(scan_limit, drain_limit, read_interval, linger)| Setup {
            scan_limit,
            drain_limit,
            read_interval: Nanos(read_interval),
            linger: Nanos(linger),
        },
    )
}

fn operation() -> impl Strategy<Value = Operation> {
    let who = 0_usize..12;
    prop_oneof![
        2 => any::<bool>().prop_map(|remote| Operation::Join { remote }),
        6 => (who.clone(), 1_u8..10).prop_map(|(who, packets)| Operation::Push { who, packets }),
        1 => who.clone().prop_map(|who| Operation::Ring { who }),
        1 => who.prop_map(|who| Operation::Leave { who }),
        10 => (0_u32..30_000).prop_map(|nanos| Operation::Step { nanos }),
        2 => Just(Operation::Sleep),
    ]
}

#[derive(Debug)]
enum Somebody {
    Thread(Sender),
    Remote(RemoteSender),
}

/// Packets pushed and delivered, for each present or former client.
#[derive(Debug)]
struct Known {
    here: Option<Somebody>,
    pushed: u32,
    arrived: u32,
    taken_in: bool,
}

struct Model {
    rig: Rig<Qfq>,
    setup: Setup,
    /// By name.
    clients: Vec<Known>,
}

impl Model {
    const MOST: usize = 12;

    fn new(setup: Setup) -> Self {
        let config = ArbiterConfig {
            max_clients: Self::MOST,
            scan_limit: setup.scan_limit,
            drain_limit: setup.drain_limit,
            read_interval: setup.read_interval,
            linger: setup.linger,
            ..fast()
        };
        Model {
            rig: Rig::new(Qfq::new(), config),
            setup,
            clients: Vec::new(),
        }
    }

    fn pick(&mut self, who: usize) -> Option<&mut Known> {
        let count = self.clients.iter().filter(|c| c.here.is_some()).count();
        let mut here = self.clients.iter_mut().filter(|c| c.here.is_some());
        here.nth(who % count.max(1))
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Join { remote } => self.join(remote),
            Operation::Push { who, packets } => {
                if let Some(known) = self.pick(who) {
                    for _ in 0..packets {
                        match known.here.as_mut().unwrap() {
                            Somebody::Thread(sender) => {
                                known.pushed += u32::from(sender.push(64).is_ok())
                            }
                            Somebody::Remote(sender) => {
                                sender.push(64);
                                known.pushed += 1;
                            }
                        }
                    }
                }
            }
            Operation::Ring { who } => {
                if let Some(Known {
                    here: Some(Somebody::Remote(sender)),
                    ..
                }) = self.pick(who)
                {
                    sender.remote.ring();
                }
            }
            Operation::Leave { who } => {
                if let Some(known) = self.pick(who) {
                    known.here = None;
                }
            }
            Operation::Step { nanos } => self.step(Nanos(nanos.into())),
            Operation::Sleep => self.sleep(),
        }
    }

    fn join(&mut self, remote: bool) {
        let name = self.clients.len();
        let waiting = self.clients.iter().filter(|c| !c.taken_in).count();
        if self.rig.arbiter.clients() + waiting == Self::MOST {
            let refused = self.rig.registrar.register(weight(1)).unwrap_err();
            return assert_eq!(refused, RegisterError::TooManyClients(Self::MOST));
        }
        let (registrar, population) = (&self.rig.registrar, &self.rig.population);
        let somebody = if remote {
            Somebody::Remote(RemoteSender::join(registrar, weight(1), name, population))
        } else {
            let client = self.rig.registrar.register(weight(1)).unwrap();
            let mut sender = self.rig.adopt(client);
            sender.name = name;
            Somebody::Thread(sender)
        };
        self.clients.push(Known {
            here: Some(somebody),
            pushed: 0,
            arrived: 0,
            taken_in: false,
        });
    }

    fn step(&mut self, span: Nanos) {
        let step = self.rig.step_after(span);
        self.clients.iter_mut().for_each(|c| c.taken_in = true);
        assert!(step.drained <= self.setup.scan_limit * self.setup.drain_limit);
        for (name, number) in self.rig.arrivals() {
            let known = &mut self.clients[name];
            assert_eq!(number, known.arrived, "of {name}");
            known.arrived += 1;
            assert!(known.arrived <= known.pushed);
        }
    }

    /// A client with packets keeps the arbiter awake.
    fn sleep(&mut self) {
        let waits = self.waiting() > 0;
        let new = self.clients.iter().any(|c| !c.taken_in);
        let woken = self.rig.arbiter.sleep(Duration::ZERO);
        if waits && !new {
            assert_ne!(woken, Some(Woken::TimedOut));
        }
    }

    /// Packets that have not come out.
    fn waiting(&self) -> u32 {
        self.clients.iter().map(|c| c.pushed - c.arrived).sum()
    }

    fn check(&self) {
        let active = self.rig.arbiter.active_clients();
        assert!(active <= self.rig.arbiter.clients());
        let taken_in = self.clients.iter().filter(|c| c.taken_in);
        let (mut least, mut most) = (0, 0);
        for known in taken_in {
            match &known.here {
                Some(Somebody::Remote(sender)) => {
                    let awake = usize::from(!sender.is_dozing());
                    least += awake;
                    most += awake;
                }
                _ => most += 1,
            }
        }
        assert!(
            least <= active && active <= most,
            "{least} <= {active} <= {most}"
        );
        assert_eq!(self.rig.population.count() as u32, self.waiting());
    }

    /// All packets arrive within as many rounds as the fullest mailbox needs.
    fn finish(mut self) {
        self.step(self.setup.read_interval + us(1));
        let fullest = self.clients.iter().map(|c| c.pushed - c.arrived).max();
        let looks = fullest.unwrap_or(0).div_ceil(self.setup.drain_limit as u32);
        // One more for clients that leave, and for those that the list skips as they arrive.
        for _ in 0..(looks + 2) * (Self::MOST as u32).div_ceil(self.setup.scan_limit as u32) {
            self.step(self.setup.read_interval + us(1));
            self.check();
        }
        assert_eq!(self.waiting(), 0);
        self.clients.iter_mut().for_each(|c| c.here = None);
        for _ in 0..4 * Self::MOST {
            self.step(self.setup.read_interval + us(1));
        }
        assert_eq!(
            (
                self.rig.arbiter.clients(),
                self.rig.arbiter.active_clients()
            ),
            (0, 0)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whatever_clients_do_each_is_heard_in_its_order_and_the_list_is_right(
        setup in setup(), operations in proptest::collection::vec(operation(), 1..120),
    ) {
        let mut model = Model::new(setup);
        for operation in operations {
            model.apply(operation);
            model.check();
        }
        model.finish();
    }
}
