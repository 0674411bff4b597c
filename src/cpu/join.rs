//! Where the parts of a joined tensor lie.

use crate::Tensor;

/// The tensors of a concatenation along `dim` with their places in `out`; tensors without elements are left out.
pub fn places<'t>(
    out: &Tensor,
    list: impl Iterator<Item = &'t Tensor>,
    dim: usize,
) -> Vec<(Tensor, &'t Tensor)> {
    let mut at = 0;
    list.filter(|t| t.numel() > 0)
        .map(|t| {
            let start = at;
            at += t.shape()[dim];
            (out.narrowed(dim, start, t.shape()[dim]), t)
        })
        .collect()
}

/// The tensors of a stack with their places in `out`, one index of `dim` each.
pub fn layers<'t>(
    out: &Tensor,
    list: impl Iterator<Item = &'t Tensor>,
    dim: usize,
) -> Vec<(Tensor, &'t Tensor)> {
    (0..)
        .zip(list)
        .filter(|(_, t)| t.numel() > 0)
        .map(|(i, t)| (out.selected(dim, i), t))
        .collect()
}
