//! Writing safetensors, byte for byte as its own library does.

use super::atomic::AtomicFile;
use super::flat::{Flat, Item};
use super::{Provider, pieces};
use crate::io::safetensors::TIES;
use crate::{DType, Result, ensure, err};
use serde_json::{Map, Value as Json, json};
use std::io::Write;
use std::path::Path;

/// The types of the format from the last to the first in a file, with their names.
const TYPES: &[(DType, &str)] = &[
    (DType::U64, "U64"),
    (DType::I64, "I64"),
    (DType::F64, "F64"),
    (DType::C64, "C64"),
    (DType::F32, "F32"),
    (DType::U32, "U32"),
    (DType::I32, "I32"),
    (DType::BF16, "BF16"),
    (DType::F16, "F16"),
    (DType::U16, "U16"),
    (DType::I16, "I16"),
    (DType::F8E5M2FNUZ, "F8_E5M2FNUZ"),
    (DType::F8E4M3FNUZ, "F8_E4M3FNUZ"),
    (DType::F8E8M0FNU, "F8_E8M0"),
    (DType::F8E4M3FN, "F8_E4M3"),
    (DType::F8E5M2, "F8_E5M2"),
    (DType::I8, "I8"),
    (DType::U8, "U8"),
    (DType::F4E2M1FNx2, "F4"),
    (DType::Bool, "BOOL"),
];

/// Writes named tensors to `path`, whole or not at all.
///
/// # Errors
/// If a dtype or name cannot be in such a file, naming the tensor; else as [`save`](super::save).
pub fn save(path: impl AsRef<Path>, flat: &Flat, provider: &mut Provider<'_>) -> Result<()> {
    let mut out = AtomicFile::create(path.as_ref())?;
    write(&mut out, flat, provider)?;
    out.flush()?.publish()
}

/// Writes named tensors as a stream.
///
/// # Errors
/// As [`save`].
pub fn write(out: &mut dyn Write, flat: &Flat, provider: &mut Provider<'_>) -> Result<()> {
    flat.check()?;
    part(out, flat, &flat.all(), provider)
}

/// Proves that each item can be in such a file.
pub(super) fn check(flat: &Flat) -> Result<()> {
    flat.items
        .iter()
        .try_for_each(|item| rank(item).map(|_| ()))
}

fn rank(item: &Item) -> Result<usize> {
    ensure!(
        item.name != "__metadata__",
        Value,
        "safetensors cannot hold a tensor named '__metadata__'"
    );
    let known = TYPES.iter().position(|t| t.0 == item.dtype);
    known.ok_or_else(|| {
        err!(
            Value,
            "safetensors cannot hold {}, the dtype of tensor '{}'; PyTorch's format can",
            item.dtype,
            item.name
        )
    })
}

/// Writes the items of these numbers. Of tied ones the first is written, and the metadata tell the others.
pub(super) fn part(
    out: &mut dyn Write,
    flat: &Flat,
    members: &[u32],
    provider: &mut Provider<'_>,
) -> Result<()> {
    let mut order = Vec::with_capacity(members.len());
    let mut ties = Map::new();
    for (i, item) in flat.members(members) {
        let rank = rank(item)?;
        match item.tied.and_then(|t| flat.items.get(t as usize)) {
            Some(kept) => {
                ties.insert(item.name.clone(), kept.name.clone().into());
            }
            None => order.push((rank, item, i)),
        }
    }
    // The widest types first, so that all are aligned.
    order.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
    let mut header = Map::new();
    let mut metadata: Map<String, Json> = flat
        .metadata
        .iter()
        .filter(|(k, _)| k != TIES)
        .map(|(k, v)| (k.clone(), v.clone().into()))
        .collect();
    if !ties.is_empty() {
        metadata.insert(TIES.into(), Json::Object(ties).to_string().into());
    }
    if !metadata.is_empty() {
        header.insert("__metadata__".into(), metadata.into());
    }
    let mut at = 0u64;
    for &(rank, item, _) in &order {
        let begin = at;
        at = at
            .checked_add(item.nbytes()?)
            .ok_or_else(|| err!(Value, "tensors of more than 2^64 bytes"))?;
        let mut shape = item.shape.clone();
        if item.dtype == DType::F4E2M1FNx2 {
            // The header counts single elements, of which a byte holds two.
            let last = shape.last_mut().and_then(|n| {
                *n = n.checked_mul(2)?;
                Some(())
            });
            last.ok_or_else(|| {
                err!(
                    Value,
                    "safetensors cannot hold tensor '{}': a {} needs a dimension",
                    item.name,
                    item.dtype
                )
            })?;
        }
        let entry = json!({"dtype": TYPES[rank].1, "shape": shape, "data_offsets": [begin, at]});
        header.insert(item.name.clone(), entry);
    }
    let mut text = Json::Object(header).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    ensure!(
        text.len() as u64 <= crate::io::safetensors::MAX_HEADER,
        Value,
        "safetensors cannot hold so many tensors: the header would have {} bytes",
        text.len()
    );
    out.write_all(&(text.len() as u64).to_le_bytes())?;
    out.write_all(&text)?;
    for &(_, item, i) in &order {
        let (mut left, name) = (item.nbytes()?, &item.name);
        provider(i, &mut |bytes| {
            left = left
                .checked_sub(bytes.len() as u64)
                .ok_or_else(|| err!(Value, "tensor '{name}' was given more bytes than it has"))?;
            pieces(bytes, &mut |piece| Ok(out.write_all(piece)?))
        })?;
        ensure!(
            left == 0,
            Value,
            "tensor '{name}' was given {left} bytes less than it has"
        );
    }
    Ok(out.flush()?)
}
