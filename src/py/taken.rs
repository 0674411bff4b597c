//! What handlers in Python answered, as results of calls.

use super::noted::{is_same, note};
use super::object::{PyTensor, is_tensor};
use crate::Tensor;
use crate::ops::args::{Arg, Args};
use crate::ops::op::{Ret, Value};
use crate::ops::schema::Returns;
use crate::ops::{Call, Form};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// The tensor that a handler gave; its object lives until the call is done.
fn taken_tensor(o: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let Ok(t) = o.cast::<PyTensor>() else {
        return Err(PyRuntimeError::new_err(format!(
            "Unable to cast {} to Tensor",
            o.str()?
        )));
    };
    note(o, true);
    Ok(t.get().get().clone())
}

fn taken_tensors(o: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    super::data::items(o)?.iter().map(taken_tensor).collect()
}

/// Several tensors, or `None` in place of those that were not asked for.
fn taken_gaps(o: &Bound<'_, PyAny>) -> PyResult<Vec<Option<Tensor>>> {
    let taken = |item: &Bound<'_, PyAny>| match item.is_none() {
        true => Ok(None),
        false => taken_tensor(item).map(Some),
    };
    super::data::items(o)?.iter().map(taken).collect()
}

/// What Python answered, as the result of the call; `first` is the object of the first argument.
pub fn taken(answer: &Bound<'_, PyAny>, c: &Call, first: &Bound<'_, PyAny>) -> PyResult<Ret> {
    match &c.form {
        Form::InPlace(_) | Form::Within(_) if answer.is_none() => return Ok(Ret::Same(0)),
        Form::InPlace(target) | Form::Within(target) => {
            let t = taken_tensor(answer)?;
            // A write gives what was written, whatever else a handler made: it may have changed its shape, no more.
            return Ok(if is_same(&t, target) || !answer.is(first) {
                Ret::Same(0)
            } else {
                Ret::Become(Box::new(t))
            });
        }
        Form::Out(_) => {
            return Ok(Ret::Tuple(match is_tensor(answer) {
                true => vec![taken_tensor(answer)?],
                false => taken_tensors(answer)?,
            }));
        }
        Form::New => {}
    }
    Ok(match &c.args.op.schema.returns {
        Returns::Tuple(_) => match taken_gaps(answer)? {
            gaps if gaps.iter().all(Option::is_some) => {
                Ret::Tuple(gaps.into_iter().flatten().collect())
            }
            gaps => Ret::Gaps(gaps),
        },
        // Some functions give one tensor, or more if they are asked to.
        Returns::One if answer.is_instance_of::<PyTuple>() => Ret::Tuple(taken_tensors(answer)?),
        Returns::One if answer.is_none() => Ret::Value(Value::None),
        Returns::One => same_or_one(taken_tensor(answer)?, c.args),
        _ if is_tensor(answer) => same_or_one(taken_tensor(answer)?, c.args),
        // Before numbers: a tensor of one integer passes for one.
        Returns::List => Ret::List(taken_tensors(answer)?),
        _ if answer.is_instance_of::<PyTuple>() || answer.is_instance_of::<PyList>() => {
            match answer.extract::<Vec<i64>>() {
                Ok(ints) => Ret::Value(Value::Ints(ints)),
                Err(_) => Ret::List(taken_tensors(answer)?),
            }
        }
        _ if answer.is_none() => Ret::Value(Value::None),
        _ => match super::convert::number(answer) {
            Some(s) => Ret::Value(Value::Scalar(s)),
            None => Ret::One(taken_tensor(answer)?),
        },
    })
}

fn same_or_one(t: Tensor, args: &Args<'_>) -> Ret {
    match args.values.first() {
        // A view is another tensor, also where it lies as the first does: `detach` above all.
        Some(Arg::Tensor(first)) if is_same(first, &t) && !t.is_view() && !args.op.is_view() => {
            Ret::Same(0)
        }
        _ => Ret::One(t),
    }
}
