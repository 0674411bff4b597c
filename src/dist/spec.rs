//! How a whole tensor lies on a mesh, and in which order dimensions of the mesh cut a dimension of it.

use super::{Mesh, Placement};

/// Which dimensions of the mesh cut each dimension of the tensor, the outermost first.
pub type Order = Vec<Vec<usize>>;

/// The placements of a tensor. `ordered`: its strided shards stand for shards that are cut in another order than that of
/// the mesh's dimensions; otherwise they are what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// One for each dimension of the mesh.
    pub placements: Vec<Placement>,
    /// What strided shards mean.
    pub ordered: bool,
}

impl Layout {
    /// True if some placement is a strided shard.
    #[must_use]
    pub fn has_strided(&self) -> bool {
        self.placements.iter().any(|p| p.is_strided())
    }

    /// True if strided shards stand for an order.
    #[must_use]
    pub fn hides_order(&self) -> bool {
        self.ordered && self.has_strided()
    }

    /// True if every device has the whole.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.placements.iter().all(|p| *p == Placement::Replicate)
    }

    /// Into how many parts the tensor is cut.
    #[must_use]
    pub fn parts(&self, mesh: &Mesh) -> i64 {
        let cut = self.placements.iter().zip(&mesh.sizes);
        cut.filter(|(p, _)| p.dim().is_some())
            .map(|(_, size)| size)
            .product()
    }

    /// The order of cuts that follows from the mesh's dimensions.
    #[must_use]
    pub fn plain_order(&self, ndim: usize) -> Order {
        let mut order = vec![Vec::new(); ndim];
        for (i, placement) in self.placements.iter().enumerate() {
            if let Some(dim) = placement.dim().filter(|d| *d < ndim) {
                order[dim].push(i);
            }
        }
        order
    }

    /// The placements without strided shards, and the order that these stood for; nothing if they stand for none.
    #[must_use]
    pub fn decoded(&self, mesh: &Mesh, ndim: usize) -> Option<(Vec<Placement>, Order)> {
        let mut order = vec![Vec::<usize>::new(); ndim];
        for (i, placement) in self.placements.iter().enumerate().rev() {
            let Some(dim) = placement.dim().filter(|d| *d < ndim) else {
                continue;
            };
            let factor = match placement {
                Placement::Strided { factor, .. } => *factor,
                _ => 1,
            };
            let cuts = &mut order[dim];
            let mut before = 1;
            let at = (0..=cuts.len()).find(|&k| {
                let found = before == factor;
                if let Some(&m) = cuts.get(k) {
                    before *= mesh.sizes[m];
                }
                found
            })?;
            cuts.insert(at, i);
        }
        let plain = |p: &Placement| p.dim().map_or(*p, Placement::Shard);
        Some((self.placements.iter().map(plain).collect(), order))
    }

    /// The dimensions of the mesh with their placements, in the order in which they are applied.
    #[must_use]
    pub fn applied(&self, mesh: &Mesh, ndim: usize) -> Vec<(usize, Placement)> {
        let all = self.placements.iter().copied().enumerate();
        if self.hides_order()
            && let Some((placements, order)) = self.decoded(mesh, ndim)
        {
            let cuts = order.into_iter().flatten().map(|m| (m, placements[m]));
            return cuts.chain(all.filter(|(_, p)| p.dim().is_none())).collect();
        }
        all.collect()
    }
}
