//! Objects of a proved tree as Python objects: containers, numbers, strings, and what tables of ours know how to build.

use super::Loader;
use crate::io::tree::{CallKind, Global, Id};
use crate::io::{self, Object, Value};
use crate::py::results::scalar;
use crate::py::sizes;
use crate::py::storage::PyStorage;
use crate::py::types::{self, PyDevice};
use crate::{DType, Error, Scalar, err};
use num_complex::Complex64;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{
    PyByteArray, PyBytes, PyDict, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple,
};

impl<'a, 'py> Loader<'a, 'py> {
    fn values(&mut self, items: &[Value]) -> PyResult<Vec<Bound<'py, PyAny>>> {
        items.iter().map(|i| self.value(*i)).collect()
    }

    /// A value of the tree as a Python object, the same one each time.
    pub(in crate::py) fn value(&mut self, v: Value) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let id = match v {
            Value::None => return Ok(py.None().into_bound(py)),
            Value::Bool(b) => return scalar(py, Scalar::Bool(b)),
            Value::Int(i) => return scalar(py, Scalar::Int(i)),
            Value::Float(f) => return scalar(py, Scalar::Float(f)),
            Value::Object(id) => id,
        };
        if let Some(Some(done)) = self.made.get(id.0 as usize) {
            return Ok(done.clone());
        }
        match self.archive.tree().object(v).copied() {
            Some(object) => self.built(id, v, object),
            None => Err(PyRuntimeError::new_err(
                "a dangling reference in the checkpoint",
            )),
        }
    }

    fn built(&mut self, id: Id, v: Value, object: Object) -> PyResult<Bound<'py, PyAny>> {
        let at = id.0 as usize;
        let made = match object {
            // These may contain themselves: they are known before they are full.
            Object::List(_) => return self.list(at, v),
            Object::Set(_) => return self.set(at, v),
            Object::Dict(_) => return self.dict(at, v),
            Object::OrderedDict(_) => return self.mapping(id, v, "OrderedDict"),
            Object::Counter(_) => return self.mapping(id, v, "Counter"),
            Object::Tensor(n) => return self.tensor(at, n as usize),
            Object::Composite(n) => return self.whole_composite(at, n as usize),
            Object::Call(_) => return self.call(at, v),

            Object::Tuple(_) => self.tuple(at, v)?,
            Object::FrozenSet(_) => {
                let items = self.values(self.items(v))?;
                PyFrozenSet::new(self.py, items)?.into_any()
            }
            Object::Storage(n, dtype) => self.typed_storage(n, dtype)?,
            Object::Global(n) => self.global(n as usize)?,
            Object::PersistentId(_) | Object::Proto(_) => return Err(self.refused(v).into()),
            plain => match self.old_string(id)? {
                Some(made) => made,
                None => self.plain(v, plain)?,
            },
        };
        self.made[at] = Some(made.clone());
        Ok(made)
    }

    /// A string of Python 2, if there is a word for how such are read.
    fn old_string(&self, id: Id) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(encoding) = &self.encoding else {
            return Ok(None);
        };
        let Some(bytes) = self.archive.tree().old_string(id) else {
            return Ok(None);
        };
        let bytes = PyBytes::new(self.py, bytes);
        Ok(Some(match encoding.as_str() {
            "bytes" => bytes.into_any(),
            name => bytes.call_method1("decode", (name, "strict"))?,
        }))
    }

    /// An object without other objects in it.
    fn plain(&self, v: Value, object: Object) -> PyResult<Bound<'py, PyAny>> {
        let (py, tree) = (self.py, self.archive.tree());
        let bytes = || tree.bytes(v).unwrap_or(&[]);
        let text = || tree.str(v).unwrap_or("");
        Ok(match object {
            Object::Str(_) => PyString::new(py, text()).into_any(),
            Object::Surrogates(_) => {
                PyBytes::new(py, bytes()).call_method1("decode", ("utf-8", "surrogatepass"))?
            }
            Object::BigInt(_) => big_int(py, bytes())?,
            Object::Bytes(_) => PyBytes::new(py, bytes()).into_any(),
            Object::ByteArray(_) => PyByteArray::new(py, bytes()).into_any(),
            Object::Complex(_) => {
                let (re, im) = tree.complex(v).unwrap_or_default();
                scalar(py, Scalar::Complex(Complex64::new(re, im)))?
            }
            Object::Size(_) => self.size(v)?,
            Object::DType(d) => types::dtype(py, d)?.into_bound(py).into_any(),
            Object::Device(_) => Bound::new(py, PyDevice::named(text())?)?.into_any(),
            Object::Layout(_) => {
                let name = text().rsplit('.').next().unwrap_or_default();
                py.import("torchlike._C")?.getattr(name)?
            }
            _ => return Err(self.refused(v).into()),
        })
    }

    fn size(&self, v: Value) -> PyResult<Bound<'py, PyAny>> {
        let sizes = self.items(v).iter().map(|i| match i {
            Value::Int(n) => *n,
            _ => 0,
        });
        sizes::size(self.py, &sizes.collect::<Vec<_>>())
    }

    fn items(&self, v: Value) -> &'a [Value] {
        self.archive.tree().items(v).unwrap_or(&[])
    }

    fn pairs(&self, v: Value) -> &'a [(Value, Value)] {
        self.archive.tree().pairs(v).unwrap_or(&[])
    }

    fn tuple(&mut self, at: usize, v: Value) -> PyResult<Bound<'py, PyAny>> {
        let items = self.values(self.items(v))?;
        // A tuple that contains itself by way of a list was made meanwhile.
        match self.made.get(at) {
            Some(Some(done)) => Ok(done.clone()),
            _ => Ok(PyTuple::new(self.py, items)?.into_any()),
        }
    }

    fn list(&mut self, at: usize, v: Value) -> PyResult<Bound<'py, PyAny>> {
        let list = PyList::empty(self.py);
        self.made[at] = Some(list.clone().into_any());
        for i in self.items(v) {
            list.append(self.value(*i)?)?;
        }
        Ok(list.into_any())
    }

    fn set(&mut self, at: usize, v: Value) -> PyResult<Bound<'py, PyAny>> {
        let set = PySet::empty(self.py)?;
        self.made[at] = Some(set.clone().into_any());
        for i in self.items(v) {
            set.add(self.value(*i)?)?;
        }
        Ok(set.into_any())
    }

    fn dict(&mut self, at: usize, v: Value) -> PyResult<Bound<'py, PyAny>> {
        let dict = PyDict::new(self.py);
        self.made[at] = Some(dict.clone().into_any());
        for (k, item) in self.pairs(v) {
            dict.set_item(self.value(*k)?, self.value(*item)?)?;
        }
        Ok(dict.into_any())
    }

    /// A mapping of Python's `collections`.
    fn mapping(&mut self, id: Id, v: Value, class: &str) -> PyResult<Bound<'py, PyAny>> {
        let dict = self.py.import("collections")?.getattr(class)?.call0()?;
        self.made[id.0 as usize] = Some(dict.clone());
        for (k, item) in self.pairs(v) {
            dict.set_item(self.value(*k)?, self.value(*item)?)?;
        }
        if let Some(attrs) = self.archive.tree().attrs.get(&id) {
            self.attributes(&dict, *attrs)?;
        }
        Ok(dict)
    }

    fn typed_storage(&mut self, n: u32, dtype: Option<DType>) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let untyped = Bound::new(py, PyStorage(self.storage(n)?))?;
        let kw = PyDict::new(py);
        kw.set_item("wrap_storage", untyped)?;
        // PyTorch gives untyped storages back as storages of bytes.
        kw.set_item("dtype", types::dtype(py, dtype.unwrap_or(DType::U8))?)?;
        kw.set_item("_internal", true)?;
        py.import("torchlike.storage")?
            .getattr("TypedStorage")?
            .call((), Some(&kw))
    }

    fn tensor(&mut self, at: usize, n: usize) -> PyResult<Bound<'py, PyAny>> {
        if let Some(Some(done)) = self.tensors.get(n) {
            return Ok(done.clone());
        }
        let archive = self.archive;
        let t = &archive.tree().tensors[n];
        let bare = self.bare(t)?;
        let made = self.object(t.class, bare)?;
        if let Some(slot) = self.tensors.get_mut(n) {
            *slot = Some(made.clone());
        }
        self.made[at] = Some(made.clone());
        if t.attrs != Value::None {
            self.attributes(&made, t.attrs)?;
        }
        Ok(made)
    }

    fn whole_composite(&mut self, at: usize, n: usize) -> PyResult<Bound<'py, PyAny>> {
        let archive = self.archive;
        let c = &archive.tree().composites[n];
        let made = self.composite(c)?;
        self.made[at] = Some(made.clone());
        if c.attrs != Value::None {
            self.attributes(&made, c.attrs)?;
        }
        Ok(made)
    }

    /// A function or class, if the tables or the user know the name.
    fn global(&self, n: usize) -> PyResult<Bound<'py, PyAny>> {
        let g = &self.archive.tree().globals[n];
        let rebuild = self.py.import("torchlike._rebuild")?;
        let names = (&*g.module, &*g.name, &self.allowed, self.full);
        let found = rebuild.getattr("value")?.call1(names)?;
        if found.is(&rebuild.getattr("Refused")?) {
            return Err(io::unsupported_global(g).into());
        }
        Ok(found)
    }

    fn attributes(&mut self, to: &Bound<'py, PyAny>, attrs: Value) -> PyResult<()> {
        let archive = self.archive;
        let tree = archive.tree();
        let parts = match tree.tuple(attrs) {
            Some(parts) => parts,
            None => std::slice::from_ref(&attrs),
        };
        for part in parts {
            for (k, v) in tree.pairs(*part).unwrap_or(&[]) {
                let (k, v) = (self.value(*k)?, self.value(*v)?);
                to.setattr(
                    k.cast::<PyString>()
                        .map_err(|_| PyTypeError::new_err("attribute names are strings"))?,
                    v,
                )?;
            }
        }
        Ok(())
    }

    /// An object that a table of ours, or the user, knows how to make from data.
    fn call(&mut self, at: usize, v: Value) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let archive = self.archive;
        let tree = archive.tree();
        let (Some(call), Some(g)) = (tree.call(v), tree.call(v).and_then(|c| tree.global(c.func)))
        else {
            return Err(self.refused(v).into());
        };
        let rebuild = py.import("torchlike._rebuild")?;
        let builder = builder(&rebuild, g, &self.allowed, self.full)?;
        if builder.is_none() {
            return Err(io::unsupported_global(g).into());
        }
        let args = self.values(tree.items(call.args).unwrap_or(&[]))?;
        let args = PyTuple::new(py, args)?;
        let kwargs = self.value(call.kwargs)?;
        let is_new = call.kind == CallKind::New;
        let made = builder
            .call_method1("start", (args, kwargs, is_new))
            .map_err(|e| explained(g, &rebuild, e))?;
        self.made[at] = Some(made.clone());
        let Some(extra) = call.extra.as_deref() else {
            return Ok(made);
        };
        let items = self.values(&extra.items)?;
        let mut pairs = Vec::with_capacity(extra.pairs.len());
        for (k, x) in &extra.pairs {
            pairs.push((self.value(*k)?, self.value(*x)?));
        }
        let states = self.values(&extra.states)?;
        let filled = builder
            .call_method1("fill", (made, items, pairs, states))
            .map_err(|e| explained(g, &rebuild, e))?;
        self.made[at] = Some(filled.clone());
        Ok(filled)
    }

    /// The error for a class or call that we do not build, naming it.
    fn refused(&self, v: Value) -> Error {
        let tree = self.archive.tree();
        let global = tree
            .global(v)
            .or_else(|| tree.call(v).and_then(|c| tree.global(c.func)));
        match global {
            Some(g) => io::unsupported_global(g),
            None => io::weights_only_error("the file asks for an object of an unknown kind."),
        }
    }
}

fn big_int<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let signed = PyDict::new(py);
    signed.set_item("signed", true)?;
    let args = (PyBytes::new(py, bytes), "little");
    py.get_type::<PyInt>()
        .call_method("from_bytes", args, Some(&signed))
}

/// The error of a builder, naming whose objects it builds where the builder itself refused.
fn explained(g: &Global, rebuild: &Bound<'_, PyModule>, e: PyErr) -> PyErr {
    let py = rebuild.py();
    let ours = rebuild
        .getattr("Refused")
        .is_ok_and(|r| e.matches(py, r).unwrap_or(false));
    if !ours {
        return e;
    }
    err!(
        Unpickling,
        "{g} is made or filled in a way that its own objects are not: {}",
        e.value(py)
    )
    .into()
}

/// How objects of a name are made; None where they are refused.
pub(in crate::py) fn builder<'py>(
    rebuild: &Bound<'py, PyModule>,
    g: &Global,
    allowed: &Bound<'py, PyDict>,
    full: bool,
) -> PyResult<Bound<'py, PyAny>> {
    rebuild
        .getattr("builder")?
        .call1((&*g.module, &*g.name, allowed, full))
}
