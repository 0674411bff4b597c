//! What operators give for quantised tensors: the layer of parts asks here.
//!
//! What only moves, orders or compares elements works on the integers. Everything else computes real numbers and rounds them; where
//! there are more elements than bytes, the 256 that a function of one element can give are computed, and looked up.

use crate::ops::core::args::{Arg, Args, OwnedArg};
use crate::ops::core::dispatch;
use crate::ops::core::helpers;
use crate::ops::core::op::{Ret, Value};
use crate::ops::f;
use crate::ops::quantize::clamped;
use crate::ops::quantize::parts::{Quantized, Uniform, in_order, number, range_of, with_quantizer};
use crate::parts::Parts;
use crate::{DType, MemoryFormat, Result, Scalar, Tensor, bail, ensure, err};

/// Elements from which on functions of one byte are looked up.
const TABLE_FROM: i64 = 512;

/// The result of a call with quantised tensors among its arguments; nothing if it is not known here.
///
/// # Errors
/// What the calls on its integers or real numbers report.
pub(crate) fn answer(args: &Args) -> Result<Option<Ret>> {
    let name = args.op.def.name;
    let mut packed = false;
    args.for_each_tensor(|_, t| packed |= t.dtype().is_quantized() && Quantized::of(t).is_none());
    if packed {
        return Ok(None);
    }
    match name {
        "cat" | "stack" => return joined(args, name == "stack").map(Some),
        "eq" | "ne" | "lt" | "le" | "gt" | "ge" => return by_reals(args).map(Some),
        "equal" => return same(args).map(Some),
        "copy" => return copied(args).map(Some),
        _ => {}
    }
    let Some(mut q) = args.tensor(0).ok().and_then(Quantized::of) else {
        return Ok(None);
    };
    if name == "empty_like" {
        return empty(args, q).map(one);
    }
    let Ok(u) = q.uniform(name) else {
        return filled_by_channel(args, &q);
    };
    let d = args.tensor(0)?.dtype();
    q.integers = in_order(&q.integers)?;
    match name {
        "flip" | "sort" | "sort#stable" | "topk" | "max" | "min" | "max#dim" | "min#dim"
        | "index" | "index_select" | "repeat" | "_pad_mode" => moved(args, &q, u).map(Some),
        "max_pool1d" | "max_pool2d" | "max_pool3d" => pooled(args, &q, u).map(Some),
        "relu" => {
            let bound = Scalar::Int(u.zero);
            u.over(&f::clamp_min(&q.integers, bound)?).map(one)
        }
        "clamp_min" | "clamp_max" | "_clamp" | "_nn.hardtanh" => bounded(args, &q, u, d).map(one),
        "sigmoid" | "_nn.hardsigmoid" => {
            let (low, high, _) = range_of(d)?;
            let zero = if d == DType::QI32 { 0 } else { low };
            mapped(args, &q, u, to_range(1.0, low, high, zero), d).map(one)
        }
        "tanh" => {
            let (low, high, _) = range_of(d)?;
            let zero = i64::from(d == DType::QU8) * 128;
            mapped(args, &q, u, to_range(2.0, low, high, zero), d).map(one)
        }
        "_nn.leaky_relu" | "threshold" => mapped(args, &q, u, u, d).map(one),
        "_nn.gelu" | "_nn.gelu#tanh" => {
            let scale = f64::from(u.scale as f32);
            mapped(args, &q, u, Uniform { scale, ..u }, d).map(one)
        }
        "nn.functional.avg_pool2d"
        | "nn.functional.avg_pool3d"
        | "_adaptive_avg_pool2d"
        | "_adaptive_avg_pool3d" => by_steps(args, &q, u, d).map(one),
        "mean" | "mean#dim" | "std" | "std#dim" | "std#correction" => u
            .of_reals(&with_first(args, &q.reals()?)?.one()?, d)
            .map(one),
        "grid_sampler_2d" => {
            d.check_kernel(d == DType::QU8, "grid_sampler_2d_cpu_kernel_impl")?;
            u.of_reals(&with_first(args, &q.reals()?)?.one()?, d)
                .map(one)
        }
        "_upsample" => resized(args, &q, u, d).map(Some),
        "fill" | "masked_fill" | "constant_pad_nd" => filled(args, &q, u, d).map(one),
        "masked_fill#tensor" | "index_put" => put(args, &q, u, d).map(one),
        _ => Ok(None),
    }
}

fn one(t: Tensor) -> Option<Ret> {
    Some(Ret::One(t))
}

/// A quantizer whose integers reach over numbers of a width.
fn to_range(width: f64, low: i64, high: i64, zero: i64) -> Uniform {
    Uniform {
        scale: width / (high - low + 1) as f64,
        zero,
    }
}

/// A tensor that nobody has written, with the quantizer of another.
fn empty(args: &Args, q: Quantized) -> Result<Tensor> {
    let own = args.tensor(0)?.dtype();
    let asked = args.dtype(1).unwrap_or(own);
    ensure!(
        asked == own,
        Runtime,
        "It is currently not supported to specify a dtype that doesn't match the input tensor's dtype via empty_like.  \
         Specified: {} Input tensor's dtype: c10::{}",
        asked.cpp_name(),
        own.name()
    );
    let mut owned = args.to_owned();
    owned.values[0] = OwnedArg::Tensor(q.integers);
    owned.values[1] = OwnedArg::Plain(Arg::None);
    with_quantizer(&dispatch::fresh(&owned.borrow())?.one()?, q.quantizer)
}

/// The call with another tensor in place of its first.
fn with_first(args: &Args, t: &Tensor) -> Result<Ret> {
    let mut owned = args.to_owned();
    owned.values[0] = OwnedArg::Tensor(t.clone());
    dispatch::fresh(&owned.borrow())
}

/// What the call gives for the integers, the first result being quantised as they are.
fn moved(args: &Args, q: &Quantized, u: Uniform) -> Result<Ret> {
    let mut all = with_first(args, &q.integers)?.tensors();
    let Some(first) = all.first_mut() else {
        bail!(Runtime, "{}(): expected a result", args.name());
    };
    *first = u.over(first)?;
    Ok(match all.len() {
        1 => Ret::One(all.remove(0)),
        _ => Ret::Tuple(all),
    })
}

/// What the call gives for the integers, as others where it does not take their type, in which they are exact: it chooses among
/// them.
fn chosen_in(args: &Args, q: &Quantized, u: Uniform, through: Option<DType>) -> Result<Ret> {
    let kept = q.integers.dtype();
    let wide = through.unwrap_or(kept);
    let made = with_first(args, &f::to_dtype(&q.integers, wide)?)?.one()?;
    u.over(&f::to_dtype(&made, kept)?).map(Ret::One)
}

/// The largest of windows.
fn pooled(args: &Args, q: &Quantized, u: Uniform) -> Result<Ret> {
    let through = match q.integers.dtype() {
        DType::I32 => Some(DType::F64),
        _ if args.op.def.name == "max_pool1d" => Some(DType::F32),
        _ => None,
    };
    chosen_in(args, q, u, through)
}

/// The integer that is nearest to a number.
fn integer(u: Uniform, v: Scalar, like: &Tensor, d: DType) -> Result<Scalar> {
    let v = number(v.to_f64(), like)?;
    helpers::item(&u.nearest(&v, d)?)
}

fn bounded(args: &Args, q: &Quantized, u: Uniform, d: DType) -> Result<Tensor> {
    let bound = |i: usize| integer(u, args.scalar(i)?, &q.integers, d);
    u.over(&match args.op.def.name {
        "clamp_min" => f::clamp_min(&q.integers, bound(1)?)?,
        "clamp_max" => f::clamp_max(&q.integers, bound(1)?)?,
        _ => clamped(
            &q.integers,
            bound(1)?.to_f64() as i64,
            bound(2)?.to_f64() as i64,
        )?,
    })
}

/// A function of single elements, whose results are quantised by `to`.
fn mapped(args: &Args, q: &Quantized, u: Uniform, to: Uniform, d: DType) -> Result<Tensor> {
    let kept = q.integers.dtype();
    // PyTorch's sigmoid takes the zero point off the integers, the others take it off the products.
    let reals = |integers: &Tensor| match args.op.def.name {
        "sigmoid" => u.reals(integers),
        _ => u.reals_once(integers),
    };
    if kept == DType::I32 || q.integers.numel() < TABLE_FROM {
        let made = with_first(args, &reals(&q.integers)?)?.one()?;
        return to.over(&to.rounded_first(&made, d)?);
    }
    let (low, high, _) = range_of(d)?;
    let all = f::NewEmpty::new(&q.integers, &[0i64][..])
        .dtype(DType::I32)
        .call()?;
    let all = f::cumsum(&f::NewOnes::new(&all, &[high - low + 1][..]).call()?, 0)?;
    let all = f::to_dtype(&f::add(&all, low - 1)?, kept)?;
    let made = with_first(args, &reals(&all)?)?.one()?;
    let table = to.rounded_first(&made, d)?;
    to.over(&f::_quantized_table(&q.integers, &table)?)
}

fn resized(args: &Args, q: &Quantized, u: Uniform, d: DType) -> Result<Ret> {
    let mode = args.str(2).unwrap_or("");
    if mode.starts_with("nearest") {
        let through = match q.integers.dtype() {
            DType::U8 => None,
            DType::I8 => Some(DType::F32),
            _ => Some(DType::F64),
        };
        return chosen_in(args, q, u, through);
    }
    ensure!(
        mode == "bilinear",
        NotImplemented,
        "interpolation of quantized tensors by mode {mode} is not computed; call dequantize() first"
    );
    let made = with_first(args, &f::to_dtype(&q.integers, DType::F32)?)?.one()?;
    steps_as(&f::sub(&made, u.zero)?, u, d).map(Ret::One)
}

/// Means of the steps from zero, which are whole numbers: so that halves are told from what is near them.
fn by_steps(args: &Args, q: &Quantized, u: Uniform, d: DType) -> Result<Tensor> {
    let whole = &q.integers;
    let mut steps = Uniform { scale: 1.0, ..u }.reals(whole)?;
    if args.op.def.name == "nn.functional.avg_pool3d" && steps.ndim() == 5 {
        let last = MemoryFormat::ChannelsLast3d;
        steps = f::Contiguous::new(&steps).memory_format(last).call()?;
    }
    steps_as(&with_first(args, &steps)?.one()?, u, d)
}

/// Steps from zero, rounded.
fn steps_as(steps: &Tensor, u: Uniform, d: DType) -> Result<Tensor> {
    let one = Uniform { scale: 1.0, ..u };
    u.over(&one.nearest(steps, d)?)
}

/// The call with its number as an integer.
fn filled(args: &Args, q: &Quantized, u: Uniform, d: DType) -> Result<Tensor> {
    let last = args.values.len() - 1;
    let value = integer(u, args.scalar(last)?, &q.integers, d)?;
    let mut owned = args.to_owned();
    owned.values[0] = OwnedArg::Tensor(q.integers.clone());
    owned.values[last] = OwnedArg::Plain(Arg::Scalar(value));
    u.over(&dispatch::fresh(&owned.borrow())?.one()?)
}

/// A number in the place of each element, as the quantizers of the channels have it; nothing for other calls.
fn filled_by_channel(args: &Args, q: &Quantized) -> Result<Option<Ret>> {
    if args.op.def.name != "fill" {
        return Ok(None);
    }
    let value = number(args.scalar(1)?.to_f64(), &q.integers)?;
    by_channel(
        &f::expand(&value, q.integers.shape())?,
        &q.quantizer,
        args.tensor(0)?.dtype(),
    )
    .map(one)
}

/// Real numbers as a quantizer of channels has them.
fn by_channel(numbers: &Tensor, quantizer: &Parts, d: DType) -> Result<Tensor> {
    let Parts::PerChannel {
        scales,
        zero_points,
        axis,
        ..
    } = quantizer
    else {
        bail!(Runtime, "expected a quantized tensor");
    };
    f::quantize_per_channel(numbers, scales, zero_points, *axis, d)
}

/// The call with its values as integers.
fn put(args: &Args, q: &Quantized, u: Uniform, d: DType) -> Result<Tensor> {
    let values = reals(args.tensor(2)?)?;
    let values = u.nearest(&f::to_dtype(&values, DType::F32)?, d)?;
    ensure!(
        !args.op.def.name.starts_with("index_put") || !args.bool(3),
        Runtime,
        "index_put for quantized tensors is currently not supported for accumulate=True"
    );
    let mut owned = args.to_owned();
    owned.values[0] = OwnedArg::Tensor(q.integers.clone());
    owned.values[2] = OwnedArg::Tensor(values);
    u.over(&dispatch::fresh(&owned.borrow())?.one()?)
}

/// The real numbers of a tensor: its own, if it is not quantised.
fn reals(t: &Tensor) -> Result<Tensor> {
    Quantized::of(t).map_or_else(|| Ok(t.clone()), |q| q.reals())
}

/// The call on real numbers, whatever its results are.
fn by_reals(args: &Args) -> Result<Ret> {
    let mut owned = args.to_owned();
    for value in &mut owned.values {
        if let OwnedArg::Tensor(t) = value {
            *t = reals(t)?;
        }
    }
    dispatch::fresh(&owned.borrow())
}

/// Tensors side by side, quantised as the first.
fn joined(args: &Args, stacked: bool) -> Result<Ret> {
    let tensors = args.tensors(0)?;
    let name = if stacked { "stack" } else { "cat" };
    let Some(first) = tensors.first() else {
        bail!(Runtime, "{name}(): expected a non-empty list of Tensors");
    };
    let uniform = |q: &Quantized| {
        q.uniform(name).map_err(|_| {
            err!(
                Runtime,
                "Only per-tensor quantization is supported in 'cat'!"
            )
        })
    };
    let u = uniform(&Quantized::expected(first, name)?)?;
    let mut parts = Vec::with_capacity(tensors.len());
    for t in tensors {
        let q = Quantized::expected(t, name)?;
        ensure!(
            t.dtype() == first.dtype(),
            Runtime,
            "All dtypes must be the same."
        );
        let own = uniform(&q)?;
        let integers = if own.scale == u.scale && own.zero == u.zero {
            q.integers
        } else {
            u.nearest(&q.reals()?, t.dtype())?
        };
        parts.push(integers);
    }
    let dim = args.int(1)?;
    let made = if stacked {
        f::Stack::new(&parts[..]).dim(dim).call()?
    } else {
        f::Cat::new(&parts[..]).dim(dim).call()?
    };
    u.over(&made).map(Ret::One)
}

/// Whether two plain tensors have the same elements.
fn alike(a: &Tensor, b: &Tensor) -> Result<bool> {
    match f::equal(a, b)? {
        Ret::Value(Value::Scalar(s)) => Ok(s.to_f64() != 0.0),
        _ => Ok(false),
    }
}

/// Whether two tensors have the same integers, and the same quantizer.
fn same(args: &Args) -> Result<Ret> {
    let (a, b) = (args.tensor(0)?, args.tensor(1)?);
    let (Some(a), Some(b)) = (Quantized::of(a), Quantized::of(b)) else {
        return Ok(Ret::Value(Value::Scalar(Scalar::Bool(false))));
    };
    let quantizers = match (&a.quantizer, &b.quantizer) {
        (
            Parts::PerTensor { scale, zero_point },
            Parts::PerTensor {
                scale: other,
                zero_point: zero,
            },
        ) => scale == other && zero_point == zero,
        (
            Parts::PerChannel {
                scales,
                zero_points,
                axis,
                ..
            },
            Parts::PerChannel {
                scales: others,
                zero_points: zeros,
                axis: along,
                ..
            },
        ) => axis == along && alike(scales, others)? && alike(zero_points, zeros)?,
        _ => false,
    };
    let same = quantizers
        && a.integers.dtype() == b.integers.dtype()
        && a.integers.shape() == b.integers.shape()
        && alike(&a.integers, &b.integers)?;
    Ok(Ret::Value(Value::Scalar(Scalar::Bool(same))))
}

/// What a copy into a quantised tensor makes of it: real numbers are quantised as it is, other quantised ones bring their quantizer.
fn copied(args: &Args) -> Result<Ret> {
    let (to, from) = (args.tensor(0)?, args.tensor(1)?);
    let Some(q) = Quantized::of(to) else {
        bail!(
            Runtime,
            "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use dequantize to get a float Tensor from a quantized Tensor"
        );
    };
    if let Some(other) = Quantized::of(from) {
        ensure!(
            to.dtype() == from.dtype(),
            Runtime,
            "Quantized Copy only works with the same data type: {} and {}",
            to.dtype().scalar_type(),
            from.dtype().scalar_type()
        );
        let integers = f::clone(&f::expand(&other.integers, to.shape())?)?;
        return with_quantizer(&integers, other.quantizer).map(Ret::One);
    }
    ensure!(
        from.dtype() == DType::F32,
        Runtime,
        "Quantized copy only works with kFloat as source Tensor"
    );
    let numbers = f::expand(from, to.shape())?;
    if let Ok(u) = q.uniform("copy") {
        return u.over(&u.nearest(&numbers, to.dtype())?).map(Ret::One);
    }
    by_channel(&numbers, &q.quantizer, to.dtype()).map(Ret::One)
}
