//! Clients of this process: threads with many of them, tasks, and clients that dispatch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_core::{FlowConfig, Length, Limits, Weight};
use fairlane_io::{Backend, ByteLen, memory};
use fairlane_runtime::{Cleared, Client, Refusal, RegisterError, Registrar};
use rand::RngExt;
use rand::rngs::SmallRng;

use crate::executor::block_on;
use crate::ledger::{Account, Ledger, Packet};

/// Longest packet, in bytes.
pub(crate) const LONGEST: u32 = 1500;

/// Most clients of one thread.
const CROWD: usize = 12;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Conditions for all clients.
#[derive(Debug, Default)]
pub(crate) struct Weather {
    over: AtomicBool,
    quiet: AtomicBool,
}

impl Weather {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Stops or resumes pushes; while they are stopped, the arbiter sleeps.
    pub(crate) fn be_quiet(&self, quiet: bool) {
        self.quiet.store(quiet, Ordering::Relaxed);
    }

    /// A pause of mostly less than two milliseconds.
    pub(crate) fn pause(&self, random: &mut SmallRng) {
        let micros = match random.random_range(0..20) {
            0..4 => 0,
            4..18 => random.random_range(50..2_000),
            _ => random.random_range(2_000..20_000),
        };
        match micros {
            0 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(micros)),
        }
        while self.quiet.load(Ordering::Relaxed) && !self.is_over() {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Returns a flow of any weight whose queue is short, or seldom as long as the arbiter's limits let
/// it be.
pub(crate) fn flow(random: &mut SmallRng) -> FlowConfig {
    let limits = Limits {
        packets: random.random_range(1..48),
        ..Limits::NONE
    };
    FlowConfig {
        weight: Weight::new(random.random_range(1..=100)).unwrap(),
        max_length: Length::new(LONGEST).unwrap(),
        limits: (random.random_range(0..8) > 0).then_some(limits),
    }
}

fn any_length(random: &mut SmallRng) -> Length {
    Length::new(random.random_range(1..=LONGEST)).unwrap()
}

/// A thread's client that records its pushes.
struct Sender {
    client: Client<Packet>,
    account: Arc<Account>,
}

impl Sender {
    /// Pushes at most `packets` packets; stops at a rejection.
    fn burst(&mut self, packets: u32, random: &mut SmallRng) {
        let Sender { client, account } = self;
        let number = account.packets_pushed();
        if random.random() {
            let mut batch = (number..number + u64::from(packets)).map(|number| {
                let len = any_length(random);
                (len, account.packet(number, len.get()))
            });
            match client.push_batch(&mut batch) {
                Ok((taken, pushed)) => {
                    account.pushed(taken as u64);
                    account.told(pushed.dropped_before);
                }
                Err(refused) => account.fault(&refused.reason.to_string()),
            }
            return;
        }
        for number in number..number + u64::from(packets) {
            let len = any_length(random);
            match client.push(len, account.packet(number, len.get())) {
                Ok(pushed) => {
                    account.pushed(1);
                    account.told(pushed.dropped_before);
                }
                Err(refused) if refused.reason == Refusal::MailboxFull => return,
                Err(refused) => return account.fault(&refused.reason.to_string()),
            }
        }
    }
}

/// A thread with up to [`CROWD`] clients, which attach and leave.
pub(crate) fn crowd(
    registrar: &Registrar<Packet>,
    ledger: &Arc<Ledger>,
    weather: &Weather,
    mut random: SmallRng,
) {
    let mut senders: Vec<Sender> = Vec::with_capacity(CROWD);
    while !weather.is_over() {
        let any = random.random_range(0..senders.len().max(1));
        match random.random_range(0..100) {
            0..10 if senders.len() < CROWD => match registrar.register(flow(&mut random)) {
                Ok(client) => senders.push(Sender {
                    client,
                    account: Account::open(ledger, "thread"),
                }),
                Err(RegisterError::TooManyClients(_)) => {}
                Err(error) => ledger.fault(error.to_string()),
            },
            10..16 if !senders.is_empty() => {
                let mut leaves = senders.swap_remove(any);
                // Its last packets may be seen after it has gone.
                leaves.burst(random.random_range(0..5), &mut random);
            }
            _ => {
                if let Some(sender) = senders.get_mut(any) {
                    sender.burst(random.random_range(1..200), &mut random);
                }
            }
        }
        weather.pause(&mut random);
    }
}

/// A task that waits for room, one client after another.
pub(crate) fn task(
    registrar: &Registrar<Packet>,
    ledger: &Arc<Ledger>,
    weather: &Weather,
    mut random: SmallRng,
) {
    while !weather.is_over() {
        let Ok(mut client) = registrar.register_async(flow(&mut random)) else {
            weather.pause(&mut random);
            continue;
        };
        let account = Account::open(ledger, "task");
        block_on(async {
            for _ in 0..random.random_range(1..50) {
                // More than the mailbox holds, now and then.
                for _ in 0..random.random_range(1..300) {
                    let len = any_length(&mut random);
                    let packet = account.packet(account.packets_pushed(), len.get());
                    match client.send(len, packet).await {
                        Ok(()) => account.pushed(1),
                        Err(refused) => return account.fault(&refused.reason.to_string()),
                    }
                }
                weather.pause(&mut random);
                if weather.is_over() {
                    return;
                }
            }
        });
    }
}

/// Counts of dispatching clients.
#[derive(Debug, Default)]
pub(crate) struct Dispatched {
    pub clients: AtomicU64,
    pub pushed: AtomicU64,
    pub transmitted: AtomicU64,
    pub dropped: AtomicU64,
    /// Left with their client before they were transmitted, or known to be dropped.
    pub forsaken: AtomicU64,
}

struct Numbered(u64);

impl ByteLen for Numbered {
    fn byte_len(&self) -> usize {
        1
    }
}

/// Runs clients that transmit cleared packets, one after another, on a device that is often full.
pub(crate) fn dispatching(
    registrar: &Registrar<Cleared>,
    ledger: &Ledger,
    sums: &Dispatched,
    weather: &Weather,
    mut random: SmallRng,
) {
    while !weather.is_over() {
        let Ok(mut client) = registrar.register_dispatching(flow(&mut random), 64) else {
            weather.pause(&mut random);
            continue;
        };
        let (mut near, mut far) = memory::pair::<Numbered, Numbered>(16);
        let (mut pushed, mut transmitted, mut next) = (0, 0, 0);
        let mut batch = Vec::new();
        let mut dispatch = |client: &mut fairlane_runtime::DispatchingClient<Numbered>| {
            transmitted += client.dispatch(&mut near).unwrap() as u64;
            far.receive(&mut batch, 32).unwrap();
            for Numbered(number) in batch.drain(..) {
                if number < next {
                    ledger.fault(format!("dispatched: {number} after {}", next - 1));
                }
                next = number + 1;
            }
        };
        for _ in 0..random.random_range(1..100) {
            for _ in 0..random.random_range(1..100) {
                match client.push(any_length(&mut random), Numbered(pushed)) {
                    Ok(_) => pushed += 1,
                    Err(refused) if refused.reason == Refusal::MailboxFull => break,
                    Err(refused) => ledger.fault(format!("dispatching: {}", refused.reason)),
                }
            }
            dispatch(&mut client);
            weather.pause(&mut random);
            if weather.is_over() {
                break;
            }
        }
        // Half of them stay to the end.
        if random.random() {
            let start = Instant::now();
            while client.pending() > 0 && start.elapsed() < PATIENCE {
                dispatch(&mut client);
                thread::sleep(Duration::from_micros(200));
            }
            if client.pending() > 0 {
                ledger.fault("a client that dispatches waits for ever".to_owned());
            }
        }
        let (dropped, forsaken) = (client.dropped(), client.pending() as u64);
        if pushed != transmitted + dropped + forsaken {
            ledger.fault(format!(
                "dispatching: {pushed} pushed, {transmitted} transmitted, {dropped} dropped, \
                 {forsaken} pending"
            ));
        }
        for (sum, count) in [
            (&sums.clients, 1),
            (&sums.pushed, pushed),
            (&sums.transmitted, transmitted),
            (&sums.dropped, dropped),
            (&sums.forsaken, forsaken),
        ] {
            sum.fetch_add(count, Ordering::Relaxed);
        }
    }
}
