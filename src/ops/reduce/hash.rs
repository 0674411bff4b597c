//! Hashes of elements.

use crate::cpu::{copy, lines, slice};
use crate::ops::core::op::{FM, O, OpDef, Plan, X, kernel};
use crate::ops::reduce::rule::Over;
use crate::{DType, Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[kernel(
    "hash_tensor",
    "(Tensor self, int[1] dim=[], *, bool keepdim=False, int mode=0)",
    FM | O | X,
    body!(rule, |_, over, o| hash(over, &o[0]), scratch: |a, _, outs, room| {
        room.dense(a.input, hashed_as(a.input))?;
        room.dense(&outs[0], DType::U64).map(drop)
    }),
    "The exclusive or of all elements' bits, real numbers as those of double precision.",
)
.samples("f32[3, 4]; i64[2, 3], dim=1, keepdim=True; b8[4], dim=(0,)")
.no_grad()];

fn rule<'a>(a: &calls::HashTensor<'a>) -> Result<(Plan, Over<'a>)> {
    ensure!(a.mode == 0, Runtime, "Unknown hash_tensor mode: {}", a.mode);
    let d = a.input.dtype();
    let known = (d.is_float() && !d.is_storage_only())
        || matches!(
            d,
            DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64
        );
    d.check_kernel(known, "xor_sum_cpu")?;
    let over = Over::list(a.input, a.dim, a.keepdim)?;
    if a.input.numel() == 0 {
        ensure!(
            !a.dim.is_empty(),
            Runtime,
            "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument."
        );
        for &dim in &over.dims {
            ensure!(
                a.input.shape().get(dim).is_none_or(|&n| n > 0),
                Index,
                "hash_tensor: Expected reduction dim {dim} to have non-zero size."
            );
        }
    }
    Ok((over.plan(DType::U64), over))
}

fn hash(over: &Over, out: &Tensor) -> Result<()> {
    let t = over.input;
    let wide = copy::dense(t, hashed_as(t))?;
    if wide.dtype() == DType::F64 {
        return hash_of(over, slice::<f64>(&wide), f64::to_bits, out);
    }
    hash_of(over, slice::<i64>(&wide), |v| v as u64, out)
}

fn hash_of<T: Copy>(over: &Over, all: &[T], bits: fn(T) -> u64, out: &Tensor) -> Result<()> {
    // The place in the result of each element, counted along its dimensions.
    let sizes = over.input.shape();
    let mut steps = vec![0usize; sizes.len()];
    let mut step = 1;
    for d in (0..sizes.len()).rev().filter(|d| !over.dims.contains(d)) {
        steps[d] = step;
        step *= sizes[d].max(0) as usize;
    }
    lines::written::<u64>(out, |hashes| {
        hashes.fill(0);
        let (mut at, mut place) = (vec![0i64; sizes.len()], 0);
        for &v in all {
            hashes[place] ^= bits(v);
            for d in (0..sizes.len()).rev() {
                at[d] += 1;
                place += steps[d];
                if at[d] < sizes[d] {
                    break;
                }
                place -= steps[d] * sizes[d] as usize;
                at[d] = 0;
            }
        }
        Ok(())
    })
}

/// The type whose bits count.
fn hashed_as(t: &Tensor) -> DType {
    if t.dtype().is_float() {
        DType::F64
    } else {
        DType::I64
    }
}
