//! Elements in other places: repeat, flip, roll; copies of views.

use crate::dims::{MemoryFormat, wrap_dim};
use crate::ops::core::args::Args;
use crate::ops::core::dispatch;
use crate::ops::core::helpers;
use crate::ops::core::op::{
    F, FM, FMO, KernelBody, M, O, OpDef, Plan, Ret, X, kernel, old_compose,
};
use crate::ops::core::rules;
use crate::ops::view::shape as view;
use crate::{DType, Dims, Result, Tensor, bail, cpu, ensure, err, run, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "repeat",
        "(Tensor self, int[*] repeats)",
        M,
        KernelBody::new(infer_repeat, repeat),
        "The tensor again and again along its dimensions.",
    ),
    old_compose(
        "tile",
        "(Tensor self, int[*] dims)",
        FM,
        tile,
        "The tensor again and again along its last dimensions.",
    ),
    kernel(
        "repeat_interleave#repeats",
        "(Tensor repeats, *, int? output_size=None)",
        F,
        KernelBody::new(infer_interleave, interleave),
        "Each position as often as its number says.",
    ),
    old_compose(
        "repeat_interleave#int",
        "(Tensor self, int repeats, int? dim=None, *, int? output_size=None)",
        FM,
        interleave_int,
        "Each element several times in a row.",
    ),
    old_compose(
        "repeat_interleave",
        "(Tensor self, Tensor repeats, int? dim=None, *, int? output_size=None)",
        FM,
        interleave_tensor,
        "Each element as often as a tensor says.",
    ),
    kernel(
        "flip",
        "(Tensor self, int[*] dims)",
        FM,
        KernelBody::new(infer_flip, flip),
        "Dimensions in reverse order.",
    ),
    old_compose(
        "fliplr",
        "(Tensor self)",
        FM,
        |a| flip_one(a, 2, 1),
        "Columns in reverse order.",
    ),
    old_compose(
        "flipud",
        "(Tensor self)",
        FM,
        |a| flip_one(a, 1, 0),
        "Rows in reverse order.",
    ),
    old_compose(
        "roll",
        "(Tensor self, int[1] shifts, int[1] dims=[])",
        FM,
        roll,
        "Elements moved along dimensions, those beyond the end back to the start.",
    ),
    old_compose(
        "rot90",
        "(Tensor self, int k=1, int[] dims=[0,1])",
        FM,
        rot90,
        "A plane turned by quarter circles.",
    ),
    old_compose(
        "view_copy",
        "(Tensor self, int[] size)",
        F | O | X,
        view_copy,
        "A copy of `view`.",
    ),
    old_compose(
        "view_copy#dtype",
        "(Tensor self, dtype dtype)",
        F | O | X,
        view_copy,
        "A copy of `view`.",
    ),
    old_compose(
        "permute_copy",
        "(Tensor self, int[] dims)",
        F | O | X,
        view_copy,
        "A copy of `permute`.",
    ),
    old_compose(
        "transpose_copy",
        "(Tensor self, int dim0, int dim1)",
        F | O | X,
        view_copy,
        "A copy of `transpose`.",
    ),
    old_compose(
        "t_copy",
        "(Tensor self)",
        F | O | X,
        view_copy,
        "A copy of `t`.",
    ),
    old_compose(
        "expand_copy",
        "(Tensor self, int[] size, *, bool implicit=False)",
        F | O | X,
        view_copy,
        "A copy of `expand`.",
    ),
    old_compose(
        "squeeze_copy",
        "(Tensor self)",
        F | O | X,
        view_copy,
        "A copy of `squeeze`.",
    ),
    old_compose(
        "squeeze_copy#dim",
        "(Tensor self, int dim)",
        F | O | X,
        view_copy,
        "A copy of `squeeze`.",
    ),
    old_compose(
        "squeeze_copy#dims",
        "(Tensor self, int[] dim)",
        F | O | X,
        view_copy,
        "A copy of `squeeze`.",
    ),
    old_compose(
        "unsqueeze_copy",
        "(Tensor self, int dim)",
        F | O | X,
        view_copy,
        "A copy of `unsqueeze`.",
    ),
    old_compose(
        "select_copy",
        "(Tensor self, int dim, int index)",
        F | O | X,
        view_copy,
        "A copy of `select`.",
    ),
    old_compose(
        "slice_copy",
        "(Tensor self, int dim=0, int? start=None, int? end=None, int step=1)",
        F | O | X,
        view_copy,
        "A copy of a range.",
    ),
    old_compose(
        "narrow_copy",
        "(Tensor self, int dim, int start, int length)",
        FMO | X,
        view_copy,
        "A copy of `narrow`.",
    ),
    old_compose(
        "diagonal_copy",
        "(Tensor self, int offset=0, int dim1=0, int dim2=1)",
        F | O | X,
        view_copy,
        "A copy of `diagonal`.",
    ),
    old_compose(
        "as_strided_copy",
        "(Tensor self, int[] size, int[] stride, int? storage_offset=None)",
        F | O | X,
        view_copy,
        "A copy of `as_strided`.",
    ),
    old_compose(
        "unfold_copy",
        "(Tensor self, int dimension, int size, int step)",
        F | O | X,
        view_copy,
        "A copy of `unfold`.",
    ),
    old_compose(
        "alias_copy",
        "(Tensor self)",
        F | O | X,
        view_copy,
        "A copy.",
    ),
    old_compose(
        "detach_copy",
        "(Tensor self)",
        F | O | X,
        view_copy,
        "A copy of `detach`.",
    ),
    old_compose(
        "view_as_real_copy",
        "(Tensor self)",
        F | O | X,
        view_copy,
        "A copy of `view_as_real`.",
    ),
    old_compose(
        "view_as_complex_copy",
        "(Tensor self)",
        F | O | X,
        view_copy,
        "A copy of `view_as_complex`.",
    ),
    old_compose(
        "split_copy",
        "(Tensor self, int split_size, int dim=0) -> Tensor[]",
        F,
        view_copy,
        "Copies of the pieces of `split`.",
    ),
    old_compose(
        "split_with_sizes_copy",
        "(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]",
        F,
        view_copy,
        "Copies of the pieces of `split_with_sizes`.",
    ),
    old_compose(
        "unbind_copy",
        "(Tensor self, int dim=0) -> Tensor[]",
        F,
        view_copy,
        "Copies of the pieces of `unbind`.",
    ),
];

/// The view of the same name without `_copy`, copied.
fn view_copy(a: &Args) -> Result<Ret> {
    let name = a.op.def.name.replace("_copy", "");
    let op = crate::ops::find(&name)?;
    view::copied(dispatch::run(op, &a.values)?)
}

fn infer_repeat(a: &Args) -> Result<Plan> {
    let (t, repeats) = (a.tensor(0)?, a.ints(1)?);
    ensure!(
        repeats.len() >= t.ndim(),
        Runtime,
        "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
    );
    let lead = repeats.len() - t.ndim();
    let mut shape = repeats.clone();
    for (i, &d) in t.shape().iter().enumerate() {
        shape[lead + i] = shape[lead + i]
            .checked_mul(d)
            .ok_or_else(|| err!(Runtime, "repeat(): the size of the result overflows"))?;
    }
    crate::ops::create::factory::check_size(&shape)?;
    Ok(Plan::contiguous(&shape, t.dtype()))
}

fn repeat(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, repeats, out) = (a.tensor(0)?, a.ints(1)?, &outs[0]);
    if out.numel() == 0 {
        return Ok(());
    }
    // Each dimension of the result is one of repetitions and one of the tensor's own.
    let lead = repeats.len() - t.ndim();
    let (mut shape, mut to, mut from) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..repeats.len() {
        let (size, stride) = if i < lead {
            (1, 0)
        } else {
            (t.shape()[i - lead], t.strides()[i - lead])
        };
        shape.extend([repeats[i], size]);
        to.extend([out.strides()[i] * size, out.strides()[i]]);
        from.extend([0, stride]);
    }
    let shape = Dims::new(&shape);
    cpu::copy::copy(
        &out.view_with(shape.clone(), Dims::new(&to), out.offset()),
        &t.view_with(shape, Dims::new(&from), t.offset()),
    )
}

fn tile(a: &Args) -> Result<Ret> {
    let (t, reps) = (a.tensor(0)?, a.ints(1)?);
    let missing = t.ndim().saturating_sub(reps.len());
    run!("repeat", t, Dims::filled(missing, 1).concat(reps))
}

fn infer_interleave(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    t.dtype().check_kernel(
        matches!(t.dtype(), DType::I64 | DType::I32),
        "repeat_interleave_cpu",
    )?;
    ensure!(
        t.ndim() == 1,
        Runtime,
        "repeat_interleave only accept 1D vector as repeat"
    );
    let n = match a.opt_int(1) {
        Some(n) => n,
        None => {
            let real = cpu::copy::dense(
                &helpers::readable(
                    t,
                    "cannot repeat_interleave a meta tensor without output_size",
                )?,
                DType::I64,
            )?;
            let list = cpu::slice::<i64>(&real);
            ensure!(
                list.iter().all(|&n| n >= 0),
                Runtime,
                "repeats can not be negative"
            );
            list.iter()
                .try_fold(0i64, |s, &n| s.checked_add(n))
                .ok_or_else(|| {
                    err!(
                        Runtime,
                        "repeat_interleave(): the size of the result overflows"
                    )
                })?
        }
    };
    Ok(Plan::contiguous(&[n], t.dtype()))
}

fn interleave(a: &Args, outs: &[Tensor]) -> Result<()> {
    let real = cpu::copy::dense(a.tensor(0)?, DType::I64)?;
    let list = cpu::slice::<i64>(&real);
    ensure!(
        list.iter().all(|&n| n >= 0),
        Runtime,
        "repeats can not be negative"
    );
    let total = list.iter().try_fold(0i64, |s, &n| s.checked_add(n));
    ensure!(
        total == Some(outs[0].numel()),
        Runtime,
        "allocated size does not match required size"
    );
    let mut places = Vec::with_capacity(outs[0].numel() as usize);
    for (i, &n) in list.iter().enumerate() {
        places.resize(places.len() + n as usize, i as i64);
    }
    cpu::copy::copy(
        &outs[0],
        &Tensor::from_slice(&places, &[places.len() as i64])?,
    )
}

fn flattened(t: &Tensor, dim: Option<i64>) -> Result<(Tensor, i64)> {
    Ok(match dim {
        None => (run1!("reshape", t, Dims::new(&[-1]))?, 0),
        Some(d) => (
            if t.ndim() == 0 {
                run1!("reshape", t, Dims::new(&[1]))?
            } else {
                t.clone()
            },
            d,
        ),
    })
}

fn interleave_int(a: &Args) -> Result<Ret> {
    let n = a.int(1)?;
    let (t, dim) = flattened(a.tensor(0)?, a.opt_int(2))?;
    ensure!(n >= 0, Runtime, "Repeats must be non-negative");
    let d = wrap_dim(dim, t.ndim())?;
    if let Some(size) = a.opt_int(3) {
        ensure!(
            size == n * t.shape()[d],
            Runtime,
            "repeat_interleave: Invalid output_size, expected {} but got {size}",
            n * t.shape()[d]
        );
    }
    let wide = t.view_with(
        t.shape().inserted(d + 1, n),
        t.strides().inserted(d + 1, 0),
        t.offset(),
    );
    let copy = run1!("clone", &wide, MemoryFormat::Contiguous)?;
    run!("flatten", &copy, d as i64, d as i64 + 1)
}

fn interleave_tensor(a: &Args) -> Result<Ret> {
    let repeats = a.tensor(1)?;
    let (t, dim) = flattened(a.tensor(0)?, a.opt_int(2))?;
    let d = wrap_dim(dim, t.ndim())?;
    let n = t.shape()[d];
    let repeats = match repeats.ndim() {
        0 => repeats.expand_to(&[n]),
        1 if repeats.shape()[0] == 1 => repeats.expand_to(&[n]),
        1 => {
            ensure!(
                repeats.shape()[0] == n,
                Runtime,
                "repeats must have the same size as input along dim, but got repeats.size(0) = {} and input.size({d}) = {n}",
                repeats.shape()[0]
            );
            repeats.clone()
        }
        _ => bail!(Runtime, "repeats must be 0-dim or 1-dim tensor"),
    };
    let index = run1!("repeat_interleave#repeats", &repeats, a.opt_int(3))?;
    run!("index_select", &t, d as i64, &index)
}

fn infer_flip(a: &Args) -> Result<Plan> {
    flip_dims(a)?;
    crate::ops::copy::infer_like(a)
}

fn flip_dims(a: &Args) -> Result<Vec<usize>> {
    let (t, list) = (a.tensor(0)?, a.ints(1)?);
    Ok(if list.is_empty() {
        Vec::new()
    } else {
        rules::dim_list(Some(list), t.ndim())?.to_vec()
    })
}

fn flip(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let (mut strides, mut offset) = (t.strides().clone(), t.offset());
    if t.numel() > 0 && t.ndim() > 0 {
        for d in flip_dims(a)? {
            offset += (t.shape()[d] - 1) * strides[d];
            strides[d] = -strides[d];
        }
    }
    cpu::copy::copy(&outs[0], &t.view_with(t.shape().clone(), strides, offset))
}

fn flip_one(a: &Args, least: usize, dim: i64) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(t.ndim() >= least, Runtime, "Input must be >= {least}-d.");
    run!("flip", t, Dims::new(&[dim]))
}

fn roll(a: &Args) -> Result<Ret> {
    let (t, shifts, dims) = (a.tensor(0)?, a.ints(1)?, a.ints(2)?);
    ensure!(!shifts.is_empty(), Runtime, "`shifts` required");
    if dims.is_empty() && shifts.len() == 1 {
        let line = run1!("reshape", &t.contiguous()?, Dims::new(&[-1]))?;
        return run!("view", &roll_one(&line, shifts[0], 0)?, t.shape().clone());
    }
    ensure!(
        shifts.len() == dims.len(),
        Runtime,
        "shifts and dimensions must align. shifts: {}, dims:{}",
        shifts.len(),
        dims.len()
    );
    let mut out = t.clone();
    for (&s, &d) in shifts.iter().zip(dims.iter()) {
        out = roll_one(&out, s, d)?;
    }
    Ok(out.into())
}

fn roll_one(t: &Tensor, shift: i64, dim: i64) -> Result<Tensor> {
    ensure!(
        t.ndim() > 0,
        Index,
        "Dimension specified as {dim} but tensor has no dimensions"
    );
    let d = wrap_dim(dim, t.ndim())?;
    if t.numel() == 0 {
        return run1!("clone", t);
    }
    let size = t.shape()[d];
    let start = (size - shift.rem_euclid(size)) % size;
    crate::ops::arrange::join::cat_all(
        &[t.narrowed(d, start, size - start), t.narrowed(d, 0, start)],
        d as i64,
    )
}

fn rot90(a: &Args) -> Result<Ret> {
    let (t, dims) = (a.tensor(0)?, a.ints(2)?);
    ensure!(
        dims.len() == 2,
        Runtime,
        "expected total rotation dims == 2, but got dims = {}",
        dims.len()
    );
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "expected total dims >= 2, but got total dims = {}",
        t.ndim()
    );
    ensure!(
        dims[0] != dims[1] && (dims[0] - dims[1]).abs() != t.ndim() as i64,
        Runtime,
        "expected rotation dims to be different, but got dim0 = {} and dim1 = {}",
        dims[0],
        dims[1]
    );
    let (x, y) = (wrap_dim(dims[0], t.ndim())?, wrap_dim(dims[1], t.ndim())?);
    Ok(match a.int(1)?.rem_euclid(4) {
        1 => run1!("flip", t, Dims::new(&[y as i64]))?.swapped(x, y),
        2 => run1!("flip", t, Dims::new(&[x as i64, y as i64]))?,
        3 => run1!("flip", t, Dims::new(&[x as i64]))?.swapped(x, y),
        _ => run1!("clone", t, MemoryFormat::Contiguous)?,
    }
    .into())
}
