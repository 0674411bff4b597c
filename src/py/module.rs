//! Walking trees of modules, which `named_modules`, `named_parameters` and `state_dict` do for every part of a model.
//!
//! A module keeps its registered values as ordinary attributes; `_kinds` in its `__dict__` says which names they are.

use pyo3::exceptions::{PyAttributeError, PyRecursionError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PySet, PyString, PyTuple};
use std::collections::HashMap;
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

/// The `__dict__` of a module.
fn state_of<'py>(module: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let state = module.getattr(intern!(module.py(), "__dict__"))?;
    Ok(state.cast_into::<PyDict>()?)
}

/// The names that are registered as one kind, in order of registration.
fn names(
    module: &Bound<'_, PyAny>,
    state: &Bound<'_, PyDict>,
    kind: Kind,
) -> PyResult<IntoIter<Py<PyString>>> {
    let kinds = state.get_item(intern!(module.py(), "_kinds"))?;
    let Some(kinds) = kinds.as_ref().and_then(|k| k.cast::<PyDict>().ok()) else {
        return Err(PyAttributeError::new_err(format!(
            "'{}' object has no attribute '_modules'",
            module.get_type().name()?
        )));
    };
    let found = kinds
        .iter()
        .filter(|(_, word)| Kind::of(word) == Some(kind));
    let found = found.filter_map(|(name, _)| name.cast_into::<PyString>().ok());
    Ok(found.map(Bound::unbind).collect::<Vec<_>>().into_iter())
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

/// Whether a class or an object has another version of a method than `base`, the class `Module`.
fn overrides(
    module: &Bound<'_, PyAny>,
    state: &Bound<'_, PyDict>,
    base: &Bound<'_, PyAny>,
    method: &Bound<'_, PyString>,
) -> PyResult<bool> {
    let of_class = module.get_type().getattr(method)?;
    Ok(!of_class.is(base.getattr(method)?) || state.contains(method)?)
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

/// One step down the tree: the children of a module that are still to come, or what a module says itself.
enum Level {
    Below {
        state: Py<PyDict>,
        prefix: Py<PyString>,
        names: IntoIter<Py<PyString>>,
    },
    Foreign(Py<PyIterator>),
}

/// A module and the path that leads to it.
type Found<'py> = (Bound<'py, PyString>, Bound<'py, PyAny>);

/// The iterator behind `named_modules`, `named_parameters` and `named_buffers`.
///
/// `base` is the class `Module`: a module whose class has another `named_modules` is asked itself. `memo` has the
/// modules met before. Nothing is looked at before it is asked for, so that a model may change on the way.
#[pyclass(module = "torchlike._C", name = "_ModuleWalk")]
pub struct ModuleWalk {
    wanted: Kind,
    base: Py<PyAny>,
    memo: Py<PySet>,
    unique: bool,
    recurse: bool,
    root: Option<(Py<PyString>, Py<PyAny>)>,
    /// The module returned last, whose children have not been looked at.
    opened: Option<(Py<PyString>, Py<PyAny>)>,
    path: Vec<Level>,
    /// The values of the present module.
    own: Option<Level>,
    /// Values met before, kept alive so that their addresses stay theirs.
    seen: HashMap<usize, Py<PyAny>>,
}

#[pymethods]
impl ModuleWalk {
    #[new]
    #[pyo3(signature = (wanted, module, base, memo, prefix, unique, recurse))]
    fn new(
        wanted: &str,
        module: Bound<'_, PyAny>,
        base: Bound<'_, PyAny>,
        memo: Option<Bound<'_, PySet>>,
        prefix: Bound<'_, PyString>,
        unique: bool,
        recurse: bool,
    ) -> PyResult<Self> {
        let py = module.py();
        let unknown = || PyValueError::new_err("no kind of registered value");
        let memo = memo.map_or_else(|| PySet::empty(py), Ok)?;
        Ok(ModuleWalk {
            wanted: Kind::parse(wanted).ok_or_else(unknown)?,
            base: base.unbind(),
            memo: memo.unbind(),
            unique,
            recurse,
            root: Some((prefix.unbind(), module.unbind())),
            opened: None,
            path: Vec::new(),
            own: None,
            seen: HashMap::new(),
        })
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let found = match self.wanted {
            Kind::Module => self.next_module(py)?,
            _ => self.next_value(py)?,
        };
        found.map(|pair| pair.into_pyobject(py)).transpose()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.base)?;
        visit.call(&self.memo)?;
        for (_, module) in self.root.iter().chain(&self.opened) {
            visit.call(module)?;
        }
        for level in self.path.iter().chain(&self.own) {
            match level {
                Level::Below { state, .. } => visit.call(state)?,
                Level::Foreign(iterator) => visit.call(iterator)?,
            }
        }
        self.seen.values().try_for_each(|v| visit.call(v))
    }

    fn __clear__(&mut self) {
        self.root = None;
        self.opened = None;
        self.own = None;
        self.path.clear();
        self.seen.clear();
    }
}

impl ModuleWalk {
    /// The next of a module's children that has a value, or what the module's own iterator says next.
    fn child<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(Found<'py>, bool)>> {
        while let Some(level) = self.path.last_mut() {
            match level {
                Level::Foreign(iterator) => {
                    if let Some(pair) = iterator.bind(py).clone().next() {
                        return Ok(Some((pair?.extract()?, true)));
                    }
                }
                Level::Below {
                    state,
                    prefix,
                    names,
                } => {
                    for name in names.by_ref() {
                        let name = name.into_bound(py);
                        if let Some(module) = value(state.bind(py), &name)? {
                            let path = joined(prefix.bind(py), &name)?;
                            return Ok(Some(((path, module), false)));
                        }
                    }
                }
            }
            self.path.pop();
        }
        Ok(None)
    }

    /// Queues the children of a module.
    fn open(&mut self, path: &Bound<'_, PyString>, module: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = state_of(module)?;
        let names = names(module, &state, Kind::Module)?;
        if names.len() != 0 {
            let prefix = prefix_of(path)?.unbind();
            let state = state.unbind();
            within_reason(self.path.len())?;
            self.path.push(Level::Below {
                state,
                prefix,
                names,
            });
        }
        Ok(())
    }

    /// Whether a module answers `named_modules` itself; its iterator is then queued.
    fn asked(&mut self, path: &Bound<'_, PyString>, module: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = module.py();
        let method = intern!(py, "named_modules");
        if !overrides(module, &state_of(module)?, self.base.bind(py), method)? {
            return Ok(false);
        }
        let said = module.call_method1(method, (&self.memo, path, self.unique))?;
        self.path.push(Level::Foreign(said.try_iter()?.unbind()));
        Ok(true)
    }

    fn next_module<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Found<'py>>> {
        if let Some((path, module)) = self.opened.take() {
            self.open(path.bind(py), module.bind(py))?;
        }
        loop {
            let (path, module) = if let Some((path, module)) = self.root.take() {
                let (path, module) = (path.into_bound(py), module.into_bound(py));
                // Who asks for modules has come from the root's own method; values are asked of any module.
                if self.wanted != Kind::Module && self.recurse && self.asked(&path, &module)? {
                    continue;
                }
                (path, module)
            } else {
                match self.child(py)? {
                    None => return Ok(None),
                    Some((found, true)) => return Ok(Some(found)),
                    Some(((path, module), false)) => {
                        if self.asked(&path, &module)? {
                            continue;
                        }
                        (path, module)
                    }
                }
            };
            if self.unique {
                let memo = self.memo.bind(py);
                if memo.contains(&module)? {
                    continue;
                }
                memo.add(&module)?;
            }
            if self.recurse {
                self.opened = Some((path.clone().unbind(), module.clone().unbind()));
            }
            return Ok(Some((path, module)));
        }
    }

    fn next_value<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Found<'py>>> {
        loop {
            if let Some(Level::Below {
                state,
                prefix,
                names,
            }) = &mut self.own
            {
                for name in names.by_ref() {
                    let name = name.into_bound(py);
                    let Some(value) = value(state.bind(py), &name)? else {
                        continue;
                    };
                    let address = value.as_ptr().addr();
                    if self.unique && self.seen.insert(address, value.clone().unbind()).is_some() {
                        continue;
                    }
                    return Ok(Some((joined(prefix.bind(py), &name)?, value)));
                }
            }
            let Some((path, module)) = self.next_module(py)? else {
                return Ok(None);
            };
            let state = state_of(&module)?;
            let names = names(&module, &state, self.wanted)?;
            let prefix = prefix_of(&path)?.unbind();
            let state = state.unbind();
            self.own = Some(Level::Below {
                state,
                prefix,
                names,
            });
        }
    }
}

/// What is the same for all modules of one `state_dict`.
struct Saving<'a, 'py> {
    destination: &'a Bound<'py, PyAny>,
    metadata: Option<Bound<'py, PyAny>>,
    keep_vars: bool,
    base: &'a Bound<'py, PyAny>,
}

impl<'py> Saving<'_, 'py> {
    /// Whether only this module's parameters and buffers make its state, as `Module` says they do.
    fn is_plain(&self, module: &Bound<'py, PyAny>, state: &Bound<'py, PyDict>) -> PyResult<bool> {
        let py = module.py();
        let hooks = state.get_item(intern!(py, "_state_hooks"))?;
        if hooks.is_none_or(|h| !h.is_none()) {
            return Ok(false);
        }
        for method in [
            intern!(py, "state_dict"),
            intern!(py, "_save_to_state_dict"),
            intern!(py, "get_extra_state"),
        ] {
            if overrides(module, state, self.base, method)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Saves what is registered as one kind, except buffers that do not persist.
    fn own(
        &self,
        module: &Bound<'py, PyAny>,
        state: &Bound<'py, PyDict>,
        prefix: &Bound<'py, PyString>,
        kind: Kind,
    ) -> PyResult<()> {
        let py = module.py();
        let mut transient = None;
        if kind == Kind::Buffer {
            transient = state.get_item(intern!(py, "_non_persistent_buffers_set"))?;
        }
        for name in names(module, state, kind)? {
            let name = name.into_bound(py);
            let Some(mut value) = value(state, &name)? else {
                continue;
            };
            if let Some(transient) = &transient
                && transient.contains(&name)?
            {
                continue;
            }
            if !self.keep_vars {
                value = value.call_method0(intern!(py, "detach"))?;
            }
            self.destination.set_item(joined(prefix, &name)?, value)?;
        }
        Ok(())
    }

    /// Leaves a module to its own `state_dict`.
    fn ask(&self, module: &Bound<'py, PyAny>, prefix: &Bound<'py, PyString>) -> PyResult<()> {
        let py = module.py();
        let options = PyDict::new(py);
        options.set_item(intern!(py, "destination"), self.destination)?;
        options.set_item(intern!(py, "prefix"), prefix)?;
        options.set_item(intern!(py, "keep_vars"), self.keep_vars)?;
        module.call_method(intern!(py, "state_dict"), (), Some(&options))?;
        Ok(())
    }

    /// Saves what a plain module holds itself.
    fn plain(
        &self,
        module: &Bound<'py, PyAny>,
        state: &Bound<'py, PyDict>,
        path: &Bound<'py, PyString>,
        prefix: &Bound<'py, PyString>,
    ) -> PyResult<()> {
        let py = module.py();
        if let Some(metadata) = &self.metadata {
            let own = PyDict::new(py);
            let version = intern!(py, "_version");
            own.set_item(intern!(py, "version"), module.getattr(version)?)?;
            metadata.set_item(path, own)?;
        }
        self.own(module, state, prefix, Kind::Parameter)?;
        self.own(module, state, prefix, Kind::Buffer)
    }
}

/// Puts the state of the module at `path` and of all below it into `destination`, in the order of `Module.state_dict`.
///
/// Modules that have their own ways (hooks, other methods than `base`'s, extra state) are asked for their state.
#[pyfunction]
fn _save_state<'py>(
    module: Bound<'py, PyAny>,
    base: Bound<'py, PyAny>,
    destination: Bound<'py, PyAny>,
    path: Bound<'py, PyString>,
    keep_vars: bool,
) -> PyResult<()> {
    let py = module.py();
    let saving = Saving {
        destination: &destination,
        metadata: destination.getattr_opt(intern!(py, "_metadata"))?,
        keep_vars,
        base: &base,
    };
    let mut waiting = vec![(path, module, 0)];
    while let Some((path, module, depth)) = waiting.pop() {
        within_reason(depth)?;
        let state = state_of(&module)?;
        let prefix = joined(&path, intern!(py, "."))?;
        if !saving.is_plain(&module, &state)? {
            saving.ask(&module, &prefix)?;
            continue;
        }
        saving.plain(&module, &state, &path, &prefix)?;
        for name in names(&module, &state, Kind::Module)?.rev() {
            let name = name.into_bound(py);
            if let Some(child) = value(&state, &name)? {
                waiting.push((joined(&prefix, &name)?, child, depth + 1));
            }
        }
    }
    Ok(())
}

/// Puts the class and the function into the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<ModuleWalk>()?;
    m.add_function(wrap_pyfunction!(_save_state, m)?)
}
