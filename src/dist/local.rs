//! Sizes and positions of the parts of a tensor.

use super::{Layout, Mesh, Placement};
use crate::{Result, bail, ensure};

/// The size of one dimension's part: the first dimension of a cut gets `ceil(size / parts)`, until nothing is left.
fn piece(size: i64, parts: i64, at: i64) -> (i64, i64) {
    let whole = size.div_euclid(parts) + i64::from(size.rem_euclid(parts) != 0);
    let start = whole.saturating_mul(at).min(size);
    ((size - start).min(whole), start)
}

/// The runs `(start, length)` of a dimension that a part of a strided shard has.
fn runs(size: i64, factor: i64, parts: i64, at: i64) -> impl Iterator<Item = (i64, i64)> {
    (0..factor)
        .map(move |i| {
            let (length, start) = piece(size, factor, i);
            let (part, offset) = piece(length, parts, at);
            (start + offset, part)
        })
        .filter(|run| run.1 > 0)
}

/// The size of a part of a dimension of `size` that is cut into `parts`.
#[must_use]
pub fn shard_size(placement: Placement, size: i64, parts: i64, at: i64) -> i64 {
    match placement {
        Placement::Shard(_) => piece(size, parts, at).0,
        Placement::Strided { factor, .. } => {
            let factor = factor.min(size.max(1));
            runs(size, factor, parts, at).map(|run| run.1).sum()
        }
        _ => size,
    }
}

/// Where element `i` of a part is in the dimension it was cut from.
fn position(placement: Placement, size: i64, parts: i64, at: i64, i: i64) -> Option<i64> {
    match placement {
        Placement::Strided { factor, .. } => {
            let mut left = i;
            for (start, length) in runs(size, factor.min(size.max(1)), parts, at) {
                if left < length {
                    return Some(start + left);
                }
                left -= length;
            }
            None
        }
        _ => Some(piece(size, parts, at).1 + i),
    }
}

/// The shape of the part of a tensor that the rank of a mesh has.
///
/// # Errors
/// If a placement cuts a dimension that is not there.
pub fn local_shape(mesh: &Mesh, layout: &Layout, shape: &[i64]) -> Result<Vec<i64>> {
    let mut local = shape.to_vec();
    for (i, placement) in layout.applied(mesh, shape.len()) {
        let Some(dim) = placement.dim() else { continue };
        ensure!(
            dim < local.len(),
            Assertion,
            "Sharding dim {dim} greater than tensor ndim {}",
            local.len()
        );
        local[dim] = shard_size(placement, local[dim], mesh.sizes[i], mesh.at[i]);
    }
    Ok(local)
}

/// Where the first element of that part is in the tensor; the size of the dimension where there is none.
///
/// # Errors
/// As [`local_shape`].
pub fn offset_of(mesh: &Mesh, layout: &Layout, shape: &[i64]) -> Result<Vec<i64>> {
    let applied = layout.applied(mesh, shape.len());
    let mut offset = Vec::with_capacity(shape.len());
    for (dim, &size) in shape.iter().enumerate() {
        let mut left = size;
        let mut cuts = Vec::new();
        for &(i, placement) in &applied {
            if placement.dim() == Some(dim) {
                cuts.push((placement, left, i));
                left = shard_size(placement, left, mesh.sizes[i], mesh.at[i]);
            }
        }
        let mut at = Some(0);
        for (placement, size, i) in cuts.iter().rev() {
            at = at.and_then(|at| position(*placement, *size, mesh.sizes[*i], mesh.at[*i], at));
        }
        offset.push(match at {
            Some(at) if left > 0 || cuts.is_empty() => at,
            _ => size,
        });
    }
    if let Some(dim) = layout
        .placements
        .iter()
        .filter_map(|p| p.dim())
        .find(|d| *d >= shape.len())
    {
        bail!(
            Assertion,
            "Sharding dim {dim} greater than tensor ndim {}",
            shape.len()
        )
    }
    Ok(offset)
}
