//! A proved tree as Python objects, its storages on the device asked for.

mod value;

pub(super) use value::builder;

use super::object::{instance, parameter, wrap};
use super::storage::{PyStorage, storage_of};
use super::types::device_of;
use crate::io::tree::Quant;
use crate::io::{
    self, Archive, Composite, CompositeKind, Data, StorageRef, TensorClass, TensorRef, Value,
};
use crate::parts::nested::Components;
use crate::parts::{Compressed, Parts};
use crate::plan::ViewPlan;
use crate::source::Source;
use crate::{DType, Device, DeviceKind, Error, Result, Storage, Tensor, err, fake, kernels};
use pyo3::prelude::*;
use pyo3::types::PyDict;
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
    /// What strings of Python 2 are decoded by; "bytes" leaves them as they are.
    pub(super) encoding: Option<String>,
    /// Storages get memory, and nothing is read into it.
    pub(super) unread: bool,
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
    let here = fake::current().is_some() || kernels::device_count() > 0;
    if device.kind == DeviceKind::Cuda && !here {
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
        if fake::current().is_some() || self.unread {
            return Ok(());
        }
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
        if let Some(mode) = fake::current() {
            return Ok(Storage::fake(r.nbytes as usize, device, &mode));
        }
        if device.is_meta() || r.data == Data::Meta {
            return io::load::deferred(self.archive, at);
        }
        if self.unread {
            return Storage::empty(r.nbytes as usize, device);
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
        // A function of the user may give a smaller storage than that of the file.
        let (shape, stride) = (t.shape().into(), t.stride().into());
        let made = Tensor::checked(storage, shape, stride, t.offset, t.dtype)?;
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
            TensorClass::Parameter => instance(parameter(self.py)?, made),
        }
    }

    fn composite(&mut self, c: &Composite) -> PyResult<Bound<'py, PyAny>> {
        let (parts, dtype) = match c.kind {
            CompositeKind::Nested => return self.nested(c),
            CompositeKind::Coo(coalesced) => self.coo(c, coalesced)?,
            CompositeKind::Compressed(kind) => self.compressed(c, kind)?,
            CompositeKind::Packed => self.packed(c)?,
        };
        if c.requires_grad && !dtype.is_float() && !dtype.is_complex() {
            return Err(err!(Checkpoint, "a {dtype} tensor that requires grad").into());
        }
        let made = self.py.detach(|| parts.into_tensor(&c.shape, dtype))?;
        self.object(c.class, made.with_requires_grad(c.requires_grad))
    }

    /// The tensors that a composite is made of, `N` of them.
    fn parts<const N: usize>(&mut self, c: &Composite) -> PyResult<[Tensor; N]> {
        let mut made = Vec::with_capacity(N);
        for &p in c.parts.iter().take(N) {
            made.push(self.part(p)?);
        }
        let few = |_| err!(Checkpoint, "a tensor with too few parts");
        Ok(made.try_into().map_err(few)?)
    }

    fn coo(&mut self, c: &Composite, coalesced: bool) -> PyResult<(Parts, DType)> {
        let [indices, values] = self.parts(c)?;
        let dtype = values.dtype();
        let parts = Parts::Coo {
            indices,
            values,
            coalesced,
        };
        Ok((parts, dtype))
    }

    fn compressed(&mut self, c: &Composite, kind: Compressed) -> PyResult<(Parts, DType)> {
        let [compressed, plain, values] = self.parts(c)?;
        let dtype = values.dtype();
        let parts = Parts::Compressed {
            kind,
            compressed,
            plain,
            values,
        };
        Ok((parts, dtype))
    }

    /// A nested tensor, which Python makes of its buffer and of how its components lie there.
    fn nested(&mut self, c: &Composite) -> PyResult<Bound<'py, PyAny>> {
        let [buffer] = self.parts(c)?;
        let &[_, sizes, strides, offsets] = &c.parts[..] else {
            return Err(err!(Checkpoint, "a tensor with too few parts").into());
        };
        let all = [sizes, strides, offsets].map(|v| self.read_part(v));
        let [sizes, strides, offsets] = all;
        let found = Components::read(&sizes?, &strides?, &offsets?)?;
        found.check(&buffer)?;
        let floating = buffer.dtype().is_float() || buffer.dtype().is_complex();
        if c.requires_grad && !floating {
            let dtype = buffer.dtype();
            return Err(err!(Checkpoint, "a {dtype} tensor that requires grad").into());
        }
        let buffer = buffer.with_requires_grad(c.requires_grad);
        self.py.import("torchlike.nested._strided")?.call_method1(
            "of_components",
            (
                wrap(self.py, buffer)?,
                found.sizes,
                found.strides,
                found.offsets,
            ),
        )
    }

    /// Quantised numbers that share bytes.
    fn packed(&mut self, c: &Composite) -> PyResult<(Parts, DType)> {
        let [bytes] = self.parts(c)?;
        let dtype = bytes.dtype();
        let named = self.archive.tree().tensor(c.parts[0]);
        let quant = named.and_then(|t| t.quant.as_deref());
        let quant = quant.ok_or_else(|| err!(Checkpoint, "no quantizer"))?;
        let (shape, strides) = (bytes.shape().clone(), bytes.strides().clone());
        let plain = ViewPlan::reinterpret(DType::U8, shape, strides, bytes.offset());
        let parts = Parts::Packed {
            bytes: bytes.look(&plain),
            dtype,
            quantizer: Box::new(self.quantizer(quant)?),
        };
        Ok((parts, dtype))
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
}
