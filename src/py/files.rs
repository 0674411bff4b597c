//! Whole files: writing named tensors, converting, verifying, fingerprints, and the command line.

use super::object::PyTensor;
use super::sink::{host, to_file};
use crate::io::convert::{self, Options, Target, parse_size};
use crate::io::write::flat::{Flat, Item, elements};
use crate::io::write::{Provider, Sink, npz, safetensors, sharded};
use crate::io::{Archive, TensorRef, fingerprint};
use crate::{Result, Tensor, bail, ensure, err};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::collections::HashMap;
use std::path::PathBuf;

/// Named tensors to be written, with ties told unless each name is to have its own bytes.
fn flat_of(
    tensors: &[(String, Tensor)],
    metadata: Vec<(String, String)>,
    duplicate: bool,
) -> Result<Flat> {
    let mut first = HashMap::new();
    let mut items = Vec::with_capacity(tensors.len());
    for (i, (name, t)) in tensors.iter().enumerate() {
        if let Some(parts) = t.storage().parts() {
            bail!(
                NotImplemented,
                "cannot save '{name}': this format holds strided tensors and no {} ones; torch.save does",
                parts.describe()
            );
        }
        ensure!(
            !t.is_meta() || t.storage().is_sourced(),
            NotImplemented,
            "cannot save '{name}': Cannot copy out of meta tensor; no data!"
        );
        let identity = (
            t.storage().id(),
            t.offset(),
            t.dtype(),
            t.shape().to_vec(),
            t.strides().to_vec(),
            t.is_conj(),
            t.is_neg(),
        );
        let owner = *first.entry(identity).or_insert(i as u32);
        let tied = owner != i as u32 && !duplicate && t.numel() > 0;
        items.push(Item {
            name: name.clone(),
            dtype: t.dtype(),
            shape: t.shape().to_vec(),
            tied: tied.then_some(owner),
        });
    }
    Ok(Flat { items, metadata })
}

/// The elements of each tensor in order.
fn provider(tensors: &[(String, Tensor)]) -> impl FnMut(u32, &mut Sink<'_>) -> Result<()> + Send {
    |n, sink| {
        let (_, t) = tensors
            .get(n as usize)
            .ok_or_else(|| err!(Value, "no tensor {n}"))?;
        let mut layout = TensorRef::new(0, t.dtype(), t.shape(), t.strides(), t.offset());
        layout.conj = t.is_conj();
        layout.neg = t.is_neg();
        host(t.storage())?.with_bytes(|bytes| elements(bytes, &layout, sink))
    }
}

fn target_of(name: &str) -> Result<Target> {
    Target::from_name(name).ok_or_else(|| {
        err!(
            Value,
            "unknown format '{name}': expected pt, safetensors, npz or npy"
        )
    })
}

/// Bytes from a number, or from text such as `5GB`.
fn size_of(size: Option<&Bound<'_, PyAny>>) -> PyResult<Option<u64>> {
    match size {
        None => Ok(None),
        Some(s) => match s.extract::<String>() {
            Ok(text) => Ok(Some(parse_size(&text)?)),
            Err(_) => Ok(Some(s.extract()?)),
        },
    }
}

/// Writes named tensors to a path or file object; gives the paths.
#[pyfunction]
#[pyo3(signature = (tensors, file, format, metadata, duplicate, max_shard_size))]
fn _save_tensors(
    py: Python<'_>,
    tensors: Vec<(String, Bound<'_, PyAny>)>,
    file: &Bound<'_, PyAny>,
    format: &str,
    metadata: Vec<(String, String)>,
    duplicate: bool,
    max_shard_size: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<PathBuf>> {
    let tensors: Vec<(String, Tensor)> = tensors
        .into_iter()
        .map(|(name, t)| Ok((name, PyTensor::of(&t)?.get().clone())))
        .collect::<PyResult<_>>()?;
    let (target, max) = (target_of(format)?, size_of(max_shard_size)?);
    let flat = flat_of(&tensors, metadata, duplicate)?;
    let mut provider = provider(&tensors);
    if file.is_instance_of::<PyString>() {
        let path: PathBuf = file.extract()?;
        let done = py.detach(|| -> Result<Vec<PathBuf>> {
            let provider: &mut Provider<'_> = &mut provider;
            match (target, max) {
                (Target::Safetensors, Some(max)) => {
                    return sharded::save(&path, &flat, sharded::Kind::Safetensors, max, provider);
                }
                (Target::TorchZip, max) => {
                    let max = max.unwrap_or(u64::MAX);
                    return sharded::save(&path, &flat, sharded::Kind::TorchZip, max, provider);
                }
                (_, Some(_)) => bail!(Value, "npz files have no shards"),
                (Target::Safetensors, None) => safetensors::save(&path, &flat, provider)?,
                (Target::Npz, None) => npz::save(&path, &flat, provider)?,
                (Target::Npy, None) => npz::save_one(&path, &flat, provider)?,
            }
            Ok(vec![path])
        });
        return Ok(done?);
    }
    to_file(file, |out| match (target, max) {
        (_, Some(_)) => bail!(Value, "shards need a path"),
        (Target::Safetensors, None) => safetensors::write(out, &flat, &mut provider),
        (Target::Npz, None) => npz::write(out, &flat, &mut provider),
        _ => bail!(Value, "this format is written to paths only"),
    })?;
    Ok(Vec::new())
}

/// A bar where somebody sits at the terminal.
struct Bar {
    #[cfg(feature = "cli")]
    bar: crate::cli::progress::Bar,
}

impl Bar {
    fn new(bytes: u64, what: &'static str, show: bool) -> Self {
        #[cfg(not(feature = "cli"))]
        let _ = (bytes, what, show);
        Self {
            #[cfg(feature = "cli")]
            bar: crate::cli::progress::Bar::new(bytes, what, !show),
        }
    }

    fn add(&self, bytes: u64) {
        #[cfg(not(feature = "cli"))]
        let _ = bytes;
        #[cfg(feature = "cli")]
        self.bar.add(bytes);
    }
}

/// Converts a file: what was written, names of tensors, bytes, and what was left out.
#[pyfunction]
fn _convert(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    format: Option<&str>,
    max_shard_size: Option<&Bound<'_, PyAny>>,
    duplicate: bool,
    include: Vec<String>,
    exclude: Vec<String>,
    prefix: String,
    progress: bool,
) -> PyResult<(Vec<PathBuf>, u64, u64, Vec<String>)> {
    let options = Options {
        target: format.map(target_of).transpose()?,
        max_shard_bytes: size_of(max_shard_size)?,
        duplicate,
        include,
        exclude,
        prefix,
    };
    let done = py.detach(|| {
        let archive = Archive::open(&source)?;
        let bar = Bar::new(
            convert::total_bytes(&archive, &options),
            "writing",
            progress,
        );
        convert::convert(&archive, &target, &options, &|n| bar.add(n))
    })?;
    Ok((done.files, done.tensors, done.bytes, done.left_out))
}

/// Compares all checksums of a file: storages and bytes that are right, and storages without a checksum.
#[pyfunction]
fn _verify(py: Python<'_>, path: PathBuf, progress: bool) -> PyResult<(u64, u64, u64)> {
    let done = py.detach(|| {
        let archive = Archive::open(&path)?;
        let bar = Bar::new(archive.totals().bytes, "verifying", progress);
        archive.verify_with(&|n| bar.add(n))
    })?;
    Ok((done.checked, done.bytes, done.without))
}

/// The fingerprint of a file, and the digest of each tensor.
#[pyfunction]
fn _fingerprint(
    py: Python<'_>,
    path: PathBuf,
    progress: bool,
) -> PyResult<(String, Vec<(String, Option<String>)>)> {
    let print = py.detach(|| {
        let archive = Archive::open(&path)?;
        let bar = Bar::new(archive.totals().bytes, "reading", progress);
        archive.fingerprint(&|n| bar.add(n))
    })?;
    let tensors = print.tensors.into_iter();
    let tensors = tensors.map(|(name, digest)| (name, digest.as_ref().map(fingerprint::hex)));
    Ok((fingerprint::hex(&print.whole), tensors.collect()))
}

/// The command line, with the process's arguments; returns the exit code.
#[cfg(feature = "cli")]
#[pyfunction]
fn _cli(py: Python<'_>, args: Vec<String>) -> i32 {
    py.detach(|| crate::cli::main(args, &mut std::io::stdout(), &mut std::io::stderr()))
}

/// Says whether files that do not say their order of bytes are taken for big-endian ones from now on.
#[pyfunction]
fn _assume_big_endian(on: bool) {
    crate::io::assume_big_endian(on);
}

/// Registers the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_assume_big_endian, m)?)?;
    m.add_function(wrap_pyfunction!(_save_tensors, m)?)?;
    m.add_function(wrap_pyfunction!(_convert, m)?)?;
    m.add_function(wrap_pyfunction!(_verify, m)?)?;
    m.add_function(wrap_pyfunction!(_fingerprint, m)?)?;
    #[cfg(feature = "cli")]
    m.add_function(wrap_pyfunction!(_cli, m)?)?;
    Ok(())
}
