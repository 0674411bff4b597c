//! `save`: Python objects as the plain data that a checkpoint holds.

use super::convert::number;
use super::storage::storage_of;
use super::tensor::{PyParameter, PyTensor};
use super::types::{self, PyDType, PyDevice, PyFormat, PyLayout};
use crate::io::{self, Data, Object, StorageRef, TensorClass, TensorRef, Tree, Value};
use crate::{DType, Device, Result, Scalar, Storage};
use pyo3::exceptions::{PyNotImplementedError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{
    PyByteArray, PyBytes, PyDict, PyFrozenSet, PyList, PySet, PyString, PyTuple, PyType,
};
use std::collections::HashMap;

/// Objects nested deeper than this are refused, as on loading.
const MAX_DEPTH: usize = 900;

struct Saver<'py> {
    py: Python<'py>,
    tree: Tree,
    made: HashMap<usize, Value>,
    storages: Vec<Storage>,
    numbers: HashMap<usize, u32>,
    /// Objects made on the way, kept so that no address is used twice.
    alive: Vec<Bound<'py, PyAny>>,
}

impl<'py> Saver<'py> {
    fn storage(&mut self, s: &Storage, dtype: DType) -> u32 {
        if let Some(n) = self.numbers.get(&s.id()) {
            return *n;
        }
        let meta = s.device().is_meta();
        let n = self.tree.push_storage(StorageRef {
            key: self.storages.len().to_string().into(),
            dtype: Some(dtype),
            location: s.device().to_string().into(),
            nbytes: s.nbytes() as u64,
            data: if meta { Data::Meta } else { Data::Given },
            crc: None,
        });
        self.storages.push(s.clone());
        self.numbers.insert(s.id(), n);
        n
    }

    fn tensor(&mut self, o: &Bound<'py, PyAny>, depth: usize) -> PyResult<Value> {
        let t = PyTensor::of(o)?.get().clone();
        let storage = self.storage(t.storage(), t.dtype());
        let mut r = TensorRef::new(storage, t.dtype(), t.shape(), t.strides(), t.offset());
        r.requires_grad = t.requires_grad();
        r.conj = t.is_conj();
        r.neg = t.is_neg();
        let class = o.get_type();
        r.class = if class.is(self.py.get_type::<PyParameter>()) {
            TensorClass::Parameter
        } else if class.is(self.py.get_type::<PyTensor>()) || class.name()?.to_cow()? == "Buffer" {
            TensorClass::Tensor
        } else {
            return Err(PyNotImplementedError::new_err(format!(
                "save(): tensors of class {} cannot be saved; save x.as_subclass(Tensor)",
                class.name()?
            )));
        };
        let attrs = o.getattr("__dict__")?;
        let attrs = attrs.cast::<PyDict>()?.copy()?;
        for private in ["_grad", "persistent"] {
            if attrs.contains(private)? {
                attrs.del_item(private)?;
            }
        }
        if !attrs.is_empty() {
            r.attrs = self.value(attrs.as_any(), depth + 1)?;
            self.alive.push(attrs.into_any());
        }
        Ok(self.tree.push_tensor(r))
    }

    fn items(
        &mut self,
        it: impl Iterator<Item = Bound<'py, PyAny>>,
        depth: usize,
    ) -> PyResult<Vec<Value>> {
        it.map(|i| self.value(&i, depth + 1)).collect()
    }

    fn value(&mut self, o: &Bound<'py, PyAny>, depth: usize) -> PyResult<Value> {
        if depth > MAX_DEPTH {
            return Err(pyo3::exceptions::PyRecursionError::new_err(
                "save(): the object is nested too deep",
            ));
        }
        if o.is_none() {
            return Ok(Value::None);
        }
        let key = o.as_ptr() as usize;
        if let Some(v) = self.made.get(&key) {
            return Ok(*v);
        }
        let class = o.get_type();
        let plain = |t: Bound<'py, PyType>| class.is(&t);
        let py = self.py;
        let made = if plain(py.get_type::<pyo3::types::PyBool>()) {
            return Ok(Value::Bool(o.extract()?));
        } else if plain(py.get_type::<pyo3::types::PyInt>()) {
            match o.extract::<i64>() {
                Ok(i) => return Ok(Value::Int(i)),
                Err(_) => {
                    let bits: usize = o.call_method0("bit_length")?.extract()?;
                    let kw = PyDict::new(py);
                    kw.set_item("signed", true)?;
                    let bytes: Vec<u8> = o
                        .call_method("to_bytes", (bits / 8 + 1, "little"), Some(&kw))?
                        .extract()?;
                    self.tree.push_bytes(Object::BigInt, &bytes)
                }
            }
        } else if plain(py.get_type::<pyo3::types::PyFloat>()) {
            return Ok(Value::Float(o.extract()?));
        } else if let Ok(s) = o.cast_exact::<PyString>() {
            match s.to_cow() {
                Ok(text) => self.tree.push_str(&text),
                Err(_) => {
                    let bytes: Vec<u8> = s
                        .call_method1("encode", ("utf-8", "surrogatepass"))?
                        .extract()?;
                    self.tree.push_bytes(Object::Surrogates, &bytes)
                }
            }
        } else if o.is_instance_of::<PyTensor>() {
            self.tensor(o, depth)?
        } else if let Ok(d) = o.cast_exact::<PyDict>() {
            let v = self.tree.push_dict(Object::Dict, Vec::new());
            self.made.insert(key, v);
            self.fill_dict(v, d, depth)?;
            v
        } else if let Ok(l) = o.cast_exact::<PyList>() {
            let v = self.tree.push_list(Object::List, Vec::new());
            self.made.insert(key, v);
            let items = self.items(l.iter(), depth)?;
            if let Some(Object::List(n)) = self.tree.object(v).copied() {
                self.tree.lists[n as usize] = items;
            }
            v
        } else if let Ok(t) = o.cast_exact::<PyTuple>() {
            let items = self.items(t.iter(), depth)?;
            self.tree.push_items(Object::Tuple, &items)
        } else if class.name()?.to_cow()? == "Size" && o.is_instance_of::<PyTuple>() {
            let items = self.items(o.cast::<PyTuple>()?.iter(), depth)?;
            self.tree.push_items(Object::Size, &items)
        } else if plain(
            py.import("collections")?
                .getattr("OrderedDict")?
                .cast_into()?,
        ) {
            let v = self.tree.push_dict(Object::OrderedDict, Vec::new());
            self.made.insert(key, v);
            self.fill_dict(v, o.cast::<PyDict>()?, depth)?;
            let attrs = o.getattr("__dict__")?;
            if attrs.len()? > 0
                && let Value::Object(id) = v
            {
                let attrs_value = self.value(&attrs, depth + 1)?;
                self.alive.push(attrs);
                self.tree.attrs.insert(id, attrs_value);
            }
            v
        } else if let Ok(b) = o.cast_exact::<PyBytes>() {
            self.tree.push_bytes(Object::Bytes, b.as_bytes())
        } else if o.is_instance_of::<PyByteArray>() {
            let bytes: Vec<u8> = o.extract()?;
            self.tree.push_bytes(Object::ByteArray, &bytes)
        } else if plain(py.get_type::<pyo3::types::PyComplex>()) {
            let c: num_complex::Complex64 = o.extract()?;
            self.tree
                .push_items(Object::Complex, &[Value::Float(c.re), Value::Float(c.im)])
        } else if plain(py.get_type::<PySet>()) {
            let items = self.items(
                o.try_iter()?.collect::<PyResult<Vec<_>>>()?.into_iter(),
                depth,
            )?;
            self.tree.push_list(Object::Set, items)
        } else if plain(py.get_type::<PyFrozenSet>()) {
            let items = self.items(
                o.try_iter()?.collect::<PyResult<Vec<_>>>()?.into_iter(),
                depth,
            )?;
            self.tree.push_list(Object::FrozenSet, items)
        } else if let Ok(d) = o.cast::<PyDType>() {
            self.tree.push(Object::DType(d.get().0))
        } else if let Ok(d) = o.cast::<PyDevice>() {
            self.tree.push_text(Object::Device, &d.get().0.to_string())
        } else if let Ok(l) = o.cast::<PyLayout>() {
            self.tree.push_text(Object::Layout, l.get().0)
        } else if let Ok(f) = o.cast::<PyFormat>() {
            self.tree.push_global("torch", f.get().format().name())
        } else if let Ok(s) = storage_of(o) {
            let dtype = match o.getattr("dtype") {
                Ok(d) => Some(
                    d.cast::<PyDType>()
                        .map_err(|_| PyTypeError::new_err("a storage's dtype"))?
                        .get()
                        .0,
                ),
                Err(_) => None,
            };
            let n = self.storage(&s, dtype.unwrap_or(DType::U8));
            self.tree.push(Object::Storage(n, dtype))
        } else if let Some(s) = number(o) {
            // NumPy numbers become Python ones.
            return Ok(match s {
                Scalar::Bool(b) => Value::Bool(b),
                Scalar::Int(i) => Value::Int(i),
                other => Value::Float(other.to_f64()),
            });
        } else {
            return Err(PyNotImplementedError::new_err(format!(
                "save(): objects of type {} cannot be saved; torchlike saves tensors, numbers, strings and containers of them (for a module: its state_dict())",
                types::type_name(o)
            )));
        };
        self.made.insert(key, made);
        Ok(made)
    }

    fn fill_dict(&mut self, v: Value, d: &Bound<'py, PyDict>, depth: usize) -> PyResult<()> {
        let mut pairs = Vec::with_capacity(d.len());
        // Through items(), which an OrderedDict gives in its own order.
        for item in d.as_any().call_method0("items")?.try_iter()? {
            let item = item?;
            let (k, x) = (item.get_item(0)?, item.get_item(1)?);
            pairs.push((self.value(&k, depth + 1)?, self.value(&x, depth + 1)?));
        }
        if let Some(Object::Dict(n) | Object::OrderedDict(n)) = self.tree.object(v).copied() {
            self.tree.dicts[n as usize] = pairs;
        }
        Ok(())
    }
}

/// Writes an object in PyTorch's zip format: to a path, or as bytes if none is given.
#[pyfunction]
pub fn _save<'py>(
    py: Python<'py>,
    obj: &Bound<'py, PyAny>,
    path: Option<std::path::PathBuf>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let mut saver = Saver {
        py,
        tree: Tree::new(),
        made: HashMap::new(),
        storages: Vec::new(),
        numbers: HashMap::new(),
        alive: Vec::new(),
    };
    saver.tree.root = saver.value(obj, 0)?;
    let (tree, storages) = (&saver.tree, &saver.storages);
    let mut provider = |n: u32, sink: &mut io::write::Sink<'_>| -> Result<()> {
        let host = storages[n as usize].on(Device::CPU)?;
        host.with_bytes(sink)
    };
    match path {
        Some(path) => {
            py.detach(|| io::write::save(&path, tree, &mut provider))?;
            Ok(None)
        }
        None => {
            let bytes = py.detach(|| io::write::to_vec(tree, &mut provider))?;
            Ok(Some(PyBytes::new(py, &bytes)))
        }
    }
}

/// The command line, with the process's arguments; returns the exit code.
#[cfg(feature = "cli")]
#[pyfunction]
pub fn _cli(py: Python<'_>, args: Vec<String>) -> i32 {
    py.detach(|| crate::cli::main(args, &mut std::io::stdout(), &mut std::io::stderr()))
}
