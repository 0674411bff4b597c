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
const MAGIC: &[u8] = b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
const PROTOCOL: i64 = 1001;

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

/// Reads a checkpoint in the stacked format.
pub(super) fn open(bytes: &Bytes, end_of_all: &mut u64) -> Result<Contents> {
    let mut at = 0;
    let magic = next(bytes, &mut at)?;
    ensure!(
        magic.bytes(magic.root) == Some(MAGIC),
        Checkpoint,
        "legacy format: a wrong magic number"
    );
    ensure!(
        next(bytes, &mut at)?.root == Value::Int(PROTOCOL),
        Checkpoint,
        "legacy format: a protocol other than {PROTOCOL}"
    );
    let system = next(bytes, &mut at)?;
    ensure!(
        system.calls.is_empty(),
        Checkpoint,
        "legacy format: the system information calls something"
    );
    let little = system.pairs(system.root).and_then(|p| {
        p.iter()
            .find(|kv| system.str(kv.0) == Some("little_endian"))
    });
    let big_endian = little.is_some_and(|kv| kv.1 == Value::Bool(false));
    let mut tree = next(bytes, &mut at)?;
    let (mut made, mut views) = (HashMap::new(), Vec::new());
    resolve_legacy(&mut tree, &mut |request, storages| {
        find(&mut made, &mut views, request, storages)
    })?;
    check(&tree)?;
    let keys = next(bytes, &mut at)?;
    let list = match keys.object(keys.root) {
        Some(Object::List(_)) => keys.items(keys.root).unwrap_or(&[]),
        _ => bail!(
            Checkpoint,
            "legacy format: the keys of the storages are not a list"
        ),
    };
    for &key in list {
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
        let storage = &mut tree.storages[*number as usize];
        ensure!(
            storage.data == Data::Given,
            Checkpoint,
            "legacy format: storage '{key:.64}' comes twice"
        );
        let count = bytes
            .get(at..)
            .and_then(|b| b.first_chunk::<8>())
            .map(|b| i64::from_le_bytes(*b));
        let count = count.ok_or_else(|| {
            err!(
                Checkpoint,
                "storage '{key:.64}' at offset {at} is cut short; fetch the file again"
            )
        })?;
        let size = storage.dtype.map_or(1, crate::DType::size) as u64;
        ensure!(
            u64::try_from(count).ok().and_then(|n| n.checked_mul(size)) == Some(storage.nbytes),
            Checkpoint,
            "storage '{key:.64}' at offset {at} has {count} elements where its {} bytes are due",
            storage.nbytes
        );
        let offset = at as u64 + 8;
        let end = offset
            .checked_add(storage.nbytes)
            .filter(|&end| end <= bytes.len() as u64);
        let end = end.ok_or_else(|| {
            err!(
                Checkpoint,
                "storage '{key:.64}' at offset {at} is cut short; fetch the file again"
            )
        })?;
        storage.data = Data::Stored { offset };
        at = end as usize;
    }
    *end_of_all = at as u64;
    for (view, root, start) in views {
        if let Data::Stored { offset } = tree.storages[root as usize].data {
            tree.storages[view as usize].data = Data::Stored {
                offset: offset + start,
            };
        }
    }
    let missing = tree.storages.iter().find(|s| s.data == Data::Given);
    ensure!(
        missing.is_none(),
        Checkpoint,
        "legacy format: storage '{:.64}' is missing",
        missing.map_or("", |s| &s.key)
    );
    Ok(Contents {
        format: Format::TorchLegacy,
        tree,
        big_endian,
        metadata: Vec::new(),
    })
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
