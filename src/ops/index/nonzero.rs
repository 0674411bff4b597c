//! Places of non-zero elements, one-hot vectors, unravelled indices.

use crate::cpu::index::{self as cpu_index};
use crate::ops::core::args::Args;
use crate::ops::core::dispatch;
use crate::ops::core::helpers;
use crate::ops::core::op::{F, FM, FMO, KernelBody, OpDef, Plan, Ret, kernel, old_compose};
use crate::ops::index::getitem::{count, split_places};
use crate::{DType, Dims, Result, Scalar, Tensor, bail, cpu, dims, ensure, run, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "nonzero",
        "(Tensor self)",
        FMO,
        KernelBody::new(infer_nonzero, nonzero),
        "The positions of the elements that are not zero, one a row.",
    ),
    old_compose(
        "nonzero#tuple",
        "(Tensor self, *, bool as_tuple) -> Tensor[]",
        FM,
        |a| {
            if a.bool(1) {
                nonzero_tuple(a.tensor(0)?)
            } else {
                run!("nonzero", a.tensor(0)?)
            }
        },
        "The positions of the elements that are not zero; as one tensor a dimension if asked.",
    ),
    kernel(
        "nonzero_static",
        "(Tensor self, *, int size, int fill_value=-1)",
        FMO,
        KernelBody::new(infer_nonzero_static, nonzero_static),
        "The first `size` positions of elements that are not zero, filled up.",
    ),
    old_compose(
        "argwhere",
        "(Tensor self)",
        FM,
        argwhere,
        "The positions of the elements that are not zero, one a row.",
    ),
    old_compose(
        "where#nonzero",
        "(Tensor condition) -> Tensor[]",
        F,
        |a| nonzero_tuple(a.tensor(0)?),
        "The positions where the condition holds, one tensor a dimension.",
    ),
    old_compose(
        "nn.functional.one_hot",
        "(Tensor tensor, int num_classes=-1)",
        F,
        one_hot,
        "A 1 at the position that each class number tells, 0 elsewhere.",
    ),
    kernel(
        "_one_hot",
        "(Tensor self, int num_classes)",
        F,
        KernelBody::new(infer_one_hot, one_hot_cpu),
        "",
    ),
    old_compose(
        "unravel_index",
        "(Tensor indices, int[] shape) -> Tensor[]",
        F,
        unravel_index,
        "Row-major positions as coordinates, one tensor a dimension.",
    ),
    old_compose(
        "unravel_index#int",
        "(Tensor indices, int shape) -> Tensor[]",
        F,
        unravel_index,
        "Row-major positions as coordinates, one tensor a dimension.",
    ),
    kernel(
        "_unravel_index",
        "(Tensor self, int[] shape)",
        F,
        KernelBody::new(infer_unravel, unravel_cpu),
        "",
    ),
];

fn infer_nonzero(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let Ok(n) = count(t) else {
        return Err(dispatch::data_dependent(a));
    };
    // Coordinates of one dimension lie together.
    let shape = Dims::new(&[n, t.ndim() as i64]);
    Ok(Plan::one(shape, Dims::new(&[1, n.max(1)]), DType::I64))
}

fn nonzero(a: &Args, outs: &[Tensor]) -> Result<()> {
    let bits = cpu::copy::dense(a.tensor(0)?, DType::Bool)?;
    write_places(
        &cpu_index::true_places(&bits, usize::MAX),
        bits.shape(),
        &outs[0],
    )
}

fn write_places(places: &[i64], shape: &[i64], out: &Tensor) -> Result<()> {
    for (d, column) in split_places(places, shape)?.iter().enumerate() {
        cpu::copy::copy(&out.selected(1, d as i64), column)?;
    }
    Ok(())
}

fn nonzero_tuple(t: &Tensor) -> Result<Ret> {
    let t = if t.ndim() == 0 {
        run1!("unsqueeze", t, 0i64)?
    } else {
        t.clone()
    };
    let n = t.ndim() as i64;
    let rows = run1!("nonzero", &t)?;
    Ok(Ret::List((0..n).map(|d| rows.selected(1, d)).collect()))
}

fn argwhere(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    if t.ndim() == 0 {
        let rows = run1!("nonzero", &run1!("unsqueeze", t, 0i64)?)?;
        return Ok(rows.narrowed(1, 0, 0).into());
    }
    run!("nonzero", t)
}

fn infer_nonzero_static(a: &Args) -> Result<Plan> {
    let size = a.int(1)?;
    ensure!(
        size >= 0,
        Runtime,
        "nonzero_static: 'size' must be an non-negative integer"
    );
    Ok(Plan::contiguous(
        &[size, a.tensor(0)?.ndim() as i64],
        DType::I64,
    ))
}

fn nonzero_static(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (bits, size) = (cpu::copy::dense(a.tensor(0)?, DType::Bool)?, a.int(1)?);
    cpu::fill(&outs[0], Scalar::Int(a.int(2)?))?;
    let places = cpu_index::true_places(&bits, size as usize);
    write_places(
        &places,
        bits.shape(),
        &outs[0].narrowed(0, 0, places.len() as i64),
    )
}

fn one_hot(a: &Args) -> Result<Ret> {
    let (t, mut n) = (a.tensor(0)?, a.int(1)?);
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
        let real = cpu::copy::dense(
            &helpers::readable(t, "Tensor.item() cannot be called on meta tensors")?,
            DType::I64,
        )?;
        n = cpu::slice::<i64>(&real)
            .iter()
            .copied()
            .max()
            .unwrap_or(0)
            .saturating_add(1)
            .max(1);
    } else {
        ensure!(
            n >= 1,
            Runtime,
            "Class values must be smaller than num_classes."
        );
    }
    run!("_one_hot", t, n)
}

fn infer_one_hot(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    Ok(Plan::contiguous(
        &t.shape().concat(&[a.int(1)?]),
        DType::I64,
    ))
}

fn one_hot_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, n) = (cpu::copy::dense(a.tensor(0)?, DType::I64)?, a.int(1)?);
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
    let dense = Tensor::empty(outs[0].shape(), DType::I64, crate::Device::CPU)?;
    cpu::fill(&dense, Scalar::Int(0))?;
    let rows = cpu::slice_mut::<i64>(&dense);
    for (i, &c) in classes.iter().enumerate() {
        rows[i * n as usize + c as usize] = 1;
    }
    cpu::copy::copy(&outs[0], &dense)
}

fn unravel_index(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(
        t.dtype().is_integral(false),
        Type,
        "expected 'indices' to be integer dtype, but got torch.{}",
        t.dtype().name()
    );
    let shape = match a.opt_ints(1) {
        Some(s) => s.clone(),
        None => Dims::new(&[a.int(1)?]),
    };
    if shape.iter().any(|&d| d < 0) {
        let list: Vec<String> = shape.iter().map(i64::to_string).collect();
        bail!(
            Value,
            "'shape' cannot have negative values, but got ({}{})",
            list.join(", "),
            if list.len() == 1 { "," } else { "" }
        );
    }
    let all = run1!("_unravel_index", t, shape)?;
    run!("unbind", &all, -1i64)
}

fn infer_unravel(a: &Args) -> Result<Plan> {
    Ok(Plan::contiguous(
        &a.tensor(0)?.shape().concat(&[a.ints(1)?.len() as i64]),
        DType::I64,
    ))
}

fn unravel_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, shape) = (cpu::copy::dense(a.tensor(0)?, DType::I64)?, a.ints(1)?);
    let steps = dims::contiguous_strides(shape);
    for d in 0..shape.len() {
        let list: Vec<i64> = cpu::slice::<i64>(&t)
            .iter()
            .map(|&p| {
                let q = p.div_euclid(steps[d]);
                if shape[d] == 0 {
                    0
                } else {
                    q.rem_euclid(shape[d])
                }
            })
            .collect();
        let column = Tensor::from_slice(&list, t.shape())?;
        cpu::copy::copy(&outs[0].selected(t.ndim(), d as i64), &column)?;
    }
    Ok(())
}
