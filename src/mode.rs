//! Thread-local settings that calls look at: default device, gradient and inference mode, what watches calls; and the
//! process-wide default dtype.
//!
//! One word holds the flags. Its lower bits are those of tensors and storages that someone always wants to see; the door
//! compares them with the flags of a call's arguments, so that a call nobody watches costs one thread-local load.

use crate::{DType, Device};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};

/// The flags of a tensor are the lowest byte.
pub const TENSOR_FLAGS: u32 = 0;
/// The flags of a storage are the byte above.
pub const STORAGE_FLAGS: u32 = 8;
/// The tensor is of a quantised dtype.
pub const QUANTIZED: u32 = 1 << 16;
/// Always set in what a call shows, so that a mode of the thread is met.
pub const CALL: u32 = 1 << 31;

/// Calls are counted.
pub const COUNTING: u32 = 1 << 17;
/// Factories are recorded.
pub const RECORDING: u32 = 1 << 18;
/// A dispatch mode is on.
pub const DISPATCH: u32 = 1 << 19;
/// Forward mode is on: tangents are looked for.
pub const FORWARD: u32 = 1 << 23;
/// Functions of one example run on batches of them.
pub const BATCHED: u32 = 1 << 24;
/// Automatic mixed precision is on for a device.
pub const AUTOCAST: u32 = 1 << 26;
/// Bits that whoever makes the calls, as the binding, may use for its own settings; the core does not look at them.
pub const FRONT: u32 = 7 << 20;
/// Calls are noted with their times.
pub const PROFILING: u32 = 1 << 28;
/// The leaves of a call are noted, to be run again.
pub const TRACING: u32 = 1 << 29;
/// The leaves of a call that is recorded for gradients piece by piece are noted, to be run again.
pub const COMPOSING: u32 = 1 << 30;
/// A fake mode is on: results have no elements.
pub const FAKING: u32 = 1 << 27;
/// Inference mode is on.
pub const INFERENCE: u32 = 1 << 25;
/// The flags of a call that send it to the layers, and [`CALL`] if every call goes there.
pub const WATCHED: u32 = ALWAYS | CALL | GRAD;
/// Gradients are recorded: the bits of tensors that want one, and of storages whose tensors may, so that they are met only then.
pub const GRAD: u32 = (crate::tensor::GRAD as u32) << TENSOR_FLAGS
    | (crate::storage::TRACKED as u32) << STORAGE_FLAGS;
/// The bits of layers.
pub const LAYERS: u32 =
    COUNTING | RECORDING | DISPATCH | FORWARD | BATCHED | PROFILING | AUTOCAST | FAKING | NOTING;
/// Leaves are noted, to be run again.
const NOTING: u32 = TRACING | COMPOSING;

/// Flags of arguments that a layer always wants to see.
pub const ALWAYS: u32 = QUANTIZED
    | (crate::storage::WATCHED as u32) << STORAGE_FLAGS
    | (crate::tensor::WATCHED as u32) << TENSOR_FLAGS;

/// A fake mode made a tensor's storage.
pub const FAKE: u32 = (crate::storage::FAKE as u32) << STORAGE_FLAGS;

/// A tensor is lazily conjugated or negated.
pub const LAZY: u32 = (crate::tensor::LAZY as u32) << TENSOR_FLAGS;

#[derive(Clone, Copy)]
struct Mode {
    device: Option<Device>,
    word: u32,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode { device: None, word: GRAD | ALWAYS }) };
}

// How many threads have a default dtype of their own: others need not look for theirs.
static REPLAYS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static REPLAYED: Cell<Option<DType>> = const { Cell::new(None) };
}

thread_local! {
    static WITHIN: Cell<Option<&'static str>> = const { Cell::new(None) };
}

static DEFAULT_DTYPE: AtomicU8 = AtomicU8::new(DType::F32 as u8);

static FILLS_BLANKS: AtomicBool = AtomicBool::new(false);

/// What layers are switched on for this thread: a sum of [`COUNTING`], [`RECORDING`], [`DISPATCH`], [`FORWARD`],
/// [`BATCHED`], [`PROFILING`], [`AUTOCAST`], [`FAKING`], [`TRACING`], [`COMPOSING`].
#[inline]
#[must_use]
pub fn layers() -> u32 {
    word() & LAYERS
}

/// Switches layers and returns those that were on.
pub fn set_layers(bits: u32) -> u32 {
    let mode = MODE.get();
    let all = if bits & LAYERS != 0 { CALL } else { 0 };
    let word = mode.word & !(LAYERS | CALL) | bits & LAYERS | all;
    MODE.set(Mode { word, ..mode });
    mode.word & LAYERS
}

/// Runs `f` with only some of the layers that are on.
pub fn with_layers<R>(keep: u32, f: impl FnOnce() -> R) -> R {
    struct Restore(u32);
    impl Drop for Restore {
        fn drop(&mut self) {
            set_layers(self.0);
        }
    }
    let _restore = Restore(set_layers(layers() & keep));
    f()
}

/// The name that [`within`] gives while a formula runs.
pub const FORMULA: &str = "formula";

/// What of this library makes the calls now: the row of a composite, or a gradient's [`FORMULA`]; nothing for a user's.
#[inline]
#[must_use]
pub fn within() -> Option<&'static str> {
    WITHIN.get()
}

/// Says what makes the calls, until it is dropped.
#[must_use]
pub struct Within(Option<&'static str>);

impl Within {
    /// From now on, a composite or a formula, or again a user.
    #[inline]
    pub fn of(name: Option<&'static str>) -> Self {
        Self(WITHIN.replace(name))
    }
}

impl Drop for Within {
    #[inline]
    fn drop(&mut self) {
        WITHIN.set(self.0);
    }
}

/// What is switched on for this thread, in one word.
#[inline]
#[must_use]
pub fn word() -> u32 {
    MODE.get().word
}

/// Switches bits of [`FRONT`] and returns those that were on.
pub fn set_front(bits: u32, on: bool) -> u32 {
    let before = word() & FRONT;
    set(bits & FRONT, on);
    before
}

fn set(bit: u32, on: bool) -> bool {
    MODE.with(|place| {
        let mode = place.get();
        let word = if on {
            mode.word | bit
        } else {
            mode.word & !bit
        };
        place.set(Mode { word, ..mode });
        mode.word & bit != 0
    })
}

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
#[inline]
#[must_use]
pub fn grad_enabled() -> bool {
    word() & GRAD != 0
}

/// Whether calls are recorded on this thread: gradients are, and inference mode is off.
#[inline]
#[must_use]
pub fn records() -> bool {
    records_by(word())
}

/// Whether calls are recorded by what is switched on.
#[inline]
#[must_use]
pub fn records_by(word: u32) -> bool {
    word & GRAD != 0 && word & INFERENCE == 0
}

/// Switches gradient recording and returns what it was.
pub fn set_grad_enabled(grad: bool) -> bool {
    set(GRAD, grad)
}

/// Runs `f` with gradients recorded, or not.
#[inline]
pub fn with_grad<R>(on: bool, f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            set_grad_enabled(self.0);
        }
    }
    let _restore = Restore(set_grad_enabled(on));
    f()
}

/// Whether inference mode is on.
#[inline]
#[must_use]
pub fn inference() -> bool {
    word() & INFERENCE != 0
}

/// Switches inference mode and returns what it was.
pub fn set_inference(inference: bool) -> bool {
    set(INFERENCE, inference)
}

/// The dtype of tensors made from Python floats.
#[inline]
#[must_use]
pub fn default_dtype() -> DType {
    if REPLAYS.load(Relaxed) != 0
        && let Some(dtype) = REPLAYED.get()
    {
        return dtype;
    }
    DType::ALL[DEFAULT_DTYPE.load(Relaxed) as usize]
}

/// Runs a function with another dtype of tensors made from Python floats, on this thread alone.
pub fn with_default_dtype<R>(dtype: DType, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<DType>);
    impl Drop for Restore {
        fn drop(&mut self) {
            REPLAYED.set(self.0);
            REPLAYS.fetch_sub(1, Relaxed);
        }
    }
    REPLAYS.fetch_add(1, Relaxed);
    let _restore = Restore(REPLAYED.replace(Some(dtype)));
    f()
}

/// Sets the dtype of tensors made from Python floats.
pub fn set_default_dtype(dtype: DType) {
    DEFAULT_DTYPE.store(dtype as u8, Relaxed);
}

/// True if uninitialised tensors are made of a known value, so that who reads one notices.
#[inline]
#[must_use]
pub fn fills_blanks() -> bool {
    FILLS_BLANKS.load(Relaxed)
}

/// Sets whether uninitialised tensors are filled.
pub fn set_fills_blanks(on: bool) {
    FILLS_BLANKS.store(on, Relaxed);
}
