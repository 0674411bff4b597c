//! Joining tensors: cat, stack and their kin, meshgrid, block_diag.

use crate::dims::{self, MemoryFormat, wrap_dim};
use crate::ops::core::args::Args;
use crate::ops::core::dispatch;
use crate::ops::core::helpers;
use crate::ops::core::op::{
    F, FM, KernelBody, O, OpDef, OutSpec, Plan, Ret, kernel, old_compose, old_view,
};
use crate::{DType, Dims, Result, Tensor, bail, dtype, ensure, err, mode, run, run1};
use smallvec::SmallVec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "cat",
        "(Tensor[] tensors, int dim=0)",
        F | O,
        KernelBody::new(infer_cat, cat).cuda(cat),
        "Tensors one after another along a dimension.",
    ),
    old_compose(
        "stack",
        "(Tensor[] tensors, int dim=0)",
        F | O,
        stack,
        "Tensors side by side along a new dimension.",
    ),
    old_compose(
        "hstack",
        "(Tensor[] tensors)",
        F | O,
        |a| pile(a, 1),
        "Tensors side by side along the second dimension (the first of 1-dimensional ones).",
    ),
    old_compose(
        "vstack",
        "(Tensor[] tensors)",
        F | O,
        |a| pile(a, 2),
        "Tensors one below another as rows.",
    ),
    old_compose(
        "dstack",
        "(Tensor[] tensors)",
        F | O,
        |a| pile(a, 3),
        "Tensors one behind another along the third dimension.",
    ),
    old_compose(
        "column_stack",
        "(Tensor[] tensors)",
        F | O,
        column_stack,
        "Tensors side by side as columns.",
    ),
    old_compose(
        "meshgrid",
        "(Tensor[*] tensors, *, str? indexing=None) -> Tensor[]",
        F,
        meshgrid,
        "The coordinates of a grid, one tensor a dimension.",
    ),
    old_compose(
        "broadcast_tensors",
        "(Tensor[*] tensors) -> Tensor[]",
        F,
        broadcast_tensors,
        "Tensors expanded to a common shape.",
    ),
    old_compose(
        "atleast_1d",
        "(Tensor self)",
        F,
        |a| at_least(a.tensor(0)?, 1).map(Ret::from),
        "A tensor with at least one dimension.",
    ),
    old_compose(
        "atleast_1d#list",
        "(Tensor[*] tensors) -> Tensor[]",
        F,
        |a| at_least_all(a, 1),
        "Tensors with at least one dimension.",
    ),
    old_compose(
        "atleast_2d",
        "(Tensor self)",
        F,
        |a| at_least(a.tensor(0)?, 2).map(Ret::from),
        "A tensor with at least two dimensions.",
    ),
    old_compose(
        "atleast_2d#list",
        "(Tensor[*] tensors) -> Tensor[]",
        F,
        |a| at_least_all(a, 2),
        "Tensors with at least two dimensions.",
    ),
    old_compose(
        "atleast_3d",
        "(Tensor self)",
        F,
        |a| at_least(a.tensor(0)?, 3).map(Ret::from),
        "A tensor with at least three dimensions.",
    ),
    old_compose(
        "atleast_3d#list",
        "(Tensor[*] tensors) -> Tensor[]",
        F,
        |a| at_least_all(a, 3),
        "Tensors with at least three dimensions.",
    ),
    old_compose(
        "block_diag",
        "(Tensor[*] tensors=())",
        F,
        block_diag,
        "A matrix with the tensors along its diagonal.",
    ),
    old_compose(
        "cartesian_prod",
        "(Tensor[*] tensors)",
        F,
        cartesian_prod,
        "All combinations of one element of each tensor.",
    ),
    old_compose(
        "combinations",
        "(Tensor self, int r=2, bool with_replacement=False)",
        F,
        combinations,
        "All choices of `r` elements.",
    ),
    old_view(
        "unsafe_split",
        "(Tensor self, int split_size, int dim=0) -> Tensor[]",
        FM,
        |a| run!("split", a.tensor(0)?, a.int(1)?, a.int(2)?),
        "As `split`.",
    ),
    old_view(
        "unsafe_split_with_sizes",
        "(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]",
        FM,
        |a| {
            run!(
                "split_with_sizes",
                a.tensor(0)?,
                a.ints(1)?.clone(),
                a.int(2)?
            )
        },
        "As `split_with_sizes`.",
    ),
    old_view(
        "unsafe_chunk",
        "(Tensor self, int chunks, int dim=0) -> Tensor[]",
        FM,
        |a| run!("chunk", a.tensor(0)?, a.int(1)?, a.int(2)?),
        "As `chunk`.",
    ),
];

/// A tensor that PyTorch's cat skips whatever its dimension: one of shape `[0]`.
fn skipped(t: &Tensor) -> bool {
    t.ndim() == 1 && t.shape()[0] == 0
}

/// The common dtype of a list, 0-dimensional tensors counting less.
fn common_dtype(list: &[&Tensor]) -> Result<DType> {
    let args: SmallVec<[crate::ops::Arg; 8]> =
        list.iter().map(|t| crate::ops::Arg::Tensor(t)).collect();
    crate::ops::pointwise::rule::result_type(&args)
}

fn infer_cat(a: &Args) -> Result<Plan> {
    let list = a.tensors(0)?;
    ensure!(
        !list.is_empty(),
        Value,
        "torch.cat(): expected a non-empty list of Tensors"
    );
    if let Some(i) = list.iter().position(|t| t.ndim() == 0) {
        bail!(
            Runtime,
            "zero-dimensional tensor (at position {i}) cannot be concatenated"
        );
    }
    let first = list.iter().find(|t| !skipped(t)).copied();
    let dtype = common_dtype(list)?;
    let Some(first) = first else {
        // Only empty vectors: the dimension does not matter to PyTorch beyond being one of a vector or more.
        return Ok(Plan::contiguous(&[0], dtype));
    };
    let dim = wrap_dim(a.int(1)?, first.ndim())?;
    let mut total = 0i64;
    for (i, t) in list.iter().enumerate().filter(|(_, t)| !skipped(t)) {
        ensure!(
            t.ndim() == first.ndim(),
            Runtime,
            "Tensors must have same number of dimensions: got {} and {}",
            first.ndim(),
            t.ndim()
        );
        for d in (0..t.ndim()).filter(|&d| d != dim) {
            let (want, got) = (first.shape()[d], t.shape()[d]);
            ensure!(
                want == got,
                Runtime,
                "Sizes of tensors must match except in dimension {dim}. Expected size {want} but got size {got} for tensor number {i} in \
                 the list."
            );
        }
        total = total
            .checked_add(t.shape()[dim])
            .ok_or_else(|| err!(Runtime, "cat(): the size of the result overflows"))?;
    }
    let shape = first.shape().with(dim, total);
    let format = common_format(list);
    let strides = dims::format_strides(&shape, format)?;
    Ok(Plan {
        outs: [OutSpec {
            shape,
            strides,
            dtype,
        }]
        .into_iter()
        .collect(),
        device: None,
    })
}

/// The memory format that all tensors suggest, row-major if they differ.
fn common_format(list: &[&Tensor]) -> MemoryFormat {
    let mut common = None;
    for t in list {
        let f = suggested_format(t);
        if *common.get_or_insert(f) != f {
            return MemoryFormat::Contiguous;
        }
    }
    common.unwrap_or(MemoryFormat::Contiguous)
}

/// PyTorch's `suggest_memory_format`.
#[must_use]
pub fn suggested_format(t: &Tensor) -> MemoryFormat {
    if !dims::strides_like_channels_last(t.shape(), t.strides()) {
        return MemoryFormat::Contiguous;
    }
    if t.ndim() == 4 {
        MemoryFormat::ChannelsLast
    } else {
        MemoryFormat::ChannelsLast3d
    }
}

fn cat(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (list, out) = (a.tensors(0)?, &outs[0]);
    let Some(first) = list.iter().find(|t| !skipped(t)) else {
        return Ok(());
    };
    let dim = wrap_dim(a.int(1)?, first.ndim())?;
    let mut at = 0;
    for t in list.iter().filter(|t| !skipped(t)) {
        let n = t.shape()[dim];
        if t.numel() > 0 {
            crate::ops::core::either::copy(&out.narrowed(dim, at, n), t)?;
        }
        at += n;
    }
    Ok(())
}

/// `cat` of owned tensors.
///
/// # Errors
/// As `cat`.
pub fn cat_all(list: &[Tensor], dim: i64) -> Result<Tensor> {
    dispatch::run(
        crate::op!("cat")?,
        &[crate::ops::Arg::Tensors(list.iter().collect()), dim.into()],
    )?
    .one()
}

fn stack(a: &Args) -> Result<Ret> {
    let list = a.tensors(0)?;
    let Some(first) = list.first() else {
        bail!(Runtime, "stack expects a non-empty TensorList")
    };
    let dim = wrap_dim(a.int(1)?, first.ndim() + 1)?;
    let mut parts = Vec::with_capacity(list.len());
    for (i, t) in list.iter().enumerate() {
        ensure!(
            t.shape() == first.shape(),
            Runtime,
            "stack expects each tensor to be equal size, but got {} at entry 0 and {} at entry {i}",
            first.shape(),
            t.shape()
        );
        let stride = if dim < t.ndim() {
            t.shape()[dim] * t.strides()[dim]
        } else {
            1
        };
        parts.push(t.view_with(
            t.shape().inserted(dim, 1),
            t.strides().inserted(dim, stride),
            t.offset(),
        ));
    }
    // New dimensions of size 1 would look channels-last: the result is always row-major.
    let refs: Vec<&Tensor> = parts.iter().collect();
    if common_format(&refs) != MemoryFormat::Contiguous {
        let joined = cat_all(&parts, dim as i64)?;
        return joined.contiguous().map(Ret::from);
    }
    cat_all(&parts, dim as i64).map(Ret::from)
}

fn at_least(t: &Tensor, n: usize) -> Result<Tensor> {
    match (t.ndim(), n) {
        (0, 1) => run1!("reshape", t, Dims::new(&[1])),
        (0, 2) => run1!("reshape", t, Dims::new(&[1, 1])),
        (0, 3) => run1!("reshape", t, Dims::new(&[1, 1, 1])),
        (1, 2) => run1!("unsqueeze", t, 0i64),
        (1, 3) => run1!("unsqueeze", &run1!("unsqueeze", t, 0i64)?, -1i64),
        (2, 3) => run1!("unsqueeze", t, -1i64),
        _ => Ok(t.clone()),
    }
}

fn at_least_all(a: &Args, n: usize) -> Result<Ret> {
    Ok(Ret::List(
        a.tensors(0)?
            .iter()
            .map(|t| at_least(t, n))
            .collect::<Result<_>>()?,
    ))
}

fn pile(a: &Args, n: usize) -> Result<Ret> {
    let list = a.tensors(0)?;
    ensure!(
        !list.is_empty(),
        Runtime,
        "{} expects a non-empty TensorList",
        a.name()
    );
    let list: Vec<Tensor> = list.iter().map(|t| at_least(t, n)).collect::<Result<_>>()?;
    let dim = match n {
        1 if list[0].ndim() == 1 => 0,
        1 => 1,
        2 => 0,
        _ => 2,
    };
    cat_all(&list, dim).map(Ret::from)
}

fn column_stack(a: &Args) -> Result<Ret> {
    let list = a.tensors(0)?;
    ensure!(
        !list.is_empty(),
        Runtime,
        "column_stack expects a non-empty TensorList"
    );
    let list: Vec<Tensor> = list
        .iter()
        .map(|t| {
            if t.ndim() <= 1 {
                run1!("reshape", *t, Dims::new(&[t.numel(), 1]))
            } else {
                Ok((*t).clone())
            }
        })
        .collect::<Result<_>>()?;
    cat_all(&list, 1).map(Ret::from)
}

fn meshgrid(a: &Args) -> Result<Ret> {
    let list = a.tensors(0)?;
    ensure!(
        !list.is_empty(),
        Runtime,
        "meshgrid expects a non-empty TensorList"
    );
    grid(list, a.str(1).unwrap_or("ij")).map(Ret::List)
}

fn grid(list: &[&Tensor], indexing: &str) -> Result<Vec<Tensor>> {
    for t in list {
        ensure!(
            t.dtype() == list[0].dtype(),
            Runtime,
            "meshgrid expects all tensors to have the same dtype"
        );
        ensure!(
            t.device() == list[0].device(),
            Runtime,
            "meshgrid expects all tensors to have the same device"
        );
    }
    ensure!(
        matches!(indexing, "ij" | "xy"),
        Runtime,
        "torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: {indexing}"
    );
    for t in list {
        ensure!(
            t.ndim() <= 1,
            Runtime,
            "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {}",
            t.shape()
        );
    }
    let n = list.len();
    let swap = indexing == "xy" && n >= 2;
    // With "xy" the first two dimensions trade places.
    let place = |i: usize| if swap && i < 2 { 1 - i } else { i };
    let mut shape = Dims::filled(n, 1);
    for (i, t) in list.iter().enumerate() {
        shape[place(i)] = t.numel();
    }
    Ok(list
        .iter()
        .enumerate()
        .map(|(i, t)| {
            let step = if t.ndim() == 0 { 1 } else { t.strides()[0] };
            let own = Dims::filled(n, 1).with(place(i), t.numel());
            let strides = Dims::filled(n, 0).with(place(i), step);
            t.view_with(own, strides, t.offset()).expand_to(&shape)
        })
        .collect())
}

fn broadcast_tensors(a: &Args) -> Result<Ret> {
    let list = a.tensors(0)?;
    let mut shape = Dims::EMPTY;
    for t in list {
        shape = dims::broadcast(&shape, t.shape())?;
    }
    Ok(Ret::List(
        list.iter()
            .map(|t| crate::ops::view::shape::expand(t, &shape)?.one())
            .collect::<Result<_>>()?,
    ))
}

fn block_diag(a: &Args) -> Result<Ret> {
    let list = a.tensors(0)?;
    if list.is_empty() {
        return Tensor::empty(&[1, 0], mode::default_dtype(), crate::Device::CPU).map(Ret::from);
    }
    let mut dtype = list[0].dtype();
    let (mut rows, mut columns) = (0, 0);
    let mut parts = Vec::with_capacity(list.len());
    for (i, t) in list.iter().enumerate() {
        ensure!(
            t.device() == list[0].device(),
            Runtime,
            "torch.block_diag: input tensors must all be on the same device. Input 0 is on device {} and input {i} is on device {}",
            list[0].device(),
            t.device()
        );
        ensure!(
            t.ndim() <= 2,
            Runtime,
            "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {} dimensions",
            t.ndim()
        );
        dtype = dtype::promote(dtype, t.dtype())
            .ok_or_else(|| err!(Runtime, "block_diag(): no common dtype"))?;
        let t = at_least(t, 2)?;
        (rows, columns) = (rows + t.shape()[0], columns + t.shape()[1]);
        parts.push(t);
    }
    let out = run1!(
        "zeros",
        Dims::new(&[rows, columns]),
        dtype,
        crate::ops::Arg::None,
        list[0].device()
    )?;
    let (mut r, mut c) = (0, 0);
    for t in &parts {
        helpers::copy_(
            &out.narrowed(0, r, t.shape()[0])
                .narrowed(1, c, t.shape()[1]),
            t,
        )?;
        (r, c) = (r + t.shape()[0], c + t.shape()[1]);
    }
    Ok(out.into())
}

fn cartesian_prod(a: &Args) -> Result<Ret> {
    let list = a.tensors(0)?;
    for t in list {
        ensure!(
            t.ndim() == 1,
            Runtime,
            "Expect a 1D vector, but got shape {}",
            t.shape()
        );
    }
    if let [only] = list {
        return Ok((*only).clone().into());
    }
    ensure!(
        !list.is_empty(),
        Runtime,
        "meshgrid expects a non-empty TensorList"
    );
    let flat: Vec<Tensor> = grid(list, "ij")?
        .iter()
        .map(|t| run1!("reshape", t, Dims::new(&[-1])))
        .collect::<Result<_>>()?;
    dispatch::run(crate::op!("stack")?, &[(&flat).into(), 1i64.into()])
}

fn combinations(a: &Args) -> Result<Ret> {
    let (t, r, replace) = (a.tensor(0)?, a.int(1)?, a.bool(2));
    ensure!(
        t.ndim() == 1,
        Runtime,
        "Expect a 1D vector, but got shape {}",
        t.shape()
    );
    ensure!(r >= 0, Runtime, "Expect a non-negative number, but got {r}");
    if r == 0 {
        return run!("new_empty", t, Dims::new(&[0]));
    }
    let n = t.shape()[0];
    let mut rows: Vec<i64> = Vec::new();
    let mut pick: Vec<i64> = (0..r).map(|i| if replace { 0 } else { i }).collect();
    let mut going = if replace { n > 0 } else { r <= n };
    while going {
        rows.extend(&pick);
        going = false;
        for i in (0..r as usize).rev() {
            let top = if replace { n - 1 } else { n - r + i as i64 };
            if pick[i] < top {
                pick[i] += 1;
                for j in i + 1..r as usize {
                    pick[j] = if replace { pick[i] } else { pick[j - 1] + 1 };
                }
                going = true;
                break;
            }
        }
    }
    let index = Tensor::from_slice(&rows, &[rows.len() as i64])?;
    let flat = run1!("index_select", t, 0i64, &index)?;
    run!("reshape", &flat, Dims::new(&[rows.len() as i64 / r, r]))
}
