//! Automatic mixed precision, as `torchlike.amp` uses it.

use super::types::{PyDType, dtype};
use crate::layers::autocast;
use pyo3::prelude::*;

/// PyTorch's text for a type of device that autocast knows nothing of.
const UNKNOWN: &str =
    "unknown device type for autocast in get_autocast_dispatch_key_from_device_type";

/// Whether autocast is on for a type of device on this thread.
///
/// Raises: RuntimeError if autocast knows no such type of device.
#[pyfunction]
fn _autocast_is_on(device_type: &str) -> PyResult<bool> {
    Ok(autocast::is_on(autocast::number(device_type, UNKNOWN)?))
}

/// Switches autocast on or off for a type of device.
#[pyfunction]
fn _autocast_switch(device_type: &str, on: bool) -> PyResult<()> {
    autocast::switch(autocast::number(device_type, UNKNOWN)?, on);
    Ok(())
}

/// The low precision of a type of device.
#[pyfunction]
fn _autocast_low(py: Python<'_>, device_type: &str) -> PyResult<Py<PyDType>> {
    let device = autocast::number(device_type, "unsupported scalarType")?;
    dtype(py, autocast::low(device))
}

/// Sets the low precision of a type of device.
#[pyfunction]
fn _autocast_set_low(device_type: &str, dtype: &Bound<'_, PyDType>) -> PyResult<()> {
    let device = autocast::number(device_type, "unsupported scalarType")?;
    autocast::set_low(device, dtype.get().0);
    Ok(())
}

/// The types of devices that autocast knows.
#[pyfunction]
fn _autocast_supported_devices() -> Vec<&'static str> {
    autocast::DEVICES.iter().map(|d| d.0).collect()
}

/// Whether casts of parameters are kept until the outermost context is left.
#[pyfunction]
fn is_autocast_cache_enabled() -> bool {
    autocast::keeps()
}

/// Keeps casts of parameters, or not.
#[pyfunction]
fn _autocast_set_keeps(on: bool) {
    autocast::set_keeps(on);
}

/// One context more; gives how many are open now.
#[pyfunction]
fn autocast_increment_nesting() -> i64 {
    autocast::nest(1)
}

/// One context less; gives how many are open now.
#[pyfunction]
fn autocast_decrement_nesting() -> i64 {
    autocast::nest(-1)
}

/// Forgets the casts that were kept.
#[pyfunction]
fn clear_autocast_cache() {
    autocast::forget();
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($f:ident)+) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)+ };
    }
    add!(_autocast_is_on _autocast_switch _autocast_low _autocast_set_low _autocast_supported_devices is_autocast_cache_enabled
        _autocast_set_keeps autocast_increment_nesting autocast_decrement_nesting clear_autocast_cache);
    Ok(())
}
