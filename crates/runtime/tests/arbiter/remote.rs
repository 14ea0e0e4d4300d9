//! A mailbox of another kind than a thread's: a queue under a lock that counts how often the
//! arbiter looks, and lets it look only when it said that it would.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fairlane_core::{FlowConfig, Length};
use fairlane_runtime::{Registrar, Remote, Source};

use crate::rig::{Packet, Population, length};

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<VecDeque<Packet>>,
    dozing: AtomicBool,
    looks: AtomicUsize,
    dozes: AtomicUsize,
}

struct Lookout(Arc<Shared>);

impl Source<Packet> for Lookout {
    fn pop(&mut self) -> Option<(Length, Packet)> {
        let dozing = self.0.dozing.load(Ordering::Relaxed);
        assert!(!dozing, "a client that dozes is looked at");
        let packet = self.0.queue.lock().unwrap().pop_front();
        // One empty look ends each visit.
        if packet.is_none() {
            self.0.looks.fetch_add(1, Ordering::Relaxed);
        }
        packet.map(|packet| (length(packet.len), packet))
    }

    fn is_empty(&self) -> bool {
        self.0.queue.lock().unwrap().is_empty()
    }

    fn doze(&mut self, dozing: bool) {
        let before = self.0.dozing.swap(dozing, Ordering::SeqCst);
        assert_ne!(before, dozing, "said twice");
        self.0.dozes.fetch_add(dozing.into(), Ordering::Relaxed);
    }
}

/// The other side: numbers its packets from 0, and rings when it has to.
#[derive(Debug)]
pub(crate) struct RemoteSender {
    pub remote: Remote,
    pub name: usize,
    pub pushed: u32,
    shared: Arc<Shared>,
    population: Population,
}

impl RemoteSender {
    pub(crate) fn join(
        registrar: &Registrar<Packet>,
        config: FlowConfig,
        name: usize,
        population: &Population,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let source = Box::new(Lookout(Arc::clone(&shared)));
        RemoteSender {
            remote: registrar.register_source(config, source).unwrap(),
            name,
            pushed: 0,
            shared,
            population: population.clone(),
        }
    }

    pub(crate) fn push(&mut self, len: u32) {
        let packet = self.population.packet(self.name, self.pushed, len);
        self.shared.queue.lock().unwrap().push_back(packet);
        self.pushed += 1;
        if self.shared.dozing.load(Ordering::SeqCst) {
            self.remote.ring();
        }
    }

    /// Looks at an empty mailbox since the last call: one for each visit, as long as the drain
    /// limit is not reached.
    pub(crate) fn looks(&self) -> usize {
        self.shared.looks.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn is_dozing(&self) -> bool {
        self.shared.dozing.load(Ordering::Relaxed)
    }

    /// Returns how often it was put to doze.
    pub(crate) fn dozes(&self) -> usize {
        self.shared.dozes.load(Ordering::Relaxed)
    }
}
