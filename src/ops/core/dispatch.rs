//! The choke point: every call of every op passes here, on every device.
//!
//! A call is resolved (lazy views, devices), its layout rule runs, results are allocated, and the kernel of
//! the device fills them. In-place and `out=` calls share the rule of the functional form. Meta is a device
//! whose kernels are absent.

use crate::layers;
use crate::ops::core::args::{Arg, Args};
use crate::ops::core::op::{Body, KernelBody, OutSpec, Plan, Ret};
use crate::{Device, DeviceKind, Dims, Result, Tensor, bail, dims, dtype, err, mode};
use smallvec::SmallVec;

/// Calls the functional form.
///
/// # Errors
/// Whatever the op's rule or kernel reports.
#[inline]
pub fn call(args: &Args) -> Result<Ret> {
    match args.op.def.body {
        Body::Kernel(ref k) => run_kernel(args, k, Dest::New),
        Body::View(f) | Body::Compose(f) => {
            if any_parts(args)
                && let Some(done) = crate::ops::core::composite::run(args)?
            {
                return Ok(done);
            }
            f(args)
        }
    }
}

/// Calls the in-place form: the result is written into argument 0.
///
/// # Errors
/// As [`call`], and if the result does not fit argument 0.
pub fn call_inplace(args: &Args) -> Result<()> {
    let target = args.tensor(0)?;
    check_writable(target)?;
    match args.op.def.body {
        Body::Kernel(ref k) => run_kernel(args, k, Dest::InPlace(target)).map(drop),
        Body::View(f) | Body::Compose(f) => {
            if any_parts(args) {
                return Err(crate::ops::core::composite::refusal(args));
            }
            let result = f(args)?.one()?;
            check_inplace_result(target, result.shape(), result.dtype())?;
            crate::ops::core::call::copy_(target, &result)
        }
    }
}

/// Calls with `out=`: results are written into `outs`, which are resized if their shape differs.
///
/// # Errors
/// As [`call`], and if a result cannot be cast to the dtype of its `out`.
pub fn call_out(args: &Args, outs: &mut [Tensor]) -> Result<()> {
    for out in outs.iter() {
        check_writable(out)?;
    }
    if let Some(with_dtype) = factory_dtype(args, outs)? {
        return call_out(&with_dtype, outs);
    }
    match args.op.def.body {
        Body::Kernel(ref k) => run_kernel(args, k, Dest::Out(outs)).map(drop),
        Body::View(f) | Body::Compose(f) => {
            if any_parts(args) {
                return Err(crate::ops::core::composite::refusal(args));
            }
            let results = f(args)?.tensors();
            for (out, result) in outs.iter_mut().zip(&results) {
                let spec = OutSpec {
                    shape: result.shape().clone(),
                    // A result may be a view, even an expanded one; what is written must be dense.
                    strides: dims::preserved_strides(result.shape(), result.strides()),
                    dtype: result.dtype(),
                };
                prepare_out(
                    out,
                    &spec,
                    result.device(),
                    args.op.has(crate::ops::core::op::X),
                )?;
                crate::ops::core::call::copy_(out, result)?;
            }
            Ok(())
        }
    }
}

/// The arguments of a factory call into `out` with that tensor's dtype, if none was asked for.
fn factory_dtype<'a>(args: &Args<'a>, outs: &[Tensor]) -> Result<Option<Args<'a>>> {
    let (Some(i), [out]) = (args.op.schema.position("dtype"), outs) else {
        return Ok(None);
    };
    let mut tensors = false;
    args.for_each_tensor(|_, _| tensors = true);
    if tensors || args.op.schema.position("requires_grad").is_none() {
        return Ok(None);
    }
    match args.dtype(i) {
        Some(d) if d == out.dtype() => Ok(None),
        Some(d) => bail!(
            Runtime,
            "dtype {} does not match dtype of out parameter ({})",
            d.scalar_type(),
            out.dtype().scalar_type()
        ),
        None => {
            let mut values = args.values.clone();
            values[i] = crate::ops::core::args::Arg::DType(out.dtype());
            Ok(Some(Args {
                op: args.op,
                values,
            }))
        }
    }
}

/// Where results go.
pub enum Dest<'a> {
    /// Into fresh tensors.
    New,
    /// Into argument 0.
    InPlace(&'a Tensor),
    /// Into tensors that the caller gave.
    Out(&'a mut [Tensor]),
}

#[inline]
fn run_kernel(args: &Args, k: &KernelBody, dest: Dest) -> Result<Ret> {
    let seen = survey(args, k)?;
    if seen.parts {
        return match crate::ops::core::composite::run(args)? {
            Some(done) if matches!(dest, Dest::New) => Ok(done),
            _ => Err(crate::ops::core::composite::refusal(args)),
        };
    }
    if seen.lazy && !k.traits.lazy_aware {
        return with_resolved(args, |args| run_kernel(args, k, dest));
    }
    if seen.sourced || layers::active() {
        return layers::record::run(args, k, dest, seen.device);
    }
    run_plain(args, k, dest, seen.device)
}

/// Runs a kernel call without looking at layers; `device` is where the arguments are.
///
/// # Errors
/// Whatever the rule or kernel reports.
#[inline]
pub fn run_plain(args: &Args, k: &KernelBody, dest: Dest, device: Option<Device>) -> Result<Ret> {
    let plan = (k.infer)(args)?;
    let device = match plan.device {
        Some(d) => d.canonical(),
        None => device.unwrap_or(Device::CPU),
    };
    match dest {
        Dest::New => {
            if k.traits.data_dependent && device.is_meta() {
                return Err(data_dependent(args));
            }
            let mut specs = plan.outs;
            if specs.len() == 1
                && let Some(spec) = specs.pop()
            {
                let out = allocate(spec, device)?;
                execute(args, k, std::slice::from_ref(&out), device)?;
                return Ok(Ret::One(out));
            }
            let outs = specs
                .into_iter()
                .map(|spec| allocate(spec, device))
                .collect::<Result<Vec<_>>>()?;
            execute(args, k, &outs, device)?;
            Ok(Ret::Tuple(outs))
        }
        Dest::InPlace(target) => {
            let Some(spec) = plan.outs.into_iter().next() else {
                bail!(Runtime, "{} has no result", args.name())
            };
            check_inplace_result(target, &spec.shape, spec.dtype)?;
            write_into(args, k, spec, target, device)?;
            target.storage().bump();
            Ok(Ret::One(target.clone()))
        }
        Dest::Out(outs) => {
            if k.traits.data_dependent && device.is_meta() {
                return Err(data_dependent(args));
            }
            for (out, spec) in outs.iter_mut().zip(&plan.outs) {
                prepare_out(out, spec, device, args.op.has(crate::ops::core::op::X))?;
            }
            let direct = outs
                .iter()
                .zip(&plan.outs)
                .all(|(o, s)| o.dtype() == s.dtype && writable_directly(args, k, o));
            if direct {
                execute(args, k, outs, device)?;
            } else {
                let mut fresh: SmallVec<[Tensor; 3]> = SmallVec::new();
                for spec in plan.outs {
                    fresh.push(allocate(spec, device)?);
                }
                execute(args, k, &fresh, device)?;
                for (out, result) in outs.iter().zip(&fresh) {
                    crate::ops::core::call::copy_(out, result)?;
                }
            }
            outs.iter().for_each(|o| o.storage().bump());
            Ok(Ret::Tuple(Vec::new()))
        }
    }
}

/// Writes a result into an existing tensor, directly where that is safe.
fn write_into(
    args: &Args,
    k: &KernelBody,
    spec: OutSpec,
    target: &Tensor,
    device: Device,
) -> Result<()> {
    if k.traits.data_dependent && device.is_meta() {
        return Err(data_dependent(args));
    }
    if spec.dtype == target.dtype()
        && (k.traits.lazy_aware || !target.is_lazy())
        && writable_directly(args, k, target)
    {
        return execute(args, k, std::slice::from_ref(target), device);
    }
    let fresh = allocate(spec, device)?;
    execute(args, k, std::slice::from_ref(&fresh), device)?;
    crate::ops::core::call::copy_(target, &fresh)
}

/// A pointwise kernel may write over an operand of exactly the same layout; any other shared memory needs a detour.
fn writable_directly(args: &Args, k: &KernelBody, target: &Tensor) -> bool {
    let mut safe = true;
    args.for_each_tensor(|i, t| {
        if t.shares_storage(target) && target.numel() > 0 {
            let same = t.offset() == target.offset()
                && t.dtype() == target.dtype()
                && t.shape() == target.shape()
                && t.strides() == target.strides();
            safe &= same && (k.traits.pointwise || (i == 0 && k.traits.updates));
        }
    });
    safe
}

#[inline]
fn execute(args: &Args, k: &KernelBody, outs: &[Tensor], device: Device) -> Result<()> {
    match device.kind {
        DeviceKind::Meta => Ok(()),
        DeviceKind::Cpu => (k.cpu)(args, outs),
        DeviceKind::Cuda => match k.cuda {
            Some(kernel) => kernel(args, outs),
            None => bail!(NotImplemented, "{}() has no CUDA kernel yet", args.name()),
        },
    }
}

#[inline]
fn allocate(spec: OutSpec, device: Device) -> Result<Tensor> {
    let t = Tensor::empty_strided(spec.shape, spec.strides, spec.dtype, device)?;
    Ok(if mode::inference() {
        t.with_inference(true)
    } else {
        t
    })
}

struct Seen {
    device: Option<Device>,
    lazy: bool,
    sourced: bool,
    parts: bool,
}

/// Finds the common device, and whether anything special is among the arguments.
#[inline]
fn survey(args: &Args, k: &KernelBody) -> Result<Seen> {
    let mut seen = Seen {
        device: None,
        lazy: false,
        sourced: false,
        parts: false,
    };
    let mut scalar_device = None;
    let mut clash = None;
    let mut parts = false;
    args.for_each_tensor(|i, t| {
        seen.lazy |= t.is_lazy();
        parts |= t.has_parts();
        seen.sourced |= t.storage().is_sourced() && t.is_meta();
        let d = t.device();
        let bit = 1u16 << i.min(15);
        if k.traits.any_device & bit != 0 {
            return;
        }
        if d.is_cpu() && (t.ndim() == 0 || k.traits.index_args & bit != 0) {
            scalar_device = Some(d);
            return;
        }
        match seen.device {
            None => seen.device = Some(d),
            Some(first) if first == d => {}
            Some(first) => {
                clash.get_or_insert((first, d));
            }
        }
    });
    seen.parts = parts;
    if parts {
        return Ok(seen);
    }
    if let Some((first, other)) = clash {
        return Err(device_clash(first, other));
    }
    // A host tensor that was only let in as an index or scalar still decides if nothing else does.
    if let (Some(d), true) = (seen.device, k.traits.index_args != 0) {
        let mut wrong = None;
        args.for_each_tensor(|i, t| {
            if k.traits.index_args & (1 << i.min(15)) == 0
                && t.ndim() > 0
                && t.device() != d
                && k.traits.any_device == 0
            {
                wrong = Some(t.device());
            }
        });
        if let Some(other) = wrong {
            return Err(device_clash(d, other));
        }
    }
    if seen.device.is_none() {
        seen.device = scalar_device;
    }
    Ok(seen)
}

/// True if a sparse, nested or quantised tensor is among the arguments, which is more than its strides say.
#[inline]
fn any_parts(args: &Args) -> bool {
    let mut any = false;
    args.for_each_tensor(|_, t| any |= t.has_parts());
    any
}

#[cold]
fn device_clash(first: Device, other: Device) -> crate::Error {
    if first.is_meta() || other.is_meta() {
        err!(
            Runtime,
            "Tensor on device {other} is not on the expected device {first}!"
        )
    } else {
        err!(
            Runtime,
            "Expected all tensors to be on the same device, but found at least two devices, {first} and {other}!"
        )
    }
}

#[cold]
pub(crate) fn data_dependent(args: &Args) -> crate::Error {
    let name = args.name();
    err!(
        NotImplemented,
        "{name}(): the shape of the result depends on the values of its input, and meta tensors have none. \
         Call {name}() on real data, or materialize() the input first."
    )
}

#[cold]
fn with_resolved(args: &Args, f: impl FnOnce(&Args) -> Result<Ret>) -> Result<Ret> {
    let mut owned = args.to_owned();
    let mut result = Ok(());
    owned.for_each_tensor_mut(|t| {
        if t.is_lazy() {
            match crate::ops::core::call::resolve(t) {
                Ok(real) => *t = real,
                Err(e) => result = Err(e),
            }
        }
    });
    result?;
    f(&owned.borrow())
}

/// Refuses writes that PyTorch refuses whatever the op.
///
/// # Errors
/// PyTorch's texts for leaves that require gradients and for expanded targets.
pub fn check_writable(target: &Tensor) -> Result<()> {
    if target.requires_grad() && mode::grad_enabled() {
        bail!(
            Runtime,
            "a leaf Variable that requires grad is being used in an in-place operation."
        );
    }
    if target.has_internal_overlap() {
        bail!(
            Runtime,
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. \
             Please clone() the tensor before performing the operation."
        );
    }
    Ok(())
}

pub(crate) fn check_inplace_result(
    target: &Tensor,
    shape: &Dims,
    result: crate::DType,
) -> Result<()> {
    if target.shape() != shape {
        bail!(
            Runtime,
            "output with shape {} doesn't match the broadcast shape {shape}",
            target.shape()
        );
    }
    check_cast(result, target.dtype())
}

fn check_cast(from: crate::DType, to: crate::DType) -> Result<()> {
    if !dtype::can_cast(from, to) {
        bail!(
            Runtime,
            "result type {} can't be cast to the desired output type {}",
            from.scalar_type(),
            to.scalar_type()
        );
    }
    Ok(())
}

/// Gives an `out=` tensor the shape of the result.
fn prepare_out(out: &mut Tensor, spec: &OutSpec, device: Device, exact: bool) -> Result<()> {
    if out.device() != device {
        if out.device().is_meta() || device.is_meta() {
            bail!(
                Runtime,
                "Attempting to copy from device {device} to device {}, but cross-device copies are not allowed!",
                out.device()
            );
        }
        bail!(
            Runtime,
            "Expected out tensor to have device {device}, but got {} instead",
            out.device()
        );
    }
    if exact && out.dtype() != spec.dtype {
        bail!(
            Runtime,
            "Expected out tensor to have dtype {}, but got {} instead",
            spec.dtype.cpp_name(),
            out.dtype().cpp_name()
        );
    }
    check_cast(spec.dtype, out.dtype())?;
    if *out.shape() != spec.shape {
        resize(out, &spec.shape, Some(&spec.strides))?;
    }
    Ok(())
}

/// Gives a tensor another shape, growing its storage if needed (`resize_`).
///
/// # Errors
/// If the storage cannot grow.
pub fn resize(t: &mut Tensor, shape: &[i64], strides: Option<&Dims>) -> Result<()> {
    let strides = strides
        .cloned()
        .unwrap_or_else(|| dims::contiguous_strides(shape));
    dims::numel(shape)?;
    let need = dims::storage_bytes(shape, &strides, t.offset(), t.dtype().size())?;
    if need > t.storage().nbytes() {
        t.storage().resize(need)?;
    }
    let (conj, neg) = (t.is_conj(), t.is_neg());
    *t = Tensor::from_parts(
        t.storage().clone(),
        Dims::new(shape),
        strides,
        t.offset(),
        t.dtype(),
    )
    .with_requires_grad(t.requires_grad())
    .with_conj(conj)
    .with_neg(neg);
    Ok(())
}

/// Calls an op by values in schema order; defaults fill the rest.
///
/// # Errors
/// As [`call`].
pub fn run(op: &'static crate::ops::core::op::Op, values: &[Arg]) -> Result<Ret> {
    call(&Args::new(op, values.iter().cloned())?)
}

impl Plan {
    /// The same plan on a device of its own (factories and copies).
    #[must_use]
    pub fn on(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }
}
