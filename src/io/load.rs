//! Opening a checkpoint as tensors by name, without Python: on meta at once, or with all its values.

use super::{Archive, Data, Part, StorageRef, TensorRef, fetch};
use crate::source::{Provider, Source};
use crate::{Device, Result, Storage, Tensor, bail, err};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

impl Provider for Part {
    fn describe(&self) -> String {
        Part::describe(self)
    }

    fn nbytes(&self) -> u64 {
        Part::nbytes(self)
    }

    fn fetch(&self, device: Device) -> Result<Storage> {
        Part::fetch(self)?.on(device)
    }

    fn fetch_range(&self, start: u64, nbytes: u64) -> Result<Option<Storage>> {
        Part::fetch_range(self, start, nbytes).map(Some)
    }
}

/// The tensors of a checkpoint, by the names they have there, in the order of the file.
#[derive(Debug)]
pub struct Loaded {
    tensors: Vec<(String, Tensor)>,
    by_name: HashMap<String, usize>,
}

impl Loaded {
    /// The tensor of a name.
    ///
    /// # Errors
    /// If there is none.
    pub fn get(&self, name: &str) -> Result<&Tensor> {
        match self.by_name.get(name) {
            Some(&i) => Ok(&self.tensors[i].1),
            None => bail!(Key, "the checkpoint has no tensor '{name}'"),
        }
    }

    /// Names and tensors in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(n, t)| (n.as_str(), t))
    }

    /// How many names there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// True if the checkpoint holds no tensor.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }
}

/// Opens the checkpoint at `path`, of whatever format. With [`Device::META`] nothing but its header is read: each tensor
/// knows the bytes it would be made of, and [`materialize`](crate::materialize) reads just those. Tensors that share
/// memory in the file share a storage.
///
/// # Errors
/// As [`Archive::open`]; `NotImplemented` for quantised tensors, which only Python puts together; or if values cannot be read.
pub fn load(path: impl AsRef<Path>, device: Device) -> Result<Loaded> {
    let archive = Arc::new(Archive::open(path)?);
    let named = archive.tensors();
    let mut storages: HashMap<u32, Storage> = HashMap::new();
    if !device.is_meta() {
        let mut wanted: Vec<usize> = named
            .iter()
            .filter(|t| t.storage.data != Data::Meta)
            .map(|t| t.tensor.storage as usize)
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        for (n, made) in wanted.iter().zip(fetch::storages(&archive, &wanted)?) {
            storages.insert(*n as u32, made.on(device)?);
        }
    }
    let mut tensors = Vec::with_capacity(named.len());
    for t in &named {
        let n = t.tensor.storage;
        let storage = match storages.get(&n) {
            Some(s) => s.clone(),
            None => {
                let made = deferred(&archive, n as usize)?;
                storages.insert(n, made.clone());
                made
            }
        };
        tensors.push((t.name.clone(), on_storage(&t.name, t.tensor, storage)?));
    }
    let by_name = tensors
        .iter()
        .enumerate()
        .map(|(i, (name, _))| (name.clone(), i))
        .collect();
    Ok(Loaded { tensors, by_name })
}

/// A tensor as the file lays it out on a storage.
fn on_storage(name: &str, t: &TensorRef, storage: Storage) -> Result<Tensor> {
    if t.quant.is_some() {
        bail!(
            NotImplemented,
            "'{name}' is a quantized tensor, which only the Python interface loads"
        );
    }
    let (shape, strides) = (t.shape().into(), t.stride().into());
    Ok(Tensor::checked(storage, shape, strides, t.offset, t.dtype)?
        .with_conj(t.conj)
        .with_neg(t.neg)
        .with_requires_grad(t.requires_grad))
}

/// A meta storage for storage number `n` of an archive, which knows where its bytes are.
///
/// # Errors
/// If it is too large for this machine to address.
pub fn deferred(archive: &Arc<Archive>, n: usize) -> Result<Storage> {
    let r = &archive.tree().storages[n];
    let storage = Storage::meta(addressable(r)?);
    if r.data != Data::Meta {
        storage.set_source(Some(Source::File(Arc::new(Part::new(
            Arc::clone(archive),
            n,
        )))));
    }
    Ok(storage)
}

fn addressable(r: &StorageRef) -> Result<usize> {
    usize::try_from(r.nbytes)
        .map_err(|_| err!(Checkpoint, "a storage of {} bytes is too large", r.nbytes))
}
