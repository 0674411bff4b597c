//! The arguments of one call from Python: fitted to the schema of an overload, or the reason why they do not fit.

#![allow(
    unsafe_code,
    reason = "argument vectors of CPython's fast calls are read"
)]

use super::convert::{Failure, convert, kind_name};
use super::messages;
use super::object::{is_tensor, tensor_ref};
use super::types::type_name;
use super::watch;
use crate::Dims;
use crate::ops::args::{Arg, Args};
use crate::ops::op::Op;
use crate::ops::schema::{Kind, Param};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use smallvec::SmallVec;
use std::cell::OnceCell;

use super::call::{Group, OUT, Overload};

/// What a call holds while it is parsed and runs.
#[derive(Default)]
pub(super) struct Held<'py> {
    /// Items of lists of tensors: the lists themselves may change when Python code runs.
    lists: [OnceCell<Vec<Bound<'py, PyAny>>>; 4],
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

    fn keep(&self, items: Vec<Bound<'py, PyAny>>) -> Result<&[Bound<'py, PyAny>], Fail> {
        match self.lists.iter().find(|l| l.get().is_none()) {
            Some(free) => Ok(free.get_or_init(|| items)),
            None => Err(Fail::Error(PyTypeError::new_err(
                "too many lists of tensors",
            ))),
        }
    }

    /// True for an object that takes the call over: whether it fits is its own matter.
    fn accepts(&self, o: &Bound<'py, PyAny>) -> bool {
        self.lenient && watch::overrides(o)
    }
}

/// Tensors are borrowed last, when no Python code runs any more: these parameters wait for it.
#[derive(Default)]
struct Waiting<'a, 'py> {
    tensors: SmallVec<[(usize, &'a Bound<'py, PyAny>); 3]>,
    lists: SmallVec<[(usize, &'a [Bound<'py, PyAny>], bool); 1]>,
}

impl<'a> Waiting<'a, '_> {
    /// Puts the tensors that wait into their places.
    #[inline]
    fn borrow(&self, values: &mut [Arg<'a>]) {
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

/// One call as it comes from the interpreter.
pub(super) struct Incoming<'py> {
    pub(super) py: Python<'py>,
    /// Positional values, `self` of a method first.
    pub(super) positional: SmallVec<[Bound<'py, PyAny>; 6]>,
    pub(super) keywords: SmallVec<[(Bound<'py, PyAny>, Bound<'py, PyAny>); 4]>,
}

/// Why an overload does not fit a call; the text of the error it would raise alone.
pub(super) struct Misfit(pub(super) PyErr);

pub(super) enum Fail {
    Misfit(Misfit),
    Error(PyErr),
}

/// Where an argument goes.
struct Slot<'a> {
    group: &'a Group,
    p: &'a Param,
    /// Its place among the positional arguments, if it is one.
    position: Option<usize>,
    /// Its place in the schema.
    at: usize,
}

/// The items of a list or tuple of tensors, or None if it is something else.
fn tensor_items<'py>(
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

impl<'py> Incoming<'py> {
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

    /// The error of a call that fits no overload: that of the only one that could be meant, else the list of all.
    #[cold]
    pub(super) fn refusal(&self, group: &Group, mut misfits: SmallVec<[Misfit; 2]>) -> PyErr {
        // A list whose first item is an integer decides which overload is meant.
        let unpacking = |m: &Misfit| m.0.value(self.py).to_string().contains("failed to unpack");
        if let Some(at) = misfits.iter().position(unpacking) {
            return misfits.swap_remove(at).0;
        }
        let hidden = usize::from(group.method);
        let lines = messages::lines(
            &group.name,
            group.method,
            group.overloads.iter().map(|o| (o.op, o.out)),
        );
        let given = self.positional.len() - hidden + self.keywords.len();
        let meant = match lines.as_slice() {
            [only] if !messages::has_old_forms(&group.name) => Some(only.overload),
            _ => {
                let mut fitting = lines.iter().filter(|l| l.takes(given));
                fitting
                    .next()
                    .filter(|_| fitting.next().is_none())
                    .map(|l| l.overload)
            }
        };
        if let Some(misfit) = meant.and_then(|i| misfits.into_iter().nth(i)) {
            return misfit.0;
        }
        PyTypeError::new_err(messages::invalid_combination(
            &group.name,
            &lines,
            &self.positional[hidden..],
            &self.keywords,
        ))
    }

    /// Every argument, in the order of the call.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Bound<'py, PyAny>> {
        let keywords = self.keywords.iter().map(|(_, v)| v);
        self.positional.iter().chain(keywords)
    }

    /// Fits the call to one overload.
    pub(super) fn parse<'a>(
        &'a self,
        group: &Group,
        overload: &Overload,
        held: &'a Held<'py>,
    ) -> Result<(Args<'a>, Option<&'a Bound<'py, PyAny>>), Fail> {
        let params = &overload.op.schema.params;
        let n = params.len();
        let mut values: SmallVec<[Arg<'a>; 6]> = SmallVec::new();
        let mut waiting = Waiting::default();
        let given = self.positional.len();
        let max = overload.op.schema.positional;
        let varargs = self.varargs_at(params, given, max, held);
        if given > max && varargs.is_none() {
            return Err(self.too_many(group, max, given));
        }
        for (i, p) in params.iter().enumerate().take(given.min(max)) {
            if varargs == Some(i) && p.kind == Kind::VarTensors {
                let list = &self.positional[i..];
                if let Some(o) = list.iter().find(|o| !is_tensor(o) && !held.accepts(o)) {
                    return Err(self.wrong_kind(group, p, Some(i), o));
                }
                waiting.lists.push((i, list, false));
                values.push(Arg::None);
                break;
            }
            if varargs == Some(i) {
                let mut ints: SmallVec<[i64; 6]> = SmallVec::new();
                for o in &self.positional[i..] {
                    match super::convert::int(o) {
                        Ok(v) => ints.push(v),
                        Err(_) if held.accepts(o) => {}
                        Err(Failure::Kind) if !ints.is_empty() => {
                            return Err(self.bad_item(group, p, ints.len(), o));
                        }
                        Err(Failure::Kind) => return Err(self.wrong_kind(group, p, Some(i), o)),
                        Err(Failure::Error(e)) => return Err(Fail::Error(e)),
                    }
                }
                values.push(Arg::Ints(Dims::new(&ints)));
                break;
            }
            let slot = Slot {
                group,
                p,
                position: Some(i),
                at: i,
            };
            values.push(self.value(slot, &self.positional[i], held, &mut waiting)?);
        }
        let mut out = None;
        if values.len() == n && self.keywords.is_empty() {
            waiting.borrow(&mut values);
            return Ok((
                Args {
                    op: overload.op,
                    values,
                },
                None,
            ));
        }
        let filled = values.len();
        let mut used = 0usize;
        for (i, p) in params.iter().enumerate().skip(filled) {
            match self
                .keyword(&overload.names[i])
                .or_else(|| self.self_alias(group, p))
            {
                Some(o) => {
                    used += 1;
                    let slot = Slot {
                        group,
                        p,
                        position: None,
                        at: i,
                    };
                    values.push(self.value(slot, o, held, &mut waiting)?);
                }
                None => match &p.default {
                    Some(d) => values.push(d.clone()),
                    // A size may be left out altogether: `x.new_empty(size=())` is required, `rand()` is 0-dimensional only by ().
                    None => return Err(self.missing(group, params, filled)),
                },
            }
        }
        if overload.out
            && let Some(name) = OUT.get()
            && let Some(o) = self.keyword(name)
        {
            used += 1;
            if !o.is_none() {
                out = Some(o);
            }
        }
        if used != self.keywords.len() {
            return Err(self.unexpected(group, overload, filled));
        }
        waiting.borrow(&mut values);
        Ok((
            Args {
                op: overload.op,
                values,
            },
            out,
        ))
    }

    /// The position of a parameter that takes the remaining positional integers, if this call spells it so.
    fn varargs_at(
        &self,
        params: &[Param],
        given: usize,
        max: usize,
        held: &Held<'py>,
    ) -> Option<usize> {
        let at = params
            .iter()
            .take(max)
            .position(|p| matches!(p.kind, Kind::VarInts | Kind::VarTensors))?;
        if params[at].kind == Kind::VarTensors {
            let first = self.positional.get(at)?;
            let list = first.is_instance_of::<PyTuple>() || first.is_instance_of::<PyList>();
            return (is_tensor(first) || !list && held.accepts(first)).then_some(at);
        }
        if given <= at {
            return None;
        }
        let first = &self.positional[at];
        let list = first.is_instance_of::<PyTuple>() || first.is_instance_of::<PyList>();
        (!list
            && (given > at + 1
                || params[at].kind == Kind::VarTensors
                || super::convert::int(first).is_ok()))
        .then_some(at)
    }

    pub(super) fn keyword(&self, name: &Py<PyString>) -> Option<&Bound<'py, PyAny>> {
        // Keywords in source code are interned, as the table's names are.
        if let Some((_, v)) = self
            .keywords
            .iter()
            .find(|(k, _)| k.as_ptr() == name.as_ptr())
        {
            return Some(v);
        }
        self.keywords
            .iter()
            .find(|(k, _)| k.eq(name.bind(self.py)).unwrap_or(false))
            .map(|(_, v)| v)
    }

    /// Functions call their first tensor `input`; the schema calls it `self`.
    fn self_alias(&self, group: &Group, p: &Param) -> Option<&Bound<'py, PyAny>> {
        if group.method || p.name != "self" {
            // NumPy's spellings of common keywords.
            let alias = match p.name {
                "dim" => "axis",
                "keepdim" => "keepdims",
                "other" => "x2",
                _ => return None,
            };
            return self
                .keywords
                .iter()
                .find(|(k, _)| k.eq(alias).unwrap_or(false))
                .map(|(_, v)| v);
        }
        self.keywords
            .iter()
            .find(|(k, _)| k.eq("input").unwrap_or(false))
            .map(|(_, v)| v)
    }

    #[inline]
    fn value<'a>(
        &'a self,
        slot: Slot<'_>,
        o: &'a Bound<'py, PyAny>,
        held: &'a Held<'py>,
        waiting: &mut Waiting<'a, 'py>,
    ) -> Result<Arg<'a>, Fail> {
        let Slot {
            group,
            p,
            position,
            at,
        } = slot;
        if matches!(p.kind, Kind::Tensor | Kind::Operand) && is_tensor(o) {
            waiting.tensors.push((at, o));
            return Ok(Arg::None);
        }
        let converted = match p.kind {
            Kind::Tensors | Kind::VarTensors | Kind::OptTensors if !o.is_none() => {
                match tensor_items(o, p.kind == Kind::OptTensors, held) {
                    Some(items) => {
                        let items = held.keep(items)?;
                        let gaps = p.kind == Kind::OptTensors;
                        waiting.lists.push((at, items, gaps));
                        Ok(Arg::None)
                    }
                    None => Err(Failure::Kind),
                }
            }
            kind => convert(kind, p.optional, o),
        };
        match converted {
            Ok(a) => Ok(a),
            Err(_) if held.accepts(o) => Ok(Arg::None),
            Err(Failure::Kind) => Err(self.wrong_kind(group, p, position, o)),
            Err(Failure::Error(e)) => Err(Fail::Error(e)),
        }
    }

    #[cold]
    fn wrong_kind(
        &self,
        group: &Group,
        p: &Param,
        position: Option<usize>,
        o: &Bound<'py, PyAny>,
    ) -> Fail {
        let name = if p.name == "self" && !group.method {
            "input"
        } else {
            p.name
        };
        let place = match position {
            Some(i) => format!(" (position {})", i + usize::from(!group.method)),
            None => String::new(),
        };
        let list = o.is_instance_of::<PyTuple>() || o.is_instance_of::<PyList>();
        let good = |item: &Bound<'py, PyAny>| match p.kind {
            Kind::Tensors | Kind::VarTensors => tensor_ref(item).is_some(),
            Kind::Ints | Kind::VarInts | Kind::IntsOf(_) => super::convert::int(item).is_ok(),
            _ => true,
        };
        let bad = o
            .try_iter()
            .ok()
            .filter(|_| list)
            .and_then(|items| items.flatten().enumerate().find(|(_, item)| !good(item)));
        let text = match bad {
            Some((i, item)) if matches!(p.kind, Kind::Tensors | Kind::VarTensors) => {
                format!(
                    "expected Tensor as element {i} in argument {}, but got {}",
                    position.unwrap_or(0),
                    type_name(&item)
                )
            }
            Some((0, item)) => {
                format!(
                    "{}(): argument '{name}'{place} must be {}, but found element of type {} at pos 0",
                    group.name,
                    kind_name(p.kind),
                    type_name(&item)
                )
            }
            Some((i, item)) => return self.bad_item(group, p, i, &item),
            None => format!(
                "{}(): argument '{name}'{place} must be {}, not {}",
                group.name,
                kind_name(p.kind),
                type_name(o)
            ),
        };
        Fail::Misfit(Misfit(PyTypeError::new_err(text)))
    }

    /// An item after the first of a list of integers is none.
    #[cold]
    fn bad_item(&self, group: &Group, p: &Param, at: usize, item: &Bound<'py, PyAny>) -> Fail {
        Fail::Misfit(Misfit(PyTypeError::new_err(format!(
            "{}(): argument '{}' failed to unpack the object at pos {} with error \"type must be tuple of ints,but got {}\"",
            group.name,
            p.name,
            at + 1,
            type_name(item)
        ))))
    }

    #[cold]
    fn too_many(&self, group: &Group, max: usize, given: usize) -> Fail {
        let hidden = usize::from(group.method);
        let (max, given) = (max - hidden, given - hidden);
        Fail::Misfit(Misfit(PyTypeError::new_err(format!(
            "{}() takes {max} positional argument{} but {given} {} given",
            group.name,
            if max == 1 { "" } else { "s" },
            if given == 1 { "was" } else { "were" }
        ))))
    }

    #[cold]
    fn missing(&self, group: &Group, params: &[Param], filled: usize) -> Fail {
        let names: Vec<String> = params
            .iter()
            .skip(filled)
            .filter(|p| {
                p.default.is_none()
                    && !self
                        .keywords
                        .iter()
                        .any(|(k, _)| k.eq(p.name).unwrap_or(false))
            })
            .map(|p| {
                if p.name == "self" && !group.method {
                    "input".to_owned()
                } else {
                    p.name.to_owned()
                }
            })
            .collect();
        Fail::Misfit(Misfit(PyTypeError::new_err(messages::missing(
            &group.name,
            &group.full_name,
            &names,
        ))))
    }

    #[cold]
    fn unexpected(&self, group: &Group, overload: &Overload, filled: usize) -> Fail {
        for (k, _) in &self.keywords {
            let name = k.to_string();
            let known = overload
                .op
                .schema
                .position(&name)
                .or_else(|| (name == "input").then_some(0));
            match known {
                Some(i) if i < filled => {
                    return Fail::Misfit(Misfit(PyTypeError::new_err(format!(
                        "{}() got multiple values for argument '{name}'",
                        group.name
                    ))));
                }
                Some(_) => {}
                None if name == "out" && overload.out => {}
                None => {
                    return Fail::Misfit(Misfit(PyTypeError::new_err(format!(
                        "{}() got an unexpected keyword argument '{name}'",
                        group.name
                    ))));
                }
            }
        }
        Fail::Misfit(Misfit(PyTypeError::new_err(format!(
            "{}() got an unexpected keyword argument",
            group.name
        ))))
    }
}

/// The arguments as PyTorch's messages list them.
pub fn signature(op: &Op, method: bool, out: bool) -> String {
    let mut parts = Vec::new();
    let mut star = false;
    for (i, p) in op.schema.params.iter().enumerate() {
        if i == 0 && method {
            continue;
        }
        if p.kwonly && !star {
            star = true;
            parts.push("*".to_owned());
        }
        let name = if p.name == "self" { "input" } else { p.name };
        let default = if p.default.is_some() {
            format!(" = {}", p.default_text)
        } else {
            String::new()
        };
        parts.push(format!("{} {name}{default}", kind_name(p.kind)));
    }
    if out {
        if !star {
            parts.push("*".into());
        }
        parts.push("Tensor out = None".into());
    }
    parts.join(", ")
}
