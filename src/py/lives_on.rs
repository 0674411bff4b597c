//! Objects of leaves whose graph outlives what Python knew of them: the graph keeps them, with all that was noted on them, until it
//! goes itself. While it does, the object holds its place without counting.

#![allow(
    unsafe_code,
    reason = "an object whose last reference is gone gets one again, which is the graph's"
)]

use super::object::PyTensor;
use crate::tensor::link::lock;
use crate::tensor::place::{LEFT, Place};
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

/// The objects that only their graphs keep, by where their places are. It is written and read with the interpreter lock held.
static KEPT: LazyLock<Mutex<HashMap<usize, Py<PyAny>>>> = LazyLock::new(Mutex::default);

fn name(place: &Place) -> usize {
    Place::at(place) as usize
}

/// Gives the object of a leaf, whose last reference has gone, to those who hold the place besides; whether there are any.
///
/// # Safety
/// `o` is an instance of the class that nobody refers to, is whole but for its count, and holds `tensor`.
#[cold]
pub(super) unsafe fn keep(o: *mut PyObject, tensor: &PyTensor) -> bool {
    let Some(place) = tensor.get().own_place() else {
        return false;
    };
    LEFT.get_or_init(|| left);
    // SAFETY: `PyTensor::set` has the handle count again before it replaces it, and so has `taken` before an object may go.
    if !unsafe { Place::lend(place) } {
        return false;
    }
    // SAFETY: the object is whole, and the reference that it gets here is the table's.
    let kept = unsafe {
        ffi::Py_IncRef(o);
        Bound::from_owned_ptr(Python::assume_attached(), o).unbind()
    };
    let at = name(place);
    let old = lock(&KEPT).insert(at, kept);
    drop(old);
    if Place::take_back(place) {
        // The others have gone meanwhile: the object goes as any other, once more.
        let mine = lock(&KEPT).remove(&at);
        drop(mine);
    }
    true
}

/// Makes the object of a leaf that only its graph keeps one that Python keeps; gives the graph's reference.
pub(super) fn taken(tensor: &PyTensor) -> Option<Py<PyAny>> {
    let place = tensor.get().own_place().filter(|p| Place::is_lent(p))?;
    Place::count_again(place);
    lock(&KEPT).remove(&name(place))
}

/// Is told that nobody holds a place but its object.
fn left(at: usize) {
    // When the interpreter ends, the object ends with it.
    Python::try_attach(|py| {
        let holder = lock(&KEPT).get(&at).map(|o| o.clone_ref(py))?;
        let tensor = holder.bind(py).cast::<PyTensor>().ok()?.get();
        let place = tensor.get().own_place()?;
        let mine = Place::take_back(place).then(|| lock(&KEPT).remove(&at));
        drop(mine);
        Some(())
    });
}
