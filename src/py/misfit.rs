//! What a call that fits no overload is told, in PyTorch's words.

use super::arguments::{Incoming, Misfit, NOWHERE, renamed};
use super::convert::{TOO_LARGE, size_at};
use super::groups::{Group, Overload};
use super::messages::{self, kind_name};
use super::object::tensor_ref;
use super::out::wrong_element;
use super::python_names;
use super::types::type_name;
use crate::ops::schema::{Kind, Param, Returns, Schema};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyTuple};

impl<'py> Incoming<'py> {
    /// The error of a call that fits no overload: that of the only one that could be meant, else the list of all.
    #[cold]
    pub(super) fn refusal(&self, group: &Group, misfits: &[Misfit<'_, 'py>]) -> PyErr {
        if let Some(text) = self.unbound(group) {
            return PyTypeError::new_err(text);
        }
        if let Some(error) = misfits.first().and_then(|m| asked_first(group, m)) {
            return error;
        }
        let mut each = misfits.iter().zip(&group.overloads);
        if let Some(error) = each.find_map(|(m, overload)| no_reduction(group, overload, m)) {
            return error;
        }
        let texts = || {
            let each = misfits.iter().zip(&group.overloads);
            each.map(|(m, overload)| self.words(group, overload, m))
        };
        if group.name == "split"
            && let Some(text) = Self::unsplit(group, misfits)
        {
            return PyTypeError::new_err(text);
        }
        // A list whose first item is an integer decides which overload is meant.
        if let Some(text) = texts().find(|t| t.contains("failed to unpack")) {
            return PyTypeError::new_err(text);
        }
        let hidden = usize::from(group.method);
        let overloads = group.overloads.iter().map(|o| (o.op, o.out));
        let lines = messages::lines(&group.full_name, group.method, overloads);
        let given = self.positional.len() - hidden + self.keywords.len();
        let spread = group.overloads.iter().position(|o| {
            let kind = |at: usize| o.op.schema.params[at].kind;
            o.varargs.is_some_and(|at| kind(at) == Kind::VarTensors)
        });
        let meant = match lines.as_slice() {
            [only] if !messages::has_old_forms(&group.name) => Some(only.overload),
            _ if given > 1 && spread.is_some() => spread,
            _ => {
                let mut fitting = lines.iter().filter(|l| l.takes(given));
                let first = fitting.next().filter(|_| fitting.next().is_none());
                first.map(|l| l.overload)
            }
        };
        let text = meant.and_then(|i| texts().nth(i)).unwrap_or_else(|| {
            let positional = &self.positional[hidden..];
            messages::invalid_combination(&group.called(), &lines, positional, &self.keywords)
        });
        PyTypeError::new_err(text)
    }

    fn words(&self, group: &Group, overload: &Overload, misfit: &Misfit<'_, 'py>) -> String {
        let schema = &overload.op.schema;
        match *misfit {
            Misfit::TooMany => {
                let hidden = usize::from(group.method);
                too_many(&group.called(), schema, hidden, self.positional.len(), true)
            }
            Misfit::WrongKind { at, object, .. }
                if schema.params[at].kind == Kind::VarTensors
                    && first_misfit(Kind::VarTensors, object).is_none() =>
            {
                let given = self.positional.iter().skip(at).position(|o| o.is(object));
                wrong_element(given.unwrap_or_default(), 0, object)
            }
            Misfit::WrongKind {
                at,
                position,
                object,
            } => wrong_kind(group, &schema.params[at], position, object),
            Misfit::BadItem { at, item, object } => {
                bad_item(&group.called(), schema.params[at].name, item, object)
            }
            Misfit::Missing { filled } => {
                // PyTorch lists all that is required from the first that is missing on, given by keyword or not.
                let required = |p: &&Param| p.default.is_none();
                let from = schema.params.iter().skip(filled);
                let missing = from.skip_while(|p| !required(p) || self.is_named(group, p));
                let names = missing
                    .filter(required)
                    .map(|p| public_name(group, p).to_owned());
                python_names::missing(&group.called(), &names.collect::<Vec<_>>())
            }
            Misfit::Unexpected { filled } => self.unexpected(group, overload, filled),
            Misfit::WrongOut { object } => {
                let several = matches!(schema.returns, Returns::Tuple(_));
                let kind = if several {
                    "tuple of Tensors"
                } else {
                    "Tensor"
                };
                let (function, found) = (group.called(), type_name(object));
                format!("{function}(): argument 'out' must be {kind}, not {found}")
            }
        }
    }

    /// What the interpreter itself says of a call: PyTorch has methods without arguments in C, and many functions in Python.
    fn unbound(&self, group: &Group) -> Option<String> {
        if group.takes_nothing() {
            let (name, given) = (&group.name, self.positional.len() - 1);
            return Some(match self.keywords.is_empty() {
                true => format!("TensorBase.{name}() takes no arguments ({given} given)"),
                false => format!("TensorBase.{name}() takes no keyword arguments"),
            });
        }
        let name = python_names::python_name(&group.full_name)?;
        let overload = group.overloads.first()?;
        let schema = &overload.op.schema;
        let filled = self.positional.len().min(schema.positional);
        for (k, _) in &self.keywords {
            let mut places = group.overloads.iter().map(|o| self.place(group, o, k));
            match places.find(|&at| at != NOWHERE) {
                None => return Some(format!("{name}() got an unexpected keyword argument '{k}'")),
                Some(at) if at < filled => {
                    return Some(format!("{name}() got multiple values for argument '{k}'"));
                }
                Some(_) => {}
            }
        }
        if group.overloads.iter().any(|o| o.varargs.is_some()) {
            return None;
        }
        if self.positional.len() > schema.positional {
            return Some(too_many(&name, schema, 0, self.positional.len(), false));
        }
        let names = self.left_out(group, &schema.params, filled);
        let complete = |o: &Overload| self.left_out(group, &o.op.schema.params, filled).is_empty();
        (!names.is_empty() && !group.overloads.iter().any(complete))
            .then(|| python_names::missing_in_python(&name, &names))
    }

    /// What is said of pieces that are neither a number nor a list: PyTorch hands what is no integer to the function of lists.
    fn unsplit(group: &Group, misfits: &[Misfit<'_, 'py>]) -> Option<String> {
        const NAMES: [&str; 3] = ["self", "split_sizes", "dim"];
        let sized = group.overloads.first()?.op.schema.params.get(1)?;
        match misfits {
            [Misfit::WrongKind { at: 1, object, .. }, _] if object.is_instance_of::<PyInt>() => {
                None
            }
            [
                Misfit::WrongKind { at: 1, .. },
                Misfit::WrongKind { at, object, .. },
            ] if sized.kind == Kind::Int => {
                let place = format!("'{}' (position {})", NAMES.get(*at)?, at + 1);
                let kind = kind_name(group.overloads.get(1)?.op.schema.params[*at].kind);
                let found = type_name(object);
                Some(format!(
                    "split_with_sizes(): argument {place} must be {kind}, not {found}"
                ))
            }
            _ => None,
        }
    }

    /// Whether a parameter is given by keyword.
    fn is_named(&self, group: &Group, p: &Param) -> bool {
        let mut names = self.keywords.iter().map(|(k, _)| k.to_string());
        names.any(|name| is_called(group, p, &name))
    }

    /// The parameters without a default that are not given; `filled` are by position.
    fn left_out(&self, group: &Group, params: &[Param], filled: usize) -> Vec<String> {
        (params.iter().skip(filled))
            .filter(|p| p.default.is_none() && !self.is_named(group, p))
            .map(|p| public_name(group, p).to_owned())
            .collect()
    }

    fn unexpected(&self, group: &Group, overload: &Overload, filled: usize) -> String {
        for (k, _) in &self.keywords {
            let name = k.to_string();
            let params = &overload.op.schema.params;
            match params.iter().position(|p| is_called(group, p, &name)) {
                Some(i) if i < filled => {
                    return format!(
                        "{}() got multiple values for argument '{name}'",
                        group.called()
                    );
                }
                Some(_) => {}
                None if name == "out" && overload.out => {}
                None => {
                    return format!(
                        "{}() got an unexpected keyword argument '{name}'",
                        group.called()
                    );
                }
            }
        }
        format!("{}() got an unexpected keyword argument", group.called())
    }
}

/// Whether callers may call a parameter so.
fn is_called(group: &Group, p: &Param, name: &str) -> bool {
    let own = p.name != "self" || group.method;
    own && p.name == name || public_name(group, p) == name
}

/// What callers call a parameter: functions say `input` for their first tensor.
fn public_name(group: &Group, p: &Param) -> &'static str {
    match renamed(group).find(|(_, own)| *own == p.name) {
        Some((public, _)) => public,
        None if p.name == "self" && !group.method => "input",
        None => p.name,
    }
}

/// What messages call the kind of a parameter: those of some nonlinearities may be of any type in PyTorch, for quantised tensors.
fn shown_kind(group: &Group, p: &Param) -> String {
    const OF_NUMBERS: [&str; 7] = [
        "celu",
        "elu",
        "hardshrink",
        "leaky_relu",
        "rrelu",
        "softplus",
        "softshrink",
    ];
    match p.kind {
        Kind::Float if OF_NUMBERS.contains(&group.name.trim_end_matches('_')) => {
            kind_name(Kind::Scalar)
        }
        kind => kind_name(kind),
    }
}

fn wrong_kind(group: &Group, p: &Param, position: Option<usize>, o: &Bound<'_, PyAny>) -> String {
    let called = public_name(group, p);
    let handed = python_names::handed(&group.full_name, called);
    let name = handed.map_or(called, |h| h.parameter);
    let number = match handed {
        Some(h) => h.position,
        None => position.map(|i| i + usize::from(!group.method)),
    };
    let place = number.map_or_else(String::new, |n| format!(" (position {n})"));
    let function = handed.map_or_else(|| group.called(), |h| h.function.into());
    let kind = shown_kind(group, p);
    match first_misfit(p.kind, o) {
        Some((i, item)) if matches!(p.kind, Kind::Tensors | Kind::VarTensors) => {
            wrong_element(i, position.unwrap_or(0), &item)
        }
        Some((0, item)) if !item.is_exact_instance_of::<PyInt>() => format!(
            "{function}(): argument '{name}'{place} must be {kind}, but found element of type {} at pos 0",
            type_name(&item)
        ),
        Some((i, item)) => bad_item(&function, name, i, &item),
        // Python makes a pair of what is no list.
        None if matches!(&*function, "im2col" | "col2im") && matches!(p.kind, Kind::IntsOf(_)) => {
            let found = type_name(o);
            format!(
                "{function}(): argument '{name}'{place} must be {kind}, but found element of type {found} at pos 0"
            )
        }
        None => format!(
            "{function}(): argument '{name}'{place} must be {kind}, not {}",
            type_name(o)
        ),
    }
}

/// The error of asking what is no tensor for what a function written in Python asks its tensors first.
fn asked_first(group: &Group, misfit: &Misfit<'_, '_>) -> Option<PyErr> {
    let &Misfit::WrongKind { at, object, .. } = misfit else {
        return None;
    };
    let attribute = python_names::first_question(&group.full_name, at)?;
    object.getattr(attribute).err()
}

/// The error of what is no name of a reduction for a loss, which PyTorch looks up, or puts into a text, in Python.
fn no_reduction(group: &Group, overload: &Overload, misfit: &Misfit<'_, '_>) -> Option<PyErr> {
    const SAID: [&str; 3] = [
        "gaussian_nll_loss",
        "multilabel_soft_margin_loss",
        "poisson_nll_loss",
    ];
    let &Misfit::WrongKind { at, object, .. } = misfit else {
        return None;
    };
    let own = python_names::python_name(&group.full_name)?;
    if overload.op.schema.params[at].name != "reduction" {
        return None;
    }
    if SAID.contains(&own.as_str()) {
        return object.add(" is not valid").err();
    }
    let given = object.str().ok()?;
    Some(PyValueError::new_err(format!(
        "{given} is not a valid value for reduction"
    )))
}

/// The first item of a list or tuple that is not what lists of this kind hold.
fn first_misfit<'py>(kind: Kind, o: &Bound<'py, PyAny>) -> Option<(usize, Bound<'py, PyAny>)> {
    if !o.is_instance_of::<PyTuple>() && !o.is_instance_of::<PyList>() {
        return None;
    }
    let good = |at: usize, item: &Bound<'py, PyAny>| match kind {
        Kind::Tensors | Kind::VarTensors => tensor_ref(item).is_some(),
        Kind::Ints | Kind::VarInts | Kind::IntsOf(_) => size_at(at, item).is_ok(),
        _ => true,
    };
    let mut items = o.try_iter().ok()?.flatten().enumerate();
    items.find(|(at, item)| !good(*at, item))
}

/// An item after the first of a list of integers is none, or one is too large. PyTorch ends the second text with where it was found.
fn bad_item(function: &str, name: &str, at: usize, item: &Bound<'_, PyAny>) -> String {
    let error = match item.is_exact_instance_of::<PyInt>() {
        true => TOO_LARGE.to_owned(),
        false => format!("type must be tuple of ints,but got {}\"", type_name(item)),
    };
    format!(
        "{function}(): argument '{name}' failed to unpack the object at pos {} with error \"{error}",
        at + 1,
    )
}

/// More positional arguments than a signature has; the first `hidden` do not count.
/// PyTorch's own parser counts what has to be given by keyword, too.
fn too_many(name: &str, schema: &Schema, hidden: usize, given: usize, native: bool) -> String {
    let required = |p: &&Param| p.default.is_none() && (native || !p.kwonly);
    let needed = schema.params.iter().filter(required).count();
    let (least, max, given) = (needed - hidden, schema.positional - hidden, given - hidden);
    if least != max {
        return format!(
            "{name}() takes from {least} to {max} positional arguments but {given} were given"
        );
    }
    format!(
        "{name}() takes {max} positional argument{} but {given} {} given",
        if max == 1 { "" } else { "s" },
        if given == 1 { "was" } else { "were" }
    )
}
