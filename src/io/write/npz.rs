//! Writing NumPy's `.npz` (and `.npy`), uncompressed.

use super::atomic::AtomicFile;
use super::flat::{Flat, Item};
use super::zip::ZipWriter;
use super::{Provider, Sink};
use crate::{DType, Result, bail, ensure, err};
use std::io::Write;
use std::path::Path;

/// Writes named tensors to `path`, whole or not at all. Tied tensors are written once for each name.
///
/// # Errors
/// If NumPy has no such dtype, naming the tensor; else as [`save`](super::save).
pub fn save(path: impl AsRef<Path>, flat: &Flat, provider: &mut Provider<'_>) -> Result<()> {
    let mut out = AtomicFile::create(path.as_ref())?;
    write(&mut out, flat, provider)?;
    out.flush()?.publish()
}

/// Writes one array to `path` as `.npy`, whole or not at all.
///
/// # Errors
/// If there is not exactly one; else as [`save`].
pub fn save_one(path: impl AsRef<Path>, flat: &Flat, provider: &mut Provider<'_>) -> Result<()> {
    let [item] = &flat.items[..] else {
        bail!(
            Value,
            "a .npy file holds one array and not {}: write an .npz",
            flat.items.len()
        );
    };
    let header = header(item)?;
    let mut out = AtomicFile::create(path.as_ref())?;
    out.write_all(&header)?;
    exactly(item, &mut |sink| provider(0, sink), &mut |bytes| {
        Ok(out.write_all(bytes)?)
    })?;
    out.flush()?.publish()
}

/// Writes named tensors as a stream.
///
/// # Errors
/// As [`save`].
pub fn write(out: &mut dyn Write, flat: &Flat, provider: &mut Provider<'_>) -> Result<()> {
    flat.check()?;
    let headers: Vec<Vec<u8>> = flat.items.iter().map(header).collect::<Result<_>>()?;
    let mut zip = ZipWriter::new(out);
    for (i, (item, header)) in flat.items.iter().zip(headers).enumerate() {
        ensure!(
            item.name.len() <= 60_000 && !item.name.contains('\0'),
            Value,
            "npz cannot hold a tensor of the name '{:.64}...'",
            item.name
        );
        let number = item.tied.unwrap_or(i as u32);
        let size = header.len() as u64 + item.nbytes()?;
        zip.entry(format!("{}.npy", item.name), size, |sink| {
            sink(&header)?;
            provider(number, sink)
        })?;
    }
    zip.finish()
}

fn exactly(
    item: &Item,
    fill: &mut dyn FnMut(&mut Sink<'_>) -> Result<()>,
    sink: &mut Sink<'_>,
) -> Result<()> {
    let (mut given, size) = (0u64, item.nbytes()?);
    fill(&mut |bytes| {
        given += bytes.len() as u64;
        sink(bytes)
    })?;
    ensure!(
        given == size,
        Value,
        "tensor '{}' was given {given} of its {size} bytes",
        item.name
    );
    Ok(())
}

/// The header of one array, version 1.0.
fn header(item: &Item) -> Result<Vec<u8>> {
    let descr = match item.dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::U16 => "<u2",
        DType::I32 => "<i4",
        DType::U32 => "<u4",
        DType::I64 => "<i8",
        DType::U64 => "<u8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
        other => bail!(
            Value,
            "NumPy has no {other}, the dtype of tensor '{}': convert it first, or write another format",
            item.name
        ),
    };
    let shape: String = item.shape.iter().map(|n| format!("{n}, ")).collect();
    // A tuple of one keeps its comma, as in Python.
    let shape = match item.shape.len() {
        1 => shape.trim_end(),
        _ => shape.trim_end_matches(", "),
    };
    let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let length = (10 + dict.len() + 1).next_multiple_of(64) - 10;
    let field = u16::try_from(length).map_err(|_| err!(Value, "a shape of too many sizes"))?;
    let mut out = b"\x93NUMPY\x01\0".to_vec();
    out.extend_from_slice(&field.to_le_bytes());
    out.extend_from_slice(dict.as_bytes());
    out.resize(10 + length - 1, b' ');
    out.push(b'\n');
    Ok(out)
}
