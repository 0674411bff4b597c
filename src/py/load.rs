//! A proved tree as Python objects, its storages on the device asked for.

use super::object::{PyParameter, PyTensor, wrap};
use super::storage::{PyStorage, storage_of};
use super::types::{self, PyDevice, device_of};
use crate::io::tree::Quant;
use crate::io::{
    self, Archive, Composite, CompositeKind, Data, Object, StorageRef, TensorClass, TensorRef,
    Value,
};
use crate::parts::Parts;
use crate::source::Source;
use crate::{DType, Device, DeviceKind, Error, Result, Scalar, Storage, Tensor, err};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyFrozenSet, PyList, PySet, PyString, PyTuple};
use std::sync::Arc;

/// Where storages go.
pub(super) enum Place<'py> {
    /// Where the file says.
    Saved,
    /// All to one device.
    On(Device),
    /// By a table of location names.
    Table(Bound<'py, PyDict>),
    /// As a function of storage and location says.
    Asked(Bound<'py, PyAny>),
}

pub(super) struct Loader<'a, 'py> {
    pub(super) py: Python<'py>,
    pub(super) archive: &'a Arc<Archive>,
    pub(super) place: Place<'py>,
    pub(super) private: Vec<Option<io::mmap::Private>>,
    /// Names that the user has registered, and what they stand for.
    pub(super) allowed: Bound<'py, PyDict>,
    pub(super) full: bool,
    pub(super) storages: Vec<Option<Storage>>,
    pub(super) made: Vec<Option<Bound<'py, PyAny>>>,
    /// In the tar format several references lead to one tensor.
    pub(super) tensors: Vec<Option<Bound<'py, PyAny>>>,
}

fn unknown_location(tag: &str) -> Error {
    err!(
        Runtime,
        "don't know how to restore data location of torch.storage.UntypedStorage (tagged with {tag})"
    )
}

pub(super) fn device_for(location: &str) -> Result<Device> {
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

impl<'py> Loader<'_, 'py> {
    /// Reads all storages that go to host memory at once, with the interpreter released.
    pub(super) fn read_ahead(&mut self) -> PyResult<()> {
        let device = match &self.place {
            Place::On(d) if !d.is_meta() => Some(*d),
            Place::Saved => None,
            _ => return Ok(()),
        };
        let tree = self.archive.tree();
        let mut wanted = Vec::new();
        for (i, s) in tree.storages.iter().enumerate() {
            let here = device.is_some() || &*s.location == "cpu";
            if here
                && self.storages[i].is_none()
                && s.data != Data::Meta
                && self.mapped(s).is_none()
            {
                wanted.push(i);
            }
        }
        let archive = self.archive;
        let made = self.py.detach(|| io::fetch::storages(archive, &wanted))?;
        for (i, host) in wanted.into_iter().zip(made) {
            self.storages[i] = Some(match device {
                Some(d) => host.on(d)?,
                None => host,
            });
        }
        Ok(())
    }

    /// The map that has the bytes of a storage as they are, and where in it they are.
    fn mapped(&self, r: &StorageRef) -> Option<(&io::mmap::Private, u64)> {
        if self.private.is_empty() {
            return None;
        }
        let (shard, at) = self.archive.place(r)?;
        Some((self.private.get(shard)?.as_ref()?, at))
    }

    fn storage(&mut self, n: u32) -> PyResult<Storage> {
        let at = n as usize;
        if let Some(s) = &self.storages[at] {
            return Ok(s.clone());
        }
        let archive = self.archive;
        let r = &archive.tree().storages[at];
        let location = &*r.location;
        let made = match &self.place {
            Place::Saved => self.on(at, r, device_for(location)?)?,
            Place::On(d) => self.on(at, r, *d)?,
            Place::Table(table) => {
                let target = match table.get_item(location)? {
                    Some(t) => device_of(&t)?,
                    None => device_for(location)?,
                };
                self.on(at, r, target)?
            }
            Place::Asked(f) => {
                let cpu = if r.data == Data::Meta {
                    Storage::meta(r.nbytes as usize)
                } else {
                    self.on(at, r, Device::CPU)?
                };
                let answer = f.call1((PyStorage(cpu.clone()), location))?;
                if answer.is_none() {
                    cpu.on(device_for(location)?)?
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
        s.set_source(Some(Source::File(Arc::new(io::Part::new(
            Arc::clone(self.archive),
            at,
        )))));
    }

    fn on(&self, at: usize, r: &StorageRef, device: Device) -> Result<Storage> {
        if device.is_meta() || r.data == Data::Meta {
            return io::load::deferred(self.archive, at);
        }
        if let Some((map, offset)) = self.mapped(r) {
            return Storage::from_private(map, offset, r.nbytes)?.on(device);
        }
        let made = io::fetch::storages(self.archive, &[at])?.pop();
        made.ok_or_else(|| err!(Checkpoint, "a storage that is not there"))?
            .on(device)
    }

    fn quantizer(&mut self, q: &Quant) -> PyResult<Parts> {
        Ok(match q.channels {
            None => Parts::PerTensor {
                scale: q.scale,
                zero_point: q.zero_point,
            },
            Some(c) => Parts::PerChannel {
                scales: self.part(c.scales)?,
                zero_points: self.part(c.zero_points)?,
                axis: c.axis,
                float_zero_points: c.float,
            },
        })
    }

    /// The tensor itself, without its Python object.
    fn bare(&mut self, t: &TensorRef) -> PyResult<Tensor> {
        let storage = self.storage(t.storage)?;
        if t.quant.is_some() && storage.device().is_meta() {
            return Err(err!(
                NotImplemented,
                "quantized tensors cannot be on the meta device: load them with map_location='cpu' and mmap=True, which reads \
                 nothing before it is used"
            )
            .into());
        }
        if let Some(q) = t.quant.as_deref().filter(|_| t.dtype.per_byte().is_none()) {
            let parts = self.quantizer(q)?;
            parts.check(t.shape())?;
            storage.set_parts(Some(Arc::new(parts)));
        }
        // The layout was proved against the storage of the file; a function of the user may give a smaller one.
        let (shape, stride) = (t.shape().into(), t.stride().into());
        let made = match self.place {
            Place::Asked(_) => Tensor::checked(storage, shape, stride, t.offset, t.dtype)?,
            _ => Tensor::from_parts(storage, shape, stride, t.offset, t.dtype),
        };
        if !t.conj && !t.neg && !t.requires_grad {
            return Ok(made);
        }
        Ok(made
            .with_conj(t.conj)
            .with_neg(t.neg)
            .with_requires_grad(t.requires_grad))
    }

    /// A tensor that another one is made of.
    fn part(&mut self, v: Value) -> PyResult<Tensor> {
        let archive = self.archive;
        let t = archive
            .tree()
            .tensor(v)
            .ok_or_else(|| err!(Checkpoint, "a part of a tensor that is no tensor"))?;
        self.bare(t)
    }

    fn object(&self, class: TensorClass, made: Tensor) -> PyResult<Bound<'py, PyAny>> {
        match class {
            TensorClass::Tensor => wrap(self.py, made),
            TensorClass::Parameter => Ok(Bound::new(
                self.py,
                PyClassInitializer::from(PyTensor::new(made)).add_subclass(PyParameter),
            )?
            .into_any()),
        }
    }

    fn composite(&mut self, c: &Composite) -> PyResult<Bound<'py, PyAny>> {
        let mut tensors = Vec::with_capacity(c.parts.len());
        let shapes = if c.kind == CompositeKind::Nested {
            1
        } else {
            c.parts.len()
        };
        for &p in &c.parts[..shapes] {
            tensors.push(self.part(p)?);
        }
        let mut next = tensors.into_iter();
        let mut take = || {
            next.next()
                .ok_or_else(|| err!(Checkpoint, "a tensor with too few parts"))
        };
        let (parts, shape, dtype) = match c.kind {
            CompositeKind::Coo(coalesced) => {
                let (indices, values) = (take()?, take()?);
                let dtype = values.dtype();
                let parts = Parts::Coo {
                    indices,
                    values,
                    coalesced,
                };
                (parts, c.shape.to_vec(), dtype)
            }
            CompositeKind::Compressed(kind) => {
                let (compressed, plain, values) = (take()?, take()?, take()?);
                let dtype = values.dtype();
                let parts = Parts::Compressed {
                    kind,
                    compressed,
                    plain,
                    values,
                };
                (parts, c.shape.to_vec(), dtype)
            }
            CompositeKind::Nested => {
                let buffer = take()?;
                let dtype = buffer.dtype();
                let part = |i: usize| self.read_part(c.parts[i]);
                let parts = Parts::nested(buffer, &part(1)?, &part(2)?, &part(3)?)?;
                (parts, Vec::new(), dtype)
            }
            CompositeKind::Packed => {
                let bytes = take()?;
                let dtype = bytes.dtype();
                let named = self.archive.tree().tensor(c.parts[0]);
                let quant = named.and_then(|t| t.quant.as_deref());
                let quant = quant.ok_or_else(|| err!(Checkpoint, "no quantizer"))?;
                let layout = (bytes.shape().clone(), bytes.strides().clone());
                let parts = Parts::Packed {
                    bytes: bytes.look(crate::plan::ViewPlan::reinterpret(
                        DType::U8,
                        layout.0,
                        layout.1,
                        bytes.offset(),
                    )),
                    dtype,
                    quantizer: Box::new(self.quantizer(quant)?),
                };
                (parts, c.shape.to_vec(), dtype)
            }
        };
        if c.requires_grad && !dtype.is_float() && !dtype.is_complex() {
            return Err(err!(Checkpoint, "a {dtype} tensor that requires grad").into());
        }
        let made = self.py.detach(|| parts.into_tensor(&shape, dtype))?;
        self.object(c.class, made.with_requires_grad(c.requires_grad))
    }

    /// A small tensor that is read whatever device is asked for.
    fn read_part(&self, v: Value) -> Result<Tensor> {
        let tree = self.archive.tree();
        let t = tree
            .tensor(v)
            .ok_or_else(|| err!(Checkpoint, "a part of a tensor that is no tensor"))?;
        if tree.storages[t.storage as usize].data == Data::Meta {
            return Err(err!(Checkpoint, "a nested tensor without its sizes"));
        }
        let storage = io::fetch::storages(self.archive, &[t.storage as usize])?.pop();
        let storage = storage.ok_or_else(|| err!(Checkpoint, "a storage that is not there"))?;
        Tensor::checked(
            storage,
            t.shape().into(),
            t.stride().into(),
            t.offset,
            t.dtype,
        )
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

    fn values(&mut self, items: &[Value]) -> PyResult<Vec<Bound<'py, PyAny>>> {
        items.iter().map(|i| self.value(*i)).collect()
    }

    pub(super) fn value(&mut self, v: Value) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let id = match v {
            Value::None => return Ok(py.None().into_bound(py)),
            Value::Bool(b) => return super::results::scalar(py, Scalar::Bool(b)),
            Value::Int(i) => return super::results::scalar(py, Scalar::Int(i)),
            Value::Float(f) => return super::results::scalar(py, Scalar::Float(f)),
            Value::Object(id) => id,
        };
        let at = id.0 as usize;
        if let Some(Some(done)) = self.made.get(at) {
            return Ok(done.clone());
        }
        let archive = self.archive;
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
                super::results::scalar(py, Scalar::Complex(num_complex::Complex64::new(re, im)))?
            }
            Object::Tuple(_) => {
                let items = self.values(tree.items(v).unwrap_or(&[]))?;
                // A tuple that contains itself by way of a list was made meanwhile.
                if let Some(Some(done)) = self.made.get(at) {
                    return Ok(done.clone());
                }
                PyTuple::new(py, items)?.into_any()
            }
            Object::Size(_) => {
                let dims = tree.items(v).unwrap_or(&[]).iter();
                let dims: Vec<i64> = dims
                    .map(|i| if let Value::Int(n) = i { *n } else { 0 })
                    .collect();
                types::size(py, &dims)?
            }
            Object::List(_) => {
                let list = PyList::empty(py);
                self.made[at] = Some(list.clone().into_any());
                for i in tree.items(v).unwrap_or(&[]) {
                    list.append(self.value(*i)?)?;
                }
                return Ok(list.into_any());
            }
            Object::Set(_) => {
                let set = PySet::empty(py)?;
                self.made[at] = Some(set.clone().into_any());
                for i in tree.items(v).unwrap_or(&[]) {
                    set.add(self.value(*i)?)?;
                }
                return Ok(set.into_any());
            }
            Object::FrozenSet(_) => {
                let items = self.values(tree.items(v).unwrap_or(&[]))?;
                PyFrozenSet::new(py, items)?.into_any()
            }
            Object::Dict(_) => {
                let dict = PyDict::new(py);
                self.made[at] = Some(dict.clone().into_any());
                for (k, item) in tree.pairs(v).unwrap_or(&[]) {
                    dict.set_item(self.value(*k)?, self.value(*item)?)?;
                }
                return Ok(dict.into_any());
            }
            Object::OrderedDict(_) | Object::Counter(_) => {
                let class = if matches!(object, Object::Counter(_)) {
                    "Counter"
                } else {
                    "OrderedDict"
                };
                let dict = py.import("collections")?.getattr(class)?.call0()?;
                self.made[at] = Some(dict.clone());
                for (k, item) in tree.pairs(v).unwrap_or(&[]) {
                    dict.set_item(self.value(*k)?, self.value(*item)?)?;
                }
                if let Some(attrs) = tree.attrs.get(&id) {
                    self.attributes(&dict, *attrs)?;
                }
                return Ok(dict);
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
                let kw = PyDict::new(py);
                kw.set_item("wrap_storage", untyped)?;
                // PyTorch gives untyped storages back as storages of bytes.
                kw.set_item("dtype", types::dtype(py, dtype.unwrap_or(DType::U8))?)?;
                py.import("torchlike.storage")?
                    .getattr("TypedStorage")?
                    .call((), Some(&kw))?
            }
            Object::Tensor(n) => {
                let n = n as usize;
                if let Some(Some(done)) = self.tensors.get(n) {
                    return Ok(done.clone());
                }
                let t = &tree.tensors[n];
                let bare = self.bare(t)?;
                let made = self.object(t.class, bare)?;
                if let Some(slot) = self.tensors.get_mut(n) {
                    *slot = Some(made.clone());
                }
                self.made[at] = Some(made.clone());
                if t.attrs != Value::None {
                    self.attributes(&made, t.attrs)?;
                }
                return Ok(made);
            }
            Object::Composite(n) => {
                let c = &tree.composites[n as usize];
                let made = self.composite(c)?;
                self.made[at] = Some(made.clone());
                if c.attrs != Value::None {
                    self.attributes(&made, c.attrs)?;
                }
                return Ok(made);
            }
            Object::Global(n) => {
                let g = &tree.globals[n as usize];
                let rebuild = py.import("torchlike._rebuild")?;
                let found = rebuild.getattr("value")?.call1((
                    &*g.module,
                    &*g.name,
                    &self.allowed,
                    self.full,
                ))?;
                if found.is(&rebuild.getattr("Refused")?) {
                    return Err(io::unsupported_global(g).into());
                }
                found
            }
            Object::Call(_) => return self.call(at, v),
            Object::PersistentId(_) | Object::Proto(_) => return Err(self.refused(v).into()),
        };
        self.made[at] = Some(made.clone());
        Ok(made)
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
        let explain = |e: PyErr| -> PyErr {
            let ours = rebuild
                .getattr("Refused")
                .is_ok_and(|r| e.matches(py, r).unwrap_or(false));
            if ours {
                return err!(
                    Unpickling,
                    "{g} is made or filled in a way that its own objects are not: {}",
                    e.value(py)
                )
                .into();
            }
            e
        };
        let is_new = call.kind == io::tree::CallKind::New;
        let made = builder
            .call_method1("start", (args, kwargs, is_new))
            .map_err(explain)?;
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
            .map_err(explain)?;
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

/// How objects of a name are made; None where they are refused.
pub(super) fn builder<'py>(
    rebuild: &Bound<'py, PyModule>,
    g: &io::tree::Global,
    allowed: &Bound<'py, PyDict>,
    full: bool,
) -> PyResult<Bound<'py, PyAny>> {
    rebuild
        .getattr("builder")?
        .call1((&*g.module, &*g.name, allowed, full))
}
