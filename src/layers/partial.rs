//! Making real only what is wanted: many storages at a time, or the elements of one view.

use super::record;
use crate::source::{Provider, Source};
use crate::{Device, Result, Storage, Tensor, bail};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Bytes between two wanted runs above which they are read one by one.
const GAP: i64 = 64 << 10;

/// Makes tensors real in place, all storages that come from files at the same time; `device` is where to, the CPU if
/// none is given. Real tensors are left as they are.
///
/// # Errors
/// If one has no source, or its data cannot be had; those before it may be real then.
pub fn materialize_all(tensors: &[Tensor], keep_cache: bool, device: Option<Device>) -> Result<()> {
    let (mut seen, mut files) = (HashSet::new(), Vec::new());
    for t in tensors {
        if let (true, Some(Source::File(p))) = (t.is_meta(), t.storage().source())
            && seen.insert(t.storage().id())
        {
            files.push((t.storage(), p));
        }
    }
    let made = fetch_all(&files, device.unwrap_or(Device::CPU))?;
    for ((storage, _), real) in files.iter().zip(made) {
        storage.become_like(&real);
        storage.set_source(None);
    }
    for t in tensors {
        let was_meta = t.is_meta();
        record::materialize(t, keep_cache)?;
        if let (true, Some(device)) = (was_meta, device) {
            let there = t.storage().on(device)?;
            t.storage().become_like(&there);
        }
    }
    Ok(())
}

type Wanted<'a> = (&'a Storage, Arc<dyn Provider>);

fn fetch_all(files: &[Wanted<'_>], device: Device) -> Result<Vec<Storage>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(files.len() / 2).clamp(1, 8);
    let bytes: usize = files.iter().map(|f| f.0.nbytes()).sum();
    if threads == 1 || bytes < 4 << 20 || !device.is_cpu() {
        return files.iter().map(|f| f.1.fetch(device)).collect();
    }
    let made: Vec<OnceLock<Result<Storage>>> = files.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|s| {
        let work = || {
            loop {
                let i = next.fetch_add(1, Relaxed);
                let Some((file, slot)) = files.get(i).zip(made.get(i)) else {
                    return;
                };
                let _ = slot.set(file.1.fetch(device));
            }
        };
        for _ in 1..threads {
            s.spawn(work);
        }
        work();
    });
    let unread = || Err(crate::err!(Io, "a storage was not read"));
    let made = made.into_iter().map(OnceLock::into_inner);
    made.map(|m| m.unwrap_or_else(unread)).collect()
}

/// The elements of a view of a meta tensor, as a real row-major tensor of their own; the view stays on meta. Of a file
/// only the bytes that hold them are read.
///
/// # Errors
/// If there is no source, or the data cannot be had.
pub fn extract(view: &Tensor) -> Result<Tensor> {
    if !view.is_meta() {
        return crate::ops::helpers::clone(view, crate::MemoryFormat::Contiguous);
    }
    let Some(source) = view.storage().source() else {
        bail!(
            Runtime,
            "this meta tensor of shape {} has no source: nothing is known of its data",
            view.shape()
        )
    };
    if let Source::File(p) = &source
        && let Some(out) = from_file(p, view)?
    {
        return Ok(out);
    }
    let real = record::peek(view, &source)?;
    crate::ops::helpers::clone(&real, crate::MemoryFormat::Contiguous)
}

fn from_file(p: &Arc<dyn Provider>, view: &Tensor) -> Result<Option<Tensor>> {
    let out = Tensor::empty(view.shape(), view.dtype(), Device::CPU)?;
    if view.numel() == 0 {
        return Ok(Some(out));
    }
    if !read(p, view, &out)? {
        return Ok(None);
    }
    Ok(Some(out))
}

/// How many bytes from the first to the last element.
fn span(shape: &[i64], strides: &[i64], item: i64) -> i64 {
    let last: i64 = shape.iter().zip(strides).map(|(n, s)| (n - 1) * s).sum();
    (last + 1) * item
}

fn at(t: &Tensor, dim: usize, i: i64) -> Tensor {
    t.look(&crate::plan::ViewPlan::of(t).selected(dim, i))
}

/// Reads the elements of `view` into `out`; false if the provider has no ranges.
fn read(p: &Arc<dyn Provider>, view: &Tensor, out: &Tensor) -> Result<bool> {
    let item = view.dtype().size() as i64;
    let outer = (0..view.ndim())
        .filter(|&d| view.shape()[d] > 1)
        .max_by_key(|&d| view.strides()[d]);
    if let Some(d) = outer {
        let (shape, strides) = (view.shape().removed(d), view.strides().removed(d));
        let gap = view.strides()[d] * item - span(&shape, &strides, item);
        if gap > GAP {
            for i in 0..view.shape()[d] {
                if !read(p, &at(view, d, i), &at(out, d, i))? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
    }
    let (start, len) = (
        view.offset() * item,
        span(view.shape(), view.strides(), item),
    );
    let Some(storage) = p.fetch_range(start as u64, len as u64)? else {
        return Ok(false);
    };
    let part = Tensor::checked(
        storage,
        view.shape().clone(),
        view.strides().clone(),
        0,
        view.dtype(),
    )?;
    let part = part.with_conj(view.is_conj()).with_neg(view.is_neg());
    // The result was just made, so that its layout may be anything a copy can write.
    crate::ops::helpers::copy_(&out.look(&crate::plan::ViewPlan::of(out)), &part)?;
    Ok(true)
}
