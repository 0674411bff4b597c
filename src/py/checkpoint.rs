//! Checkpoints as Python objects: `load` turns a proved tree into dicts and tensors.

use super::storage::{PyStorage, storage_of};
use super::tensor::{PyParameter, PyTensor, wrap};
use super::types::{self, PyDevice, device_of};
use crate::io::{self, Archive, Data, Id, Object, StorageRef, TensorClass, TensorRef, Value};
use crate::source::{Provider, Source};
use crate::{Device, DeviceKind, Error, Result, Scalar, Storage, Tensor, err};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyFrozenSet, PyList, PySet, PyString, PyTuple};
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
#[pyo3(signature = (file, map_location=None, weights_only=true, mmap=false, verify=false))]
pub fn _load<'py>(
    py: Python<'py>,
    file: &Bound<'py, PyAny>,
    map_location: Option<&Bound<'py, PyAny>>,
    weights_only: bool,
    mmap: bool,
    verify: bool,
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
    if verify {
        py.detach(|| archive.verify())?;
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
