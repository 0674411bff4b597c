//! What `state_dict` does for every module of a model.

use super::{
    Kind, Names, joined, kinds_of, names_and_children, overrides, state_of, value, within_reason,
};
use crate::py::object::{PyTensor, is_plain_tensor, wrap};
use crate::py::{dispatch, watch};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// What is the same for all modules of one `state_dict`.
struct Saving<'a, 'py> {
    destination: &'a Bound<'py, PyAny>,
    metadata: Option<Bound<'py, PyAny>>,
    keep_vars: bool,
    /// The methods of `Module` that say what a state is.
    base: [(&'a Bound<'py, PyString>, Bound<'py, PyAny>); 3],
}

impl<'py> Saving<'_, 'py> {
    /// Whether only this module's parameters and buffers make its state, as `Module` says they do.
    fn is_plain(&self, module: &Bound<'py, PyAny>, state: &Bound<'py, PyDict>) -> PyResult<bool> {
        let py = module.py();
        let hooks = state.get_item(intern!(py, "_state_hooks"))?;
        if hooks.is_none_or(|h| !h.is_none()) {
            return Ok(false);
        }
        for (method, base) in &self.base {
            if overrides(module, state, base, method)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Saves what one name is registered with.
    fn one(
        &self,
        state: &Bound<'py, PyDict>,
        prefix: &Bound<'py, PyString>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<()> {
        let Some(mut value) = value(state, name)? else {
            return Ok(());
        };
        if !self.keep_vars {
            value = detached(&value)?;
        }
        self.destination.set_item(joined(prefix, name)?, value)
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

    /// Saves what a plain module holds itself, and says which modules are below it.
    fn plain(
        &self,
        module: &Bound<'py, PyAny>,
        state: &Bound<'py, PyDict>,
        path: &Bound<'py, PyString>,
        prefix: &Bound<'py, PyString>,
    ) -> PyResult<Names> {
        let py = module.py();
        if let Some(metadata) = &self.metadata {
            let own = PyDict::new(py);
            let version = intern!(py, "_version");
            own.set_item(intern!(py, "version"), module.getattr(version)?)?;
            metadata.set_item(path, own)?;
        }
        let kinds = kinds_of(module, state)?;
        let (parameters, below) = names_and_children(&kinds, Kind::Parameter);
        for name in parameters {
            self.one(state, prefix, name.bind(py))?;
        }
        let transient = state.get_item(intern!(py, "_non_persistent_buffers_set"))?;
        for name in names_and_children(&kinds, Kind::Buffer).0 {
            let name = name.bind(py);
            let hidden = transient.as_ref().map(|names| names.contains(name));
            if !hidden.transpose()?.unwrap_or(false) {
                self.one(state, prefix, name)?;
            }
        }
        Ok(below)
    }
}

/// What `detach` gives; its C function is not looked up where nobody watches a plain tensor.
fn detached<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    if is_plain_tensor(value.get_type_ptr()) && watch::state() == 0 && !dispatch::on() {
        let t = PyTensor::of(value)?.get();
        return wrap(py, crate::f::detach(t)?);
    }
    value.call_method0(intern!(py, "detach"))
}

/// Puts the state of the module at `path` and of all below it into `destination`, in the order of `Module.state_dict`.
///
/// Modules that have their own ways (hooks, other methods than `base`'s, extra state) are asked for their state.
#[pyfunction]
pub fn _save_state<'py>(
    module: Bound<'py, PyAny>,
    base: Bound<'py, PyAny>,
    destination: Bound<'py, PyAny>,
    path: Bound<'py, PyString>,
    keep_vars: bool,
) -> PyResult<()> {
    let py = module.py();
    let (state_dict, save_own) = (
        intern!(py, "state_dict"),
        intern!(py, "_save_to_state_dict"),
    );
    let extra = intern!(py, "get_extra_state");
    let saving = Saving {
        destination: &destination,
        metadata: destination.getattr_opt(intern!(py, "_metadata"))?,
        keep_vars,
        base: [
            (state_dict, base.getattr(state_dict)?),
            (save_own, base.getattr(save_own)?),
            (extra, base.getattr(extra)?),
        ],
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
        for name in saving.plain(&module, &state, &path, &prefix)?.rev() {
            let name = name.into_bound(py);
            if let Some(child) = value(&state, &name)? {
                waiting.push((joined(&prefix, &name)?, child, depth + 1));
            }
        }
    }
    Ok(())
}
