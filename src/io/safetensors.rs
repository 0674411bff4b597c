//! safetensors: a length, a JSON header, and the tensors one after another.

use super::mmap::Bytes;
use super::rebuild::extent;
use super::tree::{Data, Object, StorageRef, TensorRef, Tree, Value};
use super::{Contents, Format};
use crate::{DType, Result, bail, ensure, err};
use std::collections::HashMap;
use std::sync::Arc;

/// Header bytes; the limit that the format's own library has.
pub(super) const MAX_HEADER: u64 = 100_000_000;
/// The key of our metadata that tells further names of tensors: a JSON object from name to the name that is in the file.
pub(super) const TIES: &str = "torchlike.ties";

/// True if the file begins with a length and an opening brace.
pub(super) fn looks_like(b: &[u8]) -> bool {
    b.get(8) == Some(&b'{') && b.get(7) == Some(&0)
}

fn dtype_of(name: &str) -> Option<(DType, i64)> {
    Some(match name {
        "BOOL" => (DType::Bool, 1),
        "U8" => (DType::U8, 1),
        "I8" => (DType::I8, 1),
        "I16" => (DType::I16, 1),
        "U16" => (DType::U16, 1),
        "I32" => (DType::I32, 1),
        "U32" => (DType::U32, 1),
        "I64" => (DType::I64, 1),
        "U64" => (DType::U64, 1),
        "F16" => (DType::F16, 1),
        "BF16" => (DType::BF16, 1),
        "F32" => (DType::F32, 1),
        "F64" => (DType::F64, 1),
        "C64" => (DType::C64, 1),
        "F8_E4M3" => (DType::F8E4M3FN, 1),
        "F8_E5M2" => (DType::F8E5M2, 1),
        "F8_E8M0" => (DType::F8E8M0FNU, 1),
        "F8_E4M3FNUZ" => (DType::F8E4M3FNUZ, 1),
        "F8_E5M2FNUZ" => (DType::F8E5M2FNUZ, 1),
        // The header counts single elements, of which a byte holds two.
        "F4" => (DType::F4E2M1FNx2, 2),
        _ => return None,
    })
}

/// Reads the header of a safetensors file and proves it.
pub(super) fn open(bytes: &Bytes) -> Result<Contents> {
    let (json, start) = header(bytes)?;
    let entries = json
        .as_object()
        .ok_or_else(|| err!(Checkpoint, "safetensors: the header is not an object"))?;
    let (mut tree, mut pairs, mut metadata) = (Tree::new(), Vec::new(), Vec::new());
    let mut ranges = Vec::with_capacity(entries.len());
    let location: Arc<str> = Arc::from("cpu");
    for (name, entry) in entries {
        if name == "__metadata__" {
            metadata = strings(entry)?;
            continue;
        }
        let (tensor, begin, end) = one(name, entry)?;
        ranges.push((begin, end));
        let data = Data::Stored {
            offset: start
                .checked_add(begin)
                .ok_or_else(|| err!(Checkpoint, "safetensors: an offset overflows"))?,
        };
        let (key, dtype, nbytes) = (name.as_str().into(), Some(tensor.dtype), end - begin);
        let storage = tree.push_storage(StorageRef {
            key,
            dtype,
            location: Arc::clone(&location),
            nbytes,
            data,
            crc: None,
        });
        let key = tree.push_str(name);
        pairs.push((key, tree.push_tensor(TensorRef { storage, ..tensor })));
    }
    check_ranges(ranges, bytes.len() as u64 - start)?;
    add_ties(&mut tree, &mut pairs, &metadata)?;
    ensure!(
        !tree.overflow,
        Checkpoint,
        "safetensors: the names are too long"
    );
    tree.root = tree.push_dict(Object::Dict, pairs);
    Ok(Contents {
        format: Format::Safetensors,
        tree,
        big_endian: false,
        metadata,
    })
}

/// The header, in which no name is there twice, and where the tensors begin.
fn header(bytes: &Bytes) -> Result<(serde_json::Value, u64)> {
    let length: [u8; 8] = bytes
        .get(..8)
        .and_then(|b| b.try_into().ok())
        .ok_or_else(|| err!(Checkpoint, "safetensors: the header is cut short"))?;
    let length = u64::from_le_bytes(length);
    ensure!(
        length <= MAX_HEADER,
        Checkpoint,
        "safetensors: a header of {length} bytes, where at most {MAX_HEADER} are allowed"
    );
    let header = bytes.slice(8..8 + length).map_err(|_| {
        err!(Checkpoint, "safetensors: a header of {length} bytes in a file of {}: it is truncated, fetch it again", bytes.len())
    })?;
    let text = std::str::from_utf8(&header).map_err(|e| {
        err!(
            Checkpoint,
            "safetensors: the header is not UTF-8 at offset {}",
            8 + e.valid_up_to()
        )
    })?;
    let json: serde_json::Value = serde_json::from_str(text)
        .map_err(|e| err!(Checkpoint, "safetensors: invalid JSON in header: {e}"))?;
    // The parser keeps the last of two equal keys, so one is missing then.
    ensure!(
        count_keys(&json) == count_colons(text),
        Checkpoint,
        "safetensors: the header has a name twice"
    );
    Ok((json, 8 + length))
}

/// Checks that the tensors lie one after another, in so many bytes.
fn check_ranges(mut ranges: Vec<(u64, u64)>, have: u64) -> Result<()> {
    ranges.sort_unstable();
    let covered = ranges
        .iter()
        .try_fold(0, |at, &(begin, end)| (begin == at).then_some(end));
    let covered = covered.ok_or_else(|| {
        err!(
            Checkpoint,
            "safetensors: tensors overlap, or leave a gap between them"
        )
    })?;
    ensure!(
        covered == have,
        Checkpoint,
        "safetensors: the tensors need {covered} bytes after the header and the file has {have}{}",
        if have < covered {
            ": it is truncated, fetch it again"
        } else {
            ""
        }
    );
    Ok(())
}

/// Adds the names that the metadata give to tensors a second time.
fn add_ties(
    tree: &mut Tree,
    pairs: &mut Vec<(Value, Value)>,
    metadata: &[(String, String)],
) -> Result<()> {
    let Some((_, text)) = metadata.iter().find(|(k, _)| k == TIES) else {
        return Ok(());
    };
    let bad = |what: &str| err!(Checkpoint, "safetensors: {TIES} in the metadata {what}");
    let json = serde_json::from_str(text).map_err(|_| bad("is not JSON"))?;
    let ties = strings(&json).map_err(|_| bad("is not an object of strings"))?;
    let mut known: HashMap<String, Value> = pairs
        .iter()
        .filter_map(|&(key, value)| Some((tree.str(key)?.to_owned(), value)))
        .collect();
    for (name, kept) in ties {
        let tensor = known.get(&kept).and_then(|&v| tree.tensor(v)).cloned();
        let tensor =
            tensor.ok_or_else(|| bad(&format!("names '{kept:.200}', which is not in the file")))?;
        let key = tree.push_str(&name);
        let value = tree.push_tensor(tensor);
        ensure!(
            known.insert(name, value).is_none(),
            Checkpoint,
            "{}",
            bad("has a name twice")
        );
        pairs.push((key, value));
    }
    Ok(())
}

fn strings(entry: &serde_json::Value) -> Result<Vec<(String, String)>> {
    let bad = || {
        err!(
            Checkpoint,
            "safetensors: __metadata__ is not an object of strings"
        )
    };
    let entries = entry.as_object().ok_or_else(bad)?;
    entries
        .iter()
        .map(|(k, v)| Ok((k.clone(), v.as_str().ok_or_else(bad)?.to_owned())))
        .collect()
}

fn one(name: &str, entry: &serde_json::Value) -> Result<(TensorRef, u64, u64)> {
    let bad = |what: &str| err!(Checkpoint, "safetensors: tensor '{name:.200}': {what}");
    let text = entry
        .get("dtype")
        .and_then(serde_json::Value::as_str)
        .ok_or_else(|| bad("it has no dtype"))?;
    let (dtype, per) = dtype_of(text).ok_or_else(|| bad(&format!("unknown dtype '{text:.32}'")))?;
    let numbers = |key: &str| -> Option<Vec<u64>> {
        entry
            .get(key)?
            .as_array()?
            .iter()
            .map(serde_json::Value::as_u64)
            .collect()
    };
    let shape = numbers("shape").ok_or_else(|| bad("its shape is not a list of integers"))?;
    let shape: Option<Vec<i64>> = shape.into_iter().map(|n| i64::try_from(n).ok()).collect();
    let mut shape = shape
        .filter(|s| s.len() <= 64)
        .ok_or_else(|| bad("its shape is impossible"))?;
    if per > 1 {
        let last = shape
            .last_mut()
            .filter(|n| **n % per == 0)
            .ok_or_else(|| bad("its last size is not a whole number of bytes"))?;
        *last /= per;
    }
    let Some([begin, end]) = numbers("data_offsets")
        .as_deref()
        .and_then(|o| o.first_chunk::<2>().filter(|_| o.len() == 2).copied())
    else {
        bail!(Checkpoint, "{}", bad("data_offsets are not two integers"));
    };
    let mut stride = vec![1i64; shape.len()];
    for i in (1..shape.len()).rev() {
        // As PyTorch does, a size of zero counts as one; what overflows here cannot pass the proof below.
        stride[i - 1] = stride[i].saturating_mul(shape[i].max(1));
    }
    let nbytes = extent(&shape, &stride, 0, dtype)?;
    ensure!(
        begin <= end && end - begin == nbytes,
        Checkpoint,
        "{}",
        bad(&format!(
            "offsets {begin}..{end} do not hold its {nbytes} bytes"
        ))
    );
    Ok((TensorRef::new(0, dtype, &shape, &stride, 0), begin, end))
}

/// Keys of all objects; the parser allows 128 levels.
fn count_keys(json: &serde_json::Value) -> usize {
    match json {
        serde_json::Value::Object(map) => map.len() + map.values().map(count_keys).sum::<usize>(),
        serde_json::Value::Array(items) => items.iter().map(count_keys).sum(),
        _ => 0,
    }
}

/// Colons outside strings: in valid JSON, one for each key.
fn count_colons(text: &str) -> usize {
    let (mut colons, mut inside, mut escaped) = (0, false, false);
    for b in text.bytes() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = inside,
            b'"' => inside = !inside,
            b':' if !inside => colons += 1,
            _ => {}
        }
    }
    colons
}
