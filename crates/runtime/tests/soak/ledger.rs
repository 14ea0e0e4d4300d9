//! Counts of pushed and delivered packets of each sender, separate from the arbiter's own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fairlane_io::ByteLen;

/// The sums over all senders that are gone.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub senders: AtomicU64,
    pub pushed: AtomicU64,
    pub arrived: AtomicU64,
    /// Drops reported to clients.
    pub told: AtomicU64,
    /// Senders of which something is left: themselves, or a packet.
    pub open: AtomicU64,
    faults: Mutex<Vec<String>>,
}

impl Ledger {
    /// Records a fault; the soak continues and fails at its end.
    pub(crate) fn fault(&self, fault: String) {
        let mut faults = self.faults.lock().unwrap();
        if faults.len() < 20 {
            eprintln!("{fault}");
            faults.push(fault);
        }
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults.lock().unwrap().clone()
    }
}

/// The counts of one sender, shared by it and its packets: the last owner closes it.
#[derive(Debug)]
pub(crate) struct Account {
    ledger: Arc<Ledger>,
    kind: &'static str,
    pushed: AtomicU64,
    told: AtomicU64,
    arrived: AtomicU64,
    /// The least number that may arrive next.
    next: AtomicU64,
}

impl Account {
    pub(crate) fn open(ledger: &Arc<Ledger>, kind: &'static str) -> Arc<Self> {
        ledger.open.fetch_add(1, Ordering::Relaxed);
        ledger.senders.fetch_add(1, Ordering::Relaxed);
        Arc::new(Account {
            ledger: Arc::clone(ledger),
            kind,
            pushed: AtomicU64::new(0),
            told: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            next: AtomicU64::new(0),
        })
    }

    /// Returns the sender's next packet, whether or not it will be taken.
    pub(crate) fn packet(self: &Arc<Self>, number: u64, len: u32) -> Packet {
        let account = Arc::clone(self);
        Packet {
            account,
            number,
            len,
        }
    }

    pub(crate) fn pushed(&self, packets: u64) {
        self.pushed.fetch_add(packets, Ordering::Relaxed);
    }

    pub(crate) fn told(&self, drops: u64) {
        self.told.fetch_add(drops, Ordering::Relaxed);
    }

    pub(crate) fn packets_pushed(&self) -> u64 {
        self.pushed.load(Ordering::Relaxed)
    }

    pub(crate) fn fault(&self, fault: &str) {
        self.ledger
            .fault(format!("a client of kind {}: {fault}", self.kind));
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let Account {
            pushed,
            told,
            arrived,
            ..
        } = self;
        let (pushed, told, arrived) = (*pushed.get_mut(), *told.get_mut(), *arrived.get_mut());
        if arrived + told > pushed {
            self.fault(&format!(
                "{pushed} pushed, {arrived} arrived, {told} told dropped"
            ));
        }
        let ledger = &self.ledger;
        ledger.pushed.fetch_add(pushed, Ordering::Relaxed);
        ledger.told.fetch_add(told, Ordering::Relaxed);
        ledger.arrived.fetch_add(arrived, Ordering::Relaxed);
        ledger.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A packet with its sender and its number.
#[derive(Debug)]
pub(crate) struct Packet {
    account: Arc<Account>,
    number: u64,
    len: u32,
}

impl Packet {
    /// It has left at the far end.
    pub(crate) fn arrive(self) {
        let account = &self.account;
        let next = account.next.swap(self.number + 1, Ordering::Relaxed);
        if self.number < next {
            account.fault(&format!("{} arrives after {}", self.number, next - 1));
        }
        account.arrived.fetch_add(1, Ordering::Relaxed);
    }
}

impl ByteLen for Packet {
    fn byte_len(&self) -> usize {
        self.len as usize
    }
}
