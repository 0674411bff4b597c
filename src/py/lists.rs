//! What steps of optimizers ask of lists of tensors, once for all.

use super::object::{PyTensor, is_plain_tensor, tensor_ref, wrap};
use super::types::PyDType;
use super::{data, watch, wrappers};
use crate::ops::f;
use crate::{Device, Tensor};
use pyo3::exceptions::PyKeyError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

/// Entries of a parameter's state: a number as a tensor, or zeros like the parameter.
type Begins<'py> = Vec<(Bound<'py, PyString>, Option<Bound<'py, PyAny>>)>;

/// The parameters that have a gradient, the gradients, and a list for each of these entries of their state. A state begins
/// with the first gradient; its numbers have a dtype, and are beside the parameter or on the host. `None` if a class or a mode may
/// want to know of what is done, a gradient is no strided tensor, or a state has to begin and nothing is said of how.
#[pyfunction]
fn _gather<'py>(
    params: &Bound<'py, PyList>,
    state: &Bound<'py, PyDict>,
    names: Vec<Bound<'py, PyString>>,
    begins: Begins<'py>,
    dtype: &PyDType,
    beside: bool,
) -> PyResult<Option<Vec<Bound<'py, PyList>>>> {
    let py = params.py();
    if watch::noticed([]) {
        return Ok(None);
    }
    let mut lists = vec![Vec::with_capacity(params.len()); 2 + names.len()];
    for p in params.iter() {
        let Some(t) = known_one(&p) else {
            return Ok(None);
        };
        let grad = match is_plain_tensor(p.get_type_ptr()) {
            true => PyTensor::grad(p.cast()?)?,
            false => p.getattr(intern!(py, "grad"))?,
        };
        if grad.is_none() {
            continue;
        }
        if known_one(&grad).is_none_or(Tensor::has_parts) {
            return Ok(None);
        }
        let own = match state.get_item(&p)? {
            Some(own) => match own.cast_into::<PyDict>() {
                Ok(own) => own,
                Err(_) => return Ok(None),
            },
            None => {
                let own = PyDict::new(py);
                state.set_item(&p, &own)?;
                own
            }
        };
        if own.is_empty() {
            if begins.is_empty() {
                return Ok(None);
            }
            let device = if beside { t.device() } else { Device::CPU };
            for (name, value) in &begins {
                let made = match value {
                    Some(value) => data::from_value(value, Some(dtype.0), device)?,
                    None => f::zeros_like(t)?,
                };
                own.set_item(name, wrap(py, made)?)?;
            }
        }
        for (name, list) in names.iter().zip(&mut lists[2..]) {
            list.push(match own.get_item(name)? {
                Some(entry) => entry,
                None => return Err(PyKeyError::new_err(name.clone().unbind())),
            });
        }
        lists[0].push(p);
        lists[1].push(grad);
    }
    let lists = lists.into_iter().map(|list| PyList::new(py, list));
    lists.collect::<PyResult<_>>().map(Some)
}

/// The tensor in an object, if nobody made its class special.
fn plain_one<'a>(o: &'a Bound<'_, PyAny>) -> Option<&'a Tensor> {
    match is_plain_tensor(o.get_type_ptr()) {
        true => tensor_ref(o),
        false => None,
    }
}

/// The tensor in an object, if nobody made its class special but for one on a mesh.
fn known_one<'a>(o: &'a Bound<'_, PyAny>) -> Option<&'a Tensor> {
    let on_mesh = |t: &&Tensor| t.is_python() && wrappers::pieces(t.storage()).is_some();
    plain_one(o).or_else(|| tensor_ref(o).filter(on_mesh))
}

/// Whether tensors are complex, if one kernel can take these lists: tensors of the plain classes, all on one device,
/// those at the same place of each list of one dtype. `None` if not. Empty lists are left out of account.
#[pyfunction]
fn _alike(lists: Vec<Bound<'_, PyList>>) -> Option<bool> {
    let mut dtypes = Vec::new();
    let mut device = None;
    for list in lists.iter().filter(|l| !l.is_empty()) {
        if dtypes.is_empty() {
            for o in list.iter() {
                let t = plain_one(&o)?;
                if *device.get_or_insert(t.device()) != t.device() {
                    return None;
                }
                dtypes.push(t.dtype());
            }
            continue;
        }
        if list.len() != dtypes.len() {
            return None;
        }
        for (o, dtype) in list.iter().zip(&dtypes) {
            if plain_one(&o)?.dtype() != *dtype {
                return None;
            }
        }
    }
    device.map(|_| dtypes.iter().any(|d| d.is_complex()))
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
            own.push(pieces.as_deref().map(|p| p.kind.number));
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
    m.add_function(wrap_pyfunction!(_gather, m)?)?;
    m.add_function(wrap_pyfunction!(_pieces_alike, m)?)?;
    m.add_function(wrap_pyfunction!(_alike, m)?)
}
