//! Copies of trees of modules, whose registered tensors are made fake on a device.

use super::{Kind, kinds_of, state_of, within_reason};
use crate::mixed::Map;
use crate::py::fake::PyFakeMode;
use crate::py::object::{is_plain_tensor, tensor_ref};
use crate::py::types::{PyDType, PyDevice};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PySet, PyString, PyTuple, PyType,
};

/// Copies modules as `copy.deepcopy` does, attribute by attribute where their classes leave that to `object`.
struct Copier<'a, 'py> {
    mode: &'a PyFakeMode,
    device: &'a PyDevice,
    memo: &'a Bound<'py, PyDict>,
    /// Whether modules of a class are copied attribute by attribute.
    is_plain: &'a Bound<'py, PyAny>,
    /// Makes a tensor fake where it is.
    fake: &'a Bound<'py, PyAny>,
    /// Copies anything else.
    other: &'a Bound<'py, PyAny>,
    /// What is known of classes, by address.
    classes: Map<usize, bool>,
    /// Whether all tensors were made on the device.
    placed: bool,
}

/// A copy of a module with fake tensors, and whether all of them are on the device. `memo` is that of `copy.deepcopy`;
/// `is_plain(cls)` says whether a module is copied attribute by attribute, `fake(t)` copies tensors that stay where they are,
/// `other(o)` all else.
#[pyfunction]
pub fn _fake_copy<'py>(
    module: &Bound<'py, PyAny>,
    mode: &PyFakeMode,
    device: &PyDevice,
    memo: &Bound<'py, PyDict>,
    is_plain: &Bound<'py, PyAny>,
    fake: &Bound<'py, PyAny>,
    other: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, bool)> {
    let mut copier = Copier {
        mode,
        device,
        memo,
        is_plain,
        fake,
        other,
        classes: Map::default(),
        placed: true,
    };
    let made = copier.module(module, 0)?;
    Ok((made, copier.placed))
}

impl<'py> Copier<'_, 'py> {
    fn module(&mut self, m: &Bound<'py, PyAny>, depth: usize) -> PyResult<Bound<'py, PyAny>> {
        within_reason(depth)?;
        if let Some(known) = self.memo.get_item(key(m))? {
            return Ok(known);
        }
        let class = m.get_type();
        if !self.leaves_it(&class)? {
            return self.elsewhere(m);
        }
        let made = class.call_method1(intern!(m.py(), "__new__"), (&class,))?;
        self.memo.set_item(key(m), &made)?;
        let (old, new) = (state_of(m)?, state_of(&made)?);
        // All at once, and then what is not its own copy in its place.
        new.update(old.as_mapping())?;
        let others: Vec<_> = old.iter().filter(|(_, value)| !is_atom(value)).collect();
        let kinds = kinds_of(m, &old)?;
        for (name, value) in others {
            let copied = match kinds.get_item(&name)? {
                None => self.attribute(&name, value)?,
                Some(kind) => match Kind::of(&kind) {
                    Some(Kind::Module) => self.module(&value, depth + 1)?,
                    _ => self.tensor(&value)?,
                },
            };
            new.set_item(name, copied)?;
        }
        Ok(made)
    }

    /// An attribute that is not registered.
    fn attribute(
        &mut self,
        name: &Bound<'py, PyAny>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = name.py();
        if name.is(intern!(py, "_kinds")) && value.is_exact_instance_of::<PyDict>() {
            return Ok(value.cast_into::<PyDict>()?.copy()?.into_any());
        }
        if name.is(intern!(py, "_non_persistent_buffers_set"))
            && value.is_exact_instance_of::<PySet>()
        {
            return value.call_method0(intern!(py, "copy"));
        }
        self.other.call1((value,))
    }

    /// Whether the copy of a module of this class is a new one with the copies of its attributes.
    fn leaves_it(&mut self, class: &Bound<'py, PyType>) -> PyResult<bool> {
        let key = class.as_ptr().addr();
        if let Some(known) = self.classes.get(&key) {
            return Ok(*known);
        }
        let plain = self.is_plain.call1((class,))?.is_truthy()?;
        self.classes.insert(key, plain);
        Ok(plain)
    }

    /// The fake copy of what is registered; one that is to move is made where it goes.
    fn tensor(&mut self, t: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(known) = self.memo.get_item(key(t))? {
            return Ok(known);
        }
        let made = match self.mode.placed(t, self.device)? {
            Some(made) => made,
            None if self.is_there(t)? => self.fake.call1((t,))?,
            None => return self.elsewhere(t),
        };
        self.memo.set_item(key(t), &made)?;
        Ok(made)
    }

    /// Whether a tensor of a plain class is on the device already.
    fn is_there(&self, t: &Bound<'py, PyAny>) -> PyResult<bool> {
        let Some(t) = tensor_ref(t).filter(|_| is_plain_tensor(t.get_type_ptr())) else {
            return Ok(false);
        };
        Ok(t.device() == self.device.known()?.canonical())
    }

    /// What is copied otherwise, and perhaps not to the device.
    fn elsewhere(&mut self, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.placed = false;
        self.other.call1((o,))
    }
}

/// Under what `copy.deepcopy` remembers an object.
fn key(o: &Bound<'_, PyAny>) -> usize {
    o.as_ptr().addr()
}

/// Whether a value is its own copy.
fn is_atom(o: &Bound<'_, PyAny>) -> bool {
    o.is_none()
        || o.is_exact_instance_of::<PyBool>()
        || o.is_exact_instance_of::<PyInt>()
        || o.is_exact_instance_of::<PyFloat>()
        || o.is_exact_instance_of::<PyString>()
        || o.is_exact_instance_of::<PyBytes>()
        || o.is_exact_instance_of::<PyComplex>()
        || o.is_exact_instance_of::<PyDType>()
        || o.is_exact_instance_of::<PyDevice>()
        || o.cast_exact::<PyTuple>()
            .is_ok_and(|t| t.iter().all(|item| is_atom(&item)))
}
