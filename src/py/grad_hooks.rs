//! Hooks that Python puts on tensors and nodes.

use super::error::carried;
use super::graph::{optional, variable_of};
use super::object::{PyTensor, is_tensor, tensor_ref};
use crate::layers::autograd::views;
use crate::tensor::{Grads, Hook, Link, Place, When};
use crate::{Result, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use pyo3::{PyTypeInfo, gc::PyVisit};
use std::any::Any;
use std::sync::Arc;

/// The Python hooks of one moment of one place: a dictionary, in order, that handles take them out of.
struct Table {
    hooks: Py<PyAny>,
    when: When,
}

/// The table of the hooks of a moment, if there ever were any.
fn table_of<'py>(py: Python<'py>, link: &Link, when: When) -> Option<Bound<'py, PyAny>> {
    let hooks = link.hooks(when);
    hooks.iter().find_map(|(_, hook)| {
        let hook: &dyn Any = &**hook;
        Some(hook.downcast_ref::<Table>()?.hooks.bind(py).clone())
    })
}

/// `_backward_hooks`: the table of the hooks of a tensor's gradient, or None.
pub(super) fn of_gradient<'py>(t: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>> {
    let tensor = t.get().get();
    let when = When::Result(tensor.output_nr());
    let found = tensor.link().and_then(|link| table_of(t.py(), link, when));
    Ok(found.unwrap_or_else(|| t.py().None().into_bound(t.py())))
}

/// The table of the hooks of a moment, made when it is first asked for.
pub(super) fn table<'py>(py: Python<'py>, link: &Place, when: When) -> PyResult<Bound<'py, PyAny>> {
    if let Some(hooks) = table_of(py, link, when) {
        return Ok(hooks);
    }
    let rare = link.make_rare();
    let hooks = py.import("collections")?.getattr("OrderedDict")?.call0()?;
    let made = Table {
        hooks: hooks.clone().unbind(),
        when,
    };
    rare.hook(when, Arc::new(made));
    Ok(hooks)
}

impl Hook for Table {
    fn run(&self, link: &Place, grads: &mut Grads, others: Option<&Grads>) -> Result<()> {
        Python::attach(|py| self.call(py, link, grads, others)).map_err(carried)
    }
}

impl Table {
    fn call(
        &self,
        py: Python<'_>,
        link: &Place,
        grads: &mut Grads,
        others: Option<&Grads>,
    ) -> PyResult<()> {
        let hooks = self.hooks.bind(py).call_method0("values")?;
        let hooks = PyList::type_object(py).call1((hooks,))?;
        // All hooks are given the same objects, so what one writes on a gradient the next finds there.
        let mut given = match self.when {
            When::Result(_) => optional(py, grads[0].clone())?,
            When::Before | When::After => all(py, grads)?.into_any(),
            When::Gathered => py.None().into_bound(py),
        };
        let others = match (self.when, others) {
            (When::After, Some(others)) => all(py, others)?,
            _ => PyTuple::empty(py),
        };
        for hook in hooks.try_iter()? {
            let hook = hook?;
            match self.when {
                When::Result(_) => {
                    let made = hook.call1((&given,))?;
                    if !made.is_none() {
                        grads[0] = Some(checked(&hook, grads[0].as_ref(), &made)?);
                        given = made;
                    }
                }
                When::Before | When::After => {
                    let made = match self.when {
                        When::Before => hook.call1((&given,))?,
                        _ => hook.call1((&given, &others))?,
                    };
                    replace(&hook, grads, &made)?;
                    if !made.is_none() {
                        given = made;
                    }
                }
                When::Gathered => {
                    let Some(leaf) = link.as_leaf() else { continue };
                    let leaf = variable_of(py, link, leaf)?;
                    let made = hook.call1((&leaf,))?;
                    if made.is_none() || made.is(&leaf) {
                        continue;
                    }
                    if !is_tensor(&made) {
                        return Err(no_tensor(&made));
                    }
                    return Err(PyRuntimeError::new_err(
                        "Tensor post accumulate grad hooks should return None.",
                    ));
                }
            }
        }
        Ok(())
    }
}

fn all<'py>(py: Python<'py>, grads: &Grads) -> PyResult<Bound<'py, PyTuple>> {
    let items = grads.iter().map(|g| optional(py, g.clone()));
    PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)
}

fn hook_name(hook: &Bound<'_, PyAny>) -> String {
    hook.getattr("__name__")
        .map_or_else(|_| "<unknown>".to_owned(), |n| n.to_string())
}

fn no_tensor(made: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!(
        "expected Variable, but hook returned '{}'",
        super::types::type_name(made)
    ))
}

/// What a hook gave in place of a gradient.
fn checked(
    hook: &Bound<'_, PyAny>,
    old: Option<&Tensor>,
    made: &Bound<'_, PyAny>,
) -> PyResult<Tensor> {
    let Some(new) = tensor_ref(made) else {
        return Err(no_tensor(made));
    };
    let name = || hook_name(hook);
    let Some(old) = old else {
        return Err(PyRuntimeError::new_err(
            "can't replace a None gradient with a non-None value",
        ));
    };
    if old.dtype() != new.dtype() {
        return Err(PyRuntimeError::new_err(format!(
            "hook '{}' has changed the type of value (was {} got {})",
            name(),
            crate::ops::view::shape::type_name(old),
            crate::ops::view::shape::type_name(new),
        )));
    }
    if old.device() != new.device() {
        return Err(PyRuntimeError::new_err(format!(
            "hook '{}' has changed the device of value",
            name()
        )));
    }
    if old.shape() != new.shape() {
        return Err(PyRuntimeError::new_err(format!(
            "hook '{}' has changed the size of value",
            name()
        )));
    }
    Ok(new.clone())
}

/// Puts what a hook gave in the place of all gradients.
fn replace(hook: &Bound<'_, PyAny>, grads: &mut Grads, made: &Bound<'_, PyAny>) -> PyResult<()> {
    if made.is_none() {
        return Ok(());
    }
    let Ok(items) = made.cast::<PyTuple>() else {
        return Err(PyTypeError::new_err(format!(
            "expected tuple, but hook returned '{}'",
            super::types::type_name(made)
        )));
    };
    if items.len() != grads.len() {
        return Err(PyRuntimeError::new_err(format!(
            "hook '{}' has returned an incorrect number of values (got {}, but expected {})",
            hook_name(hook),
            items.len(),
            grads.len()
        )));
    }
    for (place, item) in grads.iter_mut().zip(items) {
        *place = if item.is_none() {
            None
        } else {
            Some(checked(hook, place.as_ref(), &item)?)
        };
    }
    Ok(())
}

/// The table of a tensor's hooks: of its gradient, or (`gathered`) of what follows once its leaf has gathered it.
#[pyfunction]
fn _tensor_hooks<'py>(t: &Bound<'py, PyTensor>, gathered: bool) -> PyResult<Bound<'py, PyAny>> {
    let tensor = views::current(t.get().get())?;
    let Some(link) = tensor.link() else {
        return Err(PyRuntimeError::new_err(
            "cannot register a hook on a tensor that doesn't require gradient",
        ));
    };
    let when = if gathered {
        When::Gathered
    } else {
        When::Result(tensor.output_nr())
    };
    table(t.py(), link, when)
}

/// Shows the garbage collector the tables that a place holds.
pub(super) fn visit(
    link: &Link,
    visit: &PyVisit<'_>,
) -> std::result::Result<(), pyo3::PyTraverseError> {
    let Some(rare) = link.rare() else {
        return Ok(());
    };
    for (_, hook) in rare.hooks(|_| true) {
        let hook: &dyn Any = &*hook;
        if let Some(table) = hook.downcast_ref::<Table>() {
            visit.call(&table.hooks)?;
        }
    }
    Ok(())
}

/// Adds the function to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_tensor_hooks, m)?)
}
