//! Writing PyTorch's format before version 1.6: five pickles one after another, then the storages.

use super::atomic::AtomicFile;
use super::{Provider, pieces};
use crate::io::legacy::{MAGIC, PROTOCOL};
use crate::io::pickle::{self, Form};
use crate::io::tree::{Object, Tree, Value};
use crate::{Result, err};
use std::io::Write;
use std::path::Path;

/// Writes a checkpoint to `path`, whole or not at all.
///
/// # Errors
/// As [`super::save`].
pub fn save(path: impl AsRef<Path>, tree: &Tree, provider: &mut Provider<'_>) -> Result<()> {
    let mut out = AtomicFile::create(path.as_ref())?;
    write(&mut out, tree, provider)?;
    out.flush()?.publish()
}

/// Writes a checkpoint as a stream, from its first byte to its last.
///
/// # Errors
/// As [`save`].
pub fn write(out: &mut dyn Write, tree: &Tree, provider: &mut Provider<'_>) -> Result<()> {
    let (data, used) = pickle::write(tree, Form::Legacy)?;
    for preamble in [magic, protocol, system] {
        out.write_all(&pickled(preamble)?)?;
    }
    out.write_all(&data)?;
    out.write_all(&pickled(|t| {
        let keys = (0..used.len()).map(|key| t.push_str(&key.to_string()));
        let keys = keys.collect();
        t.push_list(Object::List, keys)
    })?)?;
    for storage in used {
        let nbytes = tree.storages[storage.number as usize].nbytes;
        out.write_all(&(nbytes / storage.unit).to_le_bytes())?;
        let mut given = 0;
        provider(storage.number, &mut |bytes| {
            given += bytes.len() as u64;
            pieces(bytes, &mut |piece| Ok(out.write_all(piece)?))
        })?;
        if given != nbytes {
            return Err(err!(
                Value,
                "storage {}: {given} bytes instead of {nbytes}",
                storage.number
            ));
        }
    }
    Ok(())
}

/// The pickle of a value that `make` adds to a tree of its own.
fn pickled(make: impl FnOnce(&mut Tree) -> Value) -> Result<Vec<u8>> {
    let mut tree = Tree::new();
    tree.root = make(&mut tree);
    Ok(pickle::write(&tree, Form::Legacy)?.0)
}

fn magic(tree: &mut Tree) -> Value {
    tree.push_bytes(Object::BigInt, MAGIC)
}

fn protocol(_: &mut Tree) -> Value {
    Value::Int(PROTOCOL)
}

/// What the file says of the machine that wrote it.
fn system(tree: &mut Tree) -> Value {
    let mut named = |pairs: &[(&str, Value)]| {
        let pairs = pairs.iter().map(|(k, v)| (tree.push_str(k), *v)).collect();
        tree.push_dict(Object::Dict, pairs)
    };
    let sizes = named(&[
        ("short", Value::Int(2)),
        ("int", Value::Int(4)),
        ("long", Value::Int(4)),
    ]);
    named(&[
        ("protocol_version", Value::Int(PROTOCOL)),
        ("little_endian", Value::Bool(true)),
        ("type_sizes", sizes),
    ])
}
