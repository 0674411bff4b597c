//! `load`: opening a file, refusing what it must not ask for, and making what it holds.

use super::load::{Loader, Place, builder, device_for};
use super::types::{PyDevice, device_of};
use crate::io::{self, Archive, Object};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use std::sync::Arc;

/// Refuses what a file asks for before anything of it is made, whether the result would be used or not.
fn refuse(
    py: Python<'_>,
    archive: &Archive,
    allowed: &Bound<'_, PyDict>,
    full: bool,
) -> PyResult<()> {
    for shard in archive.shards() {
        refuse(py, shard, allowed, full)?;
    }
    let tree = archive.tree();
    let is_allowed = |g: &io::tree::Global| allowed.contains(g.to_string()).unwrap_or(false);
    if !full && let Some(global) = tree.disallowed(&is_allowed).next() {
        return Err(io::unsupported_global(global).into());
    }
    let unnamed = tree.objects.iter().any(|o| match o {
        Object::Call(c) => tree
            .calls
            .get(*c as usize)
            .is_none_or(|c| tree.global(c.func).is_none()),
        _ => false,
    });
    if unnamed {
        return Err(io::weights_only_error(
            "the file calls the result of another call, which nothing but running it could make.",
        )
        .into());
    }
    let unresolved = tree.unresolved();
    if unresolved.is_empty() && tree.containers.is_empty() {
        return Ok(());
    }
    let rebuild = py.import("torchlike._rebuild")?;
    // A class that comes with its source text is a module's, and code: it has to be one of ours.
    let containers = tree
        .containers
        .iter()
        .map(|&g| (&tree.globals[g as usize], false));
    for (g, full) in unresolved.into_iter().map(|g| (g, full)).chain(containers) {
        if builder(&rebuild, g, allowed, full)?.is_none() {
            return Err(io::unsupported_global(g).into());
        }
    }
    Ok(())
}

fn place<'py>(map_location: Option<&Bound<'py, PyAny>>) -> PyResult<Place<'py>> {
    Ok(match map_location {
        None => Place::Saved,
        Some(o) if o.is_none() => Place::Saved,
        Some(o) if o.is_instance_of::<PyString>() || o.is_instance_of::<PyDevice>() => {
            Place::On(match o.extract::<String>() {
                Ok(s) => device_for(&s)?,
                Err(_) => device_of(o)?,
            })
        }
        Some(o) => match o.cast::<PyDict>() {
            Ok(d) => Place::Table(d.clone()),
            Err(_) if o.is_callable() => Place::Asked(o.clone()),
            Err(_) => {
                return Err(PyTypeError::new_err(
                    "map_location must be None, a device, a string, a dict or a function",
                ));
            }
        },
    })
}

/// Opens a path (from `offset` on, `length` bytes if that is said) or bytes.
fn open(file: &Bound<'_, PyAny>, offset: u64, length: Option<u64>) -> PyResult<Archive> {
    let py = file.py();
    if let Ok(b) = file.cast::<PyBytes>() {
        let bytes = b.as_bytes().to_vec();
        return Ok(py.detach(|| Archive::from_bytes(bytes))?);
    }
    let path: std::path::PathBuf = file.extract()?;
    Ok(py.detach(|| match length {
        Some(len) => Archive::open_part(&path, offset, len),
        None if offset == 0 => Archive::open(&path),
        None => Archive::open_at(&path, offset),
    })?)
}

/// Reads a checkpoint: a path or bytes. Returns what it holds, and where it ends in the file.
#[pyfunction]
#[pyo3(signature = (file, map_location, weights_only, mmap, allowed, offset=0, verify=false, script=false, length=None, unread=false, encoding=None))]
pub fn _load<'py>(
    py: Python<'py>,
    file: &Bound<'py, PyAny>,
    map_location: Option<&Bound<'py, PyAny>>,
    weights_only: bool,
    mmap: Option<bool>,
    allowed: &Bound<'py, PyDict>,
    offset: u64,
    verify: bool,
    script: bool,
    length: Option<u64>,
    unread: bool,
    encoding: Option<String>,
) -> PyResult<(Bound<'py, PyAny>, u64)> {
    let place = place(map_location)?;
    let mut archive = open(file, offset, length)?;
    if script {
        archive = archive.script()?;
    }
    let format = archive.format();
    if mmap == Some(true) && matches!(format, io::Format::TorchLegacy | io::Format::TorchTar) {
        return Err(PyRuntimeError::new_err(format!(
            "mmap can only be used with files saved with `torch.save({file}, _use_new_zipfile_serialization=True), please torch.save your \
             checkpoint with this option in order to use mmap.",
        )));
    }
    refuse(py, &archive, allowed, !weights_only)?;
    if verify {
        py.detach(|| archive.verify())?;
    }
    // Mapped unless told otherwise where the format's own library maps too.
    let flat = format == io::Format::Safetensors
        || format == io::Format::Sharded
            && archive
                .shards()
                .iter()
                .all(|s| s.format() == io::Format::Safetensors);
    let private = if mmap.unwrap_or(flat) && !matches!(place, Place::On(d) if !d.is_cpu()) {
        archive.map_private()?
    } else {
        Vec::new()
    };
    let (end, tree) = (archive.end(), archive.tree());
    let (root, storages) = (tree.root, vec![None; tree.storages.len()]);
    let made = (0..tree.objects.len()).map(|_| None).collect();
    let tensors = if format == io::Format::TorchTar {
        tree.tensors.iter().map(|_| None).collect()
    } else {
        Vec::new()
    };
    let archive = Arc::new(archive);
    let mut loader = Loader {
        py,
        archive: &archive,
        place,
        private,
        allowed: allowed.clone(),
        full: !weights_only,
        encoding,
        unread,
        storages,
        made,
        tensors,
    };
    loader.read_ahead()?;
    let made = without_collector(py, archive.tree().objects.len(), || loader.value(root))?;
    Ok((made, end))
}

/// Runs `f` with Python's garbage collector paused if many objects are to be made: all of them stay, and looking for
/// garbage among them again and again costs as much as making them.
fn without_collector<R>(
    py: Python<'_>,
    objects: usize,
    f: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    if objects < 1000 {
        return f();
    }
    let gc = py.import("gc")?;
    let on = gc.call_method0("isenabled")?.is_truthy()?;
    if on {
        gc.call_method0("disable")?;
    }
    let result = f();
    if on {
        gc.call_method0("enable")?;
    }
    result
}

/// The names in a checkpoint that `weights_only=True` refuses.
#[pyfunction]
pub fn _refused_globals(
    file: &Bound<'_, PyAny>,
    allowed: &Bound<'_, PyDict>,
) -> PyResult<Vec<String>> {
    let archive = open(file, 0, None)?;
    let is_allowed = |g: &io::tree::Global| allowed.contains(g.to_string()).unwrap_or(false);
    let names = archive.tree().disallowed(&is_allowed);
    Ok(names.map(ToString::to_string).collect())
}

/// Format and metadata of a checkpoint.
#[pyfunction]
pub fn _file_metadata(file: &Bound<'_, PyAny>) -> PyResult<(&'static str, Vec<(String, String)>)> {
    let archive = open(file, 0, None)?;
    Ok((archive.format().name(), archive.metadata().to_vec()))
}
