//! Places of non-zero elements, one-hot vectors, unravelled indices.

use crate::cpu::index::{self as cpu_index};
use crate::ops::batch;
use crate::ops::core::dispatch;
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, F, FM, FMO, Hidden, OpDef, Plan, X, compose, forward, kernel};
use crate::ops::core::plan::ViewPlan;
use crate::ops::f;
use crate::ops::index::truth::count;
use crate::{DType, Dims, Result, Scalar, Tensor, bail, cpu, dims, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "nonzero",
        "(Tensor self)",
        FMO | X,
        body!(nonzero_rule, nonzero, cuda: |a, (), outs| kernels::compact::places(&outs[0], a.input)),
        "The positions of the elements that are not zero, one a row.",
    )
    .apart(1)
    .samples("f32([[1, 0], [2, 3]]); b8([True, False])")
    .no_grad()
    .batch(Batch::Unknown),
    forward(
        "nonzero#tuple",
        "(Tensor self, *, bool as_tuple) -> Tensor[]",
        FMO | X,
        |a| {
            Ok(if a.as_tuple {
                f::_NonzeroTuple::new(a.input).args()?.to_owned()
            } else {
                f::Nonzero::new(a.input).args()?.to_owned()
            })
        },
        "The positions of the elements that are not zero; as one tensor a dimension if asked.",
    )
    .samples("f32[3, 4], as_tuple=False; b8[3, 4], as_tuple=False")
    .batch(Batch::As(typed!(|a, _h| if a.as_tuple { batch::refused("nonzero_numpy") } else { Err(batch::dynamic("nonzero")) }, Hidden))),
    compose(
        "_nonzero#tuple",
        "(Tensor self) -> Tensor[]",
        0,
        |a| nonzero_tuple(a.input),
        "The positions of the elements that are not zero, one tensor a dimension.",
    )
    .samples("f32[3, 4]"),
    kernel(
        "nonzero_static",
        "(Tensor self, *, int size, int fill_value=-1)",
        FMO | X,
        body!(nonzero_static_rule, nonzero_static, cuda: nonzero_static_beside, scratch: |a, _, _, room| room.dense(a.input, DType::Bool).map(drop)),
        "The first `size` positions of elements that are not zero, filled up.",
    )
    .samples("f32[3, 4], size=5; c64[3, 4], size=0")
    .no_grad(),
    compose(
        "argwhere",
        "(Tensor self)",
        FM,
        |a| f::nonzero(a.input),
        "The positions of the elements that are not zero, one a row.",
    )
    .samples("f32[3, 4]")
    .batch(Batch::Each),
    compose(
        "where#nonzero",
        "(Tensor condition) -> Tensor[]",
        F,
        |a| nonzero_tuple(a.condition),
        "The positions where the condition holds, one tensor a dimension.",
    )
    .samples("f32([[1, 0], [2, 3]])"),
    compose(
        "nn.functional.one_hot",
        "(Tensor self, int num_classes=-1)",
        F,
        nn_one_hot,
        "A 1 at the position that each class number tells, 0 elsewhere.",
    )
    .samples("i64(5); i64([0, 1, 1, 0, 1]), num_classes=10"),
    kernel(
        "_one_hot",
        "(Tensor self, int num_classes)",
        0,
        body!(one_hot_rule, one_hot, cuda: one_hot_beside, scratch: |a, _, outs, room| {
            room.dense(a.input, DType::I64)?;
            room.dense(&outs[0], DType::I64).map(drop)
        }),
        "",
    )
    .samples("i64([0, 2, 1]), 3")
    .no_grad()
    .batch(Batch::Lead),
    compose(
        "unravel_index",
        "(Tensor indices, int[] shape) -> Tensor[]",
        F,
        |a| unravel_index(a.indices, a.shape),
        "Row-major positions as coordinates, one tensor a dimension.",
    )
    .samples("i16[3, 4], (10, 3, 5)"),
    compose(
        "unravel_index#int",
        "(Tensor indices, int shape) -> Tensor[]",
        F,
        |a| unravel_index(a.indices, &[a.shape]),
        "Row-major positions as coordinates, one tensor a dimension.",
    )
    .samples("i64([1, 5]), 6"),
    kernel(
        "_unravel_index",
        "(Tensor self, int[] shape)",
        0,
        body!(unravel_rule, unravel, scratch: |a, _, outs, room| {
            room.dense(a.input, DType::I64)?;
            room.dense(&outs[0], DType::I64).map(drop)
        }),
        "",
    )
    .samples("i64([1, 5]), [2, 3]")
    .no_grad(),
];

fn nonzero_rule(a: &calls::Nonzero) -> Result<Plan> {
    let Ok(n) = count(a.input) else {
        return Err(dispatch::unknown_shape("nonzero"));
    };
    // Coordinates of one dimension lie together.
    let shape = Dims::new(&[n, a.input.ndim() as i64]);
    Ok(Plan::one(shape, Dims::new(&[1, n]), DType::I64))
}

fn nonzero(a: &calls::Nonzero, (): &(), outs: &[Tensor]) -> Result<()> {
    let bits = cpu::copy::dense(a.input, DType::Bool)?;
    cpu_index::write_coordinates(&bits, &outs[0]);
    Ok(())
}

fn nonzero_tuple(t: &Tensor) -> Result<Vec<Tensor>> {
    let rows = if t.ndim() == 0 {
        f::nonzero(&f::unsqueeze(t, 0)?)?
    } else {
        f::nonzero(t)?
    };
    f::Unbind::new(&rows).dim(1).call()
}

fn nonzero_static_rule(a: &calls::NonzeroStatic) -> Result<Plan> {
    ensure!(
        a.size >= 0,
        Runtime,
        "nonzero_static: 'size' must be an non-negative integer"
    );
    let shape = [a.size, a.input.ndim() as i64];
    Ok(Plan::contiguous(&shape, DType::I64))
}

fn nonzero_static(a: &calls::NonzeroStatic, (): &(), outs: &[Tensor]) -> Result<()> {
    let (out, bits) = (&outs[0], cpu::copy::dense(a.input, DType::Bool)?);
    cpu::fill(out, Scalar::Int(a.fill_value))?;
    cpu_index::write_coordinates(&bits, out);
    Ok(())
}

fn nonzero_static_beside(a: &calls::NonzeroStatic, (): &(), outs: &[Tensor]) -> Result<()> {
    kernels::fill(&outs[0], Scalar::Int(a.fill_value))?;
    kernels::compact::places(&outs[0], a.input)
}

fn nn_one_hot(a: &calls::NnFunctionalOneHot) -> Result<Tensor> {
    let (t, mut n) = (a.input, a.num_classes);
    ensure!(
        t.dtype() == DType::I64,
        Runtime,
        "one_hot is only applicable to index tensor of type LongTensor."
    );
    if t.numel() == 0 {
        ensure!(
            n > 0,
            Runtime,
            "Can not infer total number of classes from empty tensor."
        );
    } else if n == -1 {
        ensure!(
            t.batch().is_empty(),
            Runtime,
            "When vmap-ing torch.nn.functional.one_hot, please provide an explicit positive num_classes argument."
        );
        let largest = helpers::item(&f::max(t)?)?.to_i64();
        n = largest.saturating_add(1).max(1);
    } else {
        ensure!(
            n >= 1,
            Runtime,
            "Class values must be smaller than num_classes."
        );
    }
    f::_one_hot(t, n)
}

fn one_hot_rule(a: &calls::_OneHot) -> Result<Plan> {
    let shape = a.input.shape().concat(&[a.num_classes]);
    Ok(Plan::contiguous(&shape, DType::I64))
}

fn one_hot(a: &calls::_OneHot, (): &(), outs: &[Tensor]) -> Result<()> {
    let (t, n) = (cpu::copy::dense(a.input, DType::I64)?, a.num_classes);
    let classes = cpu::slice::<i64>(&t);
    ensure!(
        classes.iter().all(|&c| c >= 0),
        Runtime,
        "Class values must be non-negative."
    );
    ensure!(
        classes.iter().all(|&c| c < n),
        Runtime,
        "Class values must be smaller than num_classes."
    );
    cpu::lines::written::<i64>(&outs[0], |rows| {
        rows.fill(0);
        for (i, &c) in classes.iter().enumerate() {
            rows[i * n as usize + c as usize] = 1;
        }
        Ok(())
    })
}

fn one_hot_beside(a: &calls::_OneHot, (): &(), outs: &[Tensor]) -> Result<()> {
    let (t, out) = (a.input, &outs[0]);
    kernels::fill(out, Scalar::Int(0))?;
    let one = kernels::number(Scalar::Int(1), out)?;
    let index = cpu::view::of(t, ViewPlan::of(t).unsqueezed(t.ndim()))?;
    kernels::index::scatter(out, t.ndim(), &index, &one, None)
}

fn unravel_index(t: &Tensor, shape: &[i64]) -> Result<Vec<Tensor>> {
    ensure!(
        t.dtype().is_integral(false),
        Type,
        "expected 'indices' to be integer dtype, but got torch.{}",
        t.dtype().name()
    );
    if shape.iter().any(|&d| d < 0) {
        let list: Vec<String> = shape.iter().map(i64::to_string).collect();
        bail!(
            Value,
            "'shape' cannot have negative values, but got ({}{})",
            list.join(", "),
            if list.len() == 1 { "," } else { "" }
        );
    }
    let all = f::_unravel_index(t, shape)?;
    f::Unbind::new(&all).dim(-1).call()
}

fn unravel_rule(a: &calls::_UnravelIndex) -> Result<Plan> {
    let shape = a.input.shape().concat(&[a.shape.len() as i64]);
    Ok(Plan::contiguous(&shape, DType::I64))
}

fn unravel(a: &calls::_UnravelIndex, (): &(), outs: &[Tensor]) -> Result<()> {
    let (t, shape, out) = (cpu::copy::dense(a.input, DType::I64)?, a.shape, &outs[0]);
    let steps = dims::contiguous_strides(shape);
    cpu::lines::written::<i64>(out, |to| {
        let rows = to.chunks_exact_mut(shape.len().max(1));
        for (to, &p) in rows.zip(cpu::slice::<i64>(&t)) {
            for (to, (&step, &size)) in to.iter_mut().zip(steps.iter().zip(shape)) {
                *to = match size {
                    0 => 0,
                    size => p.div_euclid(step).rem_euclid(size),
                };
            }
        }
        Ok(())
    })
}
