//! Dispatch modes and tensors whose class handles its calls: the place where the binding's hook stands.
//!
//! The core knows no Python: a hook is a function that takes a leaf's call and answers it, or passes it on.

use super::autograd::shown;
use super::{Layer, Next, of_tensor};
use crate::ops::op::{Body, Row};
use crate::ops::{Call, Form, Ret};
use crate::tensor::WATCHED;
use crate::{Result, Scalar, Tensor, mode};
use std::cell::Cell;
use std::sync::OnceLock;

/// Answers a call, or passes it on.
pub type Hook = fn(Call, Next) -> Result<Ret>;

static HOOK: OnceLock<Hook> = OnceLock::new();

/// Sets the hook of this process; the first one stays.
pub fn set_hook(hook: Hook) {
    HOOK.get_or_init(|| hook);
}

/// Lets go what is kept beside the graph, but for some tensors.
pub type Settled = fn(&[Option<Tensor>]);

static SETTLED: OnceLock<Settled> = OnceLock::new();

/// Sets who is told when results of calls are about to be kept: who keeps them beside that should let them go.
pub fn set_settled(f: Settled) {
    SETTLED.get_or_init(|| f);
}

/// The name of the operator that a call is to those who watch dispatch, as `aten::add_.Tensor`.
pub type Named = fn(&Call) -> Option<String>;

static NAMED: OnceLock<Named> = OnceLock::new();

/// Sets who is asked for names of operators.
pub fn set_named(f: Named) {
    NAMED.get_or_init(|| f);
}

/// The name of the operator that a call is; that of the row where nobody knows better.
#[must_use]
pub fn named(c: &Call) -> String {
    let known = NAMED.get().and_then(|f| f(c));
    known.unwrap_or_else(|| format!("aten::{}_", c.args.op.public_name()))
}

/// The only element of a tensor from those who watch dispatch, or none if nobody does.
pub type Element = fn(&Tensor) -> Result<Option<Scalar>>;

/// Refuses what reads all elements of a tensor, if someone who watches dispatch must not miss that.
pub type Reading = fn(&Tensor) -> Result<()>;

static READERS: OnceLock<(Element, Reading)> = OnceLock::new();

/// Sets who is asked for an element, and who is told that all are read.
pub fn set_readers(element: Element, reading: Reading) {
    READERS.get_or_init(|| (element, reading));
}

/// The only element of a tensor without memory, from its class if that handles its calls.
///
/// # Errors
/// What the class reports, or that nobody has it.
pub fn element(t: &Tensor) -> Result<Scalar> {
    let known = match READERS.get() {
        Some((element, _)) if t.is_python() => element(t)?,
        _ => None,
    };
    known.ok_or_else(crate::ops::core::helpers::no_storage)
}

/// The only element of a tensor from a dispatch mode, if one is on.
///
/// # Errors
/// What the mode reports.
pub fn shown_element(t: &Tensor) -> Result<Option<Scalar>> {
    match READERS.get() {
        Some((element, _)) if watch() => element(t),
        _ => Ok(None),
    }
}

/// Tells dispatch modes that all elements of a tensor are read.
///
/// # Errors
/// If a mode must not miss that.
pub fn reading(t: &Tensor) -> Result<()> {
    match READERS.get() {
        Some((_, reading)) if watch() => reading(t),
        _ => Ok(()),
    }
}

/// True if a dispatch mode is on.
#[must_use]
pub fn watch() -> bool {
    mode::layers() & mode::DISPATCH != 0
}

/// Tells it, if a dispatch mode is on or the tensors' class handles its calls; `but` goes on to another call.
pub fn settled(but: &[Option<Tensor>], handled: bool) {
    if (handled || watch())
        && let Some(f) = SETTLED.get()
    {
        f(but);
    }
}

thread_local! {
    /// Nobody who is on wants to see views, and what is done element by element.
    static PASSING: Cell<bool> = const { Cell::new(false) };
}

/// Switches dispatch modes on this thread on or off, and returns whether they were on. `passing`: they are not shown views,
/// and what is done element by element.
pub fn switch(on: bool, passing: bool) -> bool {
    PASSING.set(passing);
    let layers = mode::layers();
    let bit = if on { mode::DISPATCH } else { 0 };
    mode::set_layers(layers & !mode::DISPATCH | bit) & mode::DISPATCH != 0
}

/// Runs `f` while no dispatch mode is shown its calls.
///
/// # Errors
/// Those of `f`.
pub fn unseen<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    struct Back(bool, bool);
    impl Drop for Back {
        fn drop(&mut self) {
            switch(self.0, self.1);
        }
    }
    let passing = PASSING.get();
    let _back = Back(switch(false, passing), passing);
    f()
}

/// Shows calls to the hook.
pub struct Modes;

impl Layer for Modes {
    fn call(&self, c: Call, next: Next) -> Result<Ret> {
        let handled = next.seen() & of_tensor(WATCHED) != 0;
        match HOOK.get() {
            Some(_) if !handled && PASSING.get() && is_light(&c) => next.call(c),
            Some(hook) if handled && c.args.op.is_view() && matches!(c.form, Form::New) => {
                let args = c.args;
                let ret = hook(c, next)?;
                shown::note(args, &ret);
                Ok(ret)
            }
            Some(hook) => hook(c, next),
            None => next.call(c),
        }
    }
}

/// True for views, and for what is done element by element.
fn is_light(c: &Call) -> bool {
    match &c.args.op.def.body {
        Body::View(_) => true,
        Body::Kernel(k) => matches!(k.row, Row::Map(_)),
        _ => false,
    }
}
