//! The random generator as a Python object.

use super::convert::PyGenerator;
use super::object::{tensor_ref, wrap};
use super::types::{self, device, device_of};
use crate::random::{DEFAULT_SEED, Generator, Philox, SharedGenerator};
use crate::{DType, Device, Tensor, kernels};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;

#[pymethods]
impl PyGenerator {
    #[new]
    #[pyo3(signature = (device=None))]
    fn new(device: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let device = device.map(device_of).transpose()?.unwrap_or(Device::CPU);
        match device.kind {
            crate::DeviceKind::Cpu => Ok(Self(SharedGenerator::new(Generator::default()))),
            crate::DeviceKind::Meta => Err(PyRuntimeError::new_err(
                "META device type not an accelerator.",
            )),
            crate::DeviceKind::Cuda => {
                let device = device.canonical();
                kernels::accelerator()?.check(device)?;
                Ok(Self(SharedGenerator::on_device(
                    device,
                    Philox::new(DEFAULT_SEED),
                )))
            }
        }
    }
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<Py<types::PyDevice>> {
        device(py, self.0.device())
    }
    fn manual_seed<'py>(
        slf: Bound<'py, Self>,
        seed: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        slf.get().0.manual_seed(seed_of(seed)?);
        Ok(slf)
    }
    fn initial_seed(&self) -> u64 {
        self.0.initial_seed()
    }
    fn seed(&self) -> u64 {
        self.0.seed()
    }
    fn get_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.0.get_state();
        let state = Tensor::from_slice(&state[..], &[state.len() as i64])?;
        crate::layers::program::made_by("get_rng_state", &state);
        wrap(py, state)
    }
    fn set_state<'py>(
        slf: Bound<'py, Self>,
        new_state: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        let Some(t) = tensor_ref(new_state) else {
            return Err(PyTypeError::new_err(format!(
                "expected a torch.ByteTensor, but got {}",
                types::type_name(new_state)
            )));
        };
        if t.dtype() != DType::U8 {
            return Err(PyTypeError::new_err("RNG state must be a torch.ByteTensor"));
        }
        slf.get().0.set_state(&t.to_vec::<u8>()?)?;
        Ok(slf)
    }
    fn clone_state(&self) -> Self {
        Self(self.0.copied())
    }
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let rebuild = py
            .import("torchlike._tensor")?
            .getattr("_rebuild_generator")?;
        let own = slf.get();
        (rebuild, (own.get_state(py)?, own.device(py)?))
            .into_pyobject(py)
            .map(Bound::into_any)
    }
}

/// A seed: any integer that fits 64 bits, signed or unsigned.
pub fn seed_of(o: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(u) = o.extract::<u64>() {
        return Ok(u);
    }
    match o.extract::<i64>() {
        Ok(i) => Ok(i as u64),
        Err(_) if o.is_instance_of::<pyo3::types::PyInt>() => {
            Err(PyValueError::new_err("Overflow when unpacking long long"))
        }
        Err(_) => Err(PyRuntimeError::new_err(format!(
            "manual_seed expected a long, but got {}",
            types::type_name(o)
        ))),
    }
}
