//! The Python objects of tensors that calls under a dispatch mode are about, so that a mode sees the same objects again.

use super::dispatch::on;
use super::class::is_alone;
use super::object::PyTensor;
use crate::Tensor;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::cell::{Cell, RefCell};

thread_local! {
    /// The tensors of the arguments of the calls under way, and results that handlers gave.
    static NOTED: RefCell<Vec<(Tensor, Py<PyAny>)>> = const { RefCell::new(Vec::new()) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Notes the objects of a call's arguments until it is dropped.
pub struct Noted(usize);

impl Noted {
    /// Notes tensors among these objects, also inside lists and tuples, if a dispatch mode is on.
    pub fn of<'a, 'py: 'a>(
        objects: impl IntoIterator<Item = &'a Bound<'py, PyAny>>,
    ) -> Option<Self> {
        if !on() {
            return None;
        }
        let before = NOTED.with_borrow(Vec::len);
        for o in objects {
            if o.is_instance_of::<PyTuple>() || o.is_instance_of::<PyList>() {
                for item in super::data::items(o).unwrap_or_default() {
                    note(&item);
                }
            } else {
                note(o);
            }
        }
        DEPTH.set(DEPTH.get() + 1);
        Some(Self(before))
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
        let gone = NOTED.with_borrow_mut(|n| n.split_off(self.0.min(n.len())));
        // Results that handlers gave live until the outermost call is done.
        if DEPTH.get() > 0 {
            NOTED.with_borrow_mut(|n| n.extend(gone));
        }
    }
}

pub(super) fn note(o: &Bound<'_, PyAny>) {
    if let Ok(t) = o.cast::<PyTensor>() {
        let entry = (t.get().get().clone(), o.clone().unbind());
        NOTED.with_borrow_mut(|n| n.push(entry));
    }
}

pub(super) fn is_same(a: &Tensor, b: &Tensor) -> bool {
    a.lies_as(b) && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg()
}

/// The object that a tensor came from, if that is noted.
pub(super) fn known(py: Python<'_>, t: &Tensor) -> Option<Py<PyAny>> {
    NOTED.with_borrow(|n| {
        let found = n.iter().rev().find(|(noted, _)| is_same(noted, t));
        found.map(|(_, o)| o.clone_ref(py))
    })
}

/// Forgets what is noted outside of calls, but for some tensors.
pub(super) fn forget(keep: impl Fn(&Tensor) -> bool) {
    if DEPTH.get() > 0 {
        return;
    }
    let all = NOTED.take();
    let (kept, gone): (Vec<_>, Vec<_>) = all.into_iter().partition(|(noted, _)| keep(noted));
    NOTED.with_borrow_mut(|n| n.extend(kept));
    drop(gone);
}

/// Gives up objects of tensors that nobody else has any more, while a call goes on.
pub(super) fn prune(py: Python<'_>) {
    if DEPTH.get() == 0 {
        return;
    }
    let gone = NOTED.with_borrow_mut(|n| {
        let alone: Vec<bool> = n.iter().map(|(_, o)| is_alone(py, o)).collect();
        // Each of these has its storage twice: here, and in the object.
        let ours = |t: &Tensor| {
            let noted = n.iter().zip(&alone);
            2 * noted
                .filter(|((u, _), a)| **a && u.shares_storage(t))
                .count()
        };
        let idle = n.iter().zip(&alone);
        let idle: Vec<bool> = idle
            .map(|((t, _), a)| *a && t.storage().use_count() == ours(t))
            .collect();
        let mut idle = idle.into_iter();
        n.extract_if(.., |_| idle.next() == Some(true))
            .collect::<Vec<_>>()
    });
    drop(gone);
}

/// Gives up objects, so that nobody but the walk back holds what it hands on.
pub(super) fn settled(but: &[Option<Tensor>]) {
    let goes_on = |noted: &Tensor| but.iter().flatten().any(|t| is_same(noted, t));
    Python::attach(|_| forget(goes_on));
}
