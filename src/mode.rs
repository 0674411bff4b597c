//! Thread-local settings that calls look at: default device, gradient and inference mode; and the
//! process-wide default dtype.

use crate::{DType, Device};
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

#[derive(Clone, Copy)]
struct Mode {
    device: Option<Device>,
    grad: bool,
    inference: bool,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode { device: None, grad: true, inference: false }) };
}

static DEFAULT_DTYPE: AtomicU8 = AtomicU8::new(DType::F32 as u8);

/// The device that factories use when none is given.
#[inline]
#[must_use]
pub fn default_device() -> Device {
    MODE.get().device.unwrap_or(Device::CPU)
}

/// Sets the default device of this thread and returns the one before; `None` means the CPU.
pub fn set_default_device(device: Option<Device>) -> Option<Device> {
    let mode = MODE.get();
    MODE.set(Mode { device, ..mode });
    mode.device
}

/// The default device of this thread, if one was set.
#[must_use]
pub fn device_override() -> Option<Device> {
    MODE.get().device
}

/// Whether gradients are recorded on this thread.
#[must_use]
pub fn grad_enabled() -> bool {
    MODE.get().grad
}

/// Switches gradient recording and returns what it was.
pub fn set_grad_enabled(grad: bool) -> bool {
    let mode = MODE.get();
    MODE.set(Mode { grad, ..mode });
    mode.grad
}

/// Whether inference mode is on.
#[must_use]
pub fn inference() -> bool {
    MODE.get().inference
}

/// Switches inference mode and returns what it was.
pub fn set_inference(inference: bool) -> bool {
    let mode = MODE.get();
    MODE.set(Mode { inference, ..mode });
    mode.inference
}

/// The dtype of tensors made from Python floats.
#[inline]
#[must_use]
pub fn default_dtype() -> DType {
    DType::ALL[DEFAULT_DTYPE.load(Relaxed) as usize]
}

/// Sets the dtype of tensors made from Python floats.
pub fn set_default_dtype(dtype: DType) {
    DEFAULT_DTYPE.store(dtype as u8, Relaxed);
}
