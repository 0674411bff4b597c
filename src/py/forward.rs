//! Forward mode, as `torchlike.autograd.forward_ad` uses it.

use super::object::{PyTensor, wrap};
use crate::layers::autograd::{forward, views};
use crate::layers::batch;
use crate::mode;
use crate::tensor::Meta;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::borrow::Cow;

/// Opens a level, and gives its number.
#[pyfunction]
fn _enter_dual_level() -> u32 {
    forward::enter()
}

/// Closes a level, and those opened since: their tangents are not seen any more.
#[pyfunction]
fn _exit_dual_level(level: u32) {
    forward::exit(level);
}

/// The numbers of the open levels, the lowest first.
#[pyfunction]
fn _dual_levels() -> Vec<u32> {
    forward::open()
}

/// Whether tangents are computed on this thread.
#[pyfunction]
fn _is_fwd_grad_enabled() -> bool {
    forward::is_enabled()
}

/// Computes tangents from now on, or not; gives what was so before.
#[pyfunction]
fn _set_fwd_grad_enabled(on: bool) -> bool {
    forward::enable(on)
}

/// The tensor with a tangent for a level.
///
/// Raises: RuntimeError if the tangent is of another size or device, or the tensor has one already.
#[pyfunction]
fn _with_tangent<'py>(
    t: &Bound<'py, PyTensor>,
    tangent: &Bound<'py, PyTensor>,
    level: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let primal = views::current(t.get().get())?.into_owned();
    let tangent = views::current(tangent.get().get())?.into_owned();
    let (of, like) = (Meta::of(&tangent), Meta::of(&primal));
    if of.shape != like.shape {
        return Err(PyRuntimeError::new_err(format!(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not \
             supported. Tensor is of size {} while the given forward gradient is of size {}.",
            like.shape, of.shape
        )));
    }
    if of.device != like.device {
        return Err(PyRuntimeError::new_err(format!(
            "Trying to set a forward gradient on a different device than that of the original Tensor, this is not \
             supported. Tensor is on {} while the given forward gradient is on {}.",
            like.device, of.device
        )));
    }
    if primal.tangent(level).is_some() {
        return Err(PyRuntimeError::new_err(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is not supported.",
        ));
    }
    if tangent.tangent(level).is_some() {
        return Err(PyRuntimeError::new_err(
            "Setting a forward grad that itself has a forward gradient at the same level 0 is not supported.",
        ));
    }
    let of_all = batch::whole_as(&tangent, &primal)?;
    let of_all = match primal.batch().is_empty() {
        true => forward::laid_as(&primal, of_all)?,
        false => of_all,
    };
    wrap(t.py(), primal.with_tangent(level, of_all))
}

/// The tensor without its tangents of a level and those above, and its tangent of that level.
#[pyfunction]
fn _without_tangent<'py>(
    t: &Bound<'py, PyTensor>,
    level: u32,
) -> PyResult<(Bound<'py, PyAny>, Option<Bound<'py, PyAny>>)> {
    let dual = forward::current(t.get().get());
    let written_elsewhere = matches!(dual, Cow::Owned(_));
    let tangent = match dual.tangent(level) {
        Some(of_all) => Some(wrap(t.py(), batch::example_like(of_all, &dual)?)?),
        None => None,
    };
    let mut primal = dual.into_owned().below(level);
    if written_elsewhere {
        primal = primal.of_new_family();
    }
    Ok((wrap(t.py(), primal)?, tangent))
}

/// Whether a layer above those who watch dispatch has to take a call of the tensor apart: it is dual, or one of a batch.
#[pyfunction]
fn _carries(t: &Bound<'_, PyTensor>) -> bool {
    let held = t.get().get();
    let batched = mode::layers() & mode::BATCHED != 0 && !held.batch().is_empty();
    batched || forward::is_dual(held)
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($f:ident)+) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)+ };
    }
    add!(_enter_dual_level _exit_dual_level _dual_levels _is_fwd_grad_enabled _set_fwd_grad_enabled _with_tangent _without_tangent _carries);
    Ok(())
}
