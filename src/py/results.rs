//! Results as Python objects.

use super::object::wrap;
use super::sizes::size;
use crate::ops::op::{Op, Ret, Value};
use crate::ops::schema::Returns;
use crate::ops::table;
use crate::{Scalar, Tensor};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

/// A result as a Python object.
#[inline]
pub fn to_python<'py>(py: Python<'py>, r: Ret, op: &'static Op) -> PyResult<Bound<'py, PyAny>> {
    match r {
        Ret::One(t) => wrap(py, t),
        other => others(py, other, op),
    }
}

/// Results that are not one new tensor.
fn others<'py>(py: Python<'py>, r: Ret, op: &'static Op) -> PyResult<Bound<'py, PyAny>> {
    match r {
        Ret::One(t) => wrap(py, t),
        Ret::Become(t) => wrap(py, *t),
        Ret::Same(_) => Err(pyo3::exceptions::PyRuntimeError::new_err(
            "internal error in torchlike: a result that is an argument",
        )),
        Ret::Tuple(list) => {
            let items = each(py, list)?;
            match &op.schema.returns {
                Returns::Tuple(names) => named_tuple(py, op, names, items, false),
                _ => Ok(PyTuple::new(py, items)?.into_any()),
            }
        }
        Ret::Gaps(list) => {
            let item = |t| match t {
                Some(t) => wrap(py, t),
                None => Ok(py.None().into_bound(py)),
            };
            let items = list.into_iter().map(item).collect::<PyResult<Vec<_>>>()?;
            Ok(PyTuple::new(py, items)?.into_any())
        }
        Ret::List(list) => Ok(PyTuple::new(py, each(py, list)?)?.into_any()),
        Ret::Value(v) => match v {
            Value::None => Ok(py.None().into_bound(py)),
            Value::Scalar(s) => scalar(py, s),
            Value::Ints(v) => size(py, &v),
            Value::DType(d) => Ok(super::types::dtype(py, d)?.into_bound(py).into_any()),
        },
    }
}

fn each(py: Python<'_>, list: Vec<Tensor>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    list.into_iter().map(|t| wrap(py, t)).collect()
}

/// A number as a Python object.
pub fn scalar(py: Python<'_>, s: Scalar) -> PyResult<Bound<'_, PyAny>> {
    Ok(match s {
        Scalar::Bool(b) => pyo3::types::PyBool::new(py, b).to_owned().into_any(),
        Scalar::Int(i) => i.into_pyobject(py)?.into_any(),
        Scalar::UInt(u) => u.into_pyobject(py)?.into_any(),
        Scalar::Float(f) => f.into_pyobject(py)?.into_any(),
        Scalar::Complex(c) => c.into_pyobject(py)?.into_any(),
    })
}

/// A result with names, of the tensors that were given as `out=` or of new ones.
pub(super) fn named_tuple<'py>(
    py: Python<'py>,
    op: &'static Op,
    names: &[&'static str],
    items: Vec<Bound<'py, PyAny>>,
    given: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if names.iter().all(|n| n.is_empty()) {
        return Ok(PyTuple::new(py, items)?.into_any());
    }
    // Python code makes the classes of an operator's results, once; those of `out=` have a class of their own.
    static CLASSES: PyOnceLock<Vec<[PyOnceLock<Py<PyAny>>; 2]>> = PyOnceLock::new();
    let made = || {
        table()
            .iter()
            .map(|_| [PyOnceLock::new(), PyOnceLock::new()])
            .collect()
    };
    let classes = CLASSES.get_or_init(py, made);
    let class = classes[op.id][usize::from(given)].get_or_try_init(py, || {
        let mut name = op.path().replace('.', "_");
        if given && name != "histogramdd" {
            name.push_str("_out");
        }
        let fields = (name, PyTuple::new(py, names)?);
        let module = py.import("torchlike.return_types")?;
        PyResult::Ok(module.call_method1("_class", fields)?.unbind())
    })?;
    // The class's own `__new__` is Python code that checks the number of items, which is right here.
    static NEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let new = NEW.get_or_try_init(py, || {
        PyResult::Ok(py.get_type::<PyTuple>().getattr("__new__")?.unbind())
    })?;
    new.bind(py).call1((class, PyTuple::new(py, items)?))
}
