//! Between real numbers and the integers that stand for them: what quantised operators are made of.

use crate::ops::core::op::{OpDef, Plan, kernel};
use crate::{DType, Dims, Result, Tensor, cpu, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_quantized_steps",
        "(Tensor self, Tensor inverse, Tensor zero_point, dtype dtype)",
        0,
        body!(
            |a| {
                a.input.dtype().check_kernel(a.input.dtype() == DType::F32, "quantized")?;
                like(a.input, [a.inverse, a.zero_point], a.dtype)
            },
            |a, _, o| cpu::quantize::nearest(&o[0], a.input, a.inverse, a.zero_point)
        ),
        "The nearest integers, so many steps of a scale (whose inverse is given) away from zero.",
    )
    .samples("f32[2, 3], f32(2.), f32(1.), u8; f32[2, 3].T, f32[3].pos, f32[3], i8; f32[3], f32(2.), f32(1.), i32")
    .refused(),
    kernel(
        "_quantized_reals",
        "(Tensor self, Tensor scale, Tensor zero_point, bool once=False)",
        0,
        body!(
            |a| {
                check_stored(a.input.dtype())?;
                reals_rule(a)
            },
            |a, _, o| cpu::quantize::real(&o[0], a.input, a.scale, a.zero_point, a.once)
        ),
        "The real numbers that integers stand for; rounded once if `zero_point` is its product with the scale, its sign changed.",
    )
    .samples("u8[2, 3], f32(2.), f32(1.); i8[2, 3].T, f32[3], f32[3]; i32[3], f32(2.), f32(1.), True; u8[2, 3], f64[2, 1], f64(1.)")
    .refused(),
    kernel(
        "_quantized_anew",
        "(Tensor self, Tensor factor, Tensor bias, int zero_point, int low, dtype dtype)",
        0,
        body!(
            |a| {
                let d = a.input.dtype();
                d.check_kernel(matches!(d, DType::F32 | DType::F64 | DType::I32), "quantized_anew")?;
                like(a.input, [a.factor, a.bias], a.dtype)
            },
            |a, _, o| cpu::quantize::rescaled(&o[0], a.input, a.factor, a.bias, a.zero_point, a.low)
        ),
        "Sums and a bias times a factor, rounded, as integers around a zero point.",
    )
    .samples("f32[2, 3], f32[3], f32[3], 1, 0, u8; i32[2, 3], f32(0.5), f32(0.), 1, -128, i8; f64[2], f32(0.5), f32(0.), 1, 0, i32")
    .refused(),
    kernel(
        "_quantized_table",
        "(Tensor self, Tensor table)",
        0,
        body!(
            |a| {
                let byte = |t: &Tensor| matches!(t.dtype(), DType::U8 | DType::I8);
                ensure!(
                    byte(a.input) && byte(a.table) && a.table.shape()[..] == [256],
                    Runtime,
                    "expected bytes, and a table of 256 of them"
                );
                Ok(laid(a.input, a.table.dtype()))
            },
            |a, _, o| {
                cpu::quantize::looked_up(&o[0], a.input, a.table);
                Ok(())
            }
        ),
        "What a table has for each byte, that for the smallest first.",
    )
    .samples("u8[2, 3], u8[256]; i8[2, 3].T, i8[256]")
    .no_grad(),
    kernel(
        "_quantized_met",
        "(Tensor self, Tensor other, bool product, int zero_point, int low, float[] numbers)",
        0,
        body!(met_rule, |a, _, o| {
            let single = |i: usize| a.numbers[i] as f32;
            let meeting = cpu::quantize::Meeting {
                product: a.product,
                low: a.low as f32,
                a: [single(0), single(1)],
                b: [single(2), single(3)],
                inverse: single(4),
                zero: a.zero_point as f32,
            };
            cpu::quantize::met(&o[0], a.input, a.other, meeting)
        }),
        "The sums or products of the real numbers that integers stand for (scale and shift of both), as integers of another scale (its inverse).",
    )
    .samples("u8[2, 3], u8[3], False, 3, 0, [0.5, -1.0, 0.25, 0.0, 4.0]; i8[2, 3].T, i8[2, 3], True, 3, -128, [0.5, -1.0, 0.25, 0.0, 4.0]")
    .no_grad(),
    kernel(
        "_quantized_sums",
        "(Tensor self, int zero_point, Tensor weight, Tensor zeros)",
        0,
        body!(
            |a| {
                let (x, w) = (a.input, a.weight);
                ensure!(
                    x.ndim() == 2 && w.ndim() == 2 && x.shape()[1] == w.shape()[1] && w.dtype() == DType::I8,
                    Runtime,
                    "mat1 and mat2 shapes cannot be multiplied ({} and the transpose of {})",
                    x.shape(),
                    w.shape()
                );
                ensure!(
                    matches!(x.dtype(), DType::U8 | DType::I8) && a.zeros.dtype() == DType::I64 && a.zeros.ndim() == 1
                        && matches!(a.zeros.numel(), n if n == 1 || n == w.shape()[0]),
                    Runtime,
                    "expected bytes, and a zero point for each row of the weight"
                );
                Ok(Plan::contiguous(&[x.shape()[0], w.shape()[0]], DType::I32))
            },
            |a, _, o| cpu::quantized_sums::sums(&o[0], a.input, a.zero_point, a.weight, a.zeros),
            scratch: |a, _, o, room| {
                room.dense(a.zeros, DType::I64)?;
                room.dense(&o[0], DType::I32)?;
                room.dense(a.input, a.input.dtype())?;
                room.dense(a.weight, DType::I8).map(drop)
            }
        ),
        "Sums of products of the differences from zero points, of rows with the transpose of a matrix.",
    )
    .samples("u8[2, 3], 3, i8[5, 3], i64[5]; i8[6, 40], -3, i8[7, 40], i64[1]; u8[20, 70], 3, i8[17, 70], i64[17]")
    .no_grad(),
];

/// A result of the same sizes that lies as the operand does; `by` are numbers in single precision that broadcast over it.
fn like(t: &Tensor, by: [&Tensor; 2], dtype: DType) -> Result<Plan> {
    like_by(t, by, DType::F32, dtype)
}

/// The same for numbers of single precision, or of double precision, which have to be rounded to be results.
fn reals_rule(a: &calls::_QuantizedReals) -> Result<Plan> {
    let double = a.scale.dtype() == DType::F64 && !a.once;
    let by = if double { DType::F64 } else { DType::F32 };
    like_by(a.input, [a.scale, a.zero_point], by, DType::F32)
}

fn like_by(t: &Tensor, by: [&Tensor; 2], numbers: DType, dtype: DType) -> Result<Plan> {
    if dtype != DType::F32 {
        check_stored(dtype)?;
    }
    for by in by {
        let d = by.dtype();
        d.check_kernel(d == numbers, "quantized")?;
        let both = dims::broadcast(by.shape(), t.shape())?;
        ensure!(
            both == *t.shape(),
            Runtime,
            "numbers of shape {} do not broadcast over a tensor of shape {}",
            by.shape(),
            t.shape()
        );
    }
    Ok(laid(t, dtype))
}

fn met_rule(a: &calls::_QuantizedMet) -> Result<Plan> {
    let (x, y) = (a.input, a.other);
    check_stored(x.dtype())?;
    ensure!(
        x.dtype() == y.dtype() && a.numbers.len() == 5,
        Runtime,
        "expected integers of one type, and five numbers"
    );
    if x.shape() == y.shape() {
        return Ok(laid(x, x.dtype()));
    }
    Ok(Plan::contiguous(
        &dims::broadcast(x.shape(), y.shape())?,
        x.dtype(),
    ))
}

fn laid(t: &Tensor, dtype: DType) -> Plan {
    let strides: Dims = dims::preserved_strides(t.shape(), t.strides());
    Plan::one(t.shape().clone(), strides, dtype)
}

fn check_stored(d: DType) -> Result<()> {
    d.check_kernel(matches!(d, DType::U8 | DType::I8 | DType::I32), "quantized")
}
