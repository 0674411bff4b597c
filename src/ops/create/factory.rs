//! Factories: tensors from sizes and numbers.

use super::triangle::Triangle;
use crate::dims::{self, MemoryFormat};
use crate::ops::batch;
use crate::ops::copy::strides_in;
use crate::ops::core::fits::check_filling;
use crate::ops::core::op::{Batch, F, Hidden, M, O, OpDef, Plan, kernel, view};
use crate::ops::core::plan::Views;
use crate::ops::view::part;
use crate::{DType, Device, Dims, Result, Scalar, Tensor, bail, cpu, ensure, kernels, mode};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "empty",
        "(int[*] size, *, format? memory_format=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O,
        body!(empty_rule, anywhere: nothing).blank(),
        "An uninitialised tensor.",
    ).samples("(), device=dev, dtype=u8; (1, 0, 5, 1), device=dev, dtype=b8").no_grad(),
    kernel(
        "zeros",
        "(int[*] size, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O,
        body!(zeros_rule, |_, _, outs| cpu::fill(&outs[0], Scalar::Int(0)), cuda: |_, _, outs| kernels::fill(&outs[0], Scalar::Int(0))),
        "A tensor of zeros.",
    ).samples("(10,), dtype=b8, device=dev").no_grad(),
    kernel(
        "ones",
        "(int[*] size, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O,
        body!(|a| sized(a.size, a.dtype, a.device), |_, _, outs| cpu::fill(&outs[0], Scalar::Int(1)), cuda: |_, _, outs| kernels::fill(&outs[0], Scalar::Int(1))),
        "A tensor of ones.",
    ).samples("(10,), dtype=u8, device=dev").no_grad(),
    kernel(
        "full",
        "(int[] size, Scalar fill_value, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O,
        body!(full_rule, |a, _, outs| cpu::fill(&outs[0], a.fill_value), cuda: |a, _, outs| kernels::fill(&outs[0], a.fill_value)),
        "A tensor of one number.",
    ).samples("(10,), 6, dtype=f32, device=dev").no_grad(),
    kernel(
        "empty_strided",
        "(int[] size, int[] stride, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        body!(|a| strided(a.size, a.stride, a.dtype.unwrap_or_else(mode::default_dtype), device_or_default(a.device)?), anywhere: nothing).blank(),
        "An uninitialised tensor with given strides.",
    ).samples("(), (), dtype=i8, device=dev; (5, 5, 5), (2, 0, 1), dtype=u8, device=dev").no_grad(),
    kernel(
        "empty_permuted",
        "(int[] size, int[] physical_layout, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        body!(permuted_rule, anywhere: nothing).blank(),
        "An uninitialised dense tensor with dimensions in a given order in memory.",
    ).samples("[2, 3, 4], [2, 0, 1], device=dev").no_grad(),
    kernel(
        "empty_like",
        "(Tensor self, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)",
        F,
        body!(|a| like(a.input, a.dtype, a.device, a.memory_format), anywhere: nothing).blank(),
        "An uninitialised tensor like another.",
    ).samples("f32[3, 4]; c64[3, 4]")
    .no_grad()
    .batch(Batch::Lead),
    kernel(
        "zeros_like",
        "(Tensor self, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)",
        F,
        body!(|a| like(a.input, a.dtype, a.device, a.memory_format), |_, _, outs| cpu::fill(&outs[0], Scalar::Int(0)), cuda: |_, _, outs| kernels::fill(&outs[0], Scalar::Int(0))),
        "Zeros like another tensor.",
    ).samples("f32[3, 4]; f32[3, 4], dtype=f32, device=dev")
    .no_grad()
    .batch(Batch::Lead),
    kernel(
        "ones_like",
        "(Tensor self, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)",
        F,
        body!(|a| like(a.input, a.dtype, a.device, a.memory_format), |_, _, outs| cpu::fill(&outs[0], Scalar::Int(1)), cuda: |_, _, outs| kernels::fill(&outs[0], Scalar::Int(1))),
        "Ones like another tensor.",
    ).samples("f32[3, 4]; c64[3, 4], dtype=c64, device=dev; f32[3, 4], dtype=f32, device=dev")
    .no_grad()
    .batch(Batch::Lead),
    kernel(
        "full_like",
        "(Tensor self, Scalar fill_value, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)",
        F,
        body!(full_like_rule, |a, _, outs| cpu::fill(&outs[0], a.fill_value), cuda: |a, _, outs| kernels::fill(&outs[0], a.fill_value)),
        "One number in the shape of another tensor.",
    ).samples("f32[3, 4], -8.4784; f32[3, 4], 4.4121, dtype=f64, device=dev")
    .no_grad()
    .batch(Batch::Lead),
    kernel(
        "new_empty",
        "(Tensor self, int[*] size, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        M,
        body!(|a| beside(a.input, a.size, a.dtype, a.device), anywhere: nothing).blank(),
        "An uninitialised tensor of the same dtype and device.",
    ).samples("f32[3, 4], (3, 2, 2); c64[3, 4], (); f32[3, 4], (2, 3), dtype=f32, device=dev")
    .no_grad()
    .batch(Batch::As(typed!(|a, h| { let size = &batch::sized(a.input, a.size, h)[..]; batch::one(calls::NewEmpty { size, ..a.clone() }.call()) }, Hidden))),
    kernel(
        "new_zeros",
        "(Tensor self, int[*] size, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        M,
        body!(|a| beside(a.input, a.size, a.dtype, a.device), |_, _, outs| cpu::fill(&outs[0], Scalar::Int(0)), cuda: |_, _, outs| kernels::fill(&outs[0], Scalar::Int(0))),
        "Zeros of the same dtype and device.",
    ).samples("f32[3, 4], (1, 1, 12), device=dev; c64[3, 4], ()")
    .no_grad()
    .batch(Batch::As(typed!(|a, h| { let size = &batch::sized(a.input, a.size, h)[..]; batch::one(calls::NewZeros { size, ..a.clone() }.call()) }, Hidden))),
    kernel(
        "new_ones",
        "(Tensor self, int[*] size, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        M,
        body!(|a| beside(a.input, a.size, a.dtype, a.device), |_, _, outs| cpu::fill(&outs[0], Scalar::Int(1)), cuda: |_, _, outs| kernels::fill(&outs[0], Scalar::Int(1))),
        "Ones of the same dtype and device.",
    ).samples(
        "f32[3, 4], (); \
         c64[3, 4], (2, 3), dtype=c64, device=dev; \
         f32[3, 4], (2, 2, 2), dtype=f64, device=dev",
    )
    .no_grad()
    .batch(Batch::As(typed!(|a, h| { let size = &batch::sized(a.input, a.size, h)[..]; batch::one(calls::NewOnes { size, ..a.clone() }.call()) }, Hidden))),
    kernel(
        "new_full",
        "(Tensor self, int[] size, Scalar fill_value, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        M,
        body!(filled_beside, |a, (), outs| cpu::fill(&outs[0], a.fill_value), cuda: |a, (), outs| kernels::fill(&outs[0], a.fill_value)),
        "One number in a tensor of the same dtype and device.",
    ).samples(
        "f32[3, 4], (3, 2, 2), -8.4784; \
         c64[3, 4], (), (-4.3228044509887695-2.400455951690674j); \
         f32[3, 4], (2, 2, 2), 1.8928, dtype=f64, device=dev",
    )
    .no_grad()
    .batch(Batch::As(typed!(|a, h| { let size = &batch::sized(a.input, a.size, h)[..]; batch::one(calls::NewFull { size, ..a.clone() }.call()) }, Hidden))),
    kernel(
        "new_empty_strided",
        "(Tensor self, int[] size, int[] stride, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        M,
        body!(|a| strided(a.size, a.stride, a.dtype.unwrap_or(a.input.dtype()), a.device.unwrap_or(a.input.device())), anywhere: nothing).blank(),
        "An uninitialised tensor with given strides, of the same dtype and device.",
    ).samples(
        "f32[3, 4], (), (); \
         c64[3, 4], (), (); \
         f32[3, 4], (2, 2, 2), (20, 10, 5), dtype=f64, device=dev",
    )
    .no_grad()
    .batch(Batch::As(typed!(batch::new_empty_strided, Hidden))),
    kernel(
        "scalar_tensor",
        "(Scalar s, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        body!(number_rule, |a, _, outs| cpu::fill(&outs[0], a.s), cuda: |a, _, outs| kernels::fill(&outs[0], a.s)),
        "A 0-dimensional tensor.",
    ).samples("0, device=dev, dtype=u8").no_grad(),
    kernel(
        "eye",
        "(int n, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O,
        body!(|a| eye_rule(a.n, a.n, a.dtype, a.device), anywhere: |_, _, outs| eye(&outs[0])),
        "The identity matrix.",
    ).samples("3, device=dev; 2, dtype=i64, device=dev").no_grad(),
    kernel(
        "eye#m",
        "(int n, int m, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O,
        body!(|a| eye_rule(a.n, a.m, a.dtype, a.device), anywhere: |_, _, outs| eye(&outs[0])),
        "A matrix with ones on the diagonal.",
    ).samples("5, 5, device=dev, dtype=u8").no_grad(),
    kernel(
        "tril_indices",
        "(int row, int col, int offset=0, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        body!(|a| Triangle::new(a.row, a.col, a.offset, true)?.rule(a.dtype, a.device), |_, tri, outs| tri.fill(&outs[0]), cuda: |_, tri, outs| via_host(&outs[0], |host| tri.fill(host)), scratch: |_, _, outs, room| room.dense(&outs[0], DType::I64).map(drop)),
        "Row and column numbers of a matrix's lower triangle.",
    ).samples("0, 0, dtype=i64, device=dev; 20, 21, 0, dtype=i32, device=dev").no_grad(),
    kernel(
        "triu_indices",
        "(int row, int col, int offset=0, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        body!(|a| Triangle::new(a.row, a.col, a.offset, false)?.rule(a.dtype, a.device), |_, tri, outs| tri.fill(&outs[0]), cuda: |_, tri, outs| via_host(&outs[0], |host| tri.fill(host)), scratch: |_, _, outs, room| room.dense(&outs[0], DType::I64).map(drop)),
        "Row and column numbers of a matrix's upper triangle.",
    ).samples("0, 0, dtype=i32, device=dev; 20, 21, 7, dtype=i32, device=dev").no_grad(),
    view(
        "lift_fresh",
        "(Tensor self)",
        0,
        |_| Ok(Views::Same),
        "A tensor that was just made of Python's values: itself.",
    )
    .samples("f32[2, 3]")
    .grad("self: grad; jvp: linear")
    .batch(Batch::Lead),
];

/// The kernel of factories whose results hold anything: no number or the largest one where that was asked for.
fn nothing<A, P>(_: &A, _: &P, outs: &[Tensor]) -> Result<()> {
    if mode::fills_blanks() {
        outs.iter().try_for_each(mark_unwritten)?;
    }
    Ok(())
}

/// Fills a new tensor with what `torch.utils.deterministic.fill_uninitialized_memory` names.
pub(in crate::ops) fn mark_unwritten(t: &Tensor) -> Result<()> {
    if t.storage().is_hollow() || t.dtype().is_quantized() {
        return Ok(());
    }
    let d = t.dtype();
    kernels::fill(
        t,
        match d {
            DType::Bool => Scalar::Bool(true),
            d if !d.is_integral(false) => Scalar::Float(f64::NAN),
            // All bits of the largest number without a sign are set, as in -1.
            d if !d.is_signed() => Scalar::Int(-1),
            d => Scalar::Int(i64::MAX >> (64 - 8 * d.size())),
        },
    )
}

/// Fills a tensor on a GPU with what a host kernel makes.
pub(in crate::ops) fn via_host(
    out: &Tensor,
    fill: impl FnOnce(&Tensor) -> Result<()>,
) -> Result<()> {
    let host = Tensor::empty_strided(
        out.shape().clone(),
        out.strides().clone(),
        out.dtype(),
        Device::CPU,
    )?;
    fill(&host)?;
    kernels::copy(out, &host)
}

/// Where a factory makes its result.
pub(in crate::ops) fn device_or_default(asked: Option<Device>) -> Result<Device> {
    let d = asked.unwrap_or_else(mode::default_device);
    kernels::check(d)?;
    Ok(d)
}

/// Refuses negative sizes.
///
/// # Errors
/// PyTorch's text.
pub fn check_size(size: &[i64]) -> Result<()> {
    if let Some(&d) = size.iter().find(|&&d| d < 0) {
        bail!(
            Runtime,
            "Trying to create tensor with negative dimension {d}: {}",
            Dims::new(size)
        );
    }
    Ok(())
}

/// A row-major result of a size, with the defaults for what is not asked.
///
/// # Errors
/// If the size is negative or too large.
pub fn sized(size: &[i64], dtype: Option<DType>, device: Option<Device>) -> Result<Plan> {
    check_size(size)?;
    dims::check_strides(size)?;
    let dtype = dtype.unwrap_or_else(mode::default_dtype);
    Ok(Plan::contiguous(size, dtype).on(device_or_default(device)?))
}

fn zeros_rule(a: &calls::Zeros) -> Result<Plan> {
    ensure!(
        a.size.iter().all(|&d| d >= 0),
        Runtime,
        "zeros: Dimension size must be non-negative."
    );
    sized(a.size, a.dtype, a.device)
}

fn empty_rule(a: &calls::Empty) -> Result<Plan> {
    let mut plan = sized(a.size, a.dtype, a.device)?;
    if let Some(format) = a.memory_format {
        ensure!(
            format != MemoryFormat::Preserve,
            Runtime,
            "unsupported memory format option Preserve"
        );
        plan.outs[0].strides = dims::format_strides(a.size, format)?;
    }
    Ok(plan)
}

fn full_rule(a: &calls::Full) -> Result<Plan> {
    let dtype = a.dtype.unwrap_or_else(|| match mode::default_dtype() {
        // Complex numbers are of 32 bits a part with all defaults but one.
        d if d != DType::F64 && matches!(a.fill_value, Scalar::Complex(_)) => DType::C64,
        d => a.fill_value.dtype(d),
    });
    let plan = sized(a.size, Some(dtype), a.device)?;
    check_filling(a.fill_value, dtype, a.size.iter().product())?;
    Ok(plan)
}

fn number_rule(a: &calls::ScalarTensor) -> Result<Plan> {
    check_filling(a.s, a.dtype.unwrap_or_else(mode::default_dtype), 1)?;
    sized(&[], a.dtype, a.device)
}

fn full_like_rule(a: &calls::FullLike) -> Result<Plan> {
    let dtype = a.dtype.unwrap_or(a.input.dtype());
    check_filling(a.fill_value, dtype, a.input.numel())?;
    like(a.input, a.dtype, a.device, a.memory_format)
}

fn strided(shape: &[i64], strides: &[i64], dtype: DType, device: Device) -> Result<Plan> {
    check_size(shape)?;
    ensure!(
        shape.len() == strides.len(),
        Runtime,
        "dimensionality of sizes ({}) must match dimensionality of strides ({})",
        shape.len(),
        strides.len()
    );
    let (shape, strides) = (Dims::new(shape), Dims::new(strides));
    if strides.iter().any(|&s| s < 0) {
        bail!(
            Runtime,
            "Storage size calculation overflowed with sizes={shape} and strides={strides}"
        );
    }
    Ok(Plan::one(shape, strides, dtype).on(device))
}

fn permuted_rule(a: &calls::EmptyPermuted) -> Result<Plan> {
    let (shape, order) = (a.size, a.physical_layout);
    check_size(shape)?;
    ensure!(
        order.len() == shape.len(),
        Runtime,
        "Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = {} is not equal to \
         len(physical_layout) = {}",
        shape.len(),
        order.len()
    );
    let mut seen = vec![false; shape.len()];
    let mut perm = Vec::new();
    for (i, &d) in order.iter().enumerate() {
        ensure!(
            d >= 0 && (d as usize) < shape.len(),
            Runtime,
            "Dimension out of range (expected to be between 0 and {}, but got {d} at index {i}).  NB: negative dims not currently \
             supported; file an issue if you want it.",
            shape.len() as i64 - 1
        );
        ensure!(
            !std::mem::replace(&mut seen[d as usize], true),
            Runtime,
            "Duplicate dim not allowed"
        );
        perm.push(d as usize);
    }
    let strides = dims::strides_in_order(shape, &perm);
    let dtype = a.dtype.unwrap_or_else(mode::default_dtype);
    Ok(Plan::one(Dims::new(shape), strides, dtype).on(device_or_default(a.device)?))
}

/// A result in the shape of `t`, with its dtype, device and order in memory unless others are asked.
///
/// # Errors
/// If the format does not fit.
pub fn like(
    t: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    format: Option<MemoryFormat>,
) -> Result<Plan> {
    let strides = strides_in(t, format.unwrap_or(MemoryFormat::Preserve))?;
    let dtype = dtype.unwrap_or(t.dtype());
    Ok(Plan::one(t.shape().clone(), strides, dtype).on(device.unwrap_or(t.device())))
}

/// A result of a size, with the dtype and device of `t` unless others are asked.
fn beside(t: &Tensor, size: &[i64], dtype: Option<DType>, device: Option<Device>) -> Result<Plan> {
    check_size(size)?;
    Ok(Plan::contiguous(size, dtype.unwrap_or(t.dtype())).on(device.unwrap_or(t.device())))
}

fn filled_beside(a: &calls::NewFull) -> Result<Plan> {
    let dtype = a.dtype.unwrap_or(a.input.dtype());
    check_filling(a.fill_value, dtype, a.size.iter().product())?;
    beside(a.input, a.size, a.dtype, a.device)
}

/// Fills a 1-dimensional tensor by index.
///
/// # Errors
/// If the dtype cannot be computed with.
pub fn write_with(out: &Tensor, f: impl Fn(i64) -> Scalar) -> Result<()> {
    let dense = if out.is_contiguous() {
        out.clone()
    } else {
        Tensor::empty(out.shape(), out.dtype(), Device::CPU)?
    };
    crate::with_dtype!(out.dtype(), [bool int uint half float complex] => T, {
        for (i, o) in cpu::slice_mut::<T>(&dense).iter_mut().enumerate() {
            *o = <T as crate::Element>::from_scalar(f(i as i64));
        }
        if !out.is_contiguous() {
            cpu::copy::copy(out, &dense)?;
        }
        return Ok(());
    }, else {});
    Err(out.dtype().no_kernel("arange_cpu"))
}

fn eye_rule(n: i64, m: i64, dtype: Option<DType>, device: Option<Device>) -> Result<Plan> {
    ensure!(n >= 0, Runtime, "n must be greater or equal to 0, got {n}");
    ensure!(m >= 0, Runtime, "m must be greater or equal to 0, got {m}");
    sized(&[n, m], dtype, device)
}

fn eye(out: &Tensor) -> Result<()> {
    kernels::fill(out, Scalar::Int(0))?;
    let diagonal = part::diagonal(out, 0, 0, 1)?.plan(out);
    kernels::fill(&cpu::view::of(out, diagonal)?, Scalar::Int(1))
}
