//! Writing tensors by name as a checkpoint that PyTorch opens, without Python.

use super::tree::{Data, Object, StorageRef, TensorRef, Tree};
use super::write::{self, Sink};
use crate::{Result, Storage, Tensor, bail};
use std::path::Path;

/// Writes a dictionary of tensors in PyTorch's zip format; the file appears whole or not at all. Tensors that share a storage
/// share it in the file.
///
/// # Errors
/// `NotImplemented` for sparse, nested and quantised tensors; if a meta tensor has no source; or if the file cannot be written.
pub fn save(path: impl AsRef<Path>, tensors: &[(&str, &Tensor)]) -> Result<()> {
    let mut tree = Tree::new();
    let (mut storages, mut pairs): (Vec<Storage>, _) = (Vec::new(), Vec::new());
    for (name, t) in tensors {
        if t.has_parts() {
            bail!(
                NotImplemented,
                "'{name}' is a sparse, nested or quantized tensor, which only the Python interface saves"
            );
        }
        let known = storages.iter().position(|s| s.same(t.storage()));
        let n = known.unwrap_or_else(|| {
            storages.push(t.storage().clone());
            tree.push_storage(StorageRef {
                key: (storages.len() - 1).to_string().into(),
                dtype: Some(t.dtype()),
                location: "cpu".into(),
                nbytes: t.storage().nbytes() as u64,
                data: Data::Given,
                crc: None,
            });
            storages.len() - 1
        });
        let key = tree.push_str(name);
        let layout = TensorRef::new(n as u32, t.dtype(), t.shape(), t.strides(), t.offset());
        pairs.push((key, tree.push_tensor(layout)));
    }
    tree.root = tree.push_dict(Object::Dict, pairs);
    write::save(path.as_ref(), &tree, &mut |n: u32, sink: &mut Sink<'_>| {
        let storage = &storages[n as usize];
        match storage.source() {
            Some(source) if storage.is_hollow() => source
                .fetch(storage.nbytes())?
                .with_bytes(|bytes| sink(bytes)),
            _ => storage
                .on(crate::Device::CPU)?
                .with_bytes(|bytes| sink(bytes)),
        }
    })
}
