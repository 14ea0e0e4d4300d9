//! The class tree, of Python objects.

use std::sync::{Mutex, MutexGuard};

use fairlane_core::aqm::{AqmConfig, CodelConfig};
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{
    self, Ceiling, ClassConfig, ClassId, Discarded, FlowsConfig, LeafConfig, Reason, TreeError,
};
use fairlane_core::{Dequeue, Limits, Nanos};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};

use crate::column::{algorithm, length, rate, weight};
use crate::kept::Kept;
use crate::scheduler::{counts, limits, own_limits};
use crate::wrong::{Wrong, exception, rejected};

struct Inner {
    tree: tree::Tree<u32>,
    kept: Kept,
    /// Of the last call.
    discarded: Vec<Gone>,
}

/// Class, length, packet and reason.
type Gone = (u32, u32, Py<PyAny>, &'static str);

/// Packets wait, and none may leave before a time. False where a truth is asked for.
#[pyclass(frozen, eq, get_all, module = "fairlane")]
#[derive(PartialEq)]
pub(crate) struct NotBefore {
    /// In nanoseconds.
    time: u64,
}

#[pymethods]
impl NotBefore {
    #[new]
    fn new(time: u64) -> NotBefore {
        NotBefore { time }
    }

    fn __bool__(&self) -> bool {
        false
    }

    fn __repr__(&self) -> String {
        format!("NotBefore(time={})", self.time)
    }
}

/// Classes of packets, which are any objects, each over its own algorithm.
#[pyclass(frozen, subclass, module = "fairlane")]
pub(crate) struct Tree {
    inner: Mutex<Inner>,
    algorithm: Algorithm,
    aggregate: u32,
}

/// What a class may be told beside its weight.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Terms<'py> {
    parent: u32,
    weight: i64,
    level: u32,
    max_len: i64,
    ceil: Option<Bound<'py, PyAny>>,
    burst: Option<u32>,
}

impl Terms<'_> {
    fn config(&self) -> Result<ClassConfig, Wrong> {
        let ceiling = match (&self.ceil, self.burst) {
            (None, None) => None,
            (Some(ceil), burst) => Some(Ceiling {
                rate: rate("ceil", ceil)?,
                burst: burst.unwrap_or(2 * length("max_len", self.max_len)?.get()),
            }),
            (None, Some(_)) => {
                let sentence =
                    "burst is given without ceil: it is what may be sent at once at that";
                return Err(Wrong::new("burst", sentence));
            }
        };
        Ok(ClassConfig {
            level: self.level,
            ceiling,
            ..ClassConfig::new(weight(self.weight)?, length("max_len", self.max_len)?)
        })
    }
}

/// The queue of a leaf.
fn leaf(queue: &str, packets: Option<u32>, bytes: Option<u32>) -> Result<LeafConfig, Wrong> {
    let aqm = match queue {
        "tail" => AqmConfig::TailDrop,
        "codel" => AqmConfig::Codel(CodelConfig::default()),
        _ => {
            let sentence = format!(
                "queue is '{}': it is 'tail' or 'codel'",
                queue.escape_debug()
            );
            return Err(Wrong::new("queue", sentence));
        }
    };
    Ok(LeafConfig {
        limits: own_limits(packets, bytes).unwrap_or(Limits::NONE),
        aqm,
        ..LeafConfig::default()
    })
}

fn refused(py: Python<'_>, error: TreeError) -> PyErr {
    match error {
        TreeError::UnknownClass(_) => exception(py, "UnknownFlow", (error.to_string(), "class_")),
        _ => exception(py, "FairlaneError", (error.to_string(),)),
    }
}

fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::Congestion => "congestion",
        Reason::Flushed => "flushed",
        Reason::Displaced => "displaced",
        _ => "other",
    }
}

impl Tree {
    /// Nobody waits for the lock while Python code runs: objects are dropped outside of it.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Runs `call` with where discarded packets go. What was discarded before is dropped last, when
    /// nothing is locked.
    fn with<T>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut tree::Tree<u32>, &mut Kept, &mut Vec<Discarded<u32>>) -> T,
    ) -> T {
        let mut gone = Vec::new();
        let mut inner = self.lock();
        let Inner { tree, kept, .. } = &mut *inner;
        let outcome = call(tree, kept, &mut gone);
        let gone = gone.into_iter().map(|gone: Discarded<u32>| {
            let object = inner.kept.take(py, gone.payload);
            (
                gone.class.number(),
                gone.len.get(),
                object,
                word(gone.reason),
            )
        });
        let gone = gone.collect();
        let before = std::mem::replace(&mut inner.discarded, gone);
        drop(inner);
        drop(before);
        outcome
    }
}

#[pymethods]
impl Tree {
    #[new]
    #[pyo3(signature = (algorithm, *, aggregate = 8, limit_packets = None, limit_bytes = None))]
    fn new(
        algorithm: String,
        aggregate: u32,
        limit_packets: Option<u32>,
        limit_bytes: Option<u64>,
    ) -> PyResult<Tree> {
        let algorithm = self::algorithm(&algorithm, aggregate)?;
        let limits = limits(limit_packets, limit_bytes)?;
        Ok(Tree {
            inner: Mutex::new(Inner {
                tree: tree::Tree::new(algorithm, None, limits),
                kept: Kept::default(),
                discarded: Vec::new(),
            }),
            algorithm,
            aggregate,
        })
    }

    /// The name of the algorithm among the topmost classes.
    #[getter]
    fn algorithm(&self) -> &'static str {
        self.algorithm.name()
    }

    fn _add_leaf(
        &self,
        py: Python<'_>,
        terms: Terms<'_>,
        queue: &str,
        limit_packets: Option<u32>,
        limit_bytes: Option<u32>,
    ) -> PyResult<u32> {
        let (config, leaf) = (terms.config()?, leaf(queue, limit_packets, limit_bytes)?);
        let parent = ClassId::new(terms.parent);
        let added = self.lock().tree.add_leaf(parent, config, leaf);
        added
            .map(ClassId::number)
            .map_err(|error| refused(py, error))
    }

    fn _add_inner(&self, py: Python<'_>, terms: Terms<'_>, algorithm: &str) -> PyResult<u32> {
        let algorithm = self::algorithm(algorithm, self.aggregate)?;
        let config = terms.config()?;
        let parent = ClassId::new(terms.parent);
        let added = self.lock().tree.add_inner(parent, config, algorithm);
        added
            .map(ClassId::number)
            .map_err(|error| refused(py, error))
    }

    fn _add_flows(
        &self,
        py: Python<'_>,
        terms: Terms<'_>,
        algorithm: &str,
        most: u32,
        queue: (String, Option<u32>, Option<u32>),
    ) -> PyResult<u32> {
        let algorithm = self::algorithm(algorithm, self.aggregate)?;
        let flows = FlowsConfig {
            most,
            leaf: leaf(&queue.0, queue.1, queue.2)?,
            ..FlowsConfig::new(algorithm)
        };
        let (parent, config) = (ClassId::new(terms.parent), terms.config()?);
        let added = self.lock().tree.add_flows(parent, config, flows);
        added
            .map(ClassId::number)
            .map_err(|error| refused(py, error))
    }

    fn remove(&self, py: Python<'_>, class_: u32) -> PyResult<()> {
        let class = ClassId::new(class_);
        let removed = self.with(py, |tree, _, gone| {
            tree.remove(class, |packet| gone.push(packet))
        });
        removed.map(drop).map_err(|error| refused(py, error))
    }

    #[pyo3(signature = (class_, now = 0))]
    fn flush(&self, py: Python<'_>, class_: u32, now: u64) -> PyResult<()> {
        let class = ClassId::new(class_);
        let flushed = self.with(py, |tree, _, gone| {
            tree.flush(class, Nanos(now), |packet| gone.push(packet))
        });
        flushed.map_err(|error| refused(py, error))
    }

    #[pyo3(signature = (class_, length, packet, now = 0, *, flow = 0))]
    fn enqueue(
        &self,
        py: Python<'_>,
        class_: u32,
        length: i64,
        packet: Py<PyAny>,
        now: u64,
        flow: u64,
    ) -> PyResult<()> {
        let length = self::length("length", length)?;
        let class = ClassId::new(class_);
        let back = self.with(py, |tree, kept, gone| {
            let number = kept.keep(packet);
            let discard = |packet| gone.push(packet);
            let outcome = tree.offer(class, flow, length, number, Nanos(now), discard);
            outcome.map_err(|back| (kept.take(py, back.payload), back.reason))
        });
        back.map_err(|(_, reason)| rejected(py, reason))
    }

    #[pyo3(signature = (now = 0))]
    fn dequeue<'py>(&self, py: Python<'py>, now: u64) -> PyResult<Option<Bound<'py, PyAny>>> {
        let answer = self.with(py, |tree, kept, gone| {
            match tree.dequeue(Nanos(now), |packet| gone.push(packet)) {
                Dequeue::Packet(packet) => {
                    let object = kept.take(py, packet.payload);
                    Dequeue::Packet(fairlane_core::Packet {
                        owner: packet.owner,
                        len: packet.len,
                        payload: object,
                    })
                }
                Dequeue::NotBefore(time) => Dequeue::NotBefore(time),
                Dequeue::Empty => Dequeue::Empty,
            }
        });
        Ok(match answer {
            Dequeue::Packet(packet) => {
                let parts = (packet.owner.number(), packet.len.get(), packet.payload);
                Some(parts.into_pyobject(py)?.into_any())
            }
            Dequeue::NotBefore(time) => {
                Some(NotBefore { time: time.0 }.into_pyobject(py)?.into_any())
            }
            Dequeue::Empty => None,
        })
    }

    fn take_discarded(&self) -> Vec<Gone> {
        std::mem::take(&mut self.lock().discarded)
    }

    #[pyo3(signature = (class_ = 0))]
    fn stats<'py>(&self, py: Python<'py>, class_: u32) -> PyResult<Bound<'py, PyDict>> {
        let class = ClassId::new(class_);
        let stats = self.lock().tree.stats(class);
        let stats = stats.ok_or_else(|| refused(py, TreeError::UnknownClass(class)))?;
        let counts = counts(
            py,
            [
                ("accepted", stats.accepted),
                ("sent", stats.sent),
                ("queued", stats.queued),
                ("dropped", stats.dropped),
                ("discarded", stats.discarded),
            ],
        )?;
        counts.set_item("marked", stats.marked)?;
        counts.set_item("flows", stats.flows)?;
        counts.set_item("overflowed", stats.overflowed)?;
        counts.set_item("throttled", stats.throttled)?;
        Ok(counts)
    }

    fn __len__(&self) -> usize {
        self.lock().tree.len() as usize
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(inner) = self.inner.try_lock() else {
            // Somebody is at it, so it is in use.
            return Ok(());
        };
        for (_, _, object, _) in &inner.discarded {
            visit.call(object)?;
        }
        inner.kept.traverse(&visit)
    }

    fn __clear__(&self) {
        let (objects, discarded) = {
            let mut inner = self.lock();
            (inner.kept.clear(), std::mem::take(&mut inner.discarded))
        };
        drop((objects, discarded));
    }
}
