//! The door: every call of every operator passes here, in every form and on every device.
//!
//! [`call`] looks once at the arguments and at what the thread has switched on. If anything wants to see the call,
//! the layers take it in their order; otherwise, and after the last of them, [`below`] runs the body: a kernel's rule and
//! kernel, a view's plan, or a composite, whose own calls come through the door again.

use crate::fake::FakeMode;
use crate::ops::core::args::{Arg, Args};
use crate::ops::core::call::{Call, Form};
use crate::ops::core::op::{Body, D, KernelBody, O, Op, Ret};
use crate::ops::core::place::{Placing, place, prepare_out};
use crate::ops::core::plan::{OutSpec, ViewPlan, Views};
use crate::ops::core::schema::Returns;
use crate::ops::core::survey::{Seen, Survey, glance, survey};
use crate::ops::core::typed::tensor_of;
use crate::ops::core::{by_host, helpers, scratch, writable};
use crate::{Device, DeviceKind, Result, Tensor, bail, captured, dims, ensure, err, wiring};
use std::sync::Arc;

/// Passes a call through the door.
///
/// # Errors
/// Whatever the layers, the operator's rule or its kernel report.
// The door is one function, with all that a plain call needs in it: copies of it in every caller would be no faster.
#[inline(never)]
pub fn call(c: Call) -> Result<Ret> {
    let mut seen = glance(c.args);
    match &c.form {
        Form::Out(outs) => {
            outs.iter().for_each(|out| seen.flags |= out.glance());
            if let Some(args) = dtype_of_out(c.args, outs)? {
                return with_args(c, &args);
            }
        }
        Form::InPlace(target) if captured::is_looking() && captured::holds(target) => {
            return Err(wiring::captured(&c));
        }
        _ => {}
    }
    if seen.watched() {
        return wiring::watched(c, seen);
    }
    body(c, seen)
}

/// Passes a call with other arguments through the door.
#[cold]
fn with_args(c: Call, args: &Args) -> Result<Ret> {
    call(Call { args, form: c.form })
}

/// Runs a call that no layer wants to see any more.
///
/// # Errors
/// As [`call`].
pub fn below(c: Call) -> Result<Ret> {
    let seen = glance(c.args);
    body(c, seen)
}

/// Runs the body of a call; `seen` are its arguments.
#[inline(always)]
pub(crate) fn body(c: Call, seen: Seen) -> Result<Ret> {
    match c.args.op.def.body {
        Body::Kernel(ref k) => prepared(c, k, seen, |c, found| run_plain(c, k, &found)),
        Body::View(rule) => view(c, rule),
        Body::Become(f) => {
            let target = c.args.tensor(0)?;
            let made = f(c.args)?;
            if !made.lies_as(target) {
                made.bump();
            }
            Ok(Ret::Become(Box::new(made)))
        }
        Body::Forward(f) => {
            let args = f(c.args)?;
            with_args(c, &args.borrow())
        }
        Body::Compose(f) => composite(c, f),
    }
}

/// A call by values in schema order; defaults fill the rest.
///
/// # Errors
/// As [`call`].
pub fn run(op: &'static Op, values: &[Arg]) -> Result<Ret> {
    fresh(&Args::new(op, values.iter().cloned())?)
}

/// A call of the functional form; where its result is an argument, that tensor.
///
/// # Errors
/// As [`call`].
pub fn fresh(args: &Args) -> Result<Ret> {
    Ok(match call(Call::new(args))? {
        Ret::Same(i) => Ret::One(args.same(i)?.clone()),
        ret => ret,
    })
}

/// Checks targets and devices of a kernel call, resolves lazy arguments, and hands on where the data is.
///
/// # Errors
/// If a target may not be written, or devices differ.
#[inline]
pub(crate) fn prepared(
    c: Call,
    k: &KernelBody,
    seen: Seen,
    f: impl FnOnce(Call, Survey) -> Result<Ret>,
) -> Result<Ret> {
    writable::check(&c, &k.traits)?;
    let found = survey(c.args, &k.traits, seen)?;
    if found.lazy && !k.traits.lazy_aware {
        return with_resolved(c, |c| f(c, found));
    }
    f(c, found)
}

/// Runs a kernel call without looking at layers.
///
/// # Errors
/// Whatever the rule or kernel reports.
#[inline]
pub fn run_plain(c: Call, k: &KernelBody, found: &Survey) -> Result<Ret> {
    run_in(c, k, found, None)
}

/// As [`run_plain`], in a fake mode if there is one: then the kernel's rule is all that runs.
#[inline]
pub(crate) fn run_in(
    c: Call,
    k: &KernelBody,
    found: &Survey,
    fake: Option<&Arc<FakeMode>>,
) -> Result<Ret> {
    if let Some(device) = found.device
        && device.is_accelerator()
        && k.traits.data_dependent
        && fake.is_none()
    {
        return by_host::whole(c, k, found, device);
    }
    let Call { args, form } = c;
    let mut form = Some(form);
    let made = (k.run)(args, &mut |mut plan, exec| {
        let device = match plan.device {
            Some(d) => d.canonical(),
            None => found.device.unwrap_or(Device::CPU),
        };
        let form = form.take().unwrap_or(Form::New);
        if k.traits.data_dependent && (device.is_meta() || fake.is_some()) {
            return Err(data_dependent(args));
        }
        let placing = Placing {
            traits: &k.traits,
            device,
            inference: found.inference,
            direct_out: true,
            fake,
        };
        place(
            args,
            &placing,
            &mut plan,
            form,
            &mut |outs, _| match device.kind {
                DeviceKind::Cpu if fake.is_some() => scratch::note(&k.traits, exec, outs),
                _ if fake.is_some() => Ok(()),
                DeviceKind::Meta => Ok(()),
                DeviceKind::Cpu => {
                    (exec.values)()?;
                    (exec.cpu)(outs)
                }
                DeviceKind::Cuda => match exec.cuda {
                    Some(kernel) => {
                        (exec.values)()?;
                        kernel(outs)
                    }
                    None => by_host::fill(args, k, outs),
                },
            },
        )
    });
    made.map_err(|e| writable::without_kernel(args, k, form.as_ref(), e))
}

/// Runs a view's rule and makes its tensors.
fn view(c: Call, rule: fn(&Args) -> Result<Views>) -> Result<Ret> {
    let base = c.args.tensor(0)?;
    match c.form {
        Form::New => Ok(match rule(c.args)? {
            Views::Same => Ret::Same(0),
            Views::One(plan) => Ret::One(base.viewed(&plan)?),
            Views::List(plans) => Ret::List(
                plans
                    .into_iter()
                    .map(|p| Ok(base.viewed(&p)?.one_of_several()))
                    .collect::<Result<_>>()?,
            ),
        }),
        Form::InPlace(_) | Form::Within(_) => {
            writable::check_leaf(base)?;
            let made = match rule(c.args)? {
                Views::Same => base.clone(),
                Views::One(plan) => base.viewed(&plan)?.in_place_of(base),
                Views::List(_) => bail!(Runtime, "{}_ has several results", c.args.name()),
            };
            base.bump();
            made.lies_anew();
            Ok(Ret::Become(Box::new(made)))
        }
        Form::Out(outs) => {
            let result = call(Call::new(c.args))?.tensors();
            write_out(c.args, result, outs)
        }
    }
}

fn composite(c: Call, f: fn(&Args) -> Result<Ret>) -> Result<Ret> {
    match c.form {
        Form::New => f(c.args),
        Form::InPlace(target) | Form::Within(target) => {
            writable::check_leaf(target)?;
            let result = f(c.args)?;
            if matches!(result, Ret::Same(0)) {
                target.bump();
                return Ok(result);
            }
            let result = tensor_of(result, c.args)?;
            writable::check_target(target)?;
            writable::check_overlap(c.args, false, target)?;
            writable::check_result(c.args, target, result.shape(), result.dtype())?;
            writable::check_exact(c.args, target, result.dtype())?;
            helpers::copy_(target, &result)?;
            Ok(Ret::Same(0))
        }
        Form::Out(outs) => {
            for out in outs.iter() {
                writable::check_target(out)?;
                writable::check_overlap(c.args, false, out)?;
            }
            let results = match f(c.args)? {
                Ret::Same(i) => vec![c.args.same(i)?.clone()],
                ret => ret.tensors(),
            };
            write_out(c.args, results, outs)
        }
    }
}

/// Copies results into tensors that the caller gave.
pub(crate) fn write_out(args: &Args, results: Vec<Tensor>, outs: &mut [Tensor]) -> Result<Ret> {
    if args.op.schema.returns == Returns::List {
        let name = args.name().trim_start_matches('_');
        ensure!(
            args.op.has(O),
            Runtime,
            "{name} does not support the out kwarg when as_tuple is True"
        );
        ensure!(
            results.len() == outs.len(),
            Runtime,
            "{name}_out() expected an out= argument of size {}, got size {}",
            results.len(),
            outs.len()
        );
    }
    for (nr, (out, result)) in outs.iter_mut().zip(&results).enumerate() {
        let spec = OutSpec {
            shape: result.shape().clone(),
            // A result may be a view, even an expanded one; what is written must be dense.
            strides: dims::preserved_strides(result.shape(), result.strides()),
            dtype: result.dtype(),
        };
        prepare_out(args, nr, out, &spec, result.device())?;
        helpers::copy_(out, result)?;
    }
    Ok(Ret::Tuple(Vec::new()))
}

/// The arguments of a call that computes in the dtype of `out`, if none was asked for: of a factory, or a sum.
fn dtype_of_out<'a>(args: &Args<'a>, outs: &[Tensor]) -> Result<Option<Args<'a>>> {
    let [out] = outs else { return Ok(None) };
    if !args.op.has(D) && args.op.schema.position("requires_grad").is_none() {
        return Ok(None);
    }
    let Some(i) = args.op.schema.position("dtype") else {
        return Ok(None);
    };
    let (mut tensors, mut integers) = (false, false);
    args.for_each_tensor(|_, t| (tensors, integers) = (true, t.dtype().is_integral(true)));
    match args.dtype(i) {
        _ if tensors && !args.op.has(D) => Ok(None),
        // Means refuse integers, whatever they are written to.
        None if integers && args.op.public_name() == "mean" => Ok(None),
        Some(d) if d != out.dtype() && args.op.public_name() == "nansum" => bail!(
            Runtime,
            "nansum: provided dtype must match dtype of result. Got {} and {}.",
            out.dtype().scalar_type(),
            d.scalar_type()
        ),
        Some(d) if d == out.dtype() => Ok(None),
        Some(d) => bail!(
            Runtime,
            "Expected out tensor to have dtype {}, but got {} instead",
            d.cpp_name(),
            out.dtype().cpp_name()
        ),
        None => {
            let mut values = args.values.clone();
            values[i] = Arg::DType(out.dtype());
            Ok(Some(Args {
                op: args.op,
                values,
            }))
        }
    }
}

#[cold]
pub(crate) fn data_dependent(args: &Args) -> crate::Error {
    unknown_shape(args.name())
}

/// That the shape of an operator's result cannot be known without the values of its input.
#[cold]
pub(crate) fn unknown_shape(name: &str) -> crate::Error {
    err!(
        Shape,
        "{name}(): the shape of the result depends on the values of its input, and meta tensors have none. \
         Call {name}() on real data, or materialize() the input first."
    )
}

#[cold]
fn with_resolved(c: Call, f: impl FnOnce(Call) -> Result<Ret>) -> Result<Ret> {
    let mut owned = c.args.to_owned();
    owned.replace_tensors(|_, t| t.is_lazy().then(|| helpers::resolve(t)).transpose())?;
    let args = owned.borrow();
    f(Call {
        args: &args,
        form: c.form,
    })
}

impl Tensor {
    /// Another look at the same storage, checked to lie within it.
    ///
    /// # Errors
    /// If it reaches outside.
    #[inline]
    fn viewed(&self, plan: &ViewPlan) -> Result<Self> {
        if plan.bytes()? > self.storage().nbytes() && !self.storage().is_opaque() {
            return Err(self.outside(plan));
        }
        Ok(self.look(plan))
    }

    #[cold]
    fn outside(&self, plan: &ViewPlan) -> crate::Error {
        err!(
            Runtime,
            "setStorage: sizes {}, strides {}, storage offset {}, and itemsize {} requiring a storage size of {} are out of \
             bounds for storage of size {}",
            plan.shape,
            plan.strides,
            plan.offset,
            plan.dtype.size(),
            plan.bytes().unwrap_or(usize::MAX),
            self.storage().nbytes()
        )
    }
}
