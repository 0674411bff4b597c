//! Questions about lists of tensors, asked once for each step of an optimizer.

use super::object::{is_plain_tensor, tensor_ref};
use crate::Tensor;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// Whether tensors are complex, if one kernel can take these lists: tensors of the plain classes, all on the CPU or all on
/// meta, those at the same place of each list of one dtype. `None` if not. Empty lists are left out of account.
#[pyfunction]
fn _alike(lists: Vec<Bound<'_, PyList>>) -> Option<bool> {
    let mut lists = lists.into_iter().filter(|l| !l.is_empty());
    let first: Vec<_> = lists.next()?.iter().collect();
    let first = plain(&first)?;
    let device = first.first()?.device();
    let here = |t: &Tensor| t.device() == device;
    if !(device.is_cpu() || device.is_meta()) || !first.iter().all(|t| here(t)) {
        return None;
    }
    for list in lists {
        let items: Vec<_> = list.iter().collect();
        let own = plain(&items)?;
        let pairs = own.iter().zip(&first);
        if own.len() != first.len() || pairs.clone().any(|(t, p)| t.dtype() != p.dtype()) {
            return None;
        }
    }
    Some(first.iter().any(|t| t.dtype().is_complex()))
}

/// The tensors in a list, if nobody made their classes special.
fn plain<'a>(items: &'a [Bound<'_, PyAny>]) -> Option<Vec<&'a Tensor>> {
    let tensor = |o: &'a Bound<'_, PyAny>| match is_plain_tensor(o.get_type_ptr()) {
        true => tensor_ref(o),
        false => None,
    };
    items.iter().map(tensor).collect()
}

/// Adds the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_alike, m)?)
}
