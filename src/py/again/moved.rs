//! Pieces that are brought elsewhere: by Python at first, and then as it was done.

use super::whole::{number_of, tensors_in};
use super::{Asked, CONTEXT, is_quiet, settings, words};
use crate::layers::autocast;
use crate::layers::trace::{self, Level};
use crate::ops::Ret;
use crate::py::object::{PyTensor, tensor_ref, wrap};
use crate::{Tensor, mode};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::sync::atomic::Ordering::Relaxed;

/// What these calls are known by begins as that of no operator does.
const MOVED: u64 = u64::MAX;

impl Asked {
    /// Pieces of a tensor that lies as one number says, which are brought to where another one says; nothing if that is not
    /// remembered.
    fn moved(pieces: &[Tensor], from: u64, to: u64) -> Option<Self> {
        let seen = |t: &Tensor| t.is_python() || t.requires_grad() && mode::grad_enabled();
        if !is_quiet() || trace::is_on() || pieces.iter().any(seen) {
            return None;
        }
        let mut asked = Self::new(Level::Plain);
        let context = CONTEXT.load(Relaxed);
        asked.words.extend([MOVED, settings(), from, to, context]);
        for t in pieces {
            words::push_layout(&mut asked.words, t);
            // Which is the first that is the same.
            let same = pieces.iter().position(|p| p.lies_as(t));
            asked.words.push(same.map_or(0, |i| i as u64));
        }
        asked.tensors.extend(pieces.iter().cloned());
        Some(asked)
    }
}

/// What `asked` gives, if pieces were brought there before.
fn again(asked: &Asked) -> crate::Result<Option<Vec<Tensor>>> {
    Ok(match autocast::without(|| asked.known()).transpose()? {
        Some(Some(Ret::List(list))) => Some(list),
        _ => None,
    })
}

/// The pieces of a tensor that lies as one spec says, brought to where another says.
pub fn brought(
    pieces: &[Tensor],
    from: &Bound<'_, PyAny>,
    to: &Bound<'_, PyAny>,
) -> PyResult<Vec<Tensor>> {
    let py = from.py();
    let (start, end) = (number_of(from)?, number_of(to)?);
    if start == end {
        return Ok(pieces.to_vec());
    }
    if let Some(asked) = Asked::moved(pieces, start, end)
        && let Some(found) = again(&asked)?
    {
        return Ok(found);
    }
    let moves = py.import("torchlike.distributed.tensor._moves")?;
    let objects = pieces.iter().map(|t| wrap(py, t.clone()));
    let objects = objects.collect::<PyResult<Vec<_>>>()?;
    tensors_in(&moves.call_method1("redistribute", (objects, from, to))?)
}

/// The pieces that `slowly(*args)` gives, of these ones, which lie as the number `start` says and are brought to where `end` says.
#[pyfunction]
pub fn _moved<'py>(
    pieces: Vec<Bound<'py, PyTensor>>,
    start: u64,
    end: u64,
    slowly: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slowly.py();
    let own: Vec<Tensor> = pieces.iter().map(|t| t.get().get().clone()).collect();
    let Some(asked) = Asked::moved(&own, start, end) else {
        return slowly.call1(args);
    };
    if let Some(list) = again(&asked)? {
        let list = list.into_iter().map(|t| wrap(py, t));
        return Ok(PyList::new(py, list.collect::<PyResult<Vec<_>>>()?)?.into_any());
    }
    let noting = asked.start();
    let made = autocast::without(|| slowly.call1(args))?;
    let tensor = |o: PyResult<Bound<'py, PyAny>>| Some(tensor_ref(&o.ok()?)?.clone());
    let found: Option<Vec<Tensor>> = made.try_iter()?.map(tensor).collect();
    if let Some(found) = found {
        asked.remember(noting, Some(&Ret::List(found)), false);
    }
    Ok(made)
}
