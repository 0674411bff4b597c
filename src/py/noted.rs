//! The Python objects of tensors that calls under a dispatch mode are about, so that a mode sees the same objects again.

use super::class::references;
use super::dispatch::on;
use super::object::PyTensor;
use crate::{Tensor, mode};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::cell::{Cell, RefCell};

/// A tensor and its object; the number says when it was noted.
struct Entry {
    at: u64,
    tensor: Tensor,
    object: Py<PyAny>,
    /// A handler gave it, else it is an argument.
    given: bool,
}

thread_local! {
    /// The tensors of the arguments of the calls under way, and results that handlers gave.
    static NOTED: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
    static NEXT: Cell<u64> = const { Cell::new(0) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Notes the objects of a call's arguments until it is dropped.
pub struct Noted(u64);

impl Noted {
    /// Notes tensors among these objects, also inside lists and tuples, if a dispatch mode is on.
    pub fn of<'a, 'py: 'a>(
        objects: impl IntoIterator<Item = &'a Bound<'py, PyAny>>,
    ) -> Option<Self> {
        if !on() {
            return None;
        }
        // What a composite gave up since its last call must not live through this one.
        Python::attach(prune);
        let before = NEXT.get();
        for o in objects {
            if o.is_instance_of::<PyTuple>() || o.is_instance_of::<PyList>() {
                for item in super::data::items(o).unwrap_or_default() {
                    note(&item, false);
                }
            } else {
                note(o, false);
            }
        }
        DEPTH.set(DEPTH.get() + 1);
        Some(Self(before))
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
        let gone = NOTED.with_borrow_mut(|n| {
            let start = n.partition_point(|e| e.at < self.0);
            n.split_off(start)
        });
        // Results that handlers gave live until the outermost call is done.
        if DEPTH.get() > 0 {
            let (given, gone): (Vec<_>, Vec<_>) = gone.into_iter().partition(|e| e.given);
            NOTED.with_borrow_mut(|n| n.extend(given));
            drop(gone);
        }
    }
}

/// Notes a tensor: one that a handler gave, or an argument.
pub(super) fn note(o: &Bound<'_, PyAny>, given: bool) {
    if let Ok(t) = o.cast::<PyTensor>() {
        let entry = Entry {
            at: NEXT.replace(NEXT.get() + 1),
            tensor: t.get().get().clone(),
            object: o.clone().unbind(),
            given,
        };
        NOTED.with_borrow_mut(|n| n.push(entry));
    }
}

pub(super) fn is_same(a: &Tensor, b: &Tensor) -> bool {
    a.lies_as(b)
        && a.is_conj() == b.is_conj()
        && a.is_neg() == b.is_neg()
        && a.nr_alike() == b.nr_alike()
}

/// The object that a tensor came from, if that is noted.
pub(super) fn known(py: Python<'_>, t: &Tensor) -> Option<Py<PyAny>> {
    NOTED.with_borrow(|n| {
        let found = n.iter().rev().find(|e| is_same(&e.tensor, t));
        found.map(|e| e.object.clone_ref(py))
    })
}

/// Gives an object that a handler made the tangents that its tensor has got since; false if it is somebody else's.
pub(super) fn with_tangents(o: &Bound<'_, PyAny>, t: &Tensor) -> bool {
    let Ok(holder) = o.cast::<PyTensor>().map(Bound::get) else {
        return true;
    };
    if t.tangents().is_empty() || !holder.get().tangents().is_empty() {
        return true;
    }
    let made = NOTED.with_borrow(|n| n.iter().any(|e| e.given && e.object.is(o)));
    if made {
        holder.set(holder.get().clone().carrying(t));
    }
    made
}

/// Forgets what is noted outside of calls, but for some tensors.
pub(super) fn forget(keep: impl Fn(&Tensor) -> bool) {
    if DEPTH.get() > 0 {
        return;
    }
    let all = NOTED.take();
    let (kept, gone): (Vec<_>, Vec<_>) = all.into_iter().partition(|e| keep(&e.tensor));
    NOTED.with_borrow_mut(|n| n.extend(kept));
    drop(gone);
}

/// Gives up objects of tensors that nobody else has any more, while a call or a composite goes on; what the text of a
/// gradient makes is kept until its end.
pub(super) fn prune(py: Python<'_>) {
    let within = mode::within().is_some_and(|row| row != mode::FORMULA);
    if DEPTH.get() == 0 && !within {
        return;
    }
    let gone = NOTED.with_borrow_mut(|n| {
        let first = |i: usize, e: &Entry| !n[..i].iter().any(|o| o.object.is(&e.object));
        // Views among these hold what they are views of.
        let viewers = |e: &Entry| -> Vec<usize> {
            let views = n.iter().enumerate().filter(|(i, o)| {
                let base = o.object.bind(py).cast::<PyTensor>().ok();
                let base = base.and_then(|o| o.get().base());
                first(*i, o) && base.is_some_and(|base| base.is(&e.object))
            });
            views.map(|(i, _)| i).collect()
        };
        let views: Vec<Vec<usize>> = n.iter().map(viewers).collect();
        // Nobody else has an object that is referred to as often as it stands here, and by views that nobody has.
        let same = |e: &Entry| n.iter().filter(|o| o.object.is(&e.object)).count();
        let mut alone: Vec<bool> = n
            .iter()
            .zip(&views)
            .map(|(e, views)| references(py, &e.object) == same(e) + views.len())
            .collect();
        while let Some(i) = (0..n.len()).find(|&i| alone[i] && views[i].iter().any(|&v| !alone[v]))
        {
            alone[i] = false;
        }
        let beneath = bases_of(py, n, &alone);
        // A storage is held by each entry, and by each object once.
        let held = |t: &Tensor| -> usize {
            let entries = n
                .iter()
                .enumerate()
                .filter(|(i, e)| alone[*i] && e.tensor.shares_storage(t));
            let noted: usize = entries.map(|(i, e)| 1 + usize::from(first(i, e))).sum();
            let bases = beneath.iter().filter(|b| b.get().get().shares_storage(t));
            noted + bases.count()
        };
        let idle: Vec<bool> = n
            .iter()
            .zip(&alone)
            .map(|(e, a)| *a && e.tensor.storage().use_count() == held(&e.tensor))
            .collect();
        let mut idle = idle.into_iter();
        n.extract_if(.., |_| idle.next() == Some(true))
            .collect::<Vec<_>>()
    });
    drop(gone);
}

/// The objects, not noted themselves, that only views of theirs hold which nobody else has.
fn bases_of(py: Python<'_>, noted: &[Entry], alone: &[bool]) -> Vec<Py<PyTensor>> {
    let mut found: Vec<(Py<PyTensor>, usize)> = Vec::new();
    for (i, e) in noted.iter().enumerate().filter(|(i, _)| alone[*i]) {
        let object = &e.object;
        let base = object.bind(py).cast::<PyTensor>().ok();
        let base = base.and_then(|o| o.get().base().map(|b| b.clone_ref(py)));
        let again = noted[..i].iter().any(|o| o.object.is(object));
        let Some(base) = base.filter(|b| !again && !noted.iter().any(|o| o.object.is(b))) else {
            continue;
        };
        match found.iter_mut().find(|(o, _)| o.is(&base)) {
            Some((_, views)) => *views += 1,
            None => found.push((base, 1)),
        }
    }
    // One reference of each is the list's.
    found.retain(|(b, views)| references(py, b.as_any()) == views + 1);
    found.into_iter().map(|(b, _)| b).collect()
}

/// Gives up objects, so that nobody but the walk back holds what it hands on.
pub(super) fn settled(but: &[Option<Tensor>]) {
    let goes_on = |noted: &Tensor| but.iter().flatten().any(|t| is_same(noted, t));
    Python::attach(|_| forget(goes_on));
}
