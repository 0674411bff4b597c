//! The arguments of one call from Python: fitted to the schema of an overload, or the reason why they do not fit.

#![allow(
    unsafe_code,
    reason = "argument vectors of CPython's fast calls are read"
)]

use super::convert::{Failure, TOO_LARGE, convert, size, size_at};
use super::groups::{Group, OUT, Overload};
use super::held::{Held, Waiting, tensor_items};
use super::object::is_tensor;
use super::python_names::python_name;
use super::watch;
use crate::Dims;
use crate::ops::args::{Arg, Values};
use crate::ops::schema::{Kind, Param};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyString, PyTuple};
use smallvec::SmallVec;

/// One call as it comes from the interpreter.
pub(super) struct Incoming<'py> {
    pub(super) py: Python<'py>,
    /// Positional values, `self` of a method first.
    pub(super) positional: SmallVec<[Bound<'py, PyAny>; 6]>,
    pub(super) keywords: SmallVec<[(Bound<'py, PyAny>, Bound<'py, PyAny>); 4]>,
}

/// Why an overload does not fit; [`super::misfit`] has the words.
#[derive(Clone, Copy)]
pub(super) enum Misfit<'a, 'py> {
    /// More positional arguments than this overload takes.
    TooMany,
    /// An argument of another type for the parameter `at`.
    WrongKind {
        at: usize,
        /// Its place among the positional arguments, if it is one.
        position: Option<usize>,
        object: &'a Bound<'py, PyAny>,
    },
    /// Item `item` of a list of integers, for the parameter `at`, is none.
    BadItem {
        at: usize,
        item: usize,
        object: &'a Bound<'py, PyAny>,
    },
    /// A parameter without a default is not given; this many were by position.
    Missing { filled: usize },
    /// A keyword that this overload does not know, or that was given by position.
    Unexpected { filled: usize },
    /// `out=` is not what holds the results.
    WrongOut { object: &'a Bound<'py, PyAny> },
}

pub(super) enum Fail<'a, 'py> {
    Misfit(Misfit<'a, 'py>),
    Error(PyErr),
}

impl<'a, 'py> From<Misfit<'a, 'py>> for Fail<'a, 'py> {
    fn from(m: Misfit<'a, 'py>) -> Self {
        Self::Misfit(m)
    }
}

/// What `out=` is in a list of places of keywords.
pub(super) const OUT_PLACE: usize = usize::MAX;
/// A keyword that an overload does not have.
pub(super) const NOWHERE: usize = usize::MAX - 1;

/// True for parameters that a tensor can be meant for, and is asked; sizes given one by one are among them, as in PyTorch.
fn holds_tensors(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Tensor
            | Kind::Operand
            | Kind::Tensors
            | Kind::VarTensors
            | Kind::OptTensors
            | Kind::VarInts
    )
}

/// True for an object that says its number by `__index__` alone: neither an integer of Python or NumPy nor a tensor.
#[inline]
fn is_foreign_index(o: &Bound<'_, PyAny>) -> bool {
    !o.is_instance_of::<PyInt>() && !o.is_none() && asks_for_index(o)
}

#[cold]
fn asks_for_index(o: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is alive.
    let index = unsafe { ffi::PyIndex_Check(o.as_ptr()) != 0 };
    index && !is_tensor(o) && !is_numpy_integer(o)
}

fn is_numpy_integer(o: &Bound<'_, PyAny>) -> bool {
    let class = o.get_type();
    class.module().is_ok_and(|m| m == "numpy") && class.name().is_ok_and(|n| n != "ndarray")
}

/// Sizes and places are asked for their `__index__`; dimensions and counts have to be integers, as PyTorch has them.
fn takes_index(p: &Param) -> bool {
    const NAMES: [&str; 20] = [
        "diagonal",
        "end",
        "groups",
        "high",
        "ignore_index",
        "index",
        "k",
        "length",
        "low",
        "m",
        "minlength",
        "n",
        "num_samples",
        "output_size",
        "padding_idx",
        "repeats",
        "sections",
        "split_size",
        "start",
        "storage_offset",
    ];
    p.kind == Kind::Int && NAMES.contains(&p.name)
}

impl<'py> Incoming<'py> {
    #[inline]
    pub(super) unsafe fn new(
        py: Python<'py>,
        group: &Group,
        slf: *mut ffi::PyObject,
        args: *const *mut ffi::PyObject,
        nargs: usize,
        kwnames: *mut ffi::PyObject,
    ) -> Self {
        let mut positional = SmallVec::new();
        let mut keywords = SmallVec::new();
        // SAFETY: the caller passes the interpreter's argument vector.
        unsafe {
            if group.method {
                positional.push(Bound::from_borrowed_ptr(py, slf));
            }
            for i in 0..nargs {
                positional.push(Bound::from_borrowed_ptr(py, *args.add(i)));
            }
            if !kwnames.is_null() {
                let n = ffi::PyTuple_Size(kwnames) as usize;
                for i in 0..n {
                    let name =
                        Bound::from_borrowed_ptr(py, ffi::PyTuple_GetItem(kwnames, i as isize));
                    keywords.push((name, Bound::from_borrowed_ptr(py, *args.add(nargs + i))));
                }
            }
        }
        Self {
            py,
            positional,
            keywords,
        }
    }

    /// Every argument, in the order of the call.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Bound<'py, PyAny>> {
        let keywords = self.keywords.iter().map(|(_, v)| v);
        self.positional.iter().chain(keywords)
    }

    /// Those arguments that may take the call over: a tensor where every overload wants a number is only read.
    pub(super) fn asked(&self, group: &Group) -> watch::Asked<'py> {
        let asks = |o: &Bound<'py, PyAny>, fits: &dyn Fn(&Overload) -> Option<Kind>| {
            !is_tensor(o)
                || group
                    .overloads
                    .iter()
                    .any(|v| fits(v).is_some_and(holds_tensors))
        };
        let positional = self.positional.iter().enumerate().filter(|(i, o)| {
            asks(o, &|v| {
                let params = &v.op.schema.params;
                params.get(*i).or(params.last()).map(|p| p.kind)
            })
        });
        let keywords = self.keywords.iter().filter(|(k, o)| {
            asks(o, &|v| match self.place(group, v, k) {
                OUT_PLACE => Some(Kind::Tensor),
                at => v.op.schema.params.get(at).map(|p| p.kind),
            })
        });
        let objects = positional.map(|(_, o)| o).chain(keywords.map(|(_, o)| o));
        let style = match group.takes_nothing() {
            true => watch::Style::Bare,
            false => watch::Style::Parsed,
        };
        watch::asked(objects, style)
    }

    /// Fits the call to one overload: fills `values` in schema order and gives what `out=` is.
    #[inline]
    pub(super) fn parse<'c: 'a, 'a>(
        &'c self,
        group: &Group,
        overload: &Overload,
        held: &'a Held<'py>,
        values: &mut Values<'a>,
    ) -> Result<Option<&'c Bound<'py, PyAny>>, Fail<'c, 'py>> {
        if self.all_plain(overload, values) {
            if self.keywords.is_empty() {
                by_default(overload, values)?;
                return Ok(None);
            }
            if let Some(out) = self.plain_keywords(overload, values) {
                return Ok(out);
            }
            values.clear();
        }
        let mut waiting = Waiting::default();
        self.by_position(overload, held, values, &mut waiting)?;
        let out = if self.keywords.is_empty() {
            by_default(overload, values)?;
            None
        } else {
            self.by_keyword(group, overload, held, values, &mut waiting)?
        };
        waiting.borrow(&self.positional, values);
        Ok(out)
    }

    #[inline]
    fn by_position<'c: 'a, 'a>(
        &'c self,
        overload: &Overload,
        held: &'a Held<'py>,
        values: &mut Values<'a>,
        waiting: &mut Waiting<'a, 'py>,
    ) -> Result<(), Fail<'c, 'py>> {
        let schema = &overload.op.schema;
        let given = self.positional.len();
        let rest = overload
            .varargs
            .filter(|&at| self.spells_out(schema.params[at].kind, at, held));
        if given > schema.positional && rest.is_none() {
            return Err(Misfit::TooMany.into());
        }
        let single = rest.unwrap_or(given);
        for (at, p) in schema.params.iter().enumerate().take(single) {
            values.push(self.value(p, at, Some(at), &self.positional[at], held, waiting)?);
        }
        if let Some(at) = rest {
            values.push(self.rest(schema.params[at].kind, at, held, waiting)?);
        }
        Ok(())
    }

    /// Whether this call gives the items of the list parameter `at` one by one.
    fn spells_out(&self, kind: Kind, at: usize, held: &Held<'py>) -> bool {
        let Some(first) = self.positional.get(at) else {
            return false;
        };
        let list = first.is_instance_of::<PyTuple>() || first.is_instance_of::<PyList>();
        if kind == Kind::VarTensors {
            let several = self.positional.len() > at + 1;
            return is_tensor(first) || !list && (several || held.accepts(first));
        }
        let number = || first.is_exact_instance_of::<PyInt>() || size(first).is_ok();
        !list && (number() || self.positional.len() > at + 1 && held.accepts(first))
    }

    /// The positional arguments from `at` on, as one list.
    fn rest<'c: 'a, 'a>(
        &'c self,
        kind: Kind,
        at: usize,
        held: &Held<'py>,
        waiting: &mut Waiting<'a, 'py>,
    ) -> Result<Arg<'a>, Fail<'c, 'py>> {
        let list = &self.positional[at..];
        let wrong = |object| Misfit::WrongKind {
            at,
            position: Some(at),
            object,
        };
        if kind == Kind::VarTensors {
            if let Some(o) = list.iter().find(|o| !is_tensor(o) && !held.accepts(o)) {
                return Err(wrong(o).into());
            }
            waiting.lists.push((at, list, false));
            return Ok(Arg::None);
        }
        let mut ints: SmallVec<[i64; 6]> = SmallVec::new();
        for object in list {
            match size_at(ints.len(), object) {
                Ok(v) => ints.push(v),
                Err(_) if held.accepts(object) => {}
                Err(Failure::Error(e)) => return Err(Fail::Error(e)),
                Err(Failure::Kind) if ints.is_empty() => return Err(wrong(object).into()),
                Err(_) => {
                    let item = ints.len();
                    return Err(Misfit::BadItem { at, item, object }.into());
                }
            }
        }
        Ok(Arg::Ints(Dims::new(&ints)))
    }

    /// The parameters that were not given by position: from keywords, or their defaults.
    fn by_keyword<'c: 'a, 'a>(
        &'c self,
        group: &Group,
        overload: &Overload,
        held: &'a Held<'py>,
        values: &mut Values<'a>,
        waiting: &mut Waiting<'a, 'py>,
    ) -> Result<Option<&'c Bound<'py, PyAny>>, Fail<'c, 'py>> {
        let filled = values.len();
        let places: SmallVec<[usize; 4]> = (self.keywords.iter())
            .map(|(k, _)| self.place(group, overload, k))
            .collect();
        let mut used = 0;
        for (at, p) in overload.op.schema.params.iter().enumerate().skip(filled) {
            values.push(match places.iter().position(|&place| place == at) {
                Some(k) => {
                    used += 1;
                    self.value(p, at, None, &self.keywords[k].1, held, waiting)?
                }
                None => match overload.default(at) {
                    Some(default) => default,
                    None => return Err(Misfit::Missing { filled }.into()),
                },
            });
        }
        let out = places.iter().position(|&place| place == OUT_PLACE);
        if used + usize::from(out.is_some()) != places.len() {
            return Err(Misfit::Unexpected { filled }.into());
        }
        Ok(out.map(|k| &self.keywords[k].1).filter(|o| !o.is_none()))
    }

    /// The parameter that a keyword names.
    #[inline]
    pub(super) fn place(
        &self,
        group: &Group,
        overload: &Overload,
        keyword: &Bound<'py, PyAny>,
    ) -> usize {
        let named = overload.named(keyword);
        named.unwrap_or_else(|| place_by_text(group, overload, keyword))
    }

    /// The object given by keyword for the parameter `at`.
    pub(super) fn keyword(
        &self,
        group: &Group,
        overload: &Overload,
        at: usize,
    ) -> Option<&Bound<'py, PyAny>> {
        let mut keywords = self.keywords.iter();
        let found = keywords.find(|(k, _)| self.place(group, overload, k) == at);
        found.map(|(_, object)| object)
    }

    #[inline]
    fn value<'c: 'a, 'a>(
        &'c self,
        p: &Param,
        at: usize,
        position: Option<usize>,
        object: &'c Bound<'py, PyAny>,
        held: &'a Held<'py>,
        waiting: &mut Waiting<'a, 'py>,
    ) -> Result<Arg<'a>, Fail<'c, 'py>> {
        if matches!(p.kind, Kind::Tensor | Kind::Operand) && is_tensor(object) {
            waiting.add(at, position, object);
            return Ok(Arg::None);
        }
        let converted = match p.kind {
            Kind::Tensors | Kind::VarTensors | Kind::OptTensors if !object.is_none() => {
                let gaps = p.kind == Kind::OptTensors;
                match tensor_items(object, gaps, held) {
                    Some(items) => {
                        let items = held.keep(items).map_err(Fail::Error)?;
                        waiting.lists.push((at, items, gaps));
                        Ok(Arg::None)
                    }
                    None => Err(Failure::Kind),
                }
            }
            Kind::Int | Kind::IntsOf(_) | Kind::Ints | Kind::OptInts
                if is_foreign_index(object) && !takes_index(p) =>
            {
                Err(Failure::Kind)
            }
            _ if object.is_none()
                && let Some(none) = empty(p) =>
            {
                Ok(none)
            }
            Kind::Int if is_tensor(object) && takes_index(p) => size(object).map(Arg::Int),
            kind => convert(kind, p.optional, object),
        };
        match converted {
            Ok(a) => Ok(a),
            Err(_) if held.accepts(object) => Ok(Arg::None),
            Err(Failure::Error(e)) => Err(Fail::Error(e)),
            Err(Failure::Large) if object.is_instance_of::<PyInt>() => {
                Err(Fail::Error(PyValueError::new_err(TOO_LARGE)))
            }
            Err(_) => Err(Misfit::WrongKind {
                at,
                position,
                object,
            }
            .into()),
        }
    }
}

/// What `None` stands for where no integers are the default.
#[inline]
fn empty<'a>(p: &Param) -> Option<Arg<'a>> {
    match (&p.default, p.optional) {
        (Some(Arg::Ints(none)), false) if none.is_empty() => Some(Arg::Ints(none.clone())),
        _ => None,
    }
}

impl Overload {
    /// The parameter with this very name: keywords in source code are interned, as the table's names are.
    #[inline]
    pub(super) fn named(&self, keyword: &Bound<'_, PyAny>) -> Option<usize> {
        let same = |name: &Py<PyString>| name.as_ptr() == keyword.as_ptr();
        let at = self.names.iter().position(same);
        at.or_else(|| (self.out && OUT.get().is_some_and(same)).then_some(OUT_PLACE))
    }
}

/// The defaults of the parameters that were not given.
#[inline]
fn by_default<'c, 'py>(overload: &Overload, values: &mut Values<'_>) -> Result<(), Fail<'c, 'py>> {
    let filled = values.len();
    match overload.fill_gaps(values) {
        0 => Ok(()),
        _ => Err(Misfit::Missing { filled }.into()),
    }
}

/// What PyTorch calls parameters of a function that have other names in its schema: their public names, and those.
pub(super) fn renamed(group: &Group) -> impl Iterator<Item = (&'static str, &'static str)> {
    const RENAMED: [(&str, &str, &str); 5] = [
        ("torchlike.split", "tensor", "self"),
        ("torchlike.split", "split_size_or_sections", "split_size"),
        ("Tensor.copy_", "other", "src"),
        ("swapaxes", "axis0", "dim0"),
        ("swapaxes", "axis1", "dim1"),
    ];
    let full = group.full_name.trim_end_matches('_');
    let own = RENAMED
        .into_iter()
        .filter(move |(of, ..)| full.ends_with(of.trim_end_matches('_')));
    own.map(|(_, public, own)| (public, own))
}

/// The parameter with the text of a keyword, or with the name that a keyword of NumPy's stands for. Functions call
/// their first tensor `input`; the schema calls it `self`.
#[cold]
fn place_by_text(group: &Group, overload: &Overload, keyword: &Bound<'_, PyAny>) -> usize {
    let Ok(text) = keyword.extract::<&str>() else {
        return NOWHERE;
    };
    if text == "out" && overload.out {
        return OUT_PLACE;
    }
    let named = |name: &str| {
        let is = |own: &Py<PyString>| own.bind(keyword.py()).eq(name);
        overload.names.iter().position(is)
    };
    // Functions that PyTorch writes in Python know no names of NumPy's.
    let native = || python_name(&group.full_name).is_none();
    let other = match text {
        "input" if !group.method => "self",
        "x" | "a" | "x1" if !group.method && native() => "input",
        "axis" if native() => "dim",
        "keepdims" if native() => "keepdim",
        "x2" if native() => "other",
        _ => match renamed(group).find(|(public, _)| *public == text) {
            Some((_, own)) => return overload.op.schema.position(own).unwrap_or(NOWHERE),
            None => return named(text).unwrap_or(NOWHERE),
        },
    };
    named(text).or_else(|| named(other)).unwrap_or(NOWHERE)
}
