//! Fake modes: a kernel's rule runs, its results have no elements and claim a device.
//!
//! Single elements that Python's numbers made are remembered, and what is computed of them alone.

use super::{Layer, Next, unwatched};
use crate::fake::{self, FakeMode};
use crate::ops::args::{Arg, OwnedArg, OwnedArgs};
use crate::ops::core::dispatch;
use crate::ops::core::survey::{Seen, glance};
use crate::ops::core::writable::for_each_written;
use crate::ops::op::{Body, KernelBody, N};
use crate::ops::{Args, Call, Form, Ret};
use crate::{Device, Error, ErrorKind, Result, Tensor, bail, err};
use std::sync::{Arc, OnceLock};

/// What the program in front of the core says where a call cannot be faked.
pub trait Front: Sync {
    /// That a real tensor is among the arguments.
    fn real(&self, c: &Call) -> Error;
    /// That the shape of the result depends on values.
    fn shape(&self, c: &Call) -> Error;
    /// That the values of tensors are what an operator gives.
    fn value(&self, c: &Call) -> Error;
    /// That tensors are on different devices, as an error says.
    fn devices(&self, c: &Call, e: Error) -> Error;
    /// That tensors are of different modes.
    fn modes(&self, one: &Arc<FakeMode>, other: &Arc<FakeMode>) -> Error;
}

/// The texts of programs in Rust.
struct Plain;

impl Front for Plain {
    fn real(&self, c: &Call) -> Error {
        let name = c.args.name();
        err!(
            Runtime,
            "{name}() got a real tensor in a fake mode that does not allow them"
        )
    }

    fn shape(&self, c: &Call) -> Error {
        dispatch::unknown_shape(c.args.name())
    }

    fn value(&self, c: &Call) -> Error {
        err!(
            Data,
            "{}() of fake tensors, which have no values",
            c.args.name()
        )
    }

    fn devices(&self, _: &Call, e: Error) -> Error {
        e
    }

    fn modes(&self, _: &Arc<FakeMode>, _: &Arc<FakeMode>) -> Error {
        err!(Runtime, "the tensors are of different fake modes")
    }
}

static FRONT: OnceLock<&'static dyn Front> = OnceLock::new();

/// Sets who finds the words; the first one stays.
pub fn set_front(front: &'static dyn Front) {
    FRONT.get_or_init(|| front);
}

fn front() -> &'static dyn Front {
    FRONT.get().copied().unwrap_or(&Plain)
}

/// Answers leaves in a fake mode, and of tensors that one made.
pub struct Fakes;

impl Layer for Fakes {
    fn call(&self, c: Call, next: Next) -> Result<Ret> {
        if matches!(c.args.op.def.body, Body::Compose(_) | Body::Forward(_)) {
            let args = c.args;
            let done = next.call(c);
            return done.map_err(|e| refused(e, &Call::new(args)));
        }
        let Some((mode, real)) = mode_of(&c)? else {
            return next.call(c);
        };
        if !real {
            return run(c, &mode);
        }
        if c.args.name() == "lift_fresh" {
            return Ok(Ret::One(mode.lift(c.args.tensor(0)?)));
        }
        let outs = matches!(&c.form, Form::Out(outs) if outs.iter().any(is_real));
        if outs || !mode.allows_real() {
            return Err(front().real(&c));
        }
        let mut owned = c.args.to_owned();
        owned.replace_tensors(|_, t| Ok(is_real(t).then(|| mode.twin(t))))?;
        let args = owned.borrow();
        let form = c.form.of(&args)?;
        run(Call { args: &args, form }, &mode)
    }
}

/// Answers a call of which no layer but this one wants to know; `next` leads past it.
#[inline]
pub(super) fn answer(c: Call, seen: Seen, next: Next) -> Result<Ret> {
    if let (Body::Kernel(k), Form::New) = (&c.args.op.def.body, &c.form)
        && k.traits.mutates == 0
        && !k.traits.data_dependent
        && let Some(mode) = fake::current()
        && all_plain(c.args, &mode)
    {
        let args = c.args;
        let mut done = dispatch::prepared(c, k, seen, |c, found| {
            dispatch::run_in(c, k, &found, Some(&mode))
        });
        if let Err(e) = &mut done {
            say(e, args);
        }
        return done;
    }
    Fakes.call(c, next)
}

/// Whether a mode made all tensors, and none of their elements is known.
fn all_plain(args: &Args, mode: &FakeMode) -> bool {
    let (mut all, mut some) = (true, false);
    args.for_each_tensor(|_, t| {
        some = true;
        all &= t.storage().is_plainly_of(mode);
    });
    all && (some || !args.op.has(N))
}

fn is_real(t: &Tensor) -> bool {
    !t.storage().is_fake()
}

/// The mode of a call, that of the thread or of its first fake tensor; and whether real tensors are among the arguments.
fn mode_of(c: &Call) -> Result<Option<(Arc<FakeMode>, bool)>> {
    let mut mode = fake::current();
    let mut clash = None;
    let mut real = matches!(&c.form, Form::Out(outs) if outs.iter().any(is_real));
    c.args.for_each_tensor(|_, t| {
        if is_real(t) {
            real = true;
            return;
        }
        match &mode {
            None => mode = t.storage().fake_mode(),
            Some(mode) => {
                if let (Some(other), None) = (t.storage().other_mode(mode), &clash) {
                    clash = Some((other, mode.clone()));
                }
            }
        }
    });
    match clash {
        Some((one, other)) => Err(front().modes(&one, &other)),
        None => Ok(mode.map(|mode| (mode, real))),
    }
}

/// Runs a leaf whose tensors are all fake.
fn run(c: Call, mode: &Arc<FakeMode>) -> Result<Ret> {
    let Body::Kernel(ref k) = c.args.op.def.body else {
        return dispatch::below(c);
    };
    let args = c.args;
    if k.traits.data_dependent {
        return Err(front().shape(&c));
    }
    let known = Known::of(&c, k);
    if known.is_none() {
        forget(&c, k);
    }
    let target = c.form.target();
    let seen = glance(args);
    let mut done = dispatch::prepared(c, k, seen, |c, found| {
        dispatch::run_in(c, k, &found, Some(mode))
    });
    match (&mut done, known) {
        (Ok(ret), Some(known)) => known.note(target, ret)?,
        (Ok(_), None) => {}
        (Err(e), _) => say(e, args),
    }
    done
}

/// Puts what is said in a fake mode in place of an error.
#[cold]
fn say(e: &mut Error, args: &Args) {
    let told = std::mem::replace(e, err!(Runtime, "a call failed"));
    *e = refused(told, &Call::new(args));
}

/// What is said in place of an error that is another one in a fake mode.
fn refused(e: Error, c: &Call) -> Error {
    match e.kind() {
        ErrorKind::Devices => front().devices(c, e),
        ErrorKind::Shape => front().shape(c),
        ErrorKind::Data => front().value(c),
        _ => e,
    }
}

/// The elements of a fake tensor, where they are known all the same, in host memory.
///
/// # Errors
/// That they depend on data.
pub fn known(t: &Tensor) -> Result<Tensor> {
    match t.storage().constant() {
        Some(bytes) => Ok(t.on_twin(bytes)),
        None => bail!(Data, "a fake tensor has no values"),
    }
}

/// A call on what is known of its arguments' elements.
struct Known(OwnedArgs);

impl Known {
    /// If all elements of its tensors are known, and those of the results follow.
    #[inline]
    fn of(c: &Call, k: &KernelBody) -> Option<Self> {
        let (mut all, mut some) = (true, false);
        c.args.for_each_tensor(|_, t| {
            some = true;
            all = all && t.storage().constant().is_some();
        });
        if !all || !(some || c.args.op.has(N)) || k.traits.draws || matches!(c.form, Form::Out(_)) {
            return None;
        }
        Self::gather(c)
    }

    #[cold]
    fn gather(c: &Call) -> Option<Self> {
        let mut owned = c.args.to_owned();
        owned.replace_tensors(|_, t| Ok(known(t).ok())).ok()?;
        for v in &mut owned.values {
            if let OwnedArg::Plain(Arg::Device(d)) = v {
                *d = Device::CPU;
            }
        }
        Some(Self(owned))
    }

    /// Computes the results, and remembers those of one element; a call that writes changes what is remembered.
    fn note(self, target: Option<&Tensor>, ret: &Ret) -> Result<()> {
        let fakes: Vec<Tensor> = ret.look().iter().copied().cloned().collect();
        let writes = target.is_some() || matches!(ret, Ret::Value(_));
        if !writes && fakes.iter().all(|t| t.numel() > 1) {
            return Ok(());
        }
        let args = self.0.borrow();
        let call = match target {
            Some(_) => Call::in_place(&args)?,
            None => Call::new(&args),
        };
        let real = unwatched(|| dispatch::call(call))?;
        for (fake, real) in fakes.iter().zip(real.look().iter()) {
            if target.is_none() && fake.numel() <= 1 && real.is_contiguous() {
                fake.storage().remember(real.storage());
            }
        }
        Ok(())
    }
}

/// What a call writes is not known any more.
fn forget(c: &Call, k: &KernelBody) {
    let gone = |t: &Tensor| t.storage().set_constant(None);
    for_each_written(c.args, &k.traits, gone);
    match &c.form {
        Form::New => {}
        Form::InPlace(target) | Form::Within(target) => gone(target),
        Form::Out(outs) => outs.iter().for_each(gone),
    }
}
