//! A flat packet scheduler of Python objects.

use std::sync::{Mutex, MutexGuard};

use fairlane_core::{AnyScheduler, ChangeError, FlowConfig, FlowId, Limits};
use fairlane_core::{Count, SchedulerLimits};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};

use crate::column::{Given, Whole, aggregate, algorithm, length, weight};
use crate::kept::Kept;
use crate::wrong::{Wrong, exception, rejected};

struct Inner {
    flows: AnyScheduler<u32>,
    kept: Kept,
}

/// Flows with their packets, which are any objects, in the order of an algorithm.
#[pyclass(frozen, module = "fairlane")]
pub(crate) struct Scheduler {
    inner: Mutex<Inner>,
    algorithm: &'static str,
}

/// Returns the limits of `packets` and `bytes` of all queues together; `None` means the largest possible.
pub(crate) fn limits(
    packets: Option<Whole>,
    bytes: Option<Whole>,
) -> Result<SchedulerLimits, Wrong> {
    let packets = packets.map_or(Ok(u32::MAX), |given| given.small("limit_packets"))?;
    if packets == 0 {
        let sentence = "limit_packets is 0: a link holds one packet at least";
        return Err(Wrong::new("limit_packets", sentence));
    }
    Ok(SchedulerLimits {
        packets,
        bytes: bytes.map_or(Ok(u64::MAX), |given| given.large("limit_bytes"))?,
        per_flow: Limits::NONE,
    })
}

/// Returns the limits of one flow or class; `None` likewise.
pub(crate) fn own_limits(packets: Option<Whole>, bytes: Option<Whole>) -> Result<Limits, Wrong> {
    let none = Limits::NONE;
    Ok(Limits {
        packets: packets.map_or(Ok(none.packets), |given| given.small("limit_packets"))?,
        bytes: bytes.map_or(Ok(none.bytes), |given| given.small("limit_bytes"))?,
    })
}

/// Returns counters as a dictionary of `accepted_packets`, `accepted_bytes` and so on.
pub(crate) fn counts<'py>(py: Python<'py>, of: [(&str, Count); 5]) -> PyResult<Bound<'py, PyDict>> {
    let counts = PyDict::new(py);
    for (name, count) in of {
        counts.set_item(format!("{name}_packets"), count.packets)?;
        counts.set_item(format!("{name}_bytes"), count.bytes)?;
    }
    Ok(counts)
}

fn refused(py: Python<'_>, flow: u32, error: ChangeError) -> PyErr {
    match error {
        ChangeError::UnknownFlow => {
            let sentence = format!("flow {flow} does not exist");
            exception(py, "UnknownFlow", (sentence, "flow"))
        }
        ChangeError::LongerPacketQueued { .. } => {
            let sentence = format!("flow {flow}: {error}");
            Wrong::new("max_len", sentence)
                .of_kind("LengthError")
                .into()
        }
        _ => exception(py, "FairlaneError", (error.to_string(),)),
    }
}

impl Scheduler {
    /// Locks the queues. No Python code runs under the lock: objects are dropped, and exceptions created, outside of
    /// it.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|held| held.into_inner())
    }

    fn config(
        weight_of: &Whole,
        max_len: &Whole,
        limit_packets: Option<Whole>,
        limit_bytes: Option<Whole>,
    ) -> Result<FlowConfig, Wrong> {
        Ok(FlowConfig {
            limits: Some(own_limits(limit_packets, limit_bytes)?),
            ..FlowConfig::new(weight(weight_of)?, length("max_len", max_len)?)
        })
    }
}

#[pymethods]
impl Scheduler {
    #[new]
    #[pyo3(signature = (
        algorithm, *, aggregate = Whole::Number(8), limit_packets = None, limit_bytes = None
    ))]
    fn new(
        algorithm: Given<String>,
        aggregate: Whole,
        limit_packets: Option<Whole>,
        limit_bytes: Option<Whole>,
    ) -> PyResult<Scheduler> {
        let algorithm = self::algorithm(&algorithm, self::aggregate(&aggregate)?)?;
        let flows = AnyScheduler::new(algorithm, limits(limit_packets, limit_bytes)?);
        let kept = Kept::default();
        Ok(Scheduler {
            inner: Mutex::new(Inner { flows, kept }),
            algorithm: algorithm.name(),
        })
    }

    /// The name of the algorithm.
    #[getter]
    fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    #[pyo3(signature = (
        weight = Whole::Number(1), max_len = Whole::Number(1500), *, limit_packets = None,
        limit_bytes = None
    ))]
    fn add_flow(
        &self,
        py: Python<'_>,
        weight: Whole,
        max_len: Whole,
        limit_packets: Option<Whole>,
        limit_bytes: Option<Whole>,
    ) -> PyResult<u32> {
        let config = Self::config(&weight, &max_len, limit_packets, limit_bytes)?;
        let added = self.lock().flows.add_flow(config);
        added
            .map(FlowId::number)
            .map_err(|error| refused(py, 0, error))
    }

    #[pyo3(signature = (flow, weight, max_len, *, limit_packets = None, limit_bytes = None))]
    fn change_flow(
        &self,
        py: Python<'_>,
        flow: Whole,
        weight: Whole,
        max_len: Whole,
        limit_packets: Option<Whole>,
        limit_bytes: Option<Whole>,
    ) -> PyResult<()> {
        let flow = flow.small("flow")?;
        let config = Self::config(&weight, &max_len, limit_packets, limit_bytes)?;
        let changed = self.lock().flows.change_flow(FlowId::new(flow), config);
        changed.map_err(|error| refused(py, flow, error))
    }

    fn remove_flow(&self, py: Python<'_>, flow: Whole) -> PyResult<Vec<(u32, Py<PyAny>)>> {
        let flow = flow.small("flow")?;
        let mut gone = Vec::new();
        let removed = {
            let Inner { flows, kept } = &mut *self.lock();
            flows.remove_flow(FlowId::new(flow), |packet| {
                gone.push((packet.len.get(), kept.take(py, packet.payload)));
            })
        };
        removed.map_err(|error| refused(py, flow, error))?;
        Ok(gone)
    }

    fn enqueue(
        &self,
        py: Python<'_>,
        flow: Whole,
        length: Whole,
        packet: Py<PyAny>,
    ) -> PyResult<()> {
        let (flow, length) = (flow.small("flow")?, self::length("length", &length)?);
        let back = {
            let inner = &mut *self.lock();
            let number = inner.kept.keep(packet);
            let outcome = inner.flows.enqueue(FlowId::new(flow), length, number);
            outcome.map_err(|back| (inner.kept.take(py, back.payload), back.reason))
        };
        back.map_err(|(_, reason)| rejected(py, reason))
    }

    fn dequeue(&self, py: Python<'_>) -> Option<(u32, u32, Py<PyAny>)> {
        let inner = &mut *self.lock();
        let packet = inner.flows.dequeue()?;
        let object = inner.kept.take(py, packet.payload);
        Some((packet.owner.number(), packet.len.get(), object))
    }

    #[pyo3(signature = (flow = None))]
    fn stats<'py>(&self, py: Python<'py>, flow: Option<Whole>) -> PyResult<Bound<'py, PyDict>> {
        let flow = flow.map(|given| given.small("flow")).transpose()?;
        let stats = {
            let inner = self.lock();
            match flow {
                Some(flow) => inner.flows.flow_stats(FlowId::new(flow)).ok_or(flow),
                None => Ok(inner.flows.total_stats()),
            }
        };
        let stats = stats.map_err(|flow| refused(py, flow, ChangeError::UnknownFlow))?;
        counts(
            py,
            [
                ("accepted", stats.accepted),
                ("sent", stats.sent),
                ("queued", stats.queued),
                ("dropped", stats.dropped),
                ("discarded", stats.discarded),
            ],
        )
    }

    fn __len__(&self) -> usize {
        self.lock().flows.total_stats().queued.packets as usize
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.inner.try_lock() {
            Ok(inner) => inner.kept.traverse(&visit),
            // Locked, so it is in use.
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        let objects = self.lock().kept.clear();
        drop(objects);
    }
}
