//! Tangents: the derivatives that dual tensors carry with them, by level.

use super::Tensor;
use super::link::{Kind, Link};
use super::node::Meta;
use smallvec::SmallVec;
use std::sync::Arc;

/// A tangent, and the level of forward mode that it belongs to. A tangent may carry those of lower levels itself.
pub type Tangent = (u32, Tensor);

/// What a dual tensor has in place of its place in the graph: that place, and its tangents.
pub struct Carrier {
    /// Its place in the graph, if it has one.
    pub(super) place: Option<Arc<Link>>,
    /// Its tangents, those of the lowest level first.
    tangents: SmallVec<[Tangent; 1]>,
}

impl Carrier {
    /// What its tensor looks like.
    pub(super) fn looks(&self) -> Meta {
        Meta::of(&self.tangents[0].1)
    }
}

impl Tensor {
    /// Its tangents, those of the lowest level first.
    #[must_use]
    pub fn tangents(&self) -> &[Tangent] {
        match self.link.as_deref() {
            Some(Link {
                kind: Kind::Carrier(c),
                ..
            }) => &c.tangents,
            _ => &[],
        }
    }

    /// Its tangent of a level.
    #[must_use]
    pub fn tangent(&self, level: u32) -> Option<&Tensor> {
        let mut all = self.tangents().iter();
        all.find(|t| t.0 == level).map(|t| &t.1)
    }

    /// The same tensor with this tangent of a level, which replaces the one before.
    #[must_use]
    pub fn with_tangent(self, level: u32, tangent: Tensor) -> Self {
        let others = self.tangents().iter().filter(|t| t.0 != level);
        let mut all: SmallVec<[Tangent; 1]> = others.cloned().collect();
        let at = all.partition_point(|t| t.0 < level);
        all.insert(at, (level, tangent));
        self.with_tangents(all)
    }

    /// The same tensor without its tangents of this level and those above.
    #[must_use]
    pub fn below(self, level: u32) -> Self {
        if self.tangents().last().is_none_or(|t| t.0 < level) {
            return self;
        }
        let kept = self.tangents().iter().filter(|t| t.0 < level);
        let kept = kept.cloned().collect();
        self.with_tangents(kept)
    }

    /// The same tensor with the tangents of another.
    #[must_use]
    pub(crate) fn carrying(self, other: &Self) -> Self {
        if other.tangents().is_empty() && self.tangents().is_empty() {
            return self;
        }
        let all = other.tangents().iter().cloned().collect();
        self.with_tangents(all)
    }

    fn with_tangents(mut self, tangents: SmallVec<[Tangent; 1]>) -> Self {
        let place = self.link().cloned();
        self.link = if tangents.is_empty() {
            place
        } else {
            Some(Link::carrier(Carrier { place, tangents }))
        };
        self
    }

    /// Gives the tensor another place in the graph; its tangents stay.
    pub(super) fn set_place(&mut self, place: Option<Arc<Link>>) {
        self.link = match self.link.as_deref() {
            Some(Link {
                kind: Kind::Carrier(c),
                ..
            }) => Some(Link::carrier(Carrier {
                place,
                tangents: c.tangents.clone(),
            })),
            _ => place,
        };
    }
}
