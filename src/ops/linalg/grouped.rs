//! Products of groups of rows or columns, and of numbers of eight bits that have scales.

use crate::ops::core::helpers;
use crate::ops::core::op::{F, O, OpDef, compose};
use crate::ops::f;
use crate::{DType, Result, Tensor, bail, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grouped_mm",
        "(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, dtype? out_dtype=None)",
        F,
        grouped,
        "The products of groups: of rows with a matrix each, of columns, or of parts of the sum, which end at `offs`.",
    )
    .samples(
        "f32[6, 4], f32[2, 4, 3], i32([2, 6]); bf16[2, 3, 4], bf16[4, 6], i32([1, 6]); \
         f32[3, 6], f32[6, 4], i32([2, 6]); f32[2, 3, 4], f32[2, 4, 5]",
    ),
    compose(
        "_scaled_mm",
        "(Tensor self, Tensor mat2, Tensor scale_a, Tensor scale_b, Tensor? bias=None, Tensor? scale_result=None, dtype? out_dtype=None, bool use_fast_accum=False)",
        F | O,
        scaled,
        "The product of two matrices of eight-bit floats with a scale each, or one for each row and column.",
    )
    .samples("see tests/test_grouped.py"),
];

fn check_grouped(a: &calls::_GroupedMm) -> Result<()> {
    let (x, y) = (a.input, a.mat2);
    for (t, name) in [(x, "mat_a"), (y, "mat_b")] {
        ensure!(
            matches!(t.dtype(), DType::F32 | DType::BF16 | DType::F16),
            Runtime,
            "Expected {name} to be Float32, BFloat16 or Float16 matrix, got {}",
            t.dtype().scalar_type()
        );
        ensure!(
            matches!(t.ndim(), 2 | 3),
            Runtime,
            "{name} has to be 2 or 3d"
        );
    }
    let flat = x.ndim() == 2 || y.ndim() == 2;
    if !(x.ndim() == 2 && y.ndim() == 2) {
        ensure!(
            x.size(-1)? == y.size(-2)?,
            Runtime,
            "contraction dimension of mat_a and mat_b must match"
        );
    }
    ensure!(
        a.offs.is_some() == flat,
        Runtime,
        "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d"
    );
    if let Some(offs) = a.offs {
        ensure!(offs.ndim() == 1, Runtime, "offs has to be 1D");
        ensure!(
            offs.dtype() == DType::I32,
            Runtime,
            "Offsets have to be int32"
        );
        for t in [x, y].into_iter().filter(|t| t.ndim() == 3) {
            ensure!(
                t.shape()[0] == offs.shape()[0],
                Runtime,
                "matrix batch sizes have to match"
            );
        }
    } else {
        ensure!(
            x.shape()[0] == y.shape()[0],
            Runtime,
            "batched dimension has to match"
        );
    }
    ensure!(a.bias.is_none(), Runtime, "Bias not supported yet");
    ensure!(
        a.out_dtype.is_none_or(|d| d == x.dtype()),
        Runtime,
        "Grouped gemm output dtype must match `mat_a` dtype"
    );
    Ok(())
}

fn grouped(a: &calls::_GroupedMm) -> Result<Tensor> {
    check_grouped(a)?;
    let (x, y) = (a.input, a.mat2);
    let Some(offs) = a.offs else {
        return f::bmm(x, y);
    };
    let groups = offs.shape()[0];
    let (rows, columns) = (x.size(-2)?, y.size(-1)?);
    let inner = x.ndim() == 2 && y.ndim() == 2;
    let shape = if inner {
        vec![groups, rows, columns]
    } else {
        vec![rows, columns]
    };
    if groups == 0 {
        return f::new_zeros(x, &shape[..]);
    }
    let along = if inner {
        x.size(-1)?
    } else if x.ndim() == 2 {
        rows
    } else {
        columns
    };
    let (mut parts, mut start) = (Vec::new(), 0);
    for g in 0..groups {
        // Where groups end that is not known, any cut gives the shapes and takes the memory.
        let end = match helpers::known_item(&f::select(offs, 0, g)?)? {
            Some(end) => end.to_i64(),
            None => along * (g + 1) / groups,
        };
        let end = end.clamp(start, along);
        let cut = |t: &Tensor, dim: i64| f::narrow(t, dim, start, end - start);
        parts.push(if inner {
            let k = y.size(-2)?;
            ensure!(
                end <= k,
                Runtime,
                "mat1 and mat2 shapes cannot be multiplied ({rows}x{} and {}x{columns})",
                end - start,
                (k - start).max(0)
            );
            f::mm(&cut(x, 1)?, &cut(y, 0)?)?
        } else if x.ndim() == 2 {
            f::mm(&cut(x, 0)?, &f::select(y, 0, g)?)?
        } else {
            f::mm(&f::select(x, 0, g)?, &cut(y, 1)?)?
        });
        start = end;
    }
    let dim = i64::from(x.ndim() == 3);
    if inner {
        return f::stack(&parts[..]);
    }
    if start < along {
        let mut rest = shape;
        rest[dim as usize] = along - start;
        parts.push(f::new_zeros(x, &rest[..])?);
    }
    f::Cat::new(&parts[..]).dim(dim).call()
}

fn eight_bits(d: DType) -> bool {
    matches!(
        d,
        DType::F8E4M3FN | DType::F8E5M2 | DType::F8E4M3FNUZ | DType::F8E5M2FNUZ
    )
}

fn check_scaled(a: &calls::_ScaledMm) -> Result<()> {
    let (x, y) = (a.input, a.mat2);
    ensure!(x.ndim() == 2, Runtime, "mat_a must be a matrix");
    ensure!(y.ndim() == 2, Runtime, "mat_b must be a matrix");
    let (m, n) = (x.shape()[0], y.shape()[1]);
    ensure!(
        x.shape()[1] == y.shape()[0],
        Runtime,
        "mat_a and mat_b shapes cannot be multiplied ({m}x{} and {}x{n})",
        x.shape()[1],
        y.shape()[0]
    );
    let (sa, sb) = (a.scale_a, a.scale_b);
    let plain = eight_bits(x.dtype())
        && eight_bits(y.dtype())
        && sa.dtype() == DType::F32
        && sb.dtype() == DType::F32;
    let single = sa.numel() == 1 && sb.numel() == 1;
    let by_rows = sa.shape()[..] == [m, 1]
        && sb.shape()[..] == [1, n]
        && sa.is_contiguous()
        && sb.is_contiguous();
    if !plain || !(single || by_rows) {
        bail!(
            Value,
            "Invalid scaling configuration.\n- For TensorWise scaling, a and b should be float8, scales should be float and singletons.\n- \
             For RowWise scaling, a and b should be float8, scales should be float, scale_a should be ({m}, 1) and scale_b should be (1, {n}), \
             and both should be contiguous.\nGot mat_a.dtype()={}, mat_b.dtype()={}, scale_a.dtype()={}, scale_a.size()={}, \
             scale_b.dtype()={}, scale_b.size()={}",
            x.dtype().scalar_type(),
            y.dtype().scalar_type(),
            sa.dtype().scalar_type(),
            sa.shape(),
            sb.dtype().scalar_type(),
            sb.shape()
        );
    }
    Ok(())
}

fn scaled(a: &calls::_ScaledMm) -> Result<Tensor> {
    check_scaled(a)?;
    let wide = |t: &Tensor| f::to_dtype(t, DType::F32);
    let scale = |s: &Tensor| {
        if s.numel() == 1 {
            f::reshape(s, &[1, 1])
        } else {
            Ok(s.clone())
        }
    };
    let x = f::mul(&wide(a.input)?, &scale(a.scale_a)?)?;
    let y = f::mul(&wide(a.mat2)?, &scale(a.scale_b)?)?;
    let mut made = f::mm(&x, &y)?;
    if let Some(bias) = a.bias {
        made = f::add(&made, &wide(bias)?)?;
    }
    let dtype = a.out_dtype.unwrap_or(a.input.dtype());
    if let (Some(s), true) = (a.scale_result, eight_bits(dtype)) {
        made = f::mul(&made, &scale(s)?)?;
    }
    f::to_dtype(&made, dtype)
}
