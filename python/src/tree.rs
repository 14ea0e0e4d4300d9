//! The class tree, of Python objects.

use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard};

use fairlane_core::aqm::{AqmConfig, CodelConfig};
use fairlane_core::sched::Algorithm;
use fairlane_core::tree::{
    self, Ceiling, ClassConfig, ClassId, Discarded, FlowsConfig, LeafConfig, Reason, TreeError,
};
use fairlane_core::{Dequeue, Nanos};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};

use crate::column::{Given, Whole, aggregate, algorithm, length, rate, weight};
use crate::kept::Kept;
use crate::scheduler::{counts, limits, own_limits};
use crate::wrong::{Wrong, exception, rejected};

struct Inner {
    tree: tree::Tree<u32>,
    kept: Kept,
    /// Packets discarded by the last call.
    discarded: Vec<Gone>,
}

/// Class, length, packet and reason.
type Gone = (u32, u32, Py<PyAny>, &'static str);

/// Packets are queued, and none may leave before a time. Its truth value is false.
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
    aggregate: NonZeroU32,
}

/// The parameters of a class other than its weight.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Terms<'py> {
    parent: Whole,
    weight: Whole,
    level: Whole,
    max_len: Whole,
    ceil: Option<Bound<'py, PyAny>>,
    burst: Option<Whole>,
}

impl Terms<'_> {
    fn parent(&self) -> Result<ClassId, Wrong> {
        self.parent.small("parent").map(ClassId::new)
    }

    fn config(&self) -> Result<ClassConfig, Wrong> {
        let longest = length("max_len", &self.max_len)?;
        let burst = self.burst.as_ref().map(|given| given.small("burst"));
        let ceiling = match (&self.ceil, burst.transpose()?) {
            (None, None) => None,
            (Some(ceil), burst) => Some(Ceiling {
                rate: rate("ceil", ceil)?,
                burst: burst.unwrap_or(2 * longest.get()),
            }),
            (None, Some(_)) => {
                let sentence =
                    "burst is given without ceil: it is what may be sent at once at that";
                return Err(Wrong::new("burst", sentence));
            }
        };
        Ok(ClassConfig {
            level: self.level.small("level")?,
            ceiling,
            ..ClassConfig::new(weight(&self.weight)?, longest)
        })
    }
}

fn class(given: &Whole) -> Result<ClassId, Wrong> {
    given.small("class_").map(ClassId::new)
}

fn time(given: &Whole) -> Result<Nanos, Wrong> {
    given.large("now").map(Nanos)
}

/// Returns the queue of a leaf.
fn leaf(queue: &str, packets: Option<Whole>, bytes: Option<Whole>) -> Result<LeafConfig, Wrong> {
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
        limits: own_limits(packets, bytes)?,
        aqm,
        ..LeafConfig::default()
    })
}

/// Returns the exception for a call that a tree rejected, whose class is its argument `class`.
fn refused(py: Python<'_>, class: &str, error: TreeError) -> PyErr {
    let argument = match error {
        TreeError::UnknownClass(_) => {
            return exception(py, "UnknownFlow", (error.to_string(), class));
        }
        TreeError::NotInner(_)
        | TreeError::HasChildren(_)
        | TreeError::Root
        | TreeError::TooManyClasses(_) => class,
        TreeError::Level(_) => "level",
        TreeError::Flows(_) => "most",
        TreeError::Unfit { .. } => "algorithm",
        _ => return exception(py, "FairlaneError", (error.to_string(),)),
    };
    Wrong::new(argument, error.to_string()).into()
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
    /// Locks the tree. No Python code runs under the lock: objects are dropped, and exceptions created, outside of it.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Runs `call` with a receiver of discarded packets. Packets discarded before are dropped last, after the lock is
    /// released.
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
    #[pyo3(signature = (
        algorithm, *, aggregate = Whole::Number(8), limit_packets = None, limit_bytes = None
    ))]
    fn new(
        algorithm: Given<String>,
        aggregate: Whole,
        limit_packets: Option<Whole>,
        limit_bytes: Option<Whole>,
    ) -> PyResult<Tree> {
        let aggregate = self::aggregate(&aggregate)?;
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
        limit_packets: Option<Whole>,
        limit_bytes: Option<Whole>,
    ) -> PyResult<u32> {
        let (config, leaf) = (terms.config()?, leaf(queue, limit_packets, limit_bytes)?);
        let parent = terms.parent()?;
        let added = self.lock().tree.add_leaf(parent, config, leaf);
        added
            .map(ClassId::number)
            .map_err(|error| refused(py, "parent", error))
    }

    fn _add_inner(
        &self,
        py: Python<'_>,
        terms: Terms<'_>,
        algorithm: Given<String>,
    ) -> PyResult<u32> {
        let algorithm = self::algorithm(&algorithm, self.aggregate)?;
        let config = terms.config()?;
        let parent = terms.parent()?;
        let added = self.lock().tree.add_inner(parent, config, algorithm);
        added
            .map(ClassId::number)
            .map_err(|error| refused(py, "parent", error))
    }

    fn _add_flows(
        &self,
        py: Python<'_>,
        terms: Terms<'_>,
        algorithm: Given<String>,
        most: Whole,
        queue: (String, Option<Whole>, Option<Whole>),
    ) -> PyResult<u32> {
        let algorithm = self::algorithm(&algorithm, self.aggregate)?;
        let flows = FlowsConfig {
            most: most.small("most")?,
            leaf: leaf(&queue.0, queue.1, queue.2)?,
            ..FlowsConfig::new(algorithm)
        };
        let (parent, config) = (terms.parent()?, terms.config()?);
        let added = self.lock().tree.add_flows(parent, config, flows);
        added
            .map(ClassId::number)
            .map_err(|error| refused(py, "parent", error))
    }

    fn remove(&self, py: Python<'_>, class_: Whole) -> PyResult<()> {
        let class = class(&class_)?;
        let removed = self.with(py, |tree, _, gone| {
            tree.remove(class, |packet| gone.push(packet))
        });
        removed
            .map(drop)
            .map_err(|error| refused(py, "class_", error))
    }

    #[pyo3(signature = (class_, now = Whole::Number(0)))]
    fn flush(&self, py: Python<'_>, class_: Whole, now: Whole) -> PyResult<()> {
        let (class, now) = (class(&class_)?, time(&now)?);
        let flushed = self.with(py, |tree, _, gone| {
            tree.flush(class, now, |packet| gone.push(packet))
        });
        flushed.map_err(|error| refused(py, "class_", error))
    }

    #[pyo3(signature = (
        class_, length, packet, now = Whole::Number(0), *, flow = Whole::Number(0)
    ))]
    fn enqueue(
        &self,
        py: Python<'_>,
        class_: Whole,
        length: Whole,
        packet: Py<PyAny>,
        now: Whole,
        flow: Whole,
    ) -> PyResult<()> {
        let (class, length) = (class(&class_)?, self::length("length", &length)?);
        let (now, flow) = (time(&now)?, flow.large("flow")?);
        let back = self.with(py, |tree, kept, gone| {
            let number = kept.keep(packet);
            let discard = |packet| gone.push(packet);
            let outcome = tree.offer(class, flow, length, number, now, discard);
            outcome.map_err(|back| (kept.take(py, back.payload), back.reason))
        });
        back.map_err(|(_, reason)| rejected(py, reason))
    }

    #[pyo3(signature = (now = Whole::Number(0)))]
    fn dequeue<'py>(&self, py: Python<'py>, now: Whole) -> PyResult<Option<Bound<'py, PyAny>>> {
        let now = time(&now)?;
        let answer = self.with(py, |tree, kept, gone| {
            match tree.dequeue(now, |packet| gone.push(packet)) {
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

    #[pyo3(signature = (class_ = Whole::Number(0)))]
    fn stats<'py>(&self, py: Python<'py>, class_: Whole) -> PyResult<Bound<'py, PyDict>> {
        let class = class(&class_)?;
        let stats = self.lock().tree.stats(class);
        let stats = stats.ok_or_else(|| refused(py, "class_", TreeError::UnknownClass(class)))?;
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
        counts.set_item("flow_table_full", stats.flow_table_full)?;
        counts.set_item("overlimits", stats.overlimits)?;
        Ok(counts)
    }

    fn __len__(&self) -> usize {
        self.lock().tree.len() as usize
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(inner) = self.inner.try_lock() else {
            // Locked, so it is in use.
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
