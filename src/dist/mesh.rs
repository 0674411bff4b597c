//! A mesh as one of its ranks sees it.

use super::Placement;
use crate::{Result, ensure};

/// Bytes a second in a host, in GB, and what of them is left between hosts (PyTorch's figures).
const BANDWIDTH: f64 = 87.7;
const BETWEEN_HOSTS: f64 = 0.22;
/// Microseconds a hop, in a host and between hosts.
const HOP: f64 = 0.6;
const HOP_BETWEEN_HOSTS: f64 = 2.7;

/// The sizes of a mesh, where in it a rank is, and how fast its dimensions are.
#[derive(Clone, Debug)]
pub struct Mesh {
    /// Devices along each dimension.
    pub sizes: Vec<i64>,
    /// Where the rank is.
    pub at: Vec<i64>,
    /// GB a second along each dimension.
    pub(super) bandwidth: Vec<f64>,
    /// Microseconds a hop along each.
    pub(super) latency: Vec<f64>,
}

impl Mesh {
    /// A mesh of these sizes, seen from `at`; `per_host` devices are in a host.
    ///
    /// # Errors
    /// If the position lies outside.
    pub fn new(sizes: Vec<i64>, at: Vec<i64>, per_host: i64) -> Result<Self> {
        let inside = sizes.len() == at.len()
            && sizes
                .iter()
                .zip(&at)
                .all(|(size, i)| (0..*size).contains(i));
        ensure!(inside, Value, "no position {at:?} in a mesh of {sizes:?}");
        let (mut bandwidth, mut latency) = (vec![BANDWIDTH; sizes.len()], vec![HOP; sizes.len()]);
        let mut devices = 1_i64;
        for (i, size) in sizes.iter().enumerate().rev() {
            devices = devices.saturating_mul(*size);
            if devices > per_host {
                bandwidth[i] *= BETWEEN_HOSTS;
                latency[i] = HOP_BETWEEN_HOSTS;
            }
        }
        Ok(Self {
            sizes,
            at,
            bandwidth,
            latency,
        })
    }

    /// Checks that placements are of this mesh and of a tensor of this shape.
    ///
    /// # Errors
    /// If there are too few or too many, a cut dimension is not there, or a size is negative.
    pub fn admits(&self, placements: &[Placement], shape: &[i64]) -> Result<()> {
        let (given, ndim) = (placements.len(), self.ndim());
        ensure!(
            given == ndim,
            Value,
            "{given} placements on a mesh of {ndim} dimensions: there has to be one for each"
        );
        ensure!(
            shape.iter().all(|s| (0..1 << 48).contains(s)),
            Value,
            "no tensor on a mesh has the shape {shape:?}"
        );
        let beyond = placements
            .iter()
            .filter_map(|p| p.dim())
            .find(|d| *d >= shape.len());
        if let Some(dim) = beyond {
            crate::bail!(
                Assertion,
                "Sharding dim {dim} greater than tensor ndim {}",
                shape.len()
            );
        }
        Ok(())
    }

    /// How many dimensions it has.
    #[must_use]
    pub fn ndim(&self) -> usize {
        self.sizes.len()
    }
}
