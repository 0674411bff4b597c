//! All modules of a tree and all values that they register, at once.

use super::{Kind, kinds_of, state_of, value};
use crate::mixed::Map;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

/// Levels that are walked here; deeper trees are left to the iterators, which need no stack.
const LEVELS: usize = 200;

/// A name and what it stands for.
pub type Named<'py> = (String, Bound<'py, PyAny>);

/// What a tree of modules has, in the order of `named_modules`, `named_parameters` and `named_buffers`.
pub struct Collected<'py> {
    pub modules: Vec<Named<'py>>,
    pub parameters: Vec<Named<'py>>,
    pub buffers: Vec<Named<'py>>,
}

/// All of a tree.
pub fn collect<'py>(root: &Bound<'py, PyAny>) -> PyResult<Collected<'py>> {
    let mut walk = Collector::new(root.py())?;
    if walk.module(root, 0)? {
        return Ok(walk.found);
    }
    let said = |method: &Bound<'py, PyString>| -> PyResult<Vec<Named<'py>>> {
        let named = root.call_method0(method)?;
        named.try_iter()?.map(|pair| pair?.extract()).collect()
    };
    Ok(Collected {
        modules: said(intern!(root.py(), "named_modules"))?,
        parameters: said(intern!(root.py(), "named_parameters"))?,
        buffers: said(intern!(root.py(), "named_buffers"))?,
    })
}

struct Collector<'py> {
    base: &'py Bound<'py, PyType>,
    /// Whether classes, by address, name what they have as `Module` does.
    plain: Map<usize, bool>,
    /// What was met, by address; the tree keeps it alive.
    met: Map<usize, ()>,
    path: String,
    found: Collected<'py>,
}

static BASE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The methods that say what a module has.
const METHODS: [&str; 4] = [
    "named_modules",
    "named_parameters",
    "named_buffers",
    "_named_members",
];

impl<'py> Collector<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        Ok(Self {
            base: BASE.import(py, "torchlike.nn.modules.module", "Module")?,
            plain: Map::default(),
            met: Map::default(),
            path: String::new(),
            found: Collected {
                modules: Vec::new(),
                parameters: Vec::new(),
                buffers: Vec::new(),
            },
        })
    }

    /// Whether a module has no methods of its own that say what it has.
    fn is_plain(&mut self, module: &Bound<'py, PyAny>) -> PyResult<bool> {
        let class = module.get_type();
        let key = class.as_ptr().addr();
        if let Some(known) = self.plain.get(&key) {
            return Ok(*known);
        }
        let mut plain = class.is_subclass(self.base)?;
        for name in METHODS {
            let (own, base) = (class.getattr_opt(name)?, self.base.getattr_opt(name)?);
            plain &= match (own, base) {
                (Some(own), Some(base)) => own.is(&base),
                (own, base) => own.is_none() && base.is_none(),
            };
        }
        self.plain.insert(key, plain);
        Ok(plain)
    }

    /// Collects what a module has and those below it have; false if one has its own idea of that.
    fn module(&mut self, module: &Bound<'py, PyAny>, depth: usize) -> PyResult<bool> {
        if depth > LEVELS || !self.is_plain(module)? {
            return Ok(false);
        }
        if self.met.insert(module.as_ptr().addr(), ()).is_some() {
            return Ok(true);
        }
        let state = state_of(module)?;
        if state.contains(intern!(module.py(), "named_modules"))? {
            return Ok(false);
        }
        let named = (self.path.clone(), module.clone());
        self.found.modules.push(named);
        let mut below = Vec::new();
        for (name, word) in kinds_of(module, &state)?.iter() {
            let name = name.cast_into::<PyString>()?;
            let Some(found) = value(&state, &name)? else {
                continue;
            };
            match Kind::of(&word) {
                Some(Kind::Module) => below.push((name, found)),
                Some(kind) => self.value(&name, found, kind)?,
                None => {}
            }
        }
        for (name, module) in below {
            let end = self.path.len();
            self.enter(&name)?;
            let plain = self.module(&module, depth + 1)?;
            self.path.truncate(end);
            if !plain {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Goes down the path by a name.
    fn enter(&mut self, name: &Bound<'py, PyString>) -> PyResult<()> {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name.to_str()?);
        Ok(())
    }

    /// Notes a parameter or a buffer.
    fn value(
        &mut self,
        name: &Bound<'py, PyString>,
        found: Bound<'py, PyAny>,
        kind: Kind,
    ) -> PyResult<()> {
        if self.met.insert(found.as_ptr().addr(), ()).is_none() {
            let end = self.path.len();
            self.enter(name)?;
            let named = (self.path.clone(), found);
            self.path.truncate(end);
            match kind {
                Kind::Buffer => self.found.buffers.push(named),
                _ => self.found.parameters.push(named),
            }
        }
        Ok(())
    }
}
