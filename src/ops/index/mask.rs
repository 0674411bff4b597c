//! Masks and conditions: where, masked_*; writes into a view's place (`*_scatter`).

use crate::cpu::index::{self as cpu_index, Lay};
use crate::ops::core::args::{Arg, Args};
use crate::ops::core::dispatch;
use crate::ops::core::helpers;
use crate::ops::core::op::{F, FM, FMO, I, KernelBody, M, O, OpDef, OutSpec, Plan, X, kernel};
use crate::ops::index::along::{apart, out_of_range, start};
use crate::ops::index::getitem::count;
use crate::ops::pointwise::rule::{result_layout, result_type, scalar_of};
use crate::{DType, Dims, Result, Scalar, Tensor, cpu, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "masked_fill#tensor",
        "(Tensor self, Tensor mask, Tensor value)",
        FM | I,
        KernelBody::new(infer_masked_fill, masked_fill).updates(),
        "`self` with a 0-dimensional tensor's value where `mask` is true.",
    ),
    kernel(
        "masked_fill",
        "(Tensor self, Tensor mask, Scalar value)",
        FM | I,
        KernelBody::new(infer_masked_fill, masked_fill).updates(),
        "`self` with a number where `mask` is true.",
    ),
    kernel(
        "masked_select",
        "(Tensor self, Tensor mask)",
        FMO,
        KernelBody::new(infer_masked_select, masked_select),
        "The elements where `mask` is true, in one dimension.",
    ),
    kernel(
        "masked_scatter",
        "(Tensor self, Tensor mask, Tensor source)",
        FM | I,
        KernelBody::new(infer_masked_scatter, masked_scatter).updates(),
        "`self` with the elements of `source` in order where `mask` is true.",
    ),
    kernel(
        "where",
        "(Tensor condition, Operand self, Operand other)",
        F | O,
        KernelBody::new(|a| infer_where(a, 0, 1, 2), |a, o| where_cpu(a, o, 0, 1, 2))
            .cuda(|a, o| crate::cuda::map::choose(a, o, [0, 1, 2]))
            .pointwise(),
        "`self` where the condition holds, else `other`.",
    ),
    kernel(
        "where#method",
        "(Tensor self, Tensor condition, Operand other)",
        M,
        KernelBody::new(|a| infer_where(a, 1, 0, 2), |a, o| where_cpu(a, o, 1, 0, 2))
            .cuda(|a, o| crate::cuda::map::choose(a, o, [1, 0, 2]))
            .pointwise(),
        "`self` where the condition holds, else `other`.",
    ),
    kernel(
        "select_scatter",
        "(Tensor self, Tensor src, int dim, int index)",
        FMO | X,
        KernelBody::new(|a| infer_place(a, a.tensor(0)?), place),
        "`self` with `src` written at one index of a dimension.",
    ),
    kernel(
        "slice_scatter",
        "(Tensor self, Tensor src, int dim=0, int? start=None, int? end=None, int step=1)",
        FMO | X,
        KernelBody::new(|a| infer_place(a, a.tensor(0)?), place),
        "`self` with `src` written to a range of a dimension.",
    ),
    kernel(
        "diagonal_scatter",
        "(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1)",
        FMO | X,
        KernelBody::new(|a| infer_place(a, a.tensor(0)?), place),
        "`self` with `src` written on a diagonal.",
    ),
    kernel(
        "as_strided_scatter",
        "(Tensor self, Tensor src, int[] size, int[] stride, int? storage_offset=None)",
        FMO | X,
        KernelBody::new(|a| infer_place(a, a.tensor(0)?), place),
        "`self` with `src` written to a strided layout of its memory.",
    ),
];

/// The name of a type in range errors.
fn c_name(d: DType) -> &'static str {
    match d {
        DType::U8 => "uint8_t",
        DType::I8 => "int8_t",
        DType::I16 => "int16_t",
        DType::I64 => "int64_t",
        other => other.cpp_name(),
    }
}

/// Whether a number can be converted to a type without overflow, by PyTorch's rules.
fn fits(s: Scalar, d: DType) -> bool {
    let (lo, hi) = match d {
        DType::U8 => (-255.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::I16 => (-32768.0, 32767.0),
        DType::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        DType::F16 => (-65504.0, 65504.0),
        DType::BF16 => (-3.389_531_389_251_535_5e38, 3.389_531_389_251_535_5e38),
        DType::F32 => (-f64::from(f32::MAX), f64::from(f32::MAX)),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    };
    if let Scalar::Complex(c) = s
        && !d.is_complex()
    {
        return c.im == 0.0 && fits(Scalar::Float(c.re), d);
    }
    let v = s.to_f64();
    d == DType::Bool || (d.is_float() && !v.is_finite()) || (v >= lo && v <= hi)
}

/// Refuses a number that a dtype cannot hold.
///
/// # Errors
/// PyTorch's text.
pub fn check_fits(s: Scalar, d: DType) -> Result<()> {
    ensure!(
        fits(s, d),
        Runtime,
        "value cannot be converted to type {} without overflow",
        c_name(d)
    );
    Ok(())
}

fn infer_masked_fill(a: &Args) -> Result<Plan> {
    let (t, mask) = (a.tensor(0)?, a.tensor(1)?);
    let shape = dims::broadcast(mask.shape(), t.shape())?;
    let shown = mask.dtype().cpp_name();
    ensure!(
        mask.dtype() == DType::Bool,
        Runtime,
        "masked_fill_ only supports boolean masks, but got mask with dtype {shown}"
    );
    match a.opt_tensor(2) {
        Some(v) => {
            ensure!(
                v.ndim() == 0,
                Runtime,
                "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {} dimension(s).",
                v.ndim()
            );
            ensure!(
                !v.dtype().is_complex() || t.dtype().is_complex(),
                Runtime,
                "value cannot be converted to type {} without overflow",
                c_name(t.dtype())
            );
        }
        None => check_fits(a.scalar(2)?, t.dtype())?,
    }
    Ok(Plan::contiguous(&shape, t.dtype()))
}

fn masked_fill(a: &Args, outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    start(out, a.tensor(0)?)?;
    let mut bits = [0u64; 2];
    let value = match a.opt_tensor(2) {
        Some(v) => helpers::item(v)?,
        None => a.scalar(2)?,
    };
    cpu::write_scalar(&mut bits, out.dtype(), value);
    if out.dtype() == DType::C32 {
        let one = cpu::copy::converted(&Tensor::scalar(value, DType::C64)?, DType::C32)?;
        cpu_index::choose(
            out,
            &Lay::of(a.tensor(1)?, out.shape()),
            &Lay::of(&one, out.shape()),
            &Lay::of(out, out.shape()),
        );
        return Ok(());
    }
    cpu_index::fill_where(out, a.tensor(1)?, &bits);
    Ok(())
}

/// The true elements of a mask read with another shape.
fn spread(mask: &Tensor, shape: &[i64]) -> Result<Tensor> {
    cpu::copy::dense(&mask.expand_to(shape), DType::Bool)
}

fn infer_masked_select(a: &Args) -> Result<Plan> {
    let (t, mask) = (a.tensor(0)?, a.tensor(1)?);
    ensure!(
        matches!(mask.dtype(), DType::Bool),
        Runtime,
        "masked_select: expected BoolTensor for mask"
    );
    let shape = dims::broadcast(mask.shape(), t.shape())?;
    let Ok(n) = count(mask) else {
        return Err(dispatch::data_dependent(a));
    };
    let repeats = if mask.numel() == 0 {
        0
    } else {
        dims::numel(&shape)? / mask.numel()
    };
    Ok(Plan::contiguous(&[n * repeats], t.dtype()))
}

fn masked_select(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, mask, out) = (a.tensor(0)?, a.tensor(1)?, &outs[0]);
    let shape = dims::broadcast(mask.shape(), t.shape())?;
    let places = cpu_index::true_places(&spread(mask, &shape)?, usize::MAX);
    let src = cpu::copy::dense(&t.expand_to(&shape), t.dtype())?;
    let index = Tensor::from_slice(&places, &[places.len() as i64])?;
    pick_flat(out, &src, &index)
}

/// `out[i] = src[index[i]]` over all elements of a dense tensor.
fn pick_flat(out: &Tensor, src: &Tensor, index: &Tensor) -> Result<()> {
    let item = src.dtype().size();
    let axis = cpu_index::Axis {
        step: item as isize,
        size: src.numel(),
        wrap: false,
    };
    let base = Lay {
        ptr: src.data_ptr(),
        strides: Dims::filled(1, 0),
    };
    let bad = cpu_index::gather(
        index.shape(),
        &Lay::of(out, index.shape()),
        &base,
        &Lay::of(index, index.shape()),
        item,
        axis,
    );
    bad.map_or(Ok(()), |_| Err(out_of_range()))
}

fn infer_masked_scatter(a: &Args) -> Result<Plan> {
    let (t, mask, source) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
    let shape = dims::broadcast(mask.shape(), t.shape())?;
    ensure!(
        mask.dtype() == DType::Bool,
        Runtime,
        "masked_scatter_ only supports boolean masks, but got mask with dtype {}",
        mask.dtype().scalar_type()
    );
    ensure!(
        t.dtype() == source.dtype(),
        Runtime,
        "masked_scatter: expected self and source to have same dtypes but got{} and {}",
        t.dtype().scalar_type(),
        source.dtype().scalar_type()
    );
    Ok(Plan::contiguous(&shape, t.dtype()))
}

fn masked_scatter(a: &Args, outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    let source = apart(a.tensor(2)?, out)?;
    let source = cpu::copy::dense(&source, source.dtype())?;
    let places = cpu_index::true_places(&spread(a.tensor(1)?, out.shape())?, usize::MAX);
    ensure!(
        places.len() as i64 <= source.numel(),
        Runtime,
        "Number of elements of source < number of ones in mask"
    );
    start(out, a.tensor(0)?)?;
    let work = if out.is_contiguous() {
        out.clone()
    } else {
        cpu::copy::dense(out, out.dtype())?
    };
    let index = Tensor::from_slice(&places, &[places.len() as i64])?;
    let item = out.dtype().size();
    let axis = cpu_index::Axis {
        step: item as isize,
        size: out.numel(),
        wrap: false,
    };
    let line = |t: &Tensor, step: i64| Lay {
        ptr: t.data_ptr(),
        strides: Dims::new(&[step]),
    };
    let bad = cpu_index::scatter(
        index.shape(),
        &line(&work, 0),
        &line(&source, 1),
        &line(&index, 1),
        item,
        axis,
    );
    if bad.is_some() {
        return Err(out_of_range());
    }
    if out.is_contiguous() {
        Ok(())
    } else {
        cpu::copy::copy(out, &work)
    }
}

fn infer_where(a: &Args, cond: usize, x: usize, y: usize) -> Result<Plan> {
    let c = a.tensor(cond)?;
    ensure!(
        matches!(c.dtype(), DType::Bool | DType::U8),
        Runtime,
        "where expected condition to be a boolean tensor, but got a tensor with dtype {}",
        c.dtype().scalar_type()
    );
    let operands = [Arg::Tensor(c), a.values[x].clone(), a.values[y].clone()];
    let dtype = result_type(&operands[1..])?;
    let (shape, strides) = result_layout(&operands)?;
    Ok(Plan::one(shape, strides, dtype))
}

fn where_cpu(a: &Args, outs: &[Tensor], cond: usize, x: usize, y: usize) -> Result<()> {
    let (out, c) = (&outs[0], a.tensor(cond)?);
    let dtype = out.dtype();
    let operand = |i: usize| -> Result<Tensor> {
        match a.opt_tensor(i) {
            Some(t) if t.dtype() == dtype => Ok(t.clone()),
            Some(t) => cpu::copy::converted(t, dtype),
            None => {
                let s = scalar_of(&a.values[i]).unwrap_or(Scalar::Int(0));
                if dtype == DType::C32 {
                    cpu::copy::converted(&Tensor::scalar(s, DType::C64)?, dtype)
                } else {
                    Tensor::scalar(s, dtype)
                }
            }
        }
    };
    let (x, y) = (operand(x)?, operand(y)?);
    let shape = out.shape();
    cpu_index::choose(
        out,
        &Lay::of(c, shape),
        &Lay::of(&x, shape),
        &Lay::of(&y, shape),
    );
    Ok(())
}

/// The part of a tensor that a `*_scatter` op writes.
fn target(a: &Args, t: &Tensor) -> Result<Tensor> {
    match a.name() {
        "select_scatter" => crate::ops::view::part::select_dim(t, a.int(2)?, a.int(3)?),
        "slice_scatter" => {
            crate::ops::view::part::slice(t, a.int(2)?, a.opt_int(3), a.opt_int(4), a.int(5)?)?
                .one()
        }
        "diagonal_scatter" => {
            crate::ops::view::part::diagonal_of(t, a.int(2)?, a.int(3)?, a.int(4)?)
        }
        _ => {
            let (size, stride) = (a.ints(2)?.clone(), a.ints(3)?.clone());
            // The copy starts at the beginning of its own memory.
            let offset = a.opt_int(4).unwrap_or(t.offset());
            ensure!(
                t.is_meta() || offset >= 0,
                Runtime,
                "Tensor: invalid storage offset {offset}"
            );
            Tensor::checked(t.storage().clone(), size, stride, offset, t.dtype())
        }
    }
}

fn infer_place(a: &Args, t: &Tensor) -> Result<Plan> {
    let (part, src) = (target(a, t)?, a.tensor(1)?);
    ensure!(
        part.shape() == src.shape(),
        Runtime,
        "expected src to have a size equal to the slice of self. src size = {}, slice size = {}",
        src.shape(),
        part.shape()
    );
    let strides = if t.has_internal_overlap() {
        dims::preserved_strides(t.shape(), t.strides())
    } else {
        t.strides().clone()
    };
    Ok(Plan {
        outs: [OutSpec {
            shape: t.shape().clone(),
            strides,
            dtype: t.dtype(),
        }]
        .into_iter()
        .collect(),
        device: None,
    })
}

fn place(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (out, t) = (&outs[0], a.tensor(0)?);
    if a.name() != "as_strided_scatter" {
        cpu::copy::copy(out, t)?;
        return cpu::copy::copy(&target(a, out)?, a.tensor(1)?);
    }
    // The layout may reach memory that `self` does not show: work on a copy of the whole storage.
    let whole = |t: &Tensor| {
        let n = (t.storage().nbytes() / t.dtype().size()) as i64;
        t.reinterpret(t.dtype(), [n].into(), [1].into(), 0)
    };
    let copy = cpu::copy::converted(&whole(t), t.dtype())?;
    let shown = Tensor::from_parts(
        copy.storage().clone(),
        t.shape().clone(),
        t.strides().clone(),
        t.offset(),
        t.dtype(),
    );
    cpu::copy::copy(&target(a, &shown)?, a.tensor(1)?)?;
    cpu::copy::copy(out, &shown)
}
