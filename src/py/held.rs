//! What a call from Python holds while its arguments are read: items of lists, and tensors that wait until no code of Python
//! runs any more.

use super::convert::Failure;
use super::object::{is_tensor, tensor_ref};
use super::watch;
use crate::ops::args::Arg;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::cell::OnceCell;

/// What a call holds while it is parsed and runs.
#[derive(Default)]
pub(super) struct Held<'py> {
    /// Items of a list of tensors: the list itself may change when Python code runs.
    list: OnceCell<Vec<Bound<'py, PyAny>>>,
    /// Of further lists. In a box, as few calls have any.
    lists: OnceCell<Box<[OnceCell<Vec<Bound<'py, PyAny>>>; 7]>>,
    /// Objects that take calls over fit every parameter.
    lenient: bool,
}

impl<'py> Held<'py> {
    /// For a call that somebody else will answer: only its form is looked at.
    pub(super) fn lenient() -> Self {
        Self {
            lenient: true,
            ..Self::default()
        }
    }

    pub(super) fn keep(&self, items: Vec<Bound<'py, PyAny>>) -> PyResult<&[Bound<'py, PyAny>]> {
        if self.list.get().is_none() {
            return Ok(self.list.get_or_init(|| items));
        }
        let lists = self.lists.get_or_init(Box::default);
        match lists.iter().find(|l| l.get().is_none()) {
            Some(free) => Ok(free.get_or_init(|| items)),
            None => Err(PyTypeError::new_err("too many lists of tensors")),
        }
    }

    /// True for an object that takes the call over: whether it fits is its own matter.
    pub(super) fn accepts(&self, o: &Bound<'py, PyAny>) -> bool {
        self.lenient && watch::overrides(o)
    }
}

/// Tensors are borrowed last, when no Python code runs any more: these parameters wait for it.
#[derive(Default)]
pub(super) struct Waiting<'a, 'py> {
    /// Tensors given by position: bits of their parameters.
    positional: u64,
    tensors: SmallVec<[(usize, &'a Bound<'py, PyAny>); 1]>,
    pub(super) lists: SmallVec<[(usize, &'a [Bound<'py, PyAny>], bool); 1]>,
}

impl<'a, 'py> Waiting<'a, 'py> {
    /// Has a tensor wait.
    #[inline]
    pub(super) fn add(
        &mut self,
        at: usize,
        position: Option<usize>,
        object: &'a Bound<'py, PyAny>,
    ) {
        if position.is_some() && at < u64::BITS as usize {
            self.positional |= 1 << at;
        } else {
            self.tensors.push((at, object));
        }
    }

    /// Puts the tensors that wait into their places.
    #[inline]
    pub(super) fn borrow(&self, positional: &'a [Bound<'py, PyAny>], values: &mut [Arg<'a>]) {
        let mut left = self.positional;
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            values[at] = tensor_ref(&positional[at]).map_or(Arg::None, Arg::Tensor);
            left &= left - 1;
        }
        for (at, o) in &self.tensors {
            values[*at] = tensor_ref(o).map_or(Arg::None, Arg::Tensor);
        }
        for (at, list, gaps) in &self.lists {
            values[*at] = if *gaps {
                Arg::OptTensors(list.iter().map(tensor_ref).collect())
            } else {
                Arg::Tensors(list.iter().filter_map(tensor_ref).collect())
            };
        }
    }
}

/// The items of a list or tuple of tensors, or None if it is something else.
pub(super) fn tensor_items<'py>(
    o: &Bound<'py, PyAny>,
    gaps: bool,
    held: &Held<'py>,
) -> Option<Vec<Bound<'py, PyAny>>> {
    let mut items = Vec::new();
    super::convert::each(o, |item| {
        if !(is_tensor(item) || gaps && item.is_none() || held.accepts(item)) {
            return Err(Failure::Kind);
        }
        items.push(item.clone());
        Ok(())
    })
    .ok()?;
    Some(items)
}
