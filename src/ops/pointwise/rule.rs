//! The pointwise family: promotion, broadcasting and the run of one loop, shared by all its rows.

use crate::cpu::map::{Ctx, Loop};
use crate::cpu::rows::{self, Operand};
use crate::dtype::{Category, promote};
use crate::ops::core::args::{Arg, Args};
pub use crate::ops::core::op::Lies;
use crate::ops::core::op::{Body, Exec, Finish, KernelBody, OpDef, Plan, Ret, Row, Traits, kernel};
use crate::{DType, Dims, Result, Scalar, Tensor, bail, dims, ensure, err, kernels, mode};
use smallvec::SmallVec;

/// One pointwise operator: what tells it from the others.
pub struct MapRow {
    /// How many leading parameters are operands.
    pub arity: usize,
    /// From the operands' common dtype: the dtype of the loop, and that of the result.
    pub types: fn(DType) -> (DType, DType),
    /// The loop for a compute dtype.
    pub kernel: fn(DType) -> Option<&'static Loop>,
    /// A loop over the first operand alone that does the same where the second is a certain number.
    pub beside: Option<fn(Scalar, DType) -> Option<&'static Loop>>,
    /// Checks on the values of operands, where there are values; such checks may read a whole tensor.
    pub check: fn(&Args, DType) -> Result<()>,
    /// The numbers the loop needs besides its operands, and checks on them.
    pub ctx: fn(&Args, DType) -> Result<Ctx>,
    /// The result as a CUDA expression of `a`, `b`, `c` (and `T`); empty: no GPU kernel.
    pub cuda: &'static str,
}

/// A pointwise row without extra numbers.
#[must_use]
pub const fn row(
    arity: usize,
    types: fn(DType) -> (DType, DType),
    kernel: fn(DType) -> Option<&'static Loop>,
    cuda: &'static str,
) -> MapRow {
    MapRow {
        arity,
        types,
        kernel,
        beside: None,
        check: no_check,
        ctx: no_ctx,
        cuda,
    }
}

/// The table entry of a pointwise row.
#[must_use]
pub const fn def(
    name: &'static str,
    schema: &'static str,
    forms: u16,
    row: &'static MapRow,
    doc: &'static str,
) -> OpDef {
    let body = KernelBody::typed(run).pointwise().row(Row::Map(row));
    kernel(name, schema, forms, body, doc)
}

/// Any values will do.
pub fn no_check(_: &Args, _: DType) -> Result<()> {
    Ok(())
}

/// No extra numbers.
pub fn no_ctx(_: &Args, _: DType) -> Result<Ctx> {
    Ok(Ctx::default())
}

/// The result has the operands' type.
#[must_use]
pub fn same(d: DType) -> (DType, DType) {
    (d, d)
}

/// Integers become the default float type first.
#[must_use]
pub fn float(d: DType) -> (DType, DType) {
    let d = if d.is_integral(true) {
        mode::default_dtype()
    } else {
        d
    };
    (d, d)
}

/// The result is a truth value.
#[must_use]
pub fn compare(d: DType) -> (DType, DType) {
    (d, DType::Bool)
}

/// As [`compare`], for what numbers of eight bits are asked too: in single precision, which has them all.
#[must_use]
pub fn equal(d: DType) -> (DType, DType) {
    (without_eights(d), DType::Bool)
}

/// Single precision for numbers of eight bits.
fn without_eights(d: DType) -> DType {
    if d.is_float() && d.is_storage_only() {
        DType::F32
    } else {
        d
    }
}

/// Complex operands give their real type; numbers of eight bits are asked too.
#[must_use]
pub fn magnitude(d: DType) -> (DType, DType) {
    (without_eights(d), d.to_real())
}

/// The common dtype of operands, by PyTorch's three priorities: tensors with dimensions, then 0-dimensional
/// tensors, then numbers; a lower priority only counts if its category is higher.
///
/// # Errors
/// If two dtypes have no common type.
#[inline]
pub fn result_type(operands: &[Arg]) -> Result<DType> {
    if let Some(Arg::Tensor(first)) = operands.first()
        && (operands.iter()).all(|a| matches!(a, Arg::Tensor(t) if t.dtype() == first.dtype()))
    {
        return Ok(first.dtype());
    }
    let (mut dim, mut zero, mut num): (Option<DType>, Option<DType>, Option<DType>) =
        (None, None, None);
    let join = |slot: &mut Option<DType>, d: DType| -> Result<()> {
        *slot = Some(match *slot {
            None => d,
            Some(have) if have == d => d,
            Some(have) => promote(have, d).ok_or_else(|| no_promotion(have, d))?,
        });
        Ok(())
    };
    for operand in operands {
        match operand {
            Arg::Tensor(t) if t.ndim() > 0 => join(&mut dim, t.dtype())?,
            Arg::Tensor(t) => join(&mut zero, t.dtype())?,
            Arg::None => {}
            other => {
                if let Some(s) = scalar_of(other) {
                    join(&mut num, s.dtype(mode::default_dtype()))?;
                }
            }
        }
    }
    Ok(combine(dim, combine(zero, num)?)?.unwrap_or_else(mode::default_dtype))
}

/// The type of a higher-priority operand beside a lower-priority one, which only counts by its category.
fn combine(high: Option<DType>, low: Option<DType>) -> Result<Option<DType>> {
    let (Some(h), Some(l)) = (high, low) else {
        return Ok(high.or(low));
    };
    Ok(Some(match (h.category(), l.category()) {
        (Category::Complex, _) => h,
        (Category::Float, Category::Complex) => h.to_complex(),
        (Category::Float, _) | (Category::Integral, Category::Bool | Category::Integral) => h,
        _ => promote(h, l).ok_or_else(|| no_promotion(h, l))?,
    }))
}

/// Says that there is no type that holds the values of both.
#[cold]
pub fn no_promotion(a: DType, b: DType) -> crate::Error {
    if a.is_storage_only() || b.is_storage_only() {
        err!(
            Runtime,
            "Promotion for Float8 Types is not supported, attempted to promote {} and {}",
            a.scalar_type(),
            b.scalar_type()
        )
    } else {
        err!(
            Runtime,
            "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote {} and {}",
            a.scalar_type(),
            b.scalar_type()
        )
    }
}

/// The number in an operand position.
#[inline]
#[must_use]
pub fn scalar_of(a: &Arg) -> Option<Scalar> {
    match a {
        Arg::Scalar(s) => Some(*s),
        Arg::Int(i) => Some(Scalar::Int(*i)),
        Arg::Float(f) => Some(Scalar::Float(*f)),
        Arg::Bool(b) => Some(Scalar::Bool(*b)),
        _ => None,
    }
}

/// The shape that all operands broadcast to.
///
/// # Errors
/// If they do not fit.
#[inline]
pub fn broadcast_shape(operands: &[Arg]) -> Result<Dims> {
    let mut tensors = tensors_of(operands);
    let Some(first) = tensors.next() else {
        return Ok(Dims::EMPTY);
    };
    let mut shape = first.shape().clone();
    for t in tensors {
        if *t.shape() != shape {
            shape = dims::broadcast(&shape, t.shape())?;
        }
    }
    Ok(shape)
}

fn tensors_of<'a>(operands: &'a [Arg<'_>]) -> impl Iterator<Item = &'a Tensor> {
    operands.iter().filter_map(|a| match a {
        Arg::Tensor(t) => Some(*t),
        _ => None,
    })
}

/// Shape and strides of a pointwise result.
///
/// # Errors
/// If the operands do not broadcast.
#[inline]
pub fn result_layout(operands: &[Arg]) -> Result<(Dims, Dims)> {
    // Dimensions without elements are steps of zero where numbers or broadcasting are.
    let empty = |t: &Tensor| t.shape().contains(&0);
    if let Some(first) = tensors_of(operands).next() {
        let (shape, strides) = (first.shape(), first.strides());
        let alike = |a: &Arg| match a {
            Arg::Tensor(t) if std::ptr::eq(*t, first) => true,
            Arg::Tensor(t) => t.shape() == shape && t.strides() == strides,
            _ => !empty(first),
        };
        if dims::is_row_major(shape, strides) && operands.iter().all(alike) {
            return Ok((shape.clone(), strides.clone()));
        }
    }
    let shape = broadcast_shape(operands)?;
    // Row-major operands never ask for another order of dimensions, however they are broadcast.
    let row_major = |t: &Tensor| dims::is_row_major(t.shape(), t.strides()) && !empty(t);
    let strides = if tensors_of(operands).all(row_major) {
        dims::contiguous_strides(&shape)
    } else {
        result_strides(&shape, operands)
    };
    Ok((shape, strides))
}

/// Strides of a pointwise result, by PyTorch's TensorIterator: all operands alike in a fast format keep it,
/// otherwise dimensions are ordered by the operands' strides.
#[must_use]
pub fn result_strides(shape: &Dims, operands: &[Arg]) -> Dims {
    let tensors = || tensors_of(operands);
    // A number is an operand without dimensions.
    let numbers = tensors().count() < operands.len() && !shape.is_empty();
    let same_shape = !numbers && tensors().all(|t| t.shape() == shape);
    if same_shape {
        if tensors().all(Tensor::is_contiguous) {
            return dims::contiguous_strides(shape);
        }
        // Steps beside dimensions of size 1 are forgotten by this format, and kept by other dense layouts.
        let format = dims::MemoryFormat::ChannelsLast;
        if tensors().all(|t| t.is_contiguous_in(format))
            && let Ok(strides) = dims::format_strides(shape, format)
        {
            return strides;
        }
        if let Some(first) = tensors().next()
            && tensors().all(|t| t.strides() == first.strides())
            && dims::is_dense(shape, first.strides())
        {
            return first.strides().clone();
        }
    }
    let strides: SmallVec<[Dims; 3]> = tensors().map(|t| t.strides_for(shape)).collect();
    let refs: SmallVec<[&[i64]; 3]> = strides.iter().map(|s| &**s).collect();
    dims::iterated_strides(shape, &refs)
}

/// Shape and strides of the gradient of a pointwise operator.
fn other_layout(operands: &[Arg], lies: Lies) -> Result<(Dims, Dims)> {
    if matches!(lies, Lies::GradientLast) {
        let turned: SmallVec<[Arg; 3]> = operands.iter().rev().cloned().collect();
        return result_layout(&turned);
    }
    if matches!(lies, Lies::Tensors) && matches!(operands.first(), Some(Arg::Tensor(_))) {
        let tensors: SmallVec<[Arg; 3]> = tensors_of(operands).map(Arg::Tensor).collect();
        return result_layout(&tensors);
    }
    if matches!(lies, Lies::DenseOfComplex) && !result_type(operands)?.is_complex() {
        return result_layout(operands);
    }
    if let (Lies::Like(of), Some(Arg::Tensor(t))) = (lies, operands.first()) {
        return match of(t.dtype()) {
            true => Ok((
                t.shape().clone(),
                dims::preserved_strides(t.shape(), t.strides()),
            )),
            false => result_layout(operands),
        };
    }
    let shape = broadcast_shape(operands)?;
    if let (Lies::Second, Some(Arg::Tensor(t))) = (lies, operands.get(1)) {
        ensure!(
            *t.shape() == shape,
            Runtime,
            "output with shape {} doesn't match the broadcast shape {shape}",
            t.shape()
        );
        return Ok((shape, dims::preserved_strides(t.shape(), t.strides())));
    }
    let strides = dims::contiguous_strides(&shape);
    Ok((shape, strides))
}

fn row_of(args: &Args) -> Result<(&'static MapRow, &'static Traits)> {
    match &args.op.def.body {
        Body::Kernel(KernelBody {
            row: Row::Map(row),
            traits,
            ..
        }) => Ok((row, traits)),
        _ => bail!(Runtime, "this is not a pointwise row"),
    }
}

/// The dtypes of a call, of the loop and of the result, and the loop.
///
/// # Errors
/// If the operands have no common dtype or the op no loop for it.
#[inline]
fn call_types(args: &Args, row: &MapRow, traits: &Traits) -> Result<(DType, DType, &'static Loop)> {
    let common = match (traits.lies, args.values.get(1)) {
        (Lies::Dense | Lies::Second, Some(Arg::Tensor(t))) => t.dtype(),
        _ => result_type(&args.values[..row.arity])?,
    };
    let (compute, out) = (row.types)(common);
    match (row.kernel)(compute) {
        Some(kernel) => Ok((compute, out, kernel)),
        None => Err(no_loop(args, row, traits, compute)),
    }
}

/// What a call is told whose dtype has no loop.
#[cold]
fn no_loop(args: &Args, row: &MapRow, traits: &Traits, d: DType) -> crate::Error {
    let checked = match traits.checked_first {
        true => (row.ctx)(args, d).err(),
        false => None,
    };
    checked
        .or_else(|| refused(args, d))
        .unwrap_or_else(|| shapes_first(&args.values[..row.arity], not_implemented(args, d)))
}

pub use crate::ops::core::refusal::{needs_tensor, not_implemented, refused};

/// What PyTorch refuses once it has compared shapes: their error, if they have one.
#[cold]
fn shapes_first(operands: &[Arg], e: crate::Error) -> crate::Error {
    broadcast_shape(operands).err().unwrap_or(e)
}

/// The rule of all rows, and their kernels: the loop on the host, the expression on a GPU.
fn run(args: &Args, finish: &mut Finish<'_>) -> Result<Ret> {
    let (row, traits) = row_of(args)?;
    let lies = traits.lies;
    let operands = &args.values[..row.arity];
    if !args.op.has(crate::ops::core::op::N)
        && !operands.iter().any(|a| matches!(a, Arg::Tensor(_)))
    {
        return Err(needs_tensor(args));
    }
    let (compute, out, kernel) = call_types(args, row, traits)?;
    let ctx = (row.ctx)(args, compute).map_err(|e| match traits.checked_first {
        true => e,
        false => shapes_first(operands, e),
    })?;
    let (shape, strides) = match lies {
        Lies::Operands => result_layout(operands)?,
        other => other_layout(operands, other)?,
    };
    let cuda = |outs: &[Tensor]| {
        kernels::accelerator()?.map(row.cuda, &inputs(operands), compute, &ctx, &outs[0])
    };
    finish(
        Plan::one(shape, strides, out),
        &Exec {
            values: &|| (row.check)(args, compute),
            cpu: &|outs| run_cpu(row, kernel, operands, compute, &ctx, &outs[0]),
            cuda: if row.cuda.is_empty() {
                None
            } else {
                Some(&cuda)
            },
            scratch: &|outs, room| rows::scratch(&ctx, compute, &inputs(operands), &outs[0], room),
        },
    )
}

fn run_cpu(
    row: &MapRow,
    kernel: &Loop,
    operands: &[Arg],
    compute: DType,
    ctx: &Ctx,
    out: &Tensor,
) -> Result<()> {
    let inputs = inputs(operands);
    if let (Some(beside), [first, Operand::Number(number)]) = (row.beside, &*inputs)
        && let Some(kernel) = beside(*number, compute)
    {
        return rows::run(kernel, ctx, compute, &[*first], out);
    }
    rows::run(kernel, ctx, compute, &inputs, out)
}

/// The operands as kernels take them: at most three.
struct Inputs<'a> {
    all: [Operand<'a>; 3],
    count: usize,
}

impl<'a> std::ops::Deref for Inputs<'a> {
    type Target = [Operand<'a>];

    #[inline]
    fn deref(&self) -> &[Operand<'a>] {
        &self.all[..self.count.min(3)]
    }
}

#[inline]
fn inputs<'a>(operands: &[Arg<'a>]) -> Inputs<'a> {
    let mut all = [Operand::Number(Scalar::Int(0)); 3];
    for (place, a) in all.iter_mut().zip(operands) {
        *place = match a {
            Arg::Tensor(t) => Operand::Tensor(t),
            other => Operand::Number(scalar_of(other).unwrap_or(Scalar::Int(0))),
        };
    }
    Inputs {
        all,
        count: operands.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn row_major_operands_keep_the_order_of_dimensions() {
        let shapes: [&[i64]; 11] = [
            &[],
            &[1],
            &[4],
            &[1, 4],
            &[4, 1],
            &[3, 1, 4],
            &[1, 1, 1],
            &[3, 4, 1],
            &[0, 4],
            &[3, 0, 1],
            &[2, 1, 4, 1],
        ];
        let made = shapes.map(|s| Tensor::empty(s, DType::F32, Device::META).unwrap());
        for (a, b) in made.iter().flat_map(|a| made.iter().map(move |b| (a, b))) {
            let operands = [Arg::Tensor(a), Arg::Tensor(b)];
            let Ok((shape, strides)) = result_layout(&operands) else {
                continue;
            };
            assert_eq!(strides, result_strides(&shape, &operands), "{a:?} {b:?}");
        }
    }
}
