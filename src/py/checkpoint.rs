//! Checkpoints as Python objects: `load` turns a proved tree into dicts and tensors, `save` the other way round.

use super::convert::number;
use super::object::{PyParameter, PyTensor, wrap};
use super::storage::{PyStorage, storage_of};
use super::types::{self, PyDType, PyDevice, PyFormat, PyLayout, device_of};
use crate::io::{self, Archive, Data, Id, Object, StorageRef, TensorClass, TensorRef, Tree, Value};
use crate::source::{Provider, Source};
use crate::{DType, Device, DeviceKind, Error, Result, Scalar, Storage, Tensor, err};
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{
    PyByteArray, PyBytes, PyDict, PyFrozenSet, PyList, PySet, PyString, PyTuple, PyType,
};
use std::collections::HashMap;
use std::sync::Arc;

/// One storage of an archive: what a meta tensor loaded from a file can become.
struct FilePart {
    archive: Arc<Archive>,
    storage: usize,
}

impl Provider for FilePart {
    fn describe(&self) -> String {
        let s = &self.archive.tree().storages[self.storage];
        let file = self.archive.path().map_or_else(
            || "bytes in memory".to_owned(),
            |p| format!("file '{}'", p.display()),
        );
        match s.data {
            Data::Stored { offset } => format!(
                "{file}, bytes {offset}..{}",
                offset.saturating_add(s.nbytes)
            ),
            _ => format!("{file}, record '{}'", s.key),
        }
    }

    fn fetch(&self, device: Device) -> Result<Storage> {
        let bytes = self
            .archive
            .read_storage(&self.archive.tree().storages[self.storage])?;
        Storage::from_bytes(&bytes)?.on(device)
    }
}

/// Where storages go.
enum Place<'py> {
    /// Where the file says.
    Saved,
    /// All to one device.
    On(Device),
    /// By a table of location names.
    Table(Bound<'py, PyDict>),
    /// As a function of storage and location says.
    Asked(Bound<'py, PyAny>),
}

struct Loader<'py> {
    py: Python<'py>,
    archive: Arc<Archive>,
    place: Place<'py>,
    private: Option<io::mmap::Private>,
    storages: Vec<Option<Storage>>,
    made: HashMap<Id, Bound<'py, PyAny>>,
}

fn unknown_location(tag: &str) -> Error {
    err!(
        Runtime,
        "don't know how to restore data location of torch.storage.UntypedStorage (tagged with {tag})"
    )
}

fn device_for(location: &str) -> Result<Device> {
    let device = Device::parse(location).map_err(|_| unknown_location(location))?;
    if device.kind == DeviceKind::Cuda && crate::cuda::device_count() == 0 {
        return Err(err!(
            Runtime,
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running on a CPU-only \
             machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU."
        ));
    }
    Ok(device)
}

impl<'py> Loader<'py> {
    fn storage(&mut self, n: u32) -> PyResult<Storage> {
        let at = n as usize;
        if let Some(s) = &self.storages[at] {
            return Ok(s.clone());
        }
        let r = self.archive.tree().storages[at].clone();
        let location = r.location.to_string();
        let made = match &self.place {
            Place::Saved => self.on(at, &r, device_for(&location)?)?,
            Place::On(d) => self.on(at, &r, *d)?,
            Place::Table(table) => {
                let target = match table.get_item(&location)? {
                    Some(t) => device_of(&t)?,
                    None => device_for(&location)?,
                };
                self.on(at, &r, target)?
            }
            Place::Asked(f) => {
                let cpu = if r.data == Data::Meta {
                    Storage::meta(r.nbytes as usize)
                } else {
                    self.on(at, &r, Device::CPU)?
                };
                let answer = f.call1((PyStorage(cpu.clone()), location.as_str()))?;
                if answer.is_none() {
                    cpu.on(device_for(&location)?)?
                } else {
                    let s = storage_of(&answer)?;
                    if s.device().is_meta() && !s.is_sourced() && r.data != Data::Meta {
                        self.with_source(at, &s);
                    }
                    s
                }
            }
        };
        self.storages[at] = Some(made.clone());
        Ok(made)
    }

    fn with_source(&self, at: usize, s: &Storage) {
        s.set_source(Some(Source::File(Arc::new(FilePart {
            archive: self.archive.clone(),
            storage: at,
        }))));
    }

    fn on(&self, at: usize, r: &StorageRef, device: Device) -> Result<Storage> {
        if device.is_meta() || r.data == Data::Meta {
            let s =
                Storage::meta(usize::try_from(r.nbytes).map_err(|_| {
                    err!(Checkpoint, "a storage of {} bytes is too large", r.nbytes)
                })?);
            if r.data != Data::Meta {
                self.with_source(at, &s);
            }
            return Ok(s);
        }
        if let (Some(map), Data::Stored { offset }) = (&self.private, r.data)
            && !self.archive.is_big_endian()
        {
            return Storage::from_private(map, offset, r.nbytes)?.on(device);
        }
        Storage::from_bytes(&self.archive.read_storage(r)?)?.on(device)
    }

    fn tensor(&mut self, t: &TensorRef) -> PyResult<Bound<'py, PyAny>> {
        let storage = self.storage(t.storage)?;
        let made = Tensor::checked(
            storage,
            t.shape().into(),
            t.stride().into(),
            t.offset,
            t.dtype,
        )?
        .with_conj(t.conj)
        .with_neg(t.neg);
        let made = made.with_requires_grad(t.requires_grad);
        match t.class {
            TensorClass::Tensor => wrap(self.py, made),
            TensorClass::Parameter => Ok(Bound::new(
                self.py,
                PyClassInitializer::from(PyTensor::new(made)).add_subclass(PyParameter),
            )?
            .into_any()),
        }
    }

    fn attributes(&mut self, to: &Bound<'py, PyAny>, attrs: Value) -> PyResult<()> {
        let tree = self.archive.clone();
        let tree = tree.tree();
        let parts = match tree.tuple(attrs) {
            Some(parts) => parts.to_vec(),
            None => vec![attrs],
        };
        for part in parts {
            for (k, v) in tree.pairs(part).unwrap_or(&[]).to_vec() {
                let (k, v) = (self.value(k)?, self.value(v)?);
                to.setattr(
                    k.cast::<PyString>()
                        .map_err(|_| PyTypeError::new_err("attribute names are strings"))?,
                    v,
                )?;
            }
        }
        Ok(())
    }

    fn value(&mut self, v: Value) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let id = match v {
            Value::None => return Ok(py.None().into_bound(py)),
            Value::Bool(b) => return super::call::scalar(py, Scalar::Bool(b)),
            Value::Int(i) => return super::call::scalar(py, Scalar::Int(i)),
            Value::Float(f) => return super::call::scalar(py, Scalar::Float(f)),
            Value::Object(id) => id,
        };
        if let Some(done) = self.made.get(&id) {
            return Ok(done.clone());
        }
        let archive = self.archive.clone();
        let tree = archive.tree();
        let Some(object) = tree.object(v).copied() else {
            return Err(PyRuntimeError::new_err(
                "a dangling reference in the checkpoint",
            ));
        };
        let made: Bound<'py, PyAny> = match object {
            Object::Str(_) => PyString::new(py, tree.str(v).unwrap_or("")).into_any(),
            Object::Surrogates(_) => PyBytes::new(py, tree.bytes(v).unwrap_or(&[]))
                .call_method1("decode", ("utf-8", "surrogatepass"))?,
            Object::BigInt(_) => py.get_type::<pyo3::types::PyInt>().call_method(
                "from_bytes",
                (PyBytes::new(py, tree.bytes(v).unwrap_or(&[])), "little"),
                Some(&{
                    let kw = PyDict::new(py);
                    kw.set_item("signed", true)?;
                    kw
                }),
            )?,
            Object::Bytes(_) => PyBytes::new(py, tree.bytes(v).unwrap_or(&[])).into_any(),
            Object::ByteArray(_) => PyByteArray::new(py, tree.bytes(v).unwrap_or(&[])).into_any(),
            Object::Complex(_) => {
                let (re, im) = tree.complex(v).unwrap_or_default();
                super::call::scalar(py, Scalar::Complex(num_complex::Complex64::new(re, im)))?
            }
            Object::Tuple(_) | Object::Size(_) => {
                let items = tree
                    .tuple(v)
                    .or_else(|| tree.items(v))
                    .unwrap_or(&[])
                    .iter()
                    .map(|i| self.value(*i))
                    .collect::<PyResult<Vec<_>>>()?;
                if matches!(object, Object::Size(_)) {
                    let dims = items
                        .iter()
                        .map(|i| i.extract::<i64>())
                        .collect::<PyResult<Vec<_>>>()?;
                    types::size(py, &dims)?
                } else {
                    PyTuple::new(py, items)?.into_any()
                }
            }
            Object::List(_) => {
                let list = PyList::empty(py);
                self.made.insert(id, list.clone().into_any());
                for i in tree.items(v).unwrap_or(&[]) {
                    list.append(self.value(*i)?)?;
                }
                list.into_any()
            }
            Object::Set(_) => {
                let set = PySet::empty(py)?;
                self.made.insert(id, set.clone().into_any());
                for i in tree.items(v).unwrap_or(&[]) {
                    set.add(self.value(*i)?)?;
                }
                set.into_any()
            }
            Object::FrozenSet(_) => {
                let items = tree
                    .items(v)
                    .unwrap_or(&[])
                    .iter()
                    .map(|i| self.value(*i))
                    .collect::<PyResult<Vec<_>>>()?;
                PyFrozenSet::new(py, items)?.into_any()
            }
            Object::Dict(_) | Object::OrderedDict(_) | Object::Counter(_) => {
                let class = match object {
                    Object::Dict(_) => None,
                    Object::OrderedDict(_) => Some("OrderedDict"),
                    _ => Some("Counter"),
                };
                let dict = match class {
                    None => PyDict::new(py).into_any(),
                    Some(name) => py.import("collections")?.getattr(name)?.call0()?,
                };
                self.made.insert(id, dict.clone());
                for (k, item) in tree.pairs(v).unwrap_or(&[]) {
                    let (k, item) = (self.value(*k)?, self.value(*item)?);
                    dict.set_item(k, item)?;
                }
                if let Some(attrs) = tree.attrs.get(&id) {
                    self.attributes(&dict, *attrs)?;
                }
                dict
            }
            Object::DType(d) => types::dtype(py, d)?.into_bound(py).into_any(),
            Object::Device(_) => {
                let d = Device::parse(tree.str(v).unwrap_or(""))?;
                Bound::new(py, PyDevice(d))?.into_any()
            }
            Object::Layout(_) => {
                let name = tree.str(v).unwrap_or("");
                py.import("torchlike._C")?
                    .getattr(name.rsplit('.').next().unwrap_or(name))?
            }
            Object::Storage(n, dtype) => {
                let untyped = Bound::new(py, PyStorage(self.storage(n)?))?;
                match dtype {
                    None => untyped.into_any(),
                    Some(d) => {
                        let kw = PyDict::new(py);
                        kw.set_item("wrap_storage", untyped)?;
                        kw.set_item("dtype", types::dtype(py, d)?)?;
                        py.import("torchlike.storage")?
                            .getattr("TypedStorage")?
                            .call((), Some(&kw))?
                    }
                }
            }
            Object::Tensor(n) => {
                let t = tree.tensors[n as usize].clone();
                let made = self.tensor(&t)?;
                self.made.insert(id, made.clone());
                if t.attrs != Value::None {
                    self.attributes(&made, t.attrs)?;
                }
                made
            }
            Object::Global(_) | Object::Call(_) | Object::PersistentId(_) => {
                return Err(self.refused(v).into());
            }
        };
        self.made.insert(id, made.clone());
        Ok(made)
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

/// Reads a checkpoint: a path or bytes.
#[pyfunction]
#[pyo3(signature = (file, map_location=None, weights_only=true, mmap=false))]
pub fn _load<'py>(
    py: Python<'py>,
    file: &Bound<'py, PyAny>,
    map_location: Option<&Bound<'py, PyAny>>,
    weights_only: bool,
    mmap: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let place = match map_location {
        None => Place::Saved,
        Some(o) if o.is_none() => Place::Saved,
        Some(o) if o.is_instance_of::<PyString>() || o.is_instance_of::<PyDevice>() => {
            Place::On(match o.extract::<String>() {
                Ok(s) => device_for(&s)?,
                Err(_) => device_of(o)?,
            })
        }
        Some(o) => match o.cast::<PyDict>() {
            Ok(d) => Place::Table(d.clone()),
            Err(_) if o.is_callable() => Place::Asked(o.clone()),
            Err(_) => {
                return Err(PyTypeError::new_err(
                    "map_location must be None, a device, a string, a dict or a function",
                ));
            }
        },
    };
    let mut private = None;
    let archive = if let Ok(b) = file.cast::<PyBytes>() {
        let bytes = b.as_bytes().to_vec();
        py.detach(|| Archive::from_bytes(bytes))?
    } else {
        let path: std::path::PathBuf = file.extract()?;
        if mmap {
            private = Some(io::mmap::Private::map(&path)?);
        }
        py.detach(|| Archive::open(&path))?
    };
    if weights_only && let Some(global) = archive.tree().disallowed(&|_| false).next() {
        return Err(io::unsupported_global(global).into());
    }
    if let Some(global) = archive.tree().unresolved().first() {
        return Err(io::unsupported_global(global).into());
    }
    let root = archive.tree().root;
    let storages = vec![None; archive.tree().storages.len()];
    let mut loader = Loader {
        py,
        archive: Arc::new(archive),
        place,
        private,
        storages,
        made: HashMap::new(),
    };
    loader.value(root)
}

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
