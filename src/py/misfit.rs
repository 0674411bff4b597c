//! What a call that fits no overload is told, in PyTorch's words.

use super::arguments::{Incoming, Misfit};
use super::convert::size;
use super::groups::{Group, Overload};
use super::messages::{self, kind_name};
use super::object::tensor_ref;
use super::types::type_name;
use crate::ops::schema::{Kind, Param};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

impl<'py> Incoming<'py> {
    /// The error of a call that fits no overload: that of the only one that could be meant, else the list of all.
    #[cold]
    pub(super) fn refusal(&self, group: &Group, misfits: &[Misfit<'_, 'py>]) -> PyErr {
        let texts = || {
            let each = misfits.iter().zip(&group.overloads);
            each.map(|(m, overload)| self.words(group, overload, m))
        };
        // A list whose first item is an integer decides which overload is meant.
        if let Some(text) = texts().find(|t| t.contains("failed to unpack")) {
            return PyTypeError::new_err(text);
        }
        let hidden = usize::from(group.method);
        let overloads = group.overloads.iter().map(|o| (o.op, o.out));
        let lines = messages::lines(&group.name, group.method, overloads);
        let given = self.positional.len() - hidden + self.keywords.len();
        let meant = match lines.as_slice() {
            [only] if !messages::has_old_forms(&group.name) => Some(only.overload),
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
            Misfit::TooMany => too_many(group, overload, self.positional.len()),
            Misfit::WrongKind {
                at,
                position,
                object,
            } => wrong_kind(group, &schema.params[at], position, object),
            Misfit::BadItem { at, item, object } => {
                bad_item(group, &schema.params[at], item, object)
            }
            Misfit::Missing { filled } => self.missing(group, &schema.params, filled),
            Misfit::Unexpected { filled } => self.unexpected(group, overload, filled),
        }
    }

    fn missing(&self, group: &Group, params: &[Param], filled: usize) -> String {
        let given = |p: &Param| {
            let mut names = self.keywords.iter().map(|(k, _)| k);
            names.any(|k| k.eq(p.name).unwrap_or(false))
        };
        let names: Vec<String> = (params.iter().skip(filled))
            .filter(|p| p.default.is_none() && !given(p))
            .map(|p| public_name(group, p).to_owned())
            .collect();
        messages::missing(&group.called(), &group.full_name, &names)
    }

    fn unexpected(&self, group: &Group, overload: &Overload, filled: usize) -> String {
        for (k, _) in &self.keywords {
            let name = k.to_string();
            let known =
                (overload.op.schema.position(&name)).or_else(|| (name == "input").then_some(0));
            match known {
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

/// What callers call a parameter: functions say `input` for their first tensor.
fn public_name(group: &Group, p: &Param) -> &'static str {
    if p.name == "self" && !group.method {
        "input"
    } else {
        p.name
    }
}

fn wrong_kind(group: &Group, p: &Param, position: Option<usize>, o: &Bound<'_, PyAny>) -> String {
    let name = public_name(group, p);
    let place = match position {
        Some(i) => format!(" (position {})", i + usize::from(!group.method)),
        None => String::new(),
    };
    let (function, kind) = (group.called(), kind_name(p.kind));
    match first_misfit(p.kind, o) {
        Some((i, item)) if matches!(p.kind, Kind::Tensors | Kind::VarTensors) => format!(
            "expected Tensor as element {i} in argument {}, but got {}",
            position.unwrap_or(0),
            type_name(&item)
        ),
        Some((0, item)) => format!(
            "{function}(): argument '{name}'{place} must be {kind}, but found element of type {} at pos 0",
            type_name(&item)
        ),
        Some((i, item)) => bad_item(group, p, i, &item),
        None => format!(
            "{function}(): argument '{name}'{place} must be {kind}, not {}",
            type_name(o)
        ),
    }
}

/// The first item of a list or tuple that is not what lists of this kind hold.
fn first_misfit<'py>(kind: Kind, o: &Bound<'py, PyAny>) -> Option<(usize, Bound<'py, PyAny>)> {
    if !o.is_instance_of::<PyTuple>() && !o.is_instance_of::<PyList>() {
        return None;
    }
    let good = |item: &Bound<'py, PyAny>| match kind {
        Kind::Tensors | Kind::VarTensors => tensor_ref(item).is_some(),
        Kind::Ints | Kind::VarInts | Kind::IntsOf(_) => size(item).is_ok(),
        _ => true,
    };
    let mut items = o.try_iter().ok()?.flatten().enumerate();
    items.find(|(_, item)| !good(item))
}

/// An item after the first of a list of integers is none.
fn bad_item(group: &Group, p: &Param, at: usize, item: &Bound<'_, PyAny>) -> String {
    format!(
        "{}(): argument '{}' failed to unpack the object at pos {} with error \"type must be tuple of ints,but got {}\"",
        group.called(),
        p.name,
        at + 1,
        type_name(item)
    )
}

fn too_many(group: &Group, overload: &Overload, given: usize) -> String {
    let hidden = usize::from(group.method);
    let schema = &overload.op.schema;
    let needed = schema.params.iter().filter(|p| p.default.is_none()).count();
    let (least, max, given) = (needed - hidden, schema.positional - hidden, given - hidden);
    if least != max {
        return format!(
            "{}() takes from {least} to {max} positional arguments but {given} were given",
            group.called()
        );
    }
    format!(
        "{}() takes {max} positional argument{} but {given} {} given",
        group.called(),
        if max == 1 { "" } else { "s" },
        if given == 1 { "was" } else { "were" }
    )
}
