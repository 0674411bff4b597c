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
use crate::ops::core::dispatch;
use crate::ops::core::op::Body;
use crate::ops::core::survey::{Seen, glance};
use crate::ops::{Call, Ret};
use crate::{mode, storage, tensor};
use std::cell::Cell;

/// Which calls a layer sees: each kind is among those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sees {
    /// Every call, as it was made.
    All,
    /// Kernels and views: what composites come down to.
    Leaves,
    /// Kernels alone.
    Kernels,
}

/// Something that watches, changes or answers calls.
pub trait Layer: Sync {
    /// Handles a call; `next` leads to the layers below and then to the body.
    ///
    /// # Errors
    /// Its own, or those of the call.
    fn call(&self, c: Call, next: Next) -> Result<Ret>;
}

/// A place that a layer stands at.
struct Slot {
    layer: &'static dyn Layer,
    /// Which calls it sees.
    sees: Sees,
    /// Any of these brings it in: bits of layers that are on, and flags of arguments.
    asks: u32,
}

const fn slot(layer: &'static dyn Layer, sees: Sees, asks: u32) -> Slot {
    Slot { layer, sees, asks }
}

/// A flag of storages, as a call shows it.
const fn of_storage(flag: u8) -> u32 {
    (flag as u32) << mode::STORAGE_FLAGS
}

/// A flag of tensors, as a call shows it.
const fn of_tensor(flag: u8) -> u32 {
    (flag as u32) << mode::TENSOR_FLAGS
}

/// The slots, outermost first. (Function overrides stand before all of them, in the binding.)
static ORDER: [Slot; 13] = {
    use Sees::{All, Kernels, Leaves};
    use trace::{Level, Tracing};
    [
        slot(&profile::Profile, All, mode::PROFILING),
        slot(&autocast::Autocast, All, mode::AUTOCAST),
        slot(&batch::Batching, All, mode::BATCHED),
        slot(&autograd::forward::Forward, All, mode::FORWARD),
        slot(&Tracing(Level::Recorded), Leaves, mode::COMPOSING),
        slot(&autograd::Autograd, All, mode::GRAD),
        slot(
            &modes::Modes,
            All,
            mode::DISPATCH | of_tensor(tensor::WATCHED),
        ),
        slot(&Tracing(Level::Plain), Leaves, mode::TRACING),
        slot(&tape::Tape, Leaves, mode::COUNTING),
        slot(&bounds::Bounds, All, of_storage(storage::SHRUNK)),
        slot(
            &parts::PartsLayer,
            All,
            mode::QUANTIZED | of_storage(storage::OPAQUE),
        ),
        slot(&fake::Fakes, All, mode::FAKING | mode::FAKE),
        slot(
            &record::Recording,
            Kernels,
            mode::RECORDING | of_storage(storage::SOURCED),
        ),
    ]
};

/// The slot of [`autograd::Autograd`].
const AUTOGRAD: usize = 5;

/// The slots of [`tape::Tape`] and [`fake::Fakes`].
const TAPE: usize = 8;
const FAKES: usize = 11;

/// What brings in any other layer than these two.
const OTHERS: u32 = {
    let (mut asks, mut i) = (0, 0);
    while i < ORDER.len() {
        if i != TAPE && i != FAKES {
            asks |= ORDER[i].asks;
        }
        i += 1;
    }
    asks
};

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
        let word = mode::word();
        let on = word & mode::LAYERS;
        // Who wants gradients matters while they are recorded only.
        let flags = match mode::records_by(word) {
            true => self.seen,
            false => self.seen & !mode::GRAD,
        };
        if on == 0 && flags & mode::ALWAYS == 0 {
            return self.gradients_alone(c, flags);
        }
        let asked = on | flags & !mode::CALL;
        if asked & OTHERS & !mode::GRAD == 0 && self.slot > AUTOGRAD && self.slot <= TAPE {
            let seen = glance(c.args);
            return self.straight(c, seen, asked);
        }
        let body = match c.args.op.def.body {
            Body::Kernel(_) => Sees::Kernels,
            Body::View(_) => Sees::Leaves,
            Body::Compose(_) | Body::Forward(_) => Sees::All,
            Body::Become(_) => Sees::Leaves,
        };
        for (i, at) in ORDER.iter().enumerate().skip(self.slot) {
            if asked & at.asks != 0 && at.sees <= body {
                let slot = i + 1;
                return at.layer.call(c, Self { slot, ..self });
            }
        }
        dispatch::below(c)
    }

    /// As [`call`](Self::call) where none but [`TAPE`] and [`FAKES`] want to see the call.
    fn straight(self, c: Call, seen: Seen, asked: u32) -> Result<Ret> {
        let below = |c: Call| match asked & ORDER[FAKES].asks {
            0 => dispatch::body(c, seen),
            _ => fake::answer(
                c,
                seen,
                Self {
                    slot: FAKES + 1,
                    ..self
                },
            ),
        };
        let leaf = !matches!(c.args.op.def.body, Body::Compose(_) | Body::Forward(_));
        match leaf && asked & mode::COUNTING != 0 {
            true => tape::noted(c, below),
            false => below(c),
        }
    }

    /// As [`call`](Self::call) where no layer is on and no argument asks for one: then only [`AUTOGRAD`] may want it.
    #[inline]
    fn gradients_alone(self, c: Call, flags: u32) -> Result<Ret> {
        for (i, at) in ORDER.iter().enumerate() {
            debug_assert!(i == AUTOGRAD || flags & !mode::CALL & at.asks == 0);
        }
        if self.slot <= AUTOGRAD && flags & mode::GRAD != 0 {
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
pub fn enter(c: Call, seen: Seen) -> Result<Ret> {
    let next = Next {
        slot: 0,
        seen: seen.flags,
    };
    let asked = seen.asked();
    match asked != 0 && asked & OTHERS == 0 {
        true => next.straight(c, seen, asked),
        false => next.call(c),
    }
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
