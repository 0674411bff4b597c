//! What stands between a call and its kernel, in fixed slots.
//!
//! A layer is a file with one [`Layer`]. The door asks them in the order of [`ORDER`], outermost first; what a layer passes on
//! goes to the slots below it only. Calls that a composite's body or a replay makes come through the door again.

pub mod autocast;
pub mod autograd;
pub mod batch;
pub mod bounds;
pub mod fake;
pub mod modes;
pub mod partial;
pub mod parts;
pub mod profile;
pub mod program;
pub mod record;
pub mod tape;
pub mod trace;

use crate::Result;
use crate::mode;
use crate::ops::core::dispatch;
use crate::ops::core::op::Body;
use crate::ops::{Call, Ret};
use std::cell::Cell;

/// Which calls a layer sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sees {
    /// Every call, as it was made.
    All,
    /// Kernels and views: what composites come down to.
    Leaves,
    /// Kernels alone.
    Kernels,
}

/// Something that watches, changes or answers calls.
pub trait Layer: Sync {
    /// Which calls it sees.
    fn sees(&self) -> Sees;
    /// Whether it wants a call: by the flags of the arguments, and the layers that are on.
    fn wants(&self, seen: u32, on: u32) -> bool;
    /// Handles a call; `next` leads to the layers below and then to the body.
    ///
    /// # Errors
    /// Its own, or those of the call.
    fn call(&self, c: Call, next: Next) -> Result<Ret>;
}

/// The slots, outermost first. (Function overrides stand before all of them, in the binding.)
const ORDER: [&dyn Layer; 13] = [
    &profile::Profile,
    &autocast::Autocast,
    &batch::Batching,
    &autograd::forward::Forward,
    &trace::Tracing(trace::Level::Recorded),
    &autograd::Autograd,
    &modes::Modes,
    &trace::Tracing(trace::Level::Plain),
    &tape::Tape,
    &bounds::Bounds,
    &parts::PartsLayer,
    &fake::Fakes,
    &record::Recording,
];

/// The slot of [`autograd::Autograd`].
const AUTOGRAD: usize = 5;

/// The rest of the way to the body.
#[derive(Clone, Copy)]
pub struct Next {
    slot: usize,
    seen: u32,
}

impl Next {
    /// Passes a call to the layers below, and then to the body.
    ///
    /// # Errors
    /// What they report.
    pub fn call(self, c: Call) -> Result<Ret> {
        let on = mode::layers();
        if on == 0 && self.seen & mode::ALWAYS == 0 {
            return self.gradients_alone(c);
        }
        let body = match c.args.op.def.body {
            Body::Kernel(_) => Sees::Kernels,
            Body::View(_) => Sees::Leaves,
            Body::Compose(_) | Body::Forward(_) => Sees::All,
            Body::Become(_) => Sees::Leaves,
        };
        for (i, layer) in ORDER.iter().enumerate().skip(self.slot) {
            let shown = match layer.sees() {
                Sees::All => true,
                Sees::Leaves => body != Sees::All,
                Sees::Kernels => body == Sees::Kernels,
            };
            if shown && layer.wants(self.seen, on) {
                let slot = i + 1;
                return layer.call(c, Self { slot, ..self });
            }
        }
        dispatch::below(c)
    }

    /// As [`call`](Self::call) where no layer is on and no argument asks for one: then only [`AUTOGRAD`] may want it.
    #[inline]
    fn gradients_alone(self, c: Call) -> Result<Ret> {
        for (i, layer) in ORDER.iter().enumerate() {
            debug_assert!(i == AUTOGRAD || !layer.wants(self.seen, 0));
        }
        if self.slot <= AUTOGRAD && autograd::Autograd.wants(self.seen, 0) {
            let slot = AUTOGRAD + 1;
            return autograd::Autograd.call(c, Self { slot, ..self });
        }
        dispatch::below(c)
    }

    /// The flags of the call's arguments.
    #[must_use]
    pub fn seen(self) -> u32 {
        self.seen
    }
}

/// Takes a call that somebody wants to see.
///
/// # Errors
/// What the layers and the call report.
#[cold]
pub fn enter(c: Call, seen: u32) -> Result<Ret> {
    Next { slot: 0, seen }.call(c)
}

/// True if factories are recorded on this thread.
#[must_use]
pub fn recording() -> bool {
    mode::layers() & mode::RECORDING != 0
}

/// Runs `f` with nothing watching on this thread.
pub(crate) fn unwatched<R>(f: impl FnOnce() -> R) -> R {
    mode::with_layers(0, f)
}

/// Runs `f` with factories recorded on this thread: what it makes is on meta and can become real later, with the very bits
/// that eager execution would have given.
pub fn meta_init<R>(f: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            record_factories(false);
        }
    }
    record_factories(true);
    let _leave = Leave;
    f()
}

/// Makes a meta tensor real in place: its storage gets the data, and all its views and ties follow. Real tensors are left
/// as they are.
///
/// # Errors
/// If the tensor has no source, or its data cannot be had.
pub fn materialize(t: &crate::Tensor) -> Result<()> {
    record::materialize(t, false)
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Enters (`true`) or leaves the recording of factories on this thread; calls nest.
pub fn record_factories(enter: bool) {
    let depth = if enter {
        DEPTH.get() + 1
    } else {
        DEPTH.get().saturating_sub(1)
    };
    DEPTH.set(depth);
    let bit = if depth > 0 { mode::RECORDING } else { 0 };
    mode::set_layers(mode::layers() & !mode::RECORDING | bit);
}
