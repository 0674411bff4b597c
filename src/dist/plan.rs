//! The steps that bring a tensor from one layout into another.

use super::local::shard_size;
use super::{Layout, Mesh, Placement, path};
use crate::Result;

/// One placement changes; `shape` is that of the tensor before this dimension of the mesh cuts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The dimension of the mesh.
    pub dim: usize,
    /// What it was.
    pub from: Placement,
    /// What it becomes.
    pub to: Placement,
    /// The tensor's shape as the dimension finds it.
    pub shape: Vec<i64>,
}

/// The steps from one layout to another: those of the cheapest path where strided shards take part, otherwise the inner
/// dimensions of the mesh first, as far as outer ones do not stand in the way.
///
/// # Errors
/// If there is no path.
pub fn plan(
    mesh: &Mesh,
    shape: &[i64],
    itemsize: i64,
    from: &Layout,
    to: &Layout,
) -> Result<Vec<Step>> {
    if (from.has_strided() || to.has_strided())
        && let Some(steps) = path::cheapest(mesh, shape, itemsize, from, to)?
    {
        return Ok(steps);
    }
    Ok(greedy(mesh, shape, &from.placements, &to.placements))
}

/// The shape as each dimension of the mesh finds it.
fn shapes(mesh: &Mesh, shape: &[i64], placements: &[Placement]) -> Vec<Vec<i64>> {
    let mut seen = vec![shape.to_vec()];
    for (i, placement) in placements.iter().enumerate() {
        let mut next = seen[i].clone();
        if let Some(dim) = placement.dim()
            && let Some(size) = next.get_mut(dim)
        {
            *size = shard_size(*placement, *size, mesh.sizes[i], mesh.at[i]);
        }
        seen.push(next);
    }
    seen
}

/// Which outer dimensions of the mesh cut a dimension, and how.
fn outer(placements: &[Placement], before: usize, dim: usize) -> Vec<(usize, Placement)> {
    let all = placements.iter().copied().enumerate().take(before);
    all.filter(|(_, p)| p.dim() == Some(dim)).collect()
}

fn greedy(mesh: &Mesh, shape: &[i64], from: &[Placement], to: &[Placement]) -> Vec<Step> {
    let seen = shapes(mesh, shape, from);
    let mut now = from.to_vec();
    let mut steps = Vec::new();
    let mut change = |now: &mut [Placement], dim: usize, next: Placement| {
        if now[dim] != next {
            steps.push(Step {
                dim,
                from: now[dim],
                to: next,
                shape: seen[dim].clone(),
            });
            now[dim] = next;
        }
    };
    if mesh.ndim() > 1 && from.iter().any(|p| p.dim().is_some()) {
        for dim in (0..now.len()).rev() {
            let next = match to[dim].dim() {
                Some(d) if outer(&now, dim, d) != outer(to, dim, d) => Placement::Replicate,
                _ => to[dim],
            };
            change(&mut now, dim, next);
        }
    }
    for (dim, next) in to.iter().enumerate() {
        change(&mut now, dim, *next);
    }
    steps
}
