//! Ledgers of storages, as `torchlike._C._Ledger`.

use super::object::tensor_ref;
use crate::Storage;
use crate::cpu::alloc;
use crate::ledger::{Bytes, Ledger};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::sync::Arc;

/// Bytes of living storages by device and class, and the most there were.
#[pyclass(frozen, name = "_Ledger", module = "torchlike._C")]
struct PyLedger(Arc<Ledger>);

fn storage_of<'a>(t: &'a Bound<'_, PyAny>) -> PyResult<&'a Storage> {
    tensor_ref(t)
        .map(crate::Tensor::storage)
        .ok_or_else(|| PyTypeError::new_err("expected a Tensor"))
}

#[pymethods]
impl PyLedger {
    /// Storages of GPUs are counted in multiples of `unit` bytes.
    #[new]
    #[pyo3(signature = (unit=1))]
    fn new(unit: u64) -> Self {
        Self(Ledger::new(unit))
    }

    /// Enters the storage of a tensor, or says of what class it is from now on.
    fn note(&self, t: &Bound<'_, PyAny>, class: u8) -> PyResult<()> {
        self.0.note(storage_of(t)?, class);
        Ok(())
    }

    /// Enters the storage of a tensor, unless it stands here already.
    fn note_new(&self, t: &Bound<'_, PyAny>, class: u8) -> PyResult<()> {
        self.0.note_new(storage_of(t)?, class);
        Ok(())
    }

    /// The bytes of the storage of a tensor, if it stands here.
    fn bytes_of(&self, t: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        Ok(self.0.bytes_of(storage_of(t)?))
    }

    /// Compares what is alive on each device with the most there was.
    fn mark(&self) {
        self.0.mark();
    }

    /// `(device, bytes alive by class, bytes by class when most were alive)` for each device.
    fn accounts(&self) -> Vec<(String, Bytes, Bytes)> {
        let accounts = self.0.accounts().into_iter();
        accounts
            .map(|a| (a.device.to_string(), a.now, a.peak))
            .collect()
    }
}

/// What the host's allocator holds, in bytes: blocks in use, the most that were since the peak was reset, blocks that wait.
#[pyfunction]
fn _cpu_memory() -> [usize; 3] {
    alloc::stats()
}

/// Forgets how much was in use before.
#[pyfunction]
fn _cpu_reset_peak() {
    alloc::reset_peak();
}

/// Gives blocks that wait back to the system.
#[pyfunction]
fn _cpu_empty_cache() {
    alloc::empty_cache();
}

/// Registers the class and the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_cpu_memory, m)?)?;
    m.add_function(wrap_pyfunction!(_cpu_reset_peak, m)?)?;
    m.add_function(wrap_pyfunction!(_cpu_empty_cache, m)?)?;
    m.add_class::<PyLedger>()
}
