//! Questions about lists of tensors, asked once for each step of an optimizer.

use super::object::{is_plain_tensor, tensor_ref, wrap};
use super::wrappers;
use crate::Tensor;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// Whether tensors are complex, if one kernel can take these lists: tensors of the plain classes, all on one device,
/// those at the same place of each list of one dtype. `None` if not. Empty lists are left out of account.
#[pyfunction]
fn _alike(lists: Vec<Bound<'_, PyList>>) -> Option<bool> {
    let mut lists = lists.into_iter().filter(|l| !l.is_empty());
    let first: Vec<_> = lists.next()?.iter().collect();
    let first = plain(&first)?;
    let device = first.first()?.device();
    if !first.iter().all(|t| t.device() == device) {
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

/// The pieces of tensors on meshes in their place, in lists that lie alike at each place: what is done to elements can be done to
/// those of a piece. `None` if none is on a mesh, if they lie otherwise, or have several pieces here.
#[pyfunction]
fn _pieces_alike<'py>(
    py: Python<'py>,
    lists: Vec<Bound<'py, PyList>>,
) -> PyResult<Option<Vec<Bound<'py, PyList>>>> {
    let mut numbers: Vec<Option<u64>> = Vec::new();
    let mut found = Vec::with_capacity(lists.len());
    for list in lists {
        let mut own = Vec::with_capacity(list.len());
        let made = PyList::empty(py);
        for o in list.iter() {
            let Some(t) = tensor_ref(&o) else {
                return Ok(None);
            };
            if !t.is_python() {
                own.push(None);
                made.append(o)?;
                continue;
            }
            let pieces = wrappers::pieces(t.storage());
            let Some([local]) = pieces.as_deref().map(|p| &p.locals[..]) else {
                return Ok(None);
            };
            own.push(pieces.as_deref().map(|p| p.number));
            made.append(wrap(py, local.clone())?)?;
        }
        if numbers.is_empty() {
            numbers = own;
        } else if !own.is_empty() && own != numbers {
            return Ok(None);
        }
        found.push(made);
    }
    Ok(numbers.iter().any(Option::is_some).then_some(found))
}

/// Adds the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_pieces_alike, m)?)?;
    m.add_function(wrap_pyfunction!(_alike, m)?)
}
