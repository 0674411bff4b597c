//! PyTorch's format before version 1.6: five pickles one after another, then the storages.

use super::check::check;
use super::mmap::Bytes;
use super::rebuild::{StorageRequest, resolve_legacy};
use super::tree::{Data, Object, StorageRef, Tree, Value};
use super::{Contents, Format, pickle};
use crate::{Result, bail, ensure, err};
use std::collections::HashMap;
use std::sync::Arc;

/// The number that the first pickle is, little-endian.
pub(super) const MAGIC: &[u8] = b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
pub(super) const PROTOCOL: i64 = 1001;

/// The same number in a pickle of protocol 0 or 1.
const TEXT_MAGIC: &[u8] = b"L119547037146038801333356L\n";

/// True if the file begins with a pickle that has the magic number near its start.
pub(super) fn looks_like(b: &[u8]) -> bool {
    let binary = b.first() == Some(&0x80) && b.windows(MAGIC.len()).take(32).any(|w| w == MAGIC);
    binary || b.starts_with(TEXT_MAGIC)
}

/// Reads one pickle at `at`, and moves on.
fn next(bytes: &Bytes, at: &mut usize) -> Result<Tree> {
    let rest = bytes.get(*at..).unwrap_or(&[]);
    let start = *at;
    let (tree, used) = pickle::read(&rest[..rest.len().min(pickle::MAX_LEN)]).map_err(|e| {
        crate::Error::new(
            e.kind(),
            format!("in the pickle at offset {start}: {}", e.message()),
        )
    })?;
    *at += used;
    Ok(tree)
}

/// Proves what the first two pickles say, and tells whether the third says that the machine was big-endian.
fn preamble(bytes: &Bytes, at: &mut usize) -> Result<bool> {
    let magic = next(bytes, at)?;
    ensure!(
        magic.bytes(magic.root) == Some(MAGIC),
        Checkpoint,
        "legacy format: a wrong magic number"
    );
    ensure!(
        next(bytes, at)?.root == Value::Int(PROTOCOL),
        Checkpoint,
        "legacy format: a protocol other than {PROTOCOL}"
    );
    let system = next(bytes, at)?;
    ensure!(
        system.calls.is_empty(),
        Checkpoint,
        "legacy format: the system information calls something"
    );
    let facts = system.pairs(system.root).unwrap_or(&[]);
    let little = facts
        .iter()
        .find(|kv| system.str(kv.0) == Some("little_endian"));
    Ok(little.is_some_and(|kv| kv.1 == Value::Bool(false)))
}

/// Reads a checkpoint in the stacked format.
pub(super) fn open(bytes: &Bytes, end_of_all: &mut u64) -> Result<Contents> {
    let mut at = 0;
    let big_endian = preamble(bytes, &mut at)?;
    let mut tree = next(bytes, &mut at)?;
    let (mut made, mut views) = (HashMap::new(), Vec::new());
    resolve_legacy(&mut tree, &mut |request, storages| {
        find(&mut made, &mut views, request, storages)
    })?;
    check(&tree)?;
    let keys = next(bytes, &mut at)?;
    place_all(bytes, &mut at, &keys, &made, &mut tree.storages)?;
    *end_of_all = at as u64;
    place_views(&views, &mut tree.storages)?;
    Ok(Contents {
        format: Format::TorchLegacy,
        tree,
        big_endian,
        metadata: Vec::new(),
    })
}

fn listed(keys: &Tree) -> Result<&[Value]> {
    match keys.object(keys.root) {
        Some(Object::List(_)) => Ok(keys.items(keys.root).unwrap_or(&[])),
        _ => bail!(
            Checkpoint,
            "legacy format: the keys of the storages are not a list"
        ),
    }
}

/// Views lie in what they are views of; then every storage has a place.
fn place_views(views: &[(u32, u32, u64)], storages: &mut [StorageRef]) -> Result<()> {
    for &(view, root, start) in views {
        if let Data::Stored { offset } = storages[root as usize].data {
            storages[view as usize].data = Data::Stored {
                offset: offset + start,
            };
        }
    }
    let missing = storages.iter().find(|s| s.data == Data::Given);
    ensure!(
        missing.is_none(),
        Checkpoint,
        "legacy format: storage '{:.64}' is missing",
        missing.map_or("", |s| &s.key)
    );
    Ok(())
}

/// Finds the bytes of each storage that the last pickle lists, from `at` on, one after another.
fn place_all(
    bytes: &Bytes,
    at: &mut usize,
    keys: &Tree,
    made: &HashMap<String, u32>,
    storages: &mut [StorageRef],
) -> Result<()> {
    for &key in listed(keys)? {
        let key = keys.str(key).ok_or_else(|| {
            err!(
                Checkpoint,
                "legacy format: the key of a storage is not a string"
            )
        })?;
        let number = made.get(key).ok_or_else(|| {
            err!(
                Checkpoint,
                "legacy format: no tensor has the storage '{key:.64}'"
            )
        })?;
        let storage = &mut storages[*number as usize];
        ensure!(
            storage.data == Data::Given,
            Checkpoint,
            "legacy format: storage '{key:.64}' comes twice"
        );
        let offset = *at as u64 + 8;
        *at = end_of(bytes, *at, storage)?;
        storage.data = Data::Stored { offset };
    }
    Ok(())
}

/// Where a storage ends whose count of elements, and then bytes, begin at `at`.
fn end_of(bytes: &Bytes, at: usize, storage: &StorageRef) -> Result<usize> {
    let (key, due) = (&storage.key, storage.nbytes);
    let short = || {
        err!(
            Checkpoint,
            "storage '{key:.64}' at offset {at} is cut short; fetch the file again"
        )
    };
    let count = bytes.get(at..).and_then(|b| b.first_chunk::<8>());
    let count = i64::from_le_bytes(*count.ok_or_else(short)?);
    let size = storage.dtype.map_or(1, crate::DType::size) as u64;
    ensure!(
        u64::try_from(count).ok().and_then(|n| n.checked_mul(size)) == Some(due),
        Checkpoint,
        "storage '{key:.64}' at offset {at} has {count} elements where its {due} bytes are due"
    );
    let end = (at as u64 + 8).checked_add(due);
    let end = end.filter(|&end| end <= bytes.len() as u64);
    Ok(end.ok_or_else(short)? as usize)
}

fn find(
    made: &mut HashMap<String, u32>,
    views: &mut Vec<(u32, u32, u64)>,
    request: &StorageRequest<'_>,
    storages: &mut Vec<StorageRef>,
) -> Result<u32> {
    let twice = |key: &str| err!(Checkpoint, "storage '{key:.64}' is described in two ways");
    let mut add = |key: &str, nbytes: u64| -> Result<u32> {
        if let Some(&number) = made.get(key) {
            let same = storages
                .get(number as usize)
                .filter(|s| s.nbytes == nbytes && s.dtype == request.dtype);
            return same.map(|_| number).ok_or_else(|| twice(key));
        }
        let number = storages.len() as u32;
        made.insert(key.to_owned(), number);
        storages.push(StorageRef {
            key: key.into(),
            dtype: request.dtype,
            location: Arc::from(request.location),
            nbytes,
            data: Data::Given,
            crc: None,
        });
        Ok(number)
    };
    let root = add(request.key, request.nbytes)?;
    let Some((key, start, nbytes)) = request.view else {
        return Ok(root);
    };
    // The key of a view is only its own: it has no record in the file.
    let view = add(&format!("{key} of {}", request.key), nbytes)?;
    let placed = (view, root, start);
    match views.iter().find(|v| v.0 == view) {
        Some(same) if *same != placed => return Err(twice(key)),
        Some(_) => {}
        None => views.push(placed),
    }
    Ok(view)
}
