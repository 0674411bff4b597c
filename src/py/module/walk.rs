//! The iterator behind `named_modules`, `named_parameters` and `named_buffers`.

use super::{
    Kind, Names, joined, kinds_of, names_and_children, overrides, prefix_of, state_of, value,
    within_reason,
};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PySet, PyString, PyTuple};
use std::collections::HashMap;

/// The registered names of a module that are still to come.
struct Level {
    kinds: Py<PyDict>,
    state: Py<PyDict>,
    prefix: Py<PyString>,
    kind: Kind,
    names: Names,
    /// How many names there were, of this kind and of all.
    counts: (usize, usize),
}

impl Level {
    fn new(
        kinds: &Bound<'_, PyDict>,
        state: &Bound<'_, PyDict>,
        prefix: &Bound<'_, PyString>,
        (kind, names): (Kind, Names),
    ) -> Self {
        Self {
            counts: (names.len(), kinds.len()),
            kinds: kinds.clone().unbind(),
            state: state.clone().unbind(),
            prefix: prefix.clone().unbind(),
            kind,
            names,
        }
    }

    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.kinds)?;
        visit.call(&self.state)
    }

    /// As it is, with the present names if some were registered or removed since it was made.
    fn refreshed(mut self, py: Python<'_>) -> Self {
        let kinds = self.kinds.bind(py);
        if kinds.len() != self.counts.1 {
            let (own, below) = names_and_children(kinds, self.kind);
            let names = if self.kind == Kind::Module {
                below
            } else {
                own
            };
            self.counts = (names.len(), kinds.len());
            self.names = names;
        }
        self
    }

    /// Refuses to go on if names were registered or removed, as dictionaries do.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let kinds = self.kinds.bind(py);
        let (own, all) = self.counts;
        if kinds.len() == all {
            return Ok(());
        }
        let now = |w: &Bound<'_, PyAny>| Kind::of(w) == Some(self.kind);
        if kinds.values().iter().filter(now).count() == own {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "dictionary changed size during iteration",
        ))
    }

    /// The next name that has a value, after the prefix, and the value.
    fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Found<'py>>> {
        self.check(py)?;
        for name in self.names.by_ref() {
            let name = name.into_bound(py);
            if let Some(value) = value(self.state.bind(py), &name)? {
                return Ok(Some((joined(self.prefix.bind(py), &name)?, value)));
            }
        }
        Ok(None)
    }
}

/// A step down the tree: the children of a module, or what a module says itself.
enum Step {
    Below(Level),
    Said(Py<PyIterator>),
}

/// A registered value and the path that leads to it.
type Found<'py> = (Bound<'py, PyString>, Bound<'py, PyAny>);

/// The iterator behind `named_modules`, `named_parameters` and `named_buffers`.
///
/// A module whose class has another `named_modules` than `base` is asked itself. `memo` has the modules met before.
/// Nothing is looked at before it is asked for, so that a model may change on the way.
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
    path: Vec<Step>,
    /// The values of the present module, and the modules below it, which are begun after them.
    own: Option<Level>,
    below: Option<Level>,
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
        unique: &Bound<'_, PyAny>,
        recurse: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let py = module.py();
        let unknown = || PyValueError::new_err("no kind of registered value");
        let memo = memo.map_or_else(|| PySet::empty(py), Ok)?;
        Ok(ModuleWalk {
            wanted: Kind::parse(wanted).ok_or_else(unknown)?,
            base: base.getattr(intern!(py, "named_modules"))?.unbind(),
            memo: memo.unbind(),
            unique: unique.is_truthy()?,
            recurse: recurse.is_truthy()?,
            root: Some((prefix.unbind(), module.unbind())),
            opened: None,
            path: Vec::new(),
            own: None,
            below: None,
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

    fn __repr__(this: PyRef<'_, Self>) -> String {
        let name = match this.wanted {
            Kind::Parameter => "parameters",
            Kind::Buffer => "buffers",
            Kind::Module => "modules",
        };
        let address = this.as_ptr().addr();
        format!("<generator object Module.named_{name} at {address:#x}>")
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.base)?;
        visit.call(&self.memo)?;
        for (_, module) in self.root.iter().chain(&self.opened) {
            visit.call(module)?;
        }
        for step in &self.path {
            match step {
                Step::Below(level) => level.visit(&visit)?,
                Step::Said(iterator) => visit.call(iterator)?,
            }
        }
        for level in self.own.iter().chain(&self.below) {
            level.visit(&visit)?;
        }
        self.seen.values().try_for_each(|v| visit.call(v))
    }

    fn __clear__(&mut self) {
        self.root = None;
        self.opened = None;
        self.own = None;
        self.below = None;
        self.path.clear();
        self.seen.clear();
    }
}

impl ModuleWalk {
    /// The next of a module's children, or (true) what a module's own iterator says next.
    fn child<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(Found<'py>, bool)>> {
        while let Some(step) = self.path.last_mut() {
            let found = match step {
                Step::Said(iterator) => match iterator.bind(py).clone().next() {
                    Some(pair) => Some((pair?.extract()?, true)),
                    None => None,
                },
                Step::Below(level) => level.next(py)?.map(|found| (found, false)),
            };
            if found.is_some() {
                return Ok(found);
            }
            self.path.pop();
        }
        Ok(None)
    }

    /// Queues the names of the modules below one.
    fn push(&mut self, level: Level) -> PyResult<()> {
        if level.names.len() != 0 && self.recurse {
            within_reason(self.path.len())?;
            self.path.push(Step::Below(level));
        }
        Ok(())
    }

    /// Whether a module answers `named_modules` itself; its iterator is then queued.
    fn asked(&mut self, (path, module): &Found<'_>) -> PyResult<bool> {
        let py = module.py();
        let method = intern!(py, "named_modules");
        if !overrides(module, &state_of(module)?, self.base.bind(py), method)? {
            return Ok(false);
        }
        let said = module.call_method1(method, (&self.memo, path, self.unique))?;
        self.path.push(Step::Said(said.try_iter()?.unbind()));
        Ok(true)
    }

    /// The next module, and whether those below it are still to be queued.
    fn step<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(Found<'py>, bool)>> {
        loop {
            let (found, ask) = match self.root.take() {
                // Who asks for modules has come from the root's own method; values are asked of any module.
                Some((path, module)) => {
                    let ask = self.wanted != Kind::Module && self.recurse;
                    ((path.into_bound(py), module.into_bound(py)), ask)
                }
                None => match self.child(py)? {
                    None => return Ok(None),
                    Some((found, true)) => return Ok(Some((found, false))),
                    Some((found, false)) => (found, true),
                },
            };
            if ask && self.asked(&found)? {
                continue;
            }
            if self.unique {
                let memo = self.memo.bind(py);
                let before = memo.len();
                memo.add(&found.1)?;
                if memo.len() == before {
                    continue;
                }
            }
            return Ok(Some((found, true)));
        }
    }

    fn next_module<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Found<'py>>> {
        if let Some((path, module)) = self.opened.take() {
            let opened = (path.into_bound(py), module.into_bound(py));
            let state = state_of(&opened.1)?;
            let kinds = kinds_of(&opened.1, &state)?;
            let (_, below) = names_and_children(&kinds, Kind::Module);
            if below.len() != 0 {
                let prefix = prefix_of(&opened.0)?;
                self.push(Level::new(&kinds, &state, &prefix, (Kind::Module, below)))?;
            }
        }
        let Some(((path, module), open)) = self.step(py)? else {
            return Ok(None);
        };
        if open && self.recurse {
            self.opened = Some((path.clone().unbind(), module.clone().unbind()));
        }
        Ok(Some((path, module)))
    }

    fn next_value<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Found<'py>>> {
        loop {
            while let Some((path, value)) = match &mut self.own {
                Some(level) => level.next(py)?,
                None => None,
            } {
                let address = value.as_ptr().addr();
                let kept = self.unique.then(|| value.clone().unbind());
                if kept.is_none_or(|kept| self.seen.insert(address, kept).is_none()) {
                    return Ok(Some((path, value)));
                }
            }
            if let Some(level) = self.below.take() {
                self.push(level.refreshed(py))?;
            }
            let Some(((path, module), open)) = self.step(py)? else {
                return Ok(None);
            };
            let (state, prefix) = (state_of(&module)?, prefix_of(&path)?);
            let kinds = kinds_of(&module, &state)?;
            let (names, below) = names_and_children(&kinds, self.wanted);
            if open {
                let below = (Kind::Module, below);
                self.below = Some(Level::new(&kinds, &state, &prefix, below));
            }
            let own = (self.wanted, names);
            self.own = Some(Level::new(&kinds, &state, &prefix, own));
        }
    }
}
