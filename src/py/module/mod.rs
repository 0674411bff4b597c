//! Walking trees of modules, which `named_modules`, `named_parameters` and `state_dict` do for every part of a model.
//!
//! A module keeps its registered values as ordinary attributes; `_kinds` among them says which names they are. Its own
//! dictionary is `_state_` in Python, as `__dict__` shows what PyTorch's has.

pub mod collect;
mod copy;
mod save;
mod walk;

use super::object::attributes_of as state_of;
use pyo3::exceptions::{PyAttributeError, PyRecursionError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::vec::IntoIter;

/// Levels that a tree of modules may have.
const DEEPEST: usize = 10_000;

/// What a name is registered as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Parameter,
    Buffer,
    Module,
}

impl Kind {
    fn parse(word: &str) -> Option<Kind> {
        match word {
            "parameter" => Some(Kind::Parameter),
            "buffer" => Some(Kind::Buffer),
            "module" => Some(Kind::Module),
            _ => None,
        }
    }

    /// The kind that a value of `_kinds` names; nearly always one of three interned strings.
    fn of(word: &Bound<'_, PyAny>) -> Option<Kind> {
        let py = word.py();
        if word.is(intern!(py, "parameter")) {
            Some(Kind::Parameter)
        } else if word.is(intern!(py, "buffer")) {
            Some(Kind::Buffer)
        } else if word.is(intern!(py, "module")) {
            Some(Kind::Module)
        } else {
            Kind::parse(word.cast::<PyString>().ok()?.to_str().ok()?)
        }
    }
}

/// Names of a module, in order of registration.
type Names = IntoIter<Py<PyString>>;

/// What the names of a module are registered as, in its state.
fn kinds_of<'py>(
    module: &Bound<'py, PyAny>,
    state: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let kinds = state.get_item(intern!(module.py(), "_kinds"))?;
    if let Some(Ok(kinds)) = kinds.map(Bound::cast_into) {
        return Ok(kinds);
    }
    Err(PyAttributeError::new_err(format!(
        "'{}' object has no attribute '_modules'",
        module.get_type().name()?
    )))
}

/// The names that are registered as one kind, and those of the modules below.
fn names_and_children(kinds: &Bound<'_, PyDict>, kind: Kind) -> (Names, Names) {
    let (mut found, mut below) = (Vec::new(), Vec::new());
    for (name, word) in kinds.iter() {
        let is = Kind::of(&word);
        let list = match is {
            Some(Kind::Module) => &mut below,
            _ if is == Some(kind) => &mut found,
            _ => continue,
        };
        if let Ok(name) = name.cast_into::<PyString>() {
            list.push(name.unbind());
        }
    }
    (found.into_iter(), below.into_iter())
}

/// The value of a registered name, unless it is None or gone.
fn value<'py>(
    state: &Bound<'py, PyDict>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(state.get_item(name)?.filter(|v| !v.is_none()))
}

/// Two strings in one.
fn joined<'py>(
    first: &Bound<'py, PyString>,
    second: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyString>> {
    Ok(first.add(second)?.cast_into::<PyString>()?)
}

/// What stands before the names of a module at a path.
fn prefix_of<'py>(path: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyString>> {
    if path.is_empty()? {
        return Ok(path.clone());
    }
    joined(path, intern!(path.py(), "."))
}

/// Whether a class or an object has another version of a method than `base`, which is `Module`'s.
fn overrides(
    module: &Bound<'_, PyAny>,
    state: &Bound<'_, PyDict>,
    base: &Bound<'_, PyAny>,
    method: &Bound<'_, PyString>,
) -> PyResult<bool> {
    let of_class = module.get_type().getattr(method)?;
    Ok(!of_class.is(base) || state.contains(method)?)
}

/// Refuses trees so deep that they must be circles.
fn within_reason(depth: usize) -> PyResult<()> {
    if depth > DEEPEST {
        return Err(PyRecursionError::new_err(
            "modules hold each other in a circle",
        ));
    }
    Ok(())
}

/// Puts the class and the function into the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<walk::ModuleWalk>()?;
    m.add_function(wrap_pyfunction!(copy::_fake_copy, m)?)?;
    m.add_function(wrap_pyfunction!(save::_save_state, m)?)
}
