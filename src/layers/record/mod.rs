//! Recording: a meta storage remembers the calls that wrote it, and replaying them makes it real.
//!
//! Each write to a storage adds an [`Entry`] that points to the state before it and to the states its inputs had
//! at that moment. Entries only ever point to older ones, so histories cannot form cycles, and a storage can
//! be replayed alone, in any order, with the bits that eager execution would have given: random calls keep a
//! copy of the generator as it was, and move the real one on as eager would have.
//!
//! Recording sees the leaves of composed ops. Views need no entry: they share their storage.

mod explain;
mod replay;

pub use explain::{History, explain};
pub use replay::{clear_cache, materialize, peek, replay};

use super::{Layer, Next};
use crate::mode;
use crate::ops::args::{Arg, Args, OwnedArg, OwnedArgs};
use crate::ops::copy::no_data;
use crate::ops::core::place::{Placing, place};
use crate::ops::core::survey::{Survey, glance};
use crate::ops::core::{helpers, writable};
use crate::ops::dispatch;
use crate::ops::op::{Body, KernelBody, Ret};
use crate::ops::schema::Kind;
use crate::ops::{Call, Form};
use crate::random::{self, Generator};
use crate::source::{Recipe, Source};
use crate::{DType, Device, MemoryFormat, Result, Storage, Tensor, bail, layers};
use replay::{file_key, run_now};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
    /// The dtype that floats had.
    floats: DType,
}

static COUNTER: AtomicU64 = AtomicU64::new(1);

fn next_number() -> u64 {
    COUNTER.fetch_add(1, Relaxed)
}

impl Recipe for Entry {
    fn op_name(&self) -> &'static str {
        self.call.args.op.public_name()
    }

    fn key(&self) -> u64 {
        self.key
    }

    fn replay(self: Arc<Self>, nbytes: usize) -> Result<Storage> {
        replay(&Source::Recipe(self), nbytes, false)
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// The entry of a recipe: no other layer makes any.
fn entry_of(recipe: Arc<dyn Recipe>) -> Result<Arc<Entry>> {
    recipe
        .into_any()
        .downcast()
        .map_err(|_| crate::err!(Runtime, "a recipe that was not recorded here"))
}

impl Drop for Entry {
    /// Takes long chains of writes apart without recursing.
    fn drop(&mut self) {
        let mut next = self.prev.take();
        while let Some(Source::Recipe(recipe)) = next {
            next = match entry_of(recipe).map(Arc::try_unwrap) {
                Ok(Ok(mut entry)) => entry.prev.take(),
                _ => break,
            };
        }
    }
}

/// A storage of a recorded argument stands in for the real one by its layout alone.
fn placeholder(t: &Tensor) -> Tensor {
    let (shape, strides) = (t.shape().clone(), t.strides().clone());
    let bare = Tensor::hollow(shape, strides, t.offset(), t.dtype());
    bare.with_conj(t.is_conj()).with_neg(t.is_neg())
}

/// Keeps calls that touch recorded tensors, and factories called while recording, instead of running them.
pub struct Recording;

impl Layer for Recording {
    fn call(&self, c: Call, next: Next) -> Result<Ret> {
        let Body::Kernel(ref k) = c.args.op.def.body else {
            return next.call(c);
        };
        if !promises(c.args) {
            let lost = unknown_from_now(&c, k);
            let ret = next.call(c)?;
            lost.iter().for_each(|t| t.storage().set_source(None));
            return Ok(ret);
        }
        let Some(shown) = beside_data(c.args)? else {
            let seen = glance(c.args);
            return dispatch::prepared(c, k, seen, |c, found| {
                let shown = c.args.to_owned();
                deferred(c, shown, k, &found)
            });
        };
        let Call { args, form } = c;
        let shown = shown.borrow();
        let seen = glance(&shown);
        let c = Call { args: &shown, form };
        dispatch::prepared(c, k, seen, |c, found| {
            let Call { args: shown, form } = c;
            deferred(Call { args, form }, shown.to_owned(), k, &found)
        })
    }
}

/// Data that is there already. Scalars are taken wherever they are.
fn is_data(t: &Tensor) -> bool {
    t.device().is_cpu() && t.ndim() > 0
}

/// The arguments of a call while calls are recorded, with stand-ins on meta for data: tensors that wait will be beside it.
/// None if there is no data, or something is to be resolved first.
fn beside_data(args: &Args) -> Result<Option<OwnedArgs>> {
    let (mut data, mut lazy) = (false, false);
    args.for_each_tensor(|_, t| {
        data |= is_data(t);
        lazy |= t.is_lazy();
    });
    if !data || lazy || !layers::recording() {
        return Ok(None);
    }
    let mut shown = args.to_owned();
    shown.replace_tensors(|_, t| Ok(is_data(t).then(|| placeholder(t))))?;
    Ok(Some(shown))
}

/// Whether what a factory makes on a device, or on the default one, never becomes real.
///
/// Tensors that wait say that they are on meta: while calls are recorded, meta as a device means where those will be.
#[must_use]
pub fn stays_meta(asked: Option<Device>) -> bool {
    match asked {
        Some(d) if !(d.is_meta() && layers::recording()) => d.is_meta(),
        _ => mode::default_device().is_meta(),
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
    let stays_meta = factory && stays_meta(asked);
    // A device that is asked for beside a tensor has no use for its values: while nobody records, what is made is there at once.
    let elsewhere = !factory && !layers::recording() && asked.is_some_and(|d| !d.is_meta());
    // Otherwise a plain meta tensor takes part, or all data is here.
    !(stays_meta || elsewhere || unknown > 0 || (!factory && real == tensors))
}

/// The waiting tensors that a call writes though it will never have its values: theirs are unknown, too.
fn unknown_from_now(c: &Call, k: &KernelBody) -> Vec<Tensor> {
    let mut unknown = false;
    c.args
        .for_each_tensor(|_, t| unknown |= t.is_meta() && !t.storage().is_sourced());
    if !unknown {
        return Vec::new();
    }
    let mut found: Vec<Tensor> = match &c.form {
        Form::New => Vec::new(),
        Form::InPlace(t) | Form::Within(t) => vec![(*t).clone()],
        Form::Out(outs) => outs.to_vec(),
    };
    writable::for_each_written(c.args, &k.traits, |t| found.push(t.clone()));
    found.retain(|t| t.is_meta() && t.storage().is_sourced());
    found
}

/// Records a kernel call in whatever form; rules see the arguments that are `shown`.
fn deferred(c: Call, mut shown: OwnedArgs, k: &KernelBody, found: &Survey) -> Result<Ret> {
    let Call { args, form } = c;
    match &form {
        Form::New => {}
        Form::InPlace(target) | Form::Within(target) if !target.is_meta() => {
            return Err(no_data(target));
        }
        Form::Out(outs) if outs.iter().any(|o| !o.is_meta()) => bail!(
            NotImplemented,
            "Cannot copy out of meta tensor; no data! {}(out=) got a real tensor for a recorded result.",
            args.name()
        ),
        Form::InPlace(_) | Form::Within(_) | Form::Out(_) => {}
    }
    // Rules see the meta device in place of any other that is asked for; the replay gets the real one.
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
        inference: found.inference,
        direct_out: false,
        fake: None,
    };
    let mut form = Some(form);
    (k.run)(&shown.borrow(), &mut |mut plan, _| {
        let form = form.take().unwrap_or(Form::New);
        if k.traits.data_dependent {
            // The shape itself needs the values: compute it now, on the replayed inputs.
            return match form {
                Form::New => run_now(args, k),
                _ => Err(dispatch::data_dependent(args)),
            };
        }
        place(args, &placing, &mut plan, form, &mut |outs, over| {
            if k.traits.mutates == 0 {
                return record(args, &shown, k, outs, over);
            }
            record(args, &shown, k, &written(args, k)?, over)
        })
    })
}

/// A copy that nobody else has.
fn own(t: &Tensor) -> Result<Tensor> {
    layers::unwatched(|| helpers::clone(t, MemoryFormat::Preserve))
}

/// The tensors among the arguments that a call writes, none of which may be real.
fn written(args: &Args, k: &KernelBody) -> Result<Vec<Tensor>> {
    let mut found = Vec::new();
    writable::for_each_written(args, &k.traits, |t| found.push(t.clone()));
    match found.iter().find(|t| !t.is_meta()) {
        Some(real) => Err(no_data(real)),
        None => Ok(found),
    }
}

/// The arguments of a call as its recording keeps them.
struct Kept {
    args: OwnedArgs,
    /// Where those come from that wait.
    inputs: Vec<Source>,
    /// How often the others had been written.
    versions: Vec<u32>,
}

impl Kept {
    /// Of a call.
    fn of(args: &Args, k: &KernelBody) -> Result<Self> {
        let mut kept = args.to_owned();
        let (mut inputs, mut versions) = (Vec::new(), Vec::new());
        let mut failed = Ok(());
        kept.for_each_tensor_mut(|t| match t.storage().source() {
            Some(source) if t.is_meta() => {
                inputs.push(source);
                *t = placeholder(t);
            }
            _ if t.ndim() == 0 && k.traits.mutates != 0 => match own(t) {
                // Counts of steps go on while the recorded call waits.
                Ok(own) => {
                    versions.push(own.storage().version());
                    *t = own;
                }
                Err(e) => failed = Err(e),
            },
            _ => {
                versions.push(t.storage().version());
                *t = t.bare();
            }
        });
        failed?;
        Ok(Self {
            args: kept,
            inputs,
            versions,
        })
    }

    /// Writes down what a replay would find changed: devices, generators, and the type of new results. Gives the device that
    /// is asked for.
    fn settle(&mut self, args: &Args, made: Option<DType>) -> Device {
        let factory = self.inputs.is_empty();
        let mut device = Device::CPU;
        for (v, p) in self.args.values.iter_mut().zip(&args.op.schema.params) {
            let settled = match (&*v, p.kind) {
                (_, Kind::Generator) => Arg::None,
                // Meta says "where those are that wait", which is no wish to stay there.
                (OwnedArg::Plain(Arg::Device(Device::META)), _) if !factory => Arg::None,
                (OwnedArg::Plain(Arg::Device(Device::META)), _) => Arg::Device(Device::CPU),
                (OwnedArg::Plain(Arg::Device(d)), _) => {
                    device = *d;
                    continue;
                }
                (OwnedArg::Plain(Arg::None), Kind::Device) => Arg::Device(Device::CPU),
                // The default dtype may have changed when the replay comes.
                (OwnedArg::Plain(Arg::None), Kind::DType) if factory && p.name == "dtype" => {
                    match made {
                        Some(d) => Arg::DType(d),
                        None => continue,
                    }
                }
                _ => continue,
            };
            *v = OwnedArg::Plain(settled);
        }
        device
    }
}

/// Notes a call as the newest write to each of its results; `over`: on top of what they held.
fn record(
    args: &Args,
    shown: &OwnedArgs,
    k: &KernelBody,
    results: &[Tensor],
    over: bool,
) -> Result<()> {
    let mut kept = Kept::of(args, k)?;
    let made = results.first().filter(|_| !over).map(Tensor::dtype);
    let device = kept.settle(args, made);
    let rng = if k.traits.draws {
        Some(draw(args, shown, k, results)?)
    } else {
        None
    };
    let before: Vec<Option<Source>> = results
        .iter()
        .map(|t| t.storage().source().filter(|_| over))
        .collect();
    let keys: Vec<u64> = before
        .iter()
        .map(|b| match b {
            Some(Source::Recipe(e)) => e.key(),
            Some(Source::File(p)) => file_key(p),
            None => next_number(),
        })
        .collect();
    let call = Arc::new(Written {
        seq: next_number(),
        args: kept.args,
        inputs: kept.inputs,
        versions: kept.versions,
        outs: keys
            .iter()
            .zip(results)
            .map(|(k, t)| (*k, placeholder(t)))
            .collect(),
        in_place: over,
        rng,
        device,
        floats: mode::default_dtype(),
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
    let before = shared.host()?.clone();
    if let Some(advance) = k.traits.random {
        advance(&shown.borrow(), results, &mut *shared.host()?)?;
    } else {
        // How much is drawn depends on values: run the call aside, on replayed inputs.
        run_now(args, k)?;
    }
    Ok(before)
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
        inference: mode::inference(),
        direct_out: false,
        fake: None,
    };
    (k.run)(&args, &mut |plan, _| {
        let mut plan = plan.on(Device::META);
        place(&args, &placing, &mut plan, Form::New, &mut |outs, over| {
            record(&args, &args.to_owned(), &k, outs, over)
        })
    })?
    .one()
}
