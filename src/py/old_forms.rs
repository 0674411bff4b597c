//! Calls that fit no signature and are taken all the same: those of long ago, with numbers between the tensors
//! (`p.add_(2, other)`), and those with objects that are only tested for their truth.

use super::arguments::{Incoming, Misfit};
use super::convert::number;
use super::groups::Group;
use super::messages;
use super::object::{is_tensor, tensor_ref};
use super::python_names::python_name;
use crate::ops::schema::Kind;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};
use std::sync::atomic::{AtomicBool, Ordering};

/// What the numbers are called, by where they stood.
enum Old {
    /// After the first tensor.
    Between(&'static str),
    /// The first before all tensors of a function, and after the first of a method; the second, which may be missing, after the
    /// first tensor.
    Around,
}

/// Whether a tensor is taken for the number in it.
fn is_number(o: &Bound<'_, PyAny>) -> bool {
    tensor_ref(o).is_some_and(|t| t.ndim() == 0 && !t.requires_grad())
}

fn old(name: &str) -> Option<Old> {
    match name.trim_end_matches('_') {
        "add" | "sub" => Some(Old::Between("alpha")),
        "addcmul" | "addcdiv" => Some(Old::Between("value")),
        "addmm" | "addmv" | "addr" | "addbmm" | "baddbmm" => Some(Old::Around),
        _ => None,
    }
}

static WARNED: AtomicBool = AtomicBool::new(false);

impl<'py> Incoming<'py> {
    /// The same call in today's order, if it is one of long ago.
    pub(super) fn modern(&self, group: &Group) -> Option<Self> {
        let given = &self.positional[..];
        let is_out = |(k, _): &(Bound<'py, PyAny>, Bound<'py, PyAny>)| k.eq("out").unwrap_or(false);
        if !self.keywords.iter().all(is_out) {
            return None;
        }
        // The places of the numbers among the arguments.
        let numbers: &[(usize, &str)] = match (old(&group.name)?, given.len(), group.method) {
            (Old::Between("alpha"), 3, _) => &[(1, "alpha")],
            (Old::Between("value"), 4, _) => &[(1, "value")],
            (Old::Around, 5, true) => &[(1, "beta"), (2, "alpha")],
            (Old::Around, 5, false) => &[(0, "beta"), (2, "alpha")],
            (Old::Around, 4, true) => &[(1, "beta")],
            (Old::Around, 4, false) => &[(0, "beta")],
            _ => return None,
        };
        let named = |i: usize| numbers.iter().find(|(at, _)| *at == i);
        // A sum takes a number as its second operand, too.
        let taken = |i: usize, o: &Bound<'py, PyAny>| {
            is_tensor(o) || (numbers[0].1 == "alpha" && i == 2 && number(o).is_some())
        };
        let fits = given.iter().enumerate().all(|(i, o)| match named(i) {
            Some(_) => number(o).is_some() || is_number(o),
            None => taken(i, o),
        });
        if !fits {
            return None;
        }
        let mut made = Incoming {
            py: self.py,
            positional: Default::default(),
            keywords: self.keywords.clone(),
        };
        for (i, o) in given.iter().enumerate() {
            match named(i) {
                Some((_, name)) => {
                    let key = PyString::intern(self.py, name).into_any();
                    made.keywords.push((key, o.clone()));
                }
                None => made.positional.push(o.clone()),
            }
        }
        Some(made)
    }

    /// The same call with truth values for what a function that PyTorch writes in Python only tests, if that is why it does not fit.
    pub(super) fn tested(&self, group: &Group, misfits: &[Misfit<'_, 'py>]) -> Option<Self> {
        const TESTED: [&str; 4] = ["hard", "include_last_offset", "inplace", "return_indices"];
        python_name(&group.full_name)?;
        let mut each = misfits.iter().zip(&group.overloads);
        let object = each.find_map(|(misfit, overload)| match *misfit {
            Misfit::WrongKind { at, object, .. } => {
                let p = &overload.op.schema.params[at];
                (p.kind == Kind::Bool && TESTED.contains(&p.name)).then_some(object)
            }
            _ => None,
        })?;
        let truth = object.is_truthy().ok()?;
        let truth = PyBool::new(self.py, truth).to_owned().into_any();
        let tested = |o: &Bound<'py, PyAny>| match o.is(object) {
            true => truth.clone(),
            false => o.clone(),
        };
        let keywords = self.keywords.iter();
        Some(Incoming {
            py: self.py,
            positional: self.positional.iter().map(tested).collect(),
            keywords: keywords.map(|(k, o)| (k.clone(), tested(o))).collect(),
        })
    }

    /// Says once in a process that there are other forms.
    ///
    /// # Errors
    /// If warnings are errors.
    pub(super) fn warn_of_old_form(&self, group: &Group) -> PyResult<()> {
        if WARNED.swap(true, Ordering::Relaxed) && !crate::warning::is_always() {
            return Ok(());
        }
        let overloads = group.overloads.iter().map(|o| (o.op, o.out));
        let lines = messages::lines(&group.full_name, group.method, overloads);
        let name = &group.name;
        let mut tensors = lines
            .first()
            .map(messages::Line::tensors)
            .unwrap_or_default();
        let out = !group.method;
        let mut shown: Vec<String> = Vec::new();
        let first = if out && !tensors.is_empty() {
            vec![tensors.remove(0)]
        } else {
            Vec::new()
        };
        match old(name) {
            Some(Old::Between(number)) => {
                shown.extend(first);
                shown.push(format!("Number {number}"));
            }
            _ => {
                shown.push("Number beta".to_owned());
                shown.extend(first);
                if self.positional.len() == 5 {
                    shown.push("Number alpha".to_owned());
                }
            }
        }
        shown.extend(tensors);
        if out {
            shown.extend(["*".to_owned(), "Tensor out = None".to_owned()]);
        }
        let now: String = lines
            .iter()
            .map(|l| format!("\n\t{name}({})", l.text()))
            .collect();
        let text = format!(
            "This overload of {name} is deprecated:\n\t{name}({})\nConsider using one of the following signatures instead:{now}",
            shown.join(", ")
        );
        self.py
            .import("warnings")?
            .call_method1("warn", (text,))
            .map(|_| ())
    }
}
