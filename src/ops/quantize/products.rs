//! Products and convolutions of quantised tensors: sums of integers are exact, and rounded once to the scale of the result.

use super::parts::{Quantized, Uniform, number};
use super::tensors::chosen;
use super::windows::bytes_geometry;
use crate::ops::core::helpers;
use crate::ops::core::op::{F, OpDef, Plan, compose, kernel};
use crate::ops::f;
use crate::ops::nn::conv;
use crate::{DType, MemoryFormat, Result, Tensor, cpu, dims, ensure};
use torchlike_macros::operators;

/// Columns up to which sums of products of two steps, of at most 510 each, fit into 32 bits.
const SHORT: i64 = i32::MAX as i64 / (510 * 510);
/// Integers up to here are exact in single precision.
const EXACT: f64 = 16_777_216.0;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_quantized_linear",
        "(Tensor self, Tensor weight, Tensor? bias, float scale, int zero_point, bool relu=False, float most=0.)",
        F,
        linear,
        "The product of a quantised tensor with the transpose of a quantised matrix, and a bias, quantised.",
    )
    .samples("see tests/test_quantized_products.py")
    .no_grad(),
    compose(
        "_quantized_linear_dynamic",
        "(Tensor self, Tensor weight, Tensor? bias, bool reduce_range=False, float most=0.)",
        F,
        linear_dynamic,
        "The product with the transpose of a quantised matrix, and a bias; the input is quantised by its own range meanwhile.",
    )
    .samples("see tests/test_quantized_products.py")
    .no_grad(),
    compose(
        "_quantized_convolution",
        "(Tensor self, Tensor weight, Tensor? bias, Tensor? packed, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups, float scale, int zero_point, bool relu=False, float most=0.)",
        F,
        convolution,
        "A convolution of a quantised tensor with a quantised weight, and a bias, quantised.",
    )
    .samples("see tests/test_quantized_products.py")
    .no_grad(),
    kernel(
        "_exact_linear",
        "(Tensor self, Tensor weight)",
        0,
        body!(linear_rule, |a, _, o| {
            let w = cpu::matrices::transposed(a.weight);
            let (one, none) = (crate::Scalar::Int(1), crate::Scalar::Int(0));
            cpu::matrix::product(&o[0], a.input, &w, one, none, None)
        }),
        "The product with the transpose of a matrix, in the type that both have.",
    )
    .samples("f32[2, 3], f32[4, 3]; f64[2, 3], f64[4, 3]")
    .refused(),
    kernel(
        "_exact_convolution",
        "(Tensor self, Tensor weight, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups)",
        0,
        body!(convolution_rule, |a, g, o| cpu::conv::convolve(&o[0], a.input, a.weight, None, g), scratch: |a, g, o, room| {
            cpu::conv::room::convolve(room, &o[0], a.input, a.weight, None, g)
        }),
        "A convolution of whole numbers none of whose sums is rounded.",
    )
    .samples("f32[1, 2, 5, 5], f32[3, 2, 3, 3], [1, 1], [1, 1], [1, 1], False, [0, 0], 1; f64[1, 2, 5], f64[2, 3, 3], [2], [0], [1], True, [1], 1")
    .refused(),
];

fn linear_rule(a: &calls::_ExactLinear) -> Result<Plan> {
    let (x, w) = (a.input, a.weight);
    ensure!(
        x.ndim() == 2 && w.ndim() == 2 && x.shape()[1] == w.shape()[1],
        Runtime,
        "mat1 and mat2 shapes cannot be multiplied ({} and the transpose of {})",
        x.shape(),
        w.shape()
    );
    let d = x.dtype();
    d.check_kernel(
        matches!(d, DType::F32 | DType::F64) && d == w.dtype(),
        "exact_linear",
    )?;
    Ok(Plan::contiguous(&[x.shape()[0], w.shape()[0]], d))
}

fn convolution_rule(a: &calls::_ExactConvolution) -> Result<(Plan, cpu::conv::Geometry)> {
    let d = a.input.dtype();
    d.check_kernel(matches!(d, DType::F32 | DType::F64), "exact_convolution")?;
    let (shape, mut geometry) = conv::geometry(&f::Convolution::new(
        a.input,
        a.weight,
        None,
        a.stride,
        a.padding,
        a.dilation,
        a.transposed,
        a.output_padding,
        a.groups,
    ))?;
    geometry.exact = true;
    let strides = dims::format_strides(&shape, conv::format_of(a.input, a.weight))?;
    Ok((Plan::one(shape, strides, d), geometry))
}

/// What a product of integers becomes: a factor a channel, and what is added before it.
struct Factors {
    /// What a step of a sum is worth.
    step: Tensor,
    /// Whether all channels have the same.
    alike: bool,
}

impl Factors {
    fn new(input: f64, scales: &Tensor) -> Result<Self> {
        Ok(Self {
            step: f::mul(scales, f64::from(input as f32))?,
            alike: scales.numel() == 1,
        })
    }

    /// The bias in steps of the sums.
    fn bias(&self, bias: Option<&Tensor>) -> Result<Tensor> {
        match bias {
            None => number(0.0, &self.step),
            Some(b) if self.alike => f::mul(&f::detach(b)?, &f::reciprocal(&self.step)?),
            Some(b) => f::div(&f::detach(b)?, &self.step),
        }
    }
}

/// The differences from zero points, as real numbers.
fn differences(integers: &Tensor, zeros: &Tensor) -> Result<Tensor> {
    f::_QuantizedReals::new(
        integers,
        &number(1.0, integers)?,
        &f::to_dtype(zeros, DType::F32)?,
    )
    .call()
}

/// Both operands in a type in which no sum over the weights of an output is rounded. `outer` are the weight's dimensions that are
/// not summed over; `most` is the largest sum of the weights' distances from zero, if it is known.
fn exactly(
    x: Tensor,
    w: Tensor,
    (count, most): (i64, f64),
    reach: f64,
    outer: &[i64],
) -> Result<(Tensor, Tensor)> {
    if most > 0.0 && most * reach < EXACT || reach * 255.0 * count as f64 <= EXACT {
        return Ok((x, w));
    }
    if helpers::has_no_values(&w) {
        return Ok((x, w));
    }
    let double = |x, w| Ok((f::to_dtype(x, DType::F64)?, f::to_dtype(w, DType::F64)?));
    if most > 0.0 {
        return double(&x, &w);
    }
    let over: Vec<i64> = (0..w.ndim() as i64)
        .filter(|d| !outer.contains(d))
        .collect();
    let sums = f::sum_dim(&f::abs(&w)?, &over[..])?;
    if helpers::item(&f::max(&sums)?)?.to_f64() * reach < EXACT {
        return Ok((x, w));
    }
    double(&x, &w)
}

/// The farthest that an integer of a type is from a zero point.
fn reach(d: DType, zero: i64) -> f64 {
    let (least, most) = if d == DType::U8 {
        (0, 255)
    } else {
        (-128, 127)
    };
    (most - zero).max(zero - least) as f64
}

/// Exact sums of products of rows of integers, one for each row of the weight.
fn sums(x: &Tensor, zero: i64, w: &Tensor, zeros: &Tensor, most: f64) -> Result<Tensor> {
    if x.shape()[1] <= SHORT {
        return f::_quantized_sums(x, zero, w, zeros);
    }
    let column = f::reshape(zeros, &[-1, 1])?;
    let x32 = differences(x, &number(zero as f64, x)?)?;
    let (x, w) = exactly(
        x32,
        differences(w, &column)?,
        (w.shape()[1], most),
        reach(x.dtype(), zero),
        &[0],
    )?;
    f::_exact_linear(&x, &w)
}

/// The weight of a product, which has to be a matrix of signed bytes.
fn matrix(t: &Tensor, name: &str) -> Result<(Quantized, Tensor, Tensor)> {
    let w = Quantized::expected(t, name)?;
    ensure!(
        w.integers.dtype() == DType::I8 && t.ndim() == 2,
        Runtime,
        "{name}: The weight has to be a matrix of type QInt8."
    );
    let (scales, zeros, axis) = w.numbers()?;
    ensure!(
        scales.numel() == 1 || axis == 0,
        Runtime,
        "{name}: The channels of the weight have to be its rows."
    );
    Ok((w, scales, zeros))
}

fn rows_of(x: &Tensor, columns: i64) -> Result<Tensor> {
    ensure!(
        x.ndim() > 0,
        Runtime,
        "The dimension of input tensor should be larger than 0."
    );
    let last = x.shape()[x.ndim() - 1];
    ensure!(
        last == columns,
        Runtime,
        "The number of rows in the packB should be equal to K: {last}"
    );
    f::reshape(x, &[x.numel() / columns.max(1), columns])
}

fn check_byte(q: &Quantized, words: &str) -> Result<()> {
    ensure!(
        q.integers.dtype() == DType::U8,
        Runtime,
        "{words} data type QUInt8 but got {}",
        super::parts::quantized_type(q.integers.dtype())?.scalar_type()
    );
    Ok(())
}

fn linear(a: &calls::_QuantizedLinear) -> Result<Tensor> {
    let name = "quantized::linear";
    let x = Quantized::expected(a.input, name)?;
    check_byte(&x, "Expected input")?;
    let from = x.uniform(name)?;
    let (w, scales, zeros) = matrix(a.weight, name)?;
    let w = &w.integers;
    let rows = rows_of(&x.integers, w.shape()[1])?;
    let sums = sums(&rows, from.zero, w, &zeros, a.most)?;
    let factors = Factors::new(from.scale, &scales)?;
    let bias = factors.bias(a.bias)?;
    let factor = f::div(&factors.step, &number(a.scale, &scales)?)?;
    let low = if a.relu { a.zero_point } else { 0 };
    let made = f::_quantized_anew(&sums, &factor, &bias, a.zero_point, low, DType::U8)?;
    let mut shape = a.input.shape().to_vec();
    shape[a.input.ndim() - 1] = w.shape()[0];
    let to = Uniform {
        scale: a.scale,
        zero: a.zero_point,
    };
    to.over(&f::reshape(&made, &shape)?)
}

fn linear_dynamic(a: &calls::_QuantizedLinearDynamic) -> Result<Tensor> {
    let name = "quantized::linear_dynamic";
    let (w, scales, zeros) = matrix(a.weight, name)?;
    let w = &w.integers;
    let from = chosen(a.input, DType::QU8, a.reduce_range)?;
    let rows = rows_of(a.input, w.shape()[1])?;
    let integers = from.rounded_first(&rows, DType::QU8)?;
    let sums = sums(&integers, from.zero, w, &zeros, a.most)?;
    let step = Factors::new(from.scale, &scales)?.step;
    let bias = match a.bias {
        Some(bias) => f::to_dtype(&f::detach(bias)?, DType::F32)?,
        None => number(0.0, &step)?,
    };
    let made = if w.shape()[1] <= SHORT {
        let sums = f::to_dtype(&sums, DType::I32)?;
        f::_QuantizedReals::new(&sums, &step, &bias)
            .once(true)
            .call()?
    } else {
        f::add(&f::mul(&f::to_dtype(&sums, DType::F32)?, &step)?, &bias)?
    };
    let mut shape = a.input.shape().to_vec();
    shape[a.input.ndim() - 1] = w.shape()[0];
    f::reshape(&made, &shape)
}

fn convolution(a: &calls::_QuantizedConvolution) -> Result<Tensor> {
    let name = if a.transposed {
        "quantized::conv_transpose"
    } else {
        "quantized::conv"
    };
    let x = Quantized::expected(a.input, name)?;
    check_byte(&x, "quantized::conv(FBGEMM): Expected activation")?;
    let from = x.uniform(name)?;
    let w = Quantized::expected(a.weight, name)?;
    let (scales, zeros, axis) = w.numbers()?;
    let factors = Factors::new(from.scale, &scales)?;
    let factor = f::div(&factors.step, &number(a.scale, &scales)?)?;
    let bias = factors.bias(a.bias)?;
    let low = if a.relu { a.zero_point } else { 0 };
    let to = Uniform {
        scale: a.scale,
        zero: a.zero_point,
    };
    if by_words(a, &x.integers, &w.integers, (from.zero, axis))? {
        let flat = |t: &Tensor| f::reshape(t, &[-1]);
        let made = f::_quantized_windows(
            &x.integers,
            from.zero,
            &w.integers,
            a.packed,
            &zeros,
            &flat(&factor)?,
            &flat(&bias)?,
            a.stride,
            a.padding,
            a.dilation,
            a.groups,
            a.zero_point,
            low,
        )?;
        return to.over(&made);
    }
    let inputs = differences(&x.integers, &number(from.zero as f64, &x.integers)?)?;
    let format = match a.input.ndim() {
        4 => MemoryFormat::ChannelsLast,
        5 => MemoryFormat::ChannelsLast3d,
        _ => MemoryFormat::Contiguous,
    };
    let inputs = f::Contiguous::new(&inputs).memory_format(format).call()?;
    let weights = differences(&w.integers, &super::along(&zeros, &w.integers, axis)?)?;
    let shape = w.integers.shape();
    let count: i64 = shape.iter().skip(usize::from(!a.transposed)).product();
    // A channel of a transposed weight is one of a group: all groups' channels of that place count as one.
    let outer = if a.transposed { [1] } else { [0] };
    let (inputs, weights) = exactly(
        inputs,
        weights,
        (count, a.most),
        reach(x.integers.dtype(), from.zero),
        &outer,
    )?;
    let sums = f::_exact_convolution(
        &inputs,
        &weights,
        a.stride,
        a.padding,
        a.dilation,
        a.transposed,
        a.output_padding,
        a.groups,
    )?;
    let along = |t: &Tensor| match t.numel() {
        1 => f::reshape(t, &[]),
        _ => super::along(t, &sums, 1),
    };
    let made = f::_quantized_anew(
        &sums,
        &along(&factor)?,
        &along(&bias)?,
        a.zero_point,
        low,
        DType::U8,
    )?;
    to.over(&made)
}

/// Whether a convolution is computed by words of bytes.
fn by_words(
    a: &calls::_QuantizedConvolution,
    x: &Tensor,
    w: &Tensor,
    (zero, axis): (i64, usize),
) -> Result<bool> {
    if a.transposed || axis != 0 || !matches!(x.ndim(), 4 | 5) || !(0..256).contains(&zero) {
        return Ok(false);
    }
    let (_, g) = bytes_geometry(x, w, a.stride, a.padding, a.dilation, a.groups)?;
    Ok(cpu::conv::bytes::suits(&g))
}
