//! Packets of Python while a queue orders their numbers.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

/// Objects by number; numbers are reused.
#[derive(Default)]
pub(crate) struct Kept {
    objects: Vec<Option<Py<PyAny>>>,
    free: Vec<u32>,
}

impl Kept {
    /// Stores an object and returns its number. There are no more than a queue can number.
    pub(crate) fn keep(&mut self, object: Py<PyAny>) -> u32 {
        if let Some(number) = self.free.pop() {
            self.objects[number as usize] = Some(object);
            return number;
        }
        self.objects.push(Some(object));
        (self.objects.len() - 1) as u32
    }

    /// Removes and returns an object; Python's `None` if the garbage collector cleared it meanwhile.
    pub(crate) fn take(&mut self, py: Python<'_>, number: u32) -> Py<PyAny> {
        self.free.push(number);
        let object = self.objects[number as usize].take();
        object.unwrap_or_else(|| py.None())
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for object in self.objects.iter().flatten() {
            visit.call(object)?;
        }
        Ok(())
    }

    /// Removes and returns all objects, which the caller drops after it has released its locks.
    pub(crate) fn clear(&mut self) -> Vec<Option<Py<PyAny>>> {
        let empty = || None;
        let mut taken: Vec<Option<Py<PyAny>>> = Vec::new();
        taken.resize_with(self.objects.len(), empty);
        std::mem::swap(&mut taken, &mut self.objects);
        taken
    }
}
