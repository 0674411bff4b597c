//! Where gradients end and meet: sums of gradients, and the leaves that keep them.

use crate::ops::sparse::Sparse;
use crate::ops::{Arg, Args, Call, Op, Ret, dispatch, f};
use crate::tensor::Leaf;
use crate::{Result, Tensor, dims, mode, op};
use std::cell::Cell;
use std::sync::Arc;

/// Two gradients of one result. The first is written if nobody else has it, and nobody watches.
///
/// # Errors
/// If they do not fit.
pub fn sum(old: Tensor, new: Tensor) -> Result<Tensor> {
    let (old, new) = match sparse_first(&old, &new) {
        true => (new, old),
        false => (old, new),
    };
    let shown = old.is_python() || mode::layers() & mode::DISPATCH != 0;
    let own = !mode::grad_enabled()
        && !shown
        && !old.is_view()
        && old.storage().use_count() == 1
        && old.dtype() == new.dtype()
        && old.batch() == new.batch()
        && old.strides() == new.strides();
    if own {
        // What it becomes may have a tangent that it had not.
        return in_place(op!("add")?, &old, Arg::Tensor(&new));
    }
    f::add(&old, &new)
}

/// True if the first gradient alone is sparse: a strided one takes a sparse one, not the other way round.
fn sparse_first(old: &Tensor, new: &Tensor) -> bool {
    old.storage().is_opaque() && !new.storage().is_opaque()
}

thread_local! {
    static FREE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the first gradient of a leaf is copied if it does not lie as the leaf does.
pub fn layout_enforced() -> bool {
    !FREE.get()
}

/// Says whether the first gradient of a leaf is copied if it does not lie as the leaf does, on this thread.
pub fn enforce_layout(on: bool) {
    FREE.set(!on);
}

/// Adds a gradient to what a leaf has gathered. A first one is kept as it is if nobody has it but the caller and `others`,
/// who only look.
///
/// # Errors
/// If they do not fit.
pub fn into_leaf(leaf: &Leaf, grad: Tensor, others: usize) -> Result<()> {
    if !leaf.is_wanted() {
        return Ok(());
    }
    let variable = leaf.variable();
    let Some(old) = leaf.grad() else {
        if !has_own_entries(&grad) {
            leaf.set_grad(Some(Arc::new(f::clone(&grad)?)));
            return Ok(());
        }
        let obeys = !layout_enforced() || obeys(&variable, &grad);
        let alone = grad.storage().use_count() == 1 + others;
        let kept = if !mode::grad_enabled() && obeys && alone {
            f::detach(&grad)?
        } else {
            obedient(&variable, &grad)?
        };
        leaf.set_grad(Some(Arc::new(kept)));
        return Ok(());
    };
    let old = old.tensor();
    if sparse_first(&old, &grad) {
        leaf.set_grad(Some(Arc::new(f::add(&grad, &old)?)));
    } else if mode::grad_enabled() {
        leaf.set_grad(Some(Arc::new(f::add(&old, &grad)?)));
    } else {
        in_place(op!("add")?, &old, Arg::Tensor(&grad))?;
    }
    Ok(())
}

/// False for a sparse gradient whose entries are laid out over others' memory, as those of an expanded one are.
fn has_own_entries(grad: &Tensor) -> bool {
    let entries = grad.storage().is_opaque().then(|| Sparse::of(grad));
    match entries.flatten() {
        Some(Sparse::Coo(c)) => c.indices.is_contiguous() && c.values.is_contiguous(),
        _ => true,
    }
}

/// True if a gradient lies as those of a variable should: as the variable if that is dense, row-major otherwise. The step of a dimension
/// of one element may be any but 0, which expanded gradients have.
fn obeys(variable: &Tensor, grad: &Tensor) -> bool {
    if !dims::is_dense(variable.shape(), variable.strides()) {
        return grad.is_contiguous();
    }
    let sizes = variable.shape().iter();
    sizes
        .zip(variable.strides().iter().zip(grad.strides().iter()))
        .all(|(n, (a, b))| if *n == 1 { *b != 0 } else { a == b })
}

/// A copy that lies as gradients of the variable should.
fn obedient(variable: &Tensor, grad: &Tensor) -> Result<Tensor> {
    if !dims::is_dense(variable.shape(), variable.strides()) {
        return f::Clone::new(grad)
            .memory_format(crate::MemoryFormat::Contiguous)
            .call();
    }
    // PyTorch's two calls are what modes see; one does for who does not look.
    let shown = grad.is_python() || mode::layers() & mode::DISPATCH != 0;
    let alike = !mode::grad_enabled() && obeys(variable, grad) && !grad.has_internal_overlap();
    if alike && !shown {
        return f::clone(grad);
    }
    let made =
        f::NewEmptyStrided::new(grad, &variable.shape()[..], &variable.strides()[..]).call()?;
    written(&made, grad)
}

/// A tensor after another was copied into it.
///
/// # Errors
/// If it does not fit.
pub fn written(to: &Tensor, from: &Tensor) -> Result<Tensor> {
    in_place(op!("copy")?, to, Arg::Tensor(from))
}

/// A tensor after an operator of two operands wrote it, with its history.
///
/// # Errors
/// If it may not be written, or the operands do not fit.
pub fn in_place(op: &'static Op, target: &Tensor, other: Arg) -> Result<Tensor> {
    let mut args = Args::of_two(op, Arg::Tensor(target), other);
    args.fill()?;
    Ok(match dispatch::call(Call::in_place(&args)?)? {
        Ret::Become(t) => *t,
        _ => target.clone(),
    })
}
