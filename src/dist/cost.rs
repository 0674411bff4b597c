//! What a redistribution costs, in microseconds as PyTorch estimates it.

use super::{Layout, Mesh, Placement, plan};
use crate::Result;

/// Microseconds before the first byte.
const START: f64 = 6.6;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

fn collective(mesh: &Mesh, dim: usize, gb: f64, rounds: i64) -> f64 {
    let devices = mesh.sizes[dim] as f64;
    let hops = (rounds * (mesh.sizes[dim] - 1)) as f64;
    let seconds = gb * hops / devices / mesh.bandwidth[dim];
    START + hops * mesh.latency[dim] + seconds * 1e6
}

/// The cost of a change of one placement, and the bytes (in GB) that a device has afterwards.
#[must_use]
pub fn transition(mesh: &Mesh, dim: usize, from: Placement, to: Placement, gb: f64) -> (f64, f64) {
    use Placement::{Partial, Replicate, Shard};
    if from == to {
        return (0.0, gb);
    }
    let devices = mesh.sizes[dim] as f64;
    match (from, to) {
        (Shard(_), Replicate) => (collective(mesh, dim, gb * devices, 1), gb * devices),
        (Shard(_), Shard(_)) => (collective(mesh, dim, gb, 1) + 1.0, gb),
        (Partial { .. }, Replicate) => (collective(mesh, dim, gb, 2), gb),
        (Partial { .. }, Shard(_)) => (collective(mesh, dim, gb, 1), gb / devices),
        (Shard(_) | Partial { .. }, Partial { .. }) => (f64::INFINITY, gb),
        (Replicate, Shard(_)) => (0.0, gb / devices),
        _ => (0.0, gb),
    }
}

/// Bytes of a device's part, in GB.
pub(super) fn part_gb(mesh: &Mesh, layout: &Layout, shape: &[i64], itemsize: i64) -> f64 {
    let elements: f64 = shape.iter().map(|n| *n as f64).product();
    itemsize as f64 * elements / layout.parts(mesh) as f64 / GIB
}

/// The cost of bringing a tensor from one layout into another; infinite where it cannot be done.
///
/// # Errors
/// If no plan can be made.
pub fn redistribution(
    mesh: &Mesh,
    shape: &[i64],
    itemsize: i64,
    from: &Layout,
    to: &Layout,
) -> Result<f64> {
    let same = from.placements == to.placements
        && (from.hides_order() == to.hides_order() || !from.has_strided());
    if from.is_replicated() || same {
        return Ok(0.0);
    }
    if from.hides_order() || to.hides_order() {
        return Ok(f64::INFINITY);
    }
    let (mut gb, mut cost) = (part_gb(mesh, from, shape, itemsize), 0.0);
    for step in plan(mesh, shape, itemsize, from, to)? {
        let (more, left) = transition(mesh, step.dim, step.from, step.to, gb);
        cost += more;
        gb = left;
    }
    Ok(cost)
}
