//! A call as it is shown to those who may take it over, one after the other.

use super::object::PyTensor;
use super::watch::{Asked, MODES, OFF, Style, state};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

/// A call as those who are asked see it.
pub struct Shown<'a, 'py> {
    /// The public function.
    pub function: &'a Bound<'py, PyAny>,
    /// Its name in messages: `torch.add`, `torch.Tensor.sum`.
    pub name: &'a str,
    /// How it is called.
    pub style: Style,
    /// Positional arguments.
    pub args: &'a Bound<'py, PyTuple>,
    /// Keywords.
    pub kwargs: Option<&'a Bound<'py, PyDict>>,
}

impl<'py> Shown<'_, 'py> {
    /// Asks the innermost mode, then the arguments, until one answers.
    ///
    /// # Errors
    /// What the one who answers raises; a `TypeError` if nobody answers.
    pub fn ask(&self, asked: &Asked<'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = self.function.py();
        let types = PyTuple::new(py, asked.iter().map(Bound::get_type))?;
        let mut mode = None;
        if state() & (OFF | MODES) == MODES {
            let (result, asked_mode) = super::modes::ask_innermost(self, &types)?;
            if !result.is(py.NotImplemented().bind(py)) {
                return Ok(result);
            }
            mode = Some(asked_mode);
        }
        for o in asked {
            let handler = o.getattr(intern!(py, "__torch_function__"))?;
            warn_plain_method(o, &handler)?;
            let result = self.call(&handler, &types, self.kwargs)?;
            if !result.is(py.NotImplemented().bind(py)) {
                return Ok(result);
            }
        }
        Err(self.nobody(asked, mode)?)
    }

    /// Calls a handler as PyTorch does: keywords are left out if there are none.
    pub(super) fn call(
        &self,
        handler: &Bound<'py, PyAny>,
        types: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match kwargs {
            Some(k) => handler.call1((self.function, types, self.args, k)),
            None if self.style == Style::Python => {
                handler.call1((self.function, types, self.args, PyDict::new(handler.py())))
            }
            None => handler.call1((self.function, types, self.args)),
        }
    }

    fn nobody(&self, asked: &Asked<'py>, mode: Option<Bound<'py, PyAny>>) -> PyResult<PyErr> {
        if self.style == Style::Python {
            let py = self.function.py();
            let classes = PyList::new(py, asked.iter().map(Bound::get_type))?;
            let mut text = format!(
                "no implementation found for '{}' on types that implement __torch_function__: {}",
                self.name,
                classes.repr()?
            );
            if let Some(mode) = mode {
                text += &format!(" nor in mode {}", mode.repr()?);
            }
            return Ok(PyTypeError::new_err(text));
        }
        let mut text = format!(
            "Multiple dispatch failed for '{}'; all __torch_function__ handlers returned NotImplemented:\n\n",
            self.name
        );
        if let Some(mode) = mode {
            text += &format!("  - mode object {}\n", mode.repr()?);
        }
        for o in asked {
            text += &format!("  - tensor subclass {}\n", o.get_type().repr()?);
        }
        text += "\nFor more information, try re-running with TORCH_LOGS=not_implemented";
        Ok(PyTypeError::new_err(text))
    }
}

/// A handler of a tensor class that is an ordinary method gets the tensor as `self`: a mistake that PyTorch warns of once.
fn warn_plain_method(o: &Bound<'_, PyAny>, handler: &Bound<'_, PyAny>) -> PyResult<()> {
    static WARNED: PyOnceLock<()> = PyOnceLock::new();
    let py = o.py();
    let bound_to_object = handler
        .getattr_opt(intern!(py, "__self__"))?
        .is_some_and(|s| s.is(o));
    if bound_to_object && o.is_instance_of::<PyTensor>() && WARNED.set(py, ()).is_ok() {
        let text = "Defining your `__torch_function__` as a plain method is deprecated and will be an error in future, please define it as a classmethod. (Triggered internally at python_arg_parser.cpp.)";
        py.import("warnings")?.call_method1("warn", (text,))?;
    }
    Ok(())
}
