//! Replaying a recorded history: aside, to read values, or to make a storage real.

use super::{Entry, Written, entry_of};
use crate::layers;
use crate::ops::core::survey::Survey;
use crate::ops::op::{Body, KernelBody, Ret};
use crate::ops::{Args, Call, Form, dispatch};
use crate::random;
use crate::source::{Provider, Source};
use crate::{Device, Result, Storage, Tensor, bail, dims, mode};
use std::collections::{HashMap, HashSet, hash_map};
use std::sync::{Arc, Mutex, PoisonError};

/// Runs a call on replayed inputs at once; its results are real.
pub(super) fn run_now(args: &Args, k: &KernelBody) -> Result<Ret> {
    let mut owned = args.to_owned();
    let mut failed = None;
    owned.for_each_tensor_mut(|t| {
        if let (true, Some(source)) = (t.is_meta(), t.storage().source()) {
            match peek(t, &source) {
                Ok(real) => *t = real,
                Err(e) => failed = Some(e),
            }
        }
    });
    if let Some(e) = failed {
        return Err(e);
    }
    layers::unwatched(|| {
        dispatch::run_plain(Call::new(&owned.borrow()), k, &Survey::on(Device::CPU))
    })
}

pub(super) fn file_key(p: &Arc<dyn Provider>) -> u64 {
    // Addresses and counted numbers cannot meet: user-space addresses are far above any count.
    Arc::as_ptr(p).cast::<u8>() as u64
}

/// Shadow storages of one replay, by storage key; and those kept for later, by the call that wrote them last.
struct Replay {
    shadows: HashMap<u64, Storage>,
}

static CACHE: Mutex<Option<HashMap<(u64, u64), Storage>>> = Mutex::new(None);

/// Forgets the intermediate results that `materialize(..., keep_cache=True)` kept.
pub fn clear_cache() {
    *CACHE.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Replays a source into a real storage; `keep` keeps intermediate results for later replays.
///
/// # Errors
/// If a recorded call fails, a file cannot be read, or a real input was changed since it was recorded.
pub fn replay(source: &Source, nbytes: usize, keep: bool) -> Result<Storage> {
    let entry = match source {
        Source::File(p) => return p.fetch(Device::CPU),
        Source::Recipe(recipe) => entry_of(recipe.clone())?,
    };
    let mut replay = Replay {
        shadows: HashMap::new(),
    };
    layers::unwatched(|| {
        let calls = replay.collect(&entry)?;
        calls
            .iter()
            .try_for_each(|c| mode::with_default_dtype(c.floats, || replay.execute(c)))
    })?;
    if keep {
        let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = cache.get_or_insert_default();
        if let Some(storage) = replay.shadows.get(&entry.key) {
            cache.insert((entry.key, entry.call.seq), copy_storage(storage)?);
        }
    }
    match replay.shadows.remove(&entry.key) {
        Some(made) if made.nbytes() >= nbytes.min(entry.nbytes) => {
            grow(&made, nbytes)?;
            Ok(made)
        }
        _ => bail!(
            Runtime,
            "the recorded history of this tensor does not make its storage"
        ),
    }
}

/// Gives a storage that was resized while it waited the size that it had then.
fn grow(s: &Storage, nbytes: usize) -> Result<()> {
    if s.nbytes() < nbytes {
        s.resize(nbytes)?;
    }
    Ok(())
}

fn copy_storage(s: &Storage) -> Result<Storage> {
    let fresh = Storage::empty(s.nbytes(), s.device())?;
    crate::ops::helpers::copy_(&Tensor::bytes_of(&fresh), &Tensor::bytes_of(s))?;
    Ok(fresh)
}

impl Replay {
    /// All calls that the entry's storage depends on, oldest first. Cached states stop the search.
    fn collect(&mut self, entry: &Arc<Entry>) -> Result<Vec<Arc<Written>>> {
        let mut calls: HashMap<u64, Arc<Written>> = HashMap::new();
        let mut stack = vec![Source::Recipe(entry.clone())];
        let mut seen = HashSet::new();
        while let Some(source) = stack.pop() {
            match source {
                Source::File(p) => {
                    if let hash_map::Entry::Vacant(slot) = self.shadows.entry(file_key(&p)) {
                        slot.insert(p.fetch(Device::CPU)?);
                    }
                }
                Source::Recipe(recipe) => {
                    let e = entry_of(recipe)?;
                    if !seen.insert((e.key, e.call.seq)) {
                        continue;
                    }
                    if e.prev.is_none()
                        && let Some(Some(cached)) = CACHE
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .as_ref()
                            .map(|c| c.get(&(e.key, e.call.seq)).cloned())
                    {
                        self.shadows.insert(e.key, copy_storage(&cached)?);
                        continue;
                    }
                    stack.extend(e.prev.clone());
                    if calls.insert(e.call.seq, e.call.clone()).is_none() {
                        stack.extend(e.call.inputs.iter().cloned());
                    }
                }
            }
        }
        let mut calls: Vec<Arc<Written>> = calls.into_values().collect();
        calls.sort_by_key(|c| c.seq);
        Ok(calls)
    }

    fn shadow_of(&self, source: &Source) -> Result<Storage> {
        let key = match source {
            Source::Recipe(e) => e.key(),
            Source::File(p) => file_key(p),
        };
        self.shadows
            .get(&key)
            .cloned()
            .ok_or_else(|| crate::err!(Runtime, "a recorded input is missing from the replay"))
    }

    fn execute(&mut self, call: &Written) -> Result<()> {
        let mut args = call.args.clone();
        let (mut inputs, mut versions) = (call.inputs.iter(), call.versions.iter());
        let mut failed = None;
        args.for_each_tensor_mut(|t| {
            if t.is_meta() && t.storage().nbytes() == 0 {
                let shadow = inputs.next().map(|s| self.shadow_of(s));
                match shadow.map(|s| s.and_then(|s| on_storage(t, s))) {
                    Some(Ok(real)) => *t = real,
                    Some(Err(e)) => failed = Some(e),
                    None => {}
                }
            } else if versions.next().is_some_and(|v| *v != t.storage().version()) {
                failed = Some(crate::err!(
                    Runtime,
                    "a real tensor that a recorded {}() reads was changed in place since; the eager result cannot be had any more",
                    call.args.op.public_name()
                ));
            }
        });
        if let Some(e) = failed {
            return Err(e);
        }
        let Body::Kernel(k) = call.args.op.def.body else {
            bail!(Runtime, "only kernels are recorded")
        };
        if k.traits.mutates != 0 {
            // What is written are arguments, which lie on the shadows.
            let (args, on) = (args.borrow(), Survey::on(call.device));
            return dispatch::run_plain(Call::new(&args), &k, &on).map(drop);
        }
        let (key, layout) = &call.outs[0];
        if call.in_place {
            let storage = match self.shadows.get(key) {
                Some(s) => s.clone(),
                None => bail!(Runtime, "a recorded write has no storage"),
            };
            let target = on_storage(layout, storage)?;
            return with_rng(call, || {
                let c = Call {
                    args: &args.borrow(),
                    form: Form::InPlace(&target),
                };
                dispatch::run_plain(c, &k, &Survey::on(call.device)).map(drop)
            });
        }
        let results = with_rng(call, || {
            dispatch::run_plain(Call::new(&args.borrow()), &k, &Survey::on(call.device))
        })?
        .tensors();
        for ((key, _), result) in call.outs.iter().zip(results) {
            self.shadows.insert(*key, result.storage().clone());
        }
        Ok(())
    }
}

fn with_rng<R>(call: &Written, f: impl FnOnce() -> R) -> R {
    match &call.rng {
        Some(g) => random::with_default_generator(g.clone(), f),
        None => f(),
    }
}

/// The layout of `t` on another storage.
fn on_storage(t: &Tensor, storage: Storage) -> Result<Tensor> {
    let (shape, strides) = (t.shape().clone(), t.strides().clone());
    let size = t.dtype().size();
    grow(
        &storage,
        dims::storage_bytes(&shape, &strides, t.offset(), size)?,
    )?;
    let made = Tensor::checked(storage, shape, strides, t.offset(), t.dtype())?;
    Ok(made.with_conj(t.is_conj()).with_neg(t.is_neg()))
}

/// A real host tensor with the values that `t` would have; `t` itself stays on meta.
///
/// # Errors
/// As [`replay`].
pub fn peek(t: &Tensor, source: &Source) -> Result<Tensor> {
    on_storage(t, replay(source, t.storage().nbytes(), false)?)
}

/// Makes a meta tensor real in place: its storage gets the data, and all its views and ties follow. Real tensors are
/// left as they are.
///
/// # Errors
/// If the tensor has no source, or its data cannot be had.
pub fn materialize(t: &Tensor, keep_cache: bool) -> Result<()> {
    if !t.is_meta() {
        return Ok(());
    }
    let Some(source) = t.storage().source() else {
        bail!(
            Runtime,
            "this meta tensor of shape {} has no source: it was made with device='meta' and nothing is known of its data. Make it \
             inside meta_init(), load it with map_location='meta', or use to_empty() for uninitialised memory.",
            t.shape()
        )
    };
    let real = replay(&source, t.storage().nbytes(), keep_cache)?;
    t.storage().become_like(&real);
    t.storage().set_source(None);
    Ok(())
}
