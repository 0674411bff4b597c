//! Recording: a meta storage remembers the calls that wrote it, and replaying them makes it real.
//!
//! Each write to a storage adds an [`Entry`] that points to the state before it and to the states its inputs had
//! at that moment. Entries only ever point to older ones, so histories cannot form cycles, and a storage can
//! be replayed alone, in any order, with the bits that eager execution would have given: random calls keep a
//! copy of the generator as it was, and move the real one on as eager would have.
//!
//! Recording sees the leaves of composed ops. Views need no entry: they share their storage.

use super::{Layer, Next, Sees};
use crate::ops::args::{Arg, Args, OwnedArg, OwnedArgs};
use crate::ops::copy::no_data;
use crate::ops::core::place::{Placing, place};
use crate::ops::dispatch;
use crate::ops::op::{Body, KernelBody, Ret};
use crate::ops::schema::Kind;
use crate::ops::{Call, Form};
use crate::random::{self, Generator};
use crate::source::{Provider, Source};
use crate::{Device, Result, Storage, Tensor, bail, layers};
use crate::{mode, storage};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// One write to one storage.
pub struct Entry {
    /// Which storage, told apart over its whole life.
    key: u64,
    nbytes: usize,
    /// The storage's state before this write; none if the call made the storage.
    prev: Option<Source>,
    call: Arc<Written>,
}

/// A recorded call, shared by the entries of all its results.
struct Written {
    seq: u64,
    args: OwnedArgs,
    /// The states of the recorded tensors among the arguments, in order.
    inputs: Vec<Source>,
    /// Versions of the real tensors among the arguments, in order.
    versions: Vec<u32>,
    /// Layouts of the results, with the key of each one's storage; in place: that of argument 0.
    outs: Vec<(u64, Tensor)>,
    in_place: bool,
    /// The generator before the call.
    rng: Option<Generator>,
    device: Device,
}

static COUNTER: AtomicU64 = AtomicU64::new(1);

fn next_number() -> u64 {
    COUNTER.fetch_add(1, Relaxed)
}

impl Entry {
    /// The public name of the op that made the newest write.
    #[must_use]
    pub fn op_name(&self) -> &'static str {
        self.call.args.op.public_name()
    }
}

impl Drop for Entry {
    /// Takes long chains of writes apart without recursing.
    fn drop(&mut self) {
        let mut next = self.prev.take();
        while let Some(Source::Recipe(entry)) = next {
            match Arc::try_unwrap(entry) {
                Ok(mut entry) => next = entry.prev.take(),
                Err(_) => break,
            }
        }
    }
}

/// A storage of a recorded argument stands in for the real one by its layout alone.
fn placeholder(t: &Tensor) -> Tensor {
    let bare = Tensor::from_parts(
        Storage::meta(0),
        t.shape().clone(),
        t.strides().clone(),
        t.offset(),
        t.dtype(),
    );
    bare.with_conj(t.is_conj()).with_neg(t.is_neg())
}

/// Keeps calls that touch recorded tensors, and factories called while recording, instead of running them.
pub struct Recording;

impl Layer for Recording {
    fn sees(&self) -> Sees {
        Sees::Kernels
    }

    fn wants(&self, seen: u32, on: u32) -> bool {
        let sourced = u32::from(storage::SOURCED) << mode::STORAGE_FLAGS;
        on & mode::RECORDING != 0 || seen & sourced != 0
    }

    fn call(&self, c: Call, next: Next) -> Result<Ret> {
        let Body::Kernel(ref k) = c.args.op.def.body else {
            return next.call(c);
        };
        if !promises(c.args) {
            return next.call(c);
        }
        dispatch::prepared(c, k, |c, _| deferred(c, k))
    }
}

/// Whether the result of a call can become real later, and is not real now.
fn promises(args: &Args) -> bool {
    let (mut tensors, mut real, mut unknown) = (0, 0, 0);
    args.for_each_tensor(|_, t| {
        tensors += 1;
        if !t.is_meta() {
            real += 1;
        } else if !t.storage().is_sourced() {
            unknown += 1;
        }
    });
    let asked = args.values.iter().find_map(|v| match v {
        Arg::Device(d) => Some(*d),
        _ => None,
    });
    let factory = tensors == 0;
    let stays_meta = factory && asked.unwrap_or_else(mode::default_device).is_meta();
    // Otherwise a plain meta tensor takes part, or all data is here.
    !(stays_meta || unknown > 0 || (!factory && real == tensors))
}

/// Records a kernel call in whatever form.
fn deferred(c: Call, k: &KernelBody) -> Result<Ret> {
    let Call { args, form } = c;
    match &form {
        Form::New => {}
        Form::InPlace(target) if !target.is_meta() => return Err(no_data(target)),
        Form::Out(outs) if outs.iter().any(|o| !o.is_meta()) => bail!(
            NotImplemented,
            "Cannot copy out of meta tensor; no data! {}(out=) got a real tensor for a recorded result.",
            args.name()
        ),
        Form::InPlace(_) | Form::Out(_) => {}
    }
    // Rules see the meta device in place of any other that is asked for; the replay gets the real one.
    let mut shown = args.to_owned();
    if layers::recording() {
        for v in &mut shown.values {
            if let OwnedArg::Plain(Arg::Device(d)) = v {
                *d = Device::META;
            }
        }
    }
    let placing = Placing {
        traits: &k.traits,
        device: Device::META,
        direct_out: false,
    };
    let mut form = Some(form);
    (k.run)(&shown.borrow(), &mut |plan, _| {
        let form = form.take().unwrap_or(Form::New);
        if k.traits.data_dependent {
            // The shape itself needs the values: compute it now, on the replayed inputs.
            return match form {
                Form::New => run_now(args, k),
                _ => Err(dispatch::data_dependent(args)),
            };
        }
        place(args, placing, plan, form, &mut |outs, over| {
            record(args, &shown, k, outs, over)
        })
    })
}

/// Runs a call on replayed inputs at once; its results are real.
fn run_now(args: &Args, k: &KernelBody) -> Result<Ret> {
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
    layers::unwatched(|| dispatch::run_plain(Call::new(&owned.borrow()), k, Some(Device::CPU)))
}

/// Notes a call as the newest write to each of its results; `over`: on top of what they held.
fn record(
    args: &Args,
    shown: &OwnedArgs,
    k: &KernelBody,
    results: &[Tensor],
    over: bool,
) -> Result<()> {
    let mut kept = args.to_owned();
    let (mut inputs, mut versions) = (Vec::new(), Vec::new());
    kept.for_each_tensor_mut(|t| match t.storage().source() {
        Some(source) if t.is_meta() => {
            inputs.push(source);
            *t = placeholder(t);
        }
        _ => versions.push(t.storage().version()),
    });
    let mut device = Device::CPU;
    for (v, p) in kept.values.iter_mut().zip(&args.op.schema.params) {
        match (v, p.kind) {
            // `to(dtype)` says "where it is", which is no wish to stay on meta.
            (v @ OwnedArg::Plain(Arg::Device(Device::META)), _) => *v = OwnedArg::Plain(Arg::None),
            (OwnedArg::Plain(Arg::Device(d)), _) => device = *d,
            (v @ OwnedArg::Plain(Arg::None), Kind::Device) => {
                *v = OwnedArg::Plain(Arg::Device(Device::CPU))
            }
            // The default dtype may have changed when the replay comes.
            (v @ OwnedArg::Plain(Arg::None), Kind::DType)
                if inputs.is_empty() && p.name == "dtype" =>
            {
                if let (Some(made), false) = (results.first(), over) {
                    *v = OwnedArg::Plain(Arg::DType(made.dtype()));
                }
            }
            _ => {}
        }
    }
    let rng = if k.traits.draws {
        Some(draw(args, shown, k, results)?)
    } else {
        None
    };
    for (v, p) in kept.values.iter_mut().zip(&args.op.schema.params) {
        if p.kind == Kind::Generator {
            *v = OwnedArg::Plain(Arg::None);
        }
    }
    let before: Vec<Option<Source>> = results
        .iter()
        .map(|t| t.storage().source().filter(|_| over))
        .collect();
    let keys: Vec<u64> = before
        .iter()
        .map(|b| match b {
            Some(Source::Recipe(e)) => e.key,
            Some(Source::File(p)) => file_key(p),
            None => next_number(),
        })
        .collect();
    let call = Arc::new(Written {
        seq: next_number(),
        args: kept,
        inputs,
        versions,
        outs: keys
            .iter()
            .zip(results)
            .map(|(k, t)| (*k, placeholder(t)))
            .collect(),
        in_place: over,
        rng,
        device,
    });
    for ((t, key), prev) in results.iter().zip(keys).zip(before) {
        let entry = Entry {
            key,
            nbytes: t.storage().nbytes(),
            prev,
            call: call.clone(),
        };
        t.storage()
            .set_source(Some(Source::Recipe(Arc::new(entry))));
    }
    Ok(())
}

/// Moves the generator of a random call as eager execution would, and returns it as it was before.
fn draw(args: &Args, shown: &OwnedArgs, k: &KernelBody, results: &[Tensor]) -> Result<Generator> {
    let at = args
        .op
        .schema
        .params
        .iter()
        .position(|p| p.kind == Kind::Generator);
    let shared = match at {
        Some(i) => args.generator(i),
        None => random::default_generator(),
    };
    let before = shared.lock().clone();
    if let Some(advance) = k.traits.random {
        advance(&shown.borrow(), results, &mut shared.lock());
    } else {
        // How much is drawn depends on values: run the call aside, on replayed inputs.
        run_now(args, k)?;
    }
    Ok(before)
}

fn file_key(p: &Arc<dyn Provider>) -> u64 {
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
        Source::Recipe(entry) => entry,
    };
    let mut replay = Replay {
        shadows: HashMap::new(),
    };
    layers::unwatched(|| {
        let calls = replay.collect(entry)?;
        calls.iter().try_for_each(|c| replay.execute(c))
    })?;
    if keep {
        let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = cache.get_or_insert_default();
        if let Some(storage) = replay.shadows.get(&entry.key) {
            cache.insert((entry.key, entry.call.seq), copy_storage(storage)?);
        }
    }
    match replay.shadows.remove(&entry.key) {
        Some(s) if s.nbytes() >= nbytes.min(entry.nbytes) => Ok(s),
        _ => bail!(
            Runtime,
            "the recorded history of this tensor does not make its storage"
        ),
    }
}

fn copy_storage(s: &Storage) -> Result<Storage> {
    let n = s.nbytes() as i64;
    let view =
        |s: &Storage| Tensor::from_parts(s.clone(), [n].into(), [1].into(), 0, crate::DType::U8);
    let fresh = Storage::empty(s.nbytes(), s.device())?;
    crate::ops::helpers::copy_(&view(&fresh), &view(s))?;
    Ok(fresh)
}

impl Replay {
    /// All calls that the entry's storage depends on, oldest first. Cached states stop the search.
    fn collect(&mut self, entry: &Arc<Entry>) -> Result<Vec<Arc<Written>>> {
        let mut calls: HashMap<u64, Arc<Written>> = HashMap::new();
        let mut stack = vec![Source::Recipe(entry.clone())];
        let mut seen = std::collections::HashSet::new();
        while let Some(source) = stack.pop() {
            match source {
                Source::File(p) => {
                    if let std::collections::hash_map::Entry::Vacant(slot) =
                        self.shadows.entry(file_key(&p))
                    {
                        slot.insert(p.fetch(Device::CPU)?);
                    }
                }
                Source::Recipe(e) => {
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
            Source::Recipe(e) => e.key,
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
                match inputs.next().map(|s| self.shadow_of(s)) {
                    Some(Ok(storage)) => *t = on_storage(t, storage),
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
        let (key, layout) = &call.outs[0];
        if call.in_place {
            let storage = match self.shadows.get(key) {
                Some(s) => s.clone(),
                None => bail!(Runtime, "a recorded write has no storage"),
            };
            let target = on_storage(layout, storage);
            return with_rng(call, || {
                let c = Call {
                    args: &args.borrow(),
                    form: Form::InPlace(&target),
                };
                dispatch::run_plain(c, &k, Some(call.device)).map(drop)
            });
        }
        let results = with_rng(call, || {
            dispatch::run_plain(Call::new(&args.borrow()), &k, Some(call.device))
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
fn on_storage(t: &Tensor, storage: Storage) -> Tensor {
    Tensor::from_parts(
        storage,
        t.shape().clone(),
        t.strides().clone(),
        t.offset(),
        t.dtype(),
    )
    .with_conj(t.is_conj())
    .with_neg(t.is_neg())
}

/// A real host tensor with the values that `t` would have; `t` itself stays on meta.
///
/// # Errors
/// As [`replay`].
pub fn peek(t: &Tensor, source: &Source) -> Result<Tensor> {
    Ok(on_storage(t, replay(source, t.storage().nbytes(), false)?))
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

/// A recorded copy of a real tensor: what `tensor([...])` makes while recording.
///
/// # Errors
/// If memory cannot be had.
pub fn constant(t: &Tensor) -> Result<Tensor> {
    let op = crate::op!("clone")?;
    let Body::Kernel(k) = op.def.body else {
        bail!(Runtime, "clone is a kernel")
    };
    let args = Args::new(op, [Arg::Tensor(t)])?;
    let placing = Placing {
        traits: &k.traits,
        device: Device::META,
        direct_out: false,
    };
    (k.run)(&args, &mut |plan, _| {
        let plan = plan.on(Device::META);
        place(&args, placing, plan, Form::New, &mut |outs, over| {
            record(&args, &args.to_owned(), &k, outs, over)
        })
    })?
    .one()
}
