//! Views with their dimensions in another order.

use crate::dims::wrap_dim;
use crate::ops::batch;
use crate::ops::core::op::{Batch, FM, Hidden, I, OpDef, Ret, compose, view};
use crate::ops::core::plan::ViewPlan;
use crate::ops::f;
use crate::ops::view::part::strided;
use crate::{Dims, Result, Tensor, bail, ensure};
use smallvec::SmallVec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    view(
        "permute",
        "(Tensor self, int[*] dims)",
        FM,
        permute,
        "Dimensions in another order.",
    )
    .samples("f32[1, 2, 3, 4], (0, 2, 3, 1); b8[1, 2, 3, 4], (2, 1, 3, 0)")
    .grad("self: _grad.permute_back(grad, dims); jvp: linear")
    .batch(Batch::As(typed!(
        |a, h| batch::permute(a.input, a.dims, h),
        Hidden
    ))),
    view(
        "transpose",
        "(Tensor self, int dim0, int dim1)",
        FM | I,
        |a| swapped(a.input, a.dim0, a.dim1),
        "Two dimensions swapped.",
    )
    .samples("f32[3, 4], 0, 0; c64[3, 4], 0, 0")
    .grad("in place TransposeBackward1 | self: grad.transpose(dim0, dim1); jvp: linear"),
    view("t", "(Tensor self)", FM | I, t, "A matrix transposed.")
        .samples("c64[3, 4]")
        .grad("in place TBackward1 | self: grad.t(); jvp: linear")
        .batch(Batch::As(typed!(|a, h| batch::t(a.input, h), Hidden))),
    compose(
        "adjoint",
        "(Tensor self)",
        FM,
        adjoint,
        "The last two dimensions swapped, conjugated.",
    )
    .samples("f32[3, 4]; c64[3, 4]"),
    view(
        "movedim",
        "(Tensor self, int[] source, int[] destination)",
        FM,
        |a| move_dims(a.input, a.source, a.destination),
        "Dimensions moved to other places.",
    )
    .samples("f32[3, 4], (), (); b8[4, 3, 2, 1], [0, 1, 2, 3], [3, 2, 1, 0]")
    .grad("{self 0=Alias else=Permute}Backward0 | self: grad.movedim(destination, source)"),
    view(
        "movedim#int",
        "(Tensor self, int source, int destination)",
        FM,
        |a| move_dims(a.input, &[a.source], &[a.destination]),
        "One dimension moved to another place.",
    )
    .samples("f32[2, 3, 4], 0, -1")
    .grad("{self 0=Alias else=Permute}Backward0 | self: grad.movedim(destination, source)"),
    compose(
        "numpy_T",
        "(Tensor self)",
        0,
        numpy_t,
        "`Tensor.T`: all dimensions in reverse order.",
    )
    .samples("f32[2, 3, 4]"),
    compose(
        "mT",
        "(Tensor self)",
        0,
        m_t,
        "`Tensor.mT`: the last two dimensions swapped.",
    )
    .samples("f32[3, 4]; b8[3, 4]"),
    compose(
        "mH",
        "(Tensor self)",
        0,
        m_h,
        "`Tensor.mH`: the last two dimensions swapped, conjugated.",
    )
    .samples("f32[3, 4]; b8[3, 4]"),
    compose(
        "matrix_H",
        "(Tensor self)",
        0,
        matrix_h,
        "`Tensor.H`: a matrix transposed and conjugated.",
    )
    .samples("c64[2, 3]; f32[2, 3]"),
    view(
        "_as_strided_each",
        "(Tensor self, int[] size, int[] stride, int storage_offset, int lead)",
        0,
        |a| Ok(strided(a.input, a.size, a.stride, Some(a.storage_offset))?.plan(a.input)),
        "`as_strided` of a batch of examples, whose dimensions are that many first ones: each has memory of its own, as its gradient sees it.",
    )
    .samples("f32[3, 4], (3, 2, 2), (4, 1, 2), 0, 1")
    .grad("AsStridedBackward0 | self: _grad.as_strided_back(grad, self.sizes, self.strides, size, stride, storage_offset, self.offset, lead); jvp: twice")
    .batch(Batch::As(typed!(batch::as_strided_each, Hidden))),
];

fn numpy_t(a: &calls::NumpyT) -> Result<Tensor> {
    match a.input.ndim() {
        2 => {}
        0 => crate::warn_once!(
            "Tensor.T is deprecated on 0-D tensors. This function is the identity in these cases."
        ),
        _ => crate::warn_once!(
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will throw an error in a future release. Consider `x.mT` to transpose batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor."
        ),
    }
    let order: SmallVec<[i64; 8]> = (0..a.input.ndim() as i64).rev().collect();
    f::permute(a.input, &order)
}

fn m_t(a: &calls::MT) -> Result<Tensor> {
    let t = a.input;
    check_no_vector(t, "mT")?;
    if t.ndim() == 0 {
        crate::warn_once!(
            "Tensor.mT is deprecated on 0-D tensors. This function is the identity in these cases."
        );
        return f::alias(t);
    }
    f::transpose(t, -2, -1)
}

fn adjoint(a: &calls::Adjoint) -> Result<Ret> {
    check_no_vector(a.input, "adjoint()")?;
    match a.input.ndim() {
        0 if a.input.dtype().is_complex() => f::_conj(a.input).map(Ret::One),
        0 => Ok(Ret::Same(0)),
        _ => hermitian(a.input).map(Ret::One),
    }
}

fn m_h(a: &calls::MH) -> Result<Tensor> {
    let t = a.input;
    check_no_vector(t, "mH")?;
    if t.ndim() == 0 {
        crate::warn_once!("Tensor.mH is deprecated on 0-D tensors. Consider using x.conj().");
        return f::_conj(t);
    }
    hermitian(t)
}

/// Refuses vectors for `mT` and `mH`.
fn check_no_vector(t: &Tensor, name: &str) -> Result<()> {
    ensure!(
        t.ndim() != 1,
        Runtime,
        "tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor."
    );
    Ok(())
}

/// The last two dimensions swapped, conjugated if complex.
fn hermitian(t: &Tensor) -> Result<Tensor> {
    let swapped = f::transpose(t, -2, -1)?;
    if t.dtype().is_complex() {
        f::_conj(&swapped)
    } else {
        Ok(swapped)
    }
}

fn matrix_h(a: &calls::MatrixH) -> Result<Ret> {
    let t = a.input;
    ensure!(
        t.ndim() == 2 || t.ndim() == 0,
        Runtime,
        "tensor.H is only supported on matrices (2-D tensors). Got {}-D tensor.{}",
        t.ndim(),
        match t.ndim() > 2 {
            true => " For batches of matrices, consider using tensor.mH",
            false => "",
        }
    );
    if t.ndim() == 2 {
        return Ok(hermitian(t)?.into());
    }
    crate::warn_once!("Tensor.H is deprecated on 0-D tensors. Consider using x.conj().");
    f::conj(t).map(Ret::from)
}

fn permute(a: &calls::Permute) -> Result<ViewPlan> {
    let (t, order) = (a.input, a.dims);
    ensure!(
        order.len() == t.ndim(),
        Runtime,
        "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of dimensions \
         i.e. input.dim() = {} is not equal to len(dims) = {}",
        t.ndim(),
        order.len()
    );
    let mut seen: SmallVec<[bool; 8]> = SmallVec::from_elem(false, t.ndim().max(1));
    let mut perm: SmallVec<[usize; 8]> = SmallVec::new();
    for &d in order.iter() {
        let d = wrap_dim(d, t.ndim())?;
        ensure!(
            !std::mem::replace(&mut seen[d], true),
            Runtime,
            "permute(): duplicate dims are not allowed."
        );
        perm.push(d);
    }
    Ok(ViewPlan::of(t).permuted(&perm))
}

fn swapped(t: &Tensor, dim0: i64, dim1: i64) -> Result<ViewPlan> {
    let (x, y) = (wrap_dim(dim0, t.ndim())?, wrap_dim(dim1, t.ndim())?);
    let plan = ViewPlan::of(t);
    Ok(if t.ndim() == 0 {
        plan
    } else {
        plan.swapped(x, y)
    })
}

fn t(a: &calls::T) -> Result<ViewPlan> {
    let plan = ViewPlan::of(a.input);
    match a.input.ndim() {
        0 | 1 => Ok(plan),
        2 => Ok(plan.swapped(0, 1)),
        n => bail!(
            Runtime,
            "t() expects a tensor with <= 2 dimensions, but self is {n}D"
        ),
    }
}

fn move_dims(t: &Tensor, source: &[i64], destination: &[i64]) -> Result<ViewPlan> {
    let list = |d: &[i64]| {
        Dims::new(d)
            .to_string()
            .replace('[', "{")
            .replace(']', "}")
            .replace("{", "[")
            .replace('}', "]")
    };
    ensure!(
        source.len() == destination.len(),
        Runtime,
        "movedim: Invalid source or destination dims: source ({} dims) should contain the same number of dims as destination ({} dims)",
        list(source),
        list(destination)
    );
    let wrap = |dims: &[i64], what: &str| -> Result<SmallVec<[usize; 6]>> {
        let mut out: SmallVec<[usize; 6]> = SmallVec::new();
        for &d in dims {
            let d = wrap_dim(d, t.ndim())?;
            ensure!(
                !out.contains(&d),
                Runtime,
                "movedim: repeated dim in `{what}` ({})",
                list(dims)
            );
            out.push(d);
        }
        Ok(out)
    };
    let (from, to) = (wrap(source, "source")?, wrap(destination, "destination")?);
    if t.ndim() == 0 {
        return Ok(ViewPlan::of(t));
    }
    let mut perm: SmallVec<[usize; 8]> = SmallVec::from_elem(usize::MAX, t.ndim());
    for (&f, &d) in from.iter().zip(&to) {
        perm[d] = f;
    }
    let mut rest = (0..t.ndim()).filter(|d| !from.contains(d));
    for p in perm.iter_mut().filter(|p| **p == usize::MAX) {
        *p = rest.next().unwrap_or(0);
    }
    Ok(ViewPlan::of(t).permuted(&perm))
}
