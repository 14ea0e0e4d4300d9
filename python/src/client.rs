//! A client of a running daemon.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use fairlane_runtime::attach::{ConnectError, ProcessClient, PushRefused, connect};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::wrong::{Wrong, exception};

/// A client of a daemon: a mailbox in memory that both share.
#[pyclass(frozen, module = "fairlane")]
pub(crate) struct Client {
    /// `None` once it is closed.
    client: Mutex<Option<ProcessClient>>,
}

fn unreached(py: Python<'_>, error: &ConnectError) -> PyErr {
    let class = match error {
        ConnectError::Refused(_) => "AttachRefused",
        _ => "AttachError",
    };
    exception(py, class, (error.to_string(),))
}

fn refused(py: Python<'_>, refused: PushRefused) -> PyErr {
    let sentence = refused.to_string();
    match refused {
        PushRefused::Full => exception(py, "MailboxFull", (sentence,)),
        PushRefused::Length { .. } => Wrong::new("packet", sentence).of_kind("LengthError").into(),
        _ => exception(py, "DaemonGone", (sentence,)),
    }
}

impl Client {
    fn lock(&self) -> MutexGuard<'_, Option<ProcessClient>> {
        self.client.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Runs `call` with the client. `call` runs no Python code, which might re-enter while the lock is held.
    fn with<T>(&self, py: Python<'_>, call: impl FnOnce(&mut ProcessClient) -> T) -> PyResult<T> {
        let done = self.lock().as_mut().map(call);
        done.ok_or_else(|| exception(py, "DaemonGone", ("this client was closed",)))
    }
}

#[pymethods]
impl Client {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Client> {
        let client = py.detach(|| connect(&path));
        let client = client.map_err(|error| unreached(py, &error))?;
        Ok(Client {
            client: Mutex::new(Some(client)),
        })
    }

    fn push(&self, py: Python<'_>, packet: &[u8]) -> PyResult<()> {
        let pushed = self.with(py, |client| client.push(packet))?;
        pushed.map_err(|why| refused(py, why))
    }

    /// Detaches; pushed packets are still sent.
    fn close(&self) {
        let client = self.lock().take();
        drop(client);
    }

    #[getter]
    fn is_abandoned(&self) -> bool {
        self.lock().as_ref().is_none_or(ProcessClient::is_abandoned)
    }

    #[getter]
    fn class_name(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |client| client.class().to_owned())
    }

    #[getter]
    fn weight(&self, py: Python<'_>) -> PyResult<u32> {
        self.with(py, |client| client.weight().get())
    }

    #[getter]
    fn max_len(&self, py: Python<'_>) -> PyResult<u32> {
        self.with(py, |client| client.max_length().get())
    }

    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |client| client.capacity())
    }

    #[getter]
    fn told<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let told = self.with(py, |client| client.told())?;
        let counts = PyDict::new(py);
        counts.set_item("accepted", told.accepted)?;
        counts.set_item("malformed", told.malformed)?;
        counts.set_item("dropped", told.dropped)?;
        Ok(counts)
    }

    fn __enter__(client: Bound<'_, Self>) -> Bound<'_, Self> {
        client
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }
}
