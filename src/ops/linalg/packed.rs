//! Products with integers: of bytes, and of weights that are kept in eight or four bits.

use super::matrix::GPU;
use crate::ops::core::op::{F, O, OpDef, Plan, Ret, X, compose, kernel};
use crate::ops::f;
use crate::{DType, Result, Tensor, cpu, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_int_mm",
        "(Tensor self, Tensor mat2)",
        F | O | X,
        body!(
            |a| int_mm_rule(a.input, a.mat2),
            |a, _, o| cpu::matrix::product_of_bytes(&o[0], a.input, a.mat2),
            cuda: |a, _, o| {
                let wide = |t: &Tensor| (GPU.converted)(t, DType::I32);
                GPU.mm(&o[0], &wide(a.input)?, &wide(a.mat2)?)
            }
        ),
        "The product of two matrices of bytes, in 32 bits.",
    )
    .samples("i8[3, 4], i8[4, 2]; u8[3, 4], i8[4, 2]")
    .no_grad(),
    compose(
        "_weight_int8pack_mm",
        "(Tensor self, Tensor mat2, Tensor scales)",
        F,
        int8_mm,
        "The product with the transpose of a matrix of bytes, each row of which has a scale.",
    )
    .samples("f32[3, 4], i8[2, 4], f32[2]; bf16[3, 4], i8[2, 4], bf16[2]"),
    kernel(
        "_int8_product",
        "(Tensor self, Tensor weight, Tensor scales)",
        0,
        body!(
            |a| product_rule(a.input, (a.weight, DType::I8, 1), (a.scales, 1)),
            |a, _, o| cpu::packed::of_bytes(&o[0], a.input, a.weight, a.scales),
            scratch: |a, _, o, room| cpu::packed::room(room, &o[0], a.input, a.weight, a.scales, false)
        ),
        "",
    )
    .samples("f32[3, 4], i8[2, 4], f32[2]; bf16[3, 4], i8[2, 4], bf16[2]")
    .through(typed!(int8_by_reals)),
    kernel(
        "_convert_weight_to_int4pack_for_cpu",
        "(Tensor self, int innerKTiles)",
        F,
        body!(pack_rule, |a, _, o| pack(a.input, &o[0]), scratch: |a, _, o, room| {
            room.dense(a.input, DType::I32)?;
            room.dense(&o[0], DType::U8).map(drop)
        }),
        "Numbers of four bits in pairs: rows of a block of 32, the first half in the lower bits, column after column.",
    )
    .samples("i32[16, 4].below(16), 2; i32[48, 2].below(16), 2")
    .no_grad(),
    kernel(
        "_unpack_int4",
        "(Tensor self)",
        0,
        body!(
            |a| Ok(Plan::contiguous(&[a.input.size(0)?, a.input.size(1)? * 2], DType::I32)),
            |a, _, o| unpack(a.input, &o[0]),
            scratch: |a, _, o, room| {
                room.dense(a.input, DType::U8)?;
                room.dense(&o[0], DType::I32).map(drop)
            }
        ),
        "",
    )
    .samples("u8[32, 2].below(16)")
    .no_grad(),
    compose(
        "_weight_int4pack_mm_for_cpu",
        "(Tensor self, Tensor mat2, int qGroupSize, Tensor qScaleAndZeros)",
        F,
        int4_mm,
        "The product with the transpose of packed numbers of four bits, groups of columns having scales and zeros.",
    )
    .samples("f32[3, 32], u8[32, 16], 32, f32[1, 32, 2]"),
    kernel(
        "_int4_product",
        "(Tensor self, Tensor weight, int group, Tensor numbers)",
        0,
        body!(
            |a| nibbles_rule(a),
            |a, _, o| cpu::packed::of_nibbles(&o[0], a.input, a.weight, a.group as usize, a.numbers),
            scratch: |a, _, o, room| cpu::packed::room(room, &o[0], a.input, a.weight, a.numbers, true)
        ),
        "",
    )
    .samples("f32[3, 32], u8[32, 16], 32, f32[1, 32, 2]; bf16[3, 64], u8[48, 32], 32, bf16[2, 48, 2]")
    .through(typed!(int4_by_reals)),
];

/// The product of a matrix with rows of packed weights, so many to a byte, of one size `k`; and numbers for each row.
fn product_rule(
    x: &Tensor,
    (w, d, each): (&Tensor, DType, i64),
    (numbers, ndim): (&Tensor, usize),
) -> Result<Plan> {
    ensure!(
        x.dtype().is_float() && x.ndim() == 2 && w.dtype() == d && w.ndim() == 2,
        Runtime,
        "expected a matrix of real numbers, and one of {d}"
    );
    let rows = w.shape()[0];
    ensure!(
        w.shape()[1] * each == x.shape()[1]
            && numbers.dtype().is_float()
            && numbers.ndim() == ndim
            && numbers.shape()[ndim / 2] == rows,
        Runtime,
        "expected rows of {} weights, and real numbers for each of {rows} rows",
        x.shape()[1]
    );
    Ok(Plan::contiguous(&[x.shape()[0], rows], x.dtype()))
}

fn nibbles_rule(a: &calls::_Int4Product) -> Result<Plan> {
    let plan = product_rule(a.input, (a.weight, DType::U8, 2), (a.numbers, 3))?;
    let (n, k, groups) = (a.weight.shape()[0], a.input.shape()[1], a.numbers.shape());
    ensure!(
        n % 16 == 0
            && a.group > 0
            && k % a.group == 0
            && groups[0] >= k / a.group
            && groups[2] == 2,
        Runtime,
        "expected a scale and a zero for each group of {} columns, and sixteen rows or a multiple",
        a.group
    );
    Ok(plan)
}

fn int_mm_rule(a: &Tensor, b: &Tensor) -> Result<Plan> {
    for (t, name) in [(a, "self"), (b, "mat2")] {
        ensure!(
            t.ndim() == 2,
            Runtime,
            "int_mm_out_cpu: Expected {name} to be of dimension 2 but got {}",
            t.ndim()
        );
    }
    ensure!(
        a.shape()[1] == b.shape()[0],
        Runtime,
        "int_mm_out_cpu: self.size(1) needs to match mat2.size(0) but got {} and {}",
        a.shape()[1],
        b.shape()[0]
    );
    ensure!(
        matches!(a.dtype(), DType::I8 | DType::U8),
        Runtime,
        "int_mm_out_cpu: Expected self dtype to be int8 or uint8 but got {}",
        a.dtype().cpp_name()
    );
    ensure!(
        b.dtype() == DType::I8,
        Runtime,
        "int_mm_out_cpu: Expected mat2 dtype to be of type int8 but got {}",
        b.dtype().cpp_name()
    );
    Ok(Plan::contiguous(&[a.shape()[0], b.shape()[1]], DType::I32))
}

/// What both products want of their first operand.
fn check_input(t: &Tensor, name: &str) -> Result<()> {
    ensure!(
        matches!(t.dtype(), DType::F32 | DType::F16 | DType::BF16),
        Runtime,
        "{name} : expect A to be either 32-bit or 16-bit float tensor."
    );
    ensure!(t.ndim() == 2, Runtime, "{name} : expect A to be 2D tensor.");
    Ok(())
}

fn int8_mm(a: &calls::_WeightInt8packMm) -> Result<Tensor> {
    let (x, w, scales) = (a.input, a.mat2, a.scales);
    let name = "_weight_int8pack_mm_cpu";
    check_input(x, name)?;
    ensure!(
        w.dtype() == DType::I8,
        Runtime,
        "{name} : expect B to be int8 tensor."
    );
    ensure!(
        w.ndim() == 2 && w.shape()[1] == x.shape()[1],
        Runtime,
        "{name} : expect B.size(1) == {}",
        x.shape()[1]
    );
    ensure!(
        scales.ndim() == 1 && scales.shape()[0] == w.shape()[0],
        Runtime,
        "{name} : expect scales to be 1d tensor with size {}",
        w.shape()[0]
    );
    x.dtype().check_same(scales.dtype())?;
    f::_int8_product(x, w, scales)
}

/// The same by way of the weights' real numbers, which has gradients.
fn int8_by_reals(a: &calls::_Int8Product) -> Result<Ret> {
    let wide = |t: &Tensor| f::to_dtype(t, cpu::norm::compute_type(a.input.dtype()));
    let product = f::mm(&wide(a.input)?, &f::t(&wide(a.weight)?)?)?;
    let made = f::mul(&product, &wide(a.scales)?)?;
    f::to_dtype(&made, a.input.dtype()).map(Ret::One)
}

fn pack_rule(a: &calls::_ConvertWeightToInt4packForCpu) -> Result<Plan> {
    let t = a.input;
    let name = "_convert_weight_to_int4pack_cpu";
    ensure!(
        t.ndim() == 2,
        Runtime,
        "{name} : expect weight to be 2D tensor."
    );
    ensure!(
        t.dtype() == DType::I32,
        Runtime,
        "{name} : expect weight to be kInt."
    );
    ensure!(
        t.shape()[0] % 16 == 0,
        Runtime,
        "{name} : expect N to be dividable by 16"
    );
    ensure!(
        t.shape()[1] % 2 == 0,
        Runtime,
        "_convert_weight_to_int4pack: expect K to be dividable by 2"
    );
    Ok(Plan::contiguous(
        &[t.shape()[0], t.shape()[1] / 2],
        DType::U8,
    ))
}

fn pack(t: &Tensor, out: &Tensor) -> Result<()> {
    let (rows, columns) = (t.shape()[0] as usize, t.shape()[1] as usize);
    let dense = cpu::copy::dense(t, DType::I32)?;
    let from = cpu::slice::<i32>(&dense);
    cpu::lines::written::<u8>(out, |bytes| {
        bytes.fill(0);
        cpu::packed::for_each_pair(rows, columns, |a, b, k, place| {
            let (low, high) = (from[a * columns + k], from[b * columns + k]);
            bytes[place] = (low & 15) as u8 | ((high & 15) as u8) << 4;
        });
        Ok(())
    })
}

fn unpack(t: &Tensor, out: &Tensor) -> Result<()> {
    let (rows, columns) = (t.shape()[0] as usize, t.shape()[1] as usize * 2);
    let dense = cpu::copy::dense(t, DType::U8)?;
    let from = cpu::slice::<u8>(&dense);
    cpu::lines::written::<i32>(out, |numbers| {
        numbers.fill(0);
        cpu::packed::for_each_pair(rows, columns, |a, b, k, place| {
            numbers[a * columns + k] = i32::from(from[place] & 15);
            numbers[b * columns + k] = i32::from(from[place] >> 4);
        });
        Ok(())
    })
}

fn int4_mm(a: &calls::_WeightInt4packMmForCpu) -> Result<Tensor> {
    let (x, w, group, qs) = (a.input, a.mat2, a.qGroupSize, a.qScaleAndZeros);
    let name = "_weight_int4pack_mm_cpu";
    check_input(x, name)?;
    ensure!(
        w.dtype() == DType::U8,
        Runtime,
        "{name} : expect B to be uint8 tensor."
    );
    ensure!(
        w.ndim() == 2 && w.shape()[1] * 2 == x.shape()[1] && w.shape()[0] % 16 == 0,
        Runtime,
        "{name} : expect B to be a matrix of N by K / 2 with K == {}",
        x.shape()[1]
    );
    ensure!(
        matches!(group, 32 | 64 | 128 | 256),
        Runtime,
        "{name}: expect qGroupSize to be 32, 64, 128 or 256, got {group}"
    );
    let (n, k) = (w.shape()[0], x.shape()[1]);
    ensure!(
        qs.ndim() == 3
            && qs.shape()[1] == n
            && qs.shape()[2] == 2
            && qs.shape()[0] * group >= k
            && k % group == 0,
        Runtime,
        "{name}: expect qScaleAndZeros to be 3d tensor with sizes [:, {n}, 2]"
    );
    f::_int4_product(x, w, group, qs)
}

/// As [`int8_by_reals`].
fn int4_by_reals(a: &calls::_Int4Product) -> Result<Ret> {
    let (x, w, group) = (a.input, a.weight, a.group);
    let (n, k) = (w.shape()[0], x.shape()[1]);
    let wide = |t: &Tensor| f::to_dtype(t, cpu::norm::compute_type(x.dtype()));
    let groups = f::narrow(&wide(a.numbers)?, 0, 0, k / group)?;
    let of = |i: i64| f::unsqueeze(&f::t(&f::select(&groups, 2, i)?)?, -1);
    let numbers = f::sub(&wide(&f::_unpack_int4(w)?)?, 8.0)?;
    let numbers = f::reshape(&numbers, &[n, k / group, group])?;
    let real = f::add(&f::mul(&numbers, &of(0)?)?, &of(1)?)?;
    let product = f::mm(&wide(x)?, &f::t(&f::reshape(&real, &[n, k])?)?)?;
    f::to_dtype(&product, x.dtype()).map(Ret::One)
}
