//! What few tensors carry with them, by level: the tangents of dual tensors, and the dimensions out of sight that the examples of a
//! batch lie along.

use super::Tensor;
use super::link::{Kind, Link};
use super::place::Place;
use crate::Dims;
use smallvec::SmallVec;

/// A tangent, and the level of forward mode that it belongs to. A tangent may carry those of lower levels itself.
pub type Tangent = (u32, Tensor);

/// A dimension out of sight: the tensor that is seen is one example of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchDim {
    /// The level of `vmap` that it belongs to.
    pub level: u32,
    /// How many examples there are.
    pub size: i64,
    /// From one to the next, in elements.
    pub stride: i64,
    /// All examples have the same values: they are apart only for what is differentiated along each.
    pub alike: bool,
}

/// What such a tensor has in place of its place in the graph: that place, and what it carries.
#[derive(Clone, Default)]
pub struct Carrier {
    /// The place in the graph, if it has one: that of the whole batch.
    pub(super) place: Option<Place>,
    /// Tangents of the whole batch, those of the lowest level first.
    tangents: SmallVec<[Tangent; 1]>,
    /// Dimensions out of sight, those of the lowest level first.
    batch: SmallVec<[BatchDim; 1]>,
}

impl Carrier {
    /// What goes into the tensor's pointer.
    fn link(self) -> Option<Place> {
        if self.tangents.is_empty() && self.batch.is_empty() {
            self.place
        } else {
            Some(Link::carrier(self))
        }
    }
}

impl Tensor {
    /// Its tangents, those of the lowest level first; of a batch, those of the whole batch.
    #[inline]
    #[must_use]
    pub fn tangents(&self) -> &[Tangent] {
        self.carrier().map_or(&[], |c| &c.tangents)
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
    #[inline]
    #[must_use]
    pub(crate) fn carrying(self, other: &Self) -> Self {
        if other.tangents().is_empty() && self.tangents().is_empty() {
            return self;
        }
        let all = other.tangents().iter().cloned().collect();
        self.with_tangents(all)
    }

    /// The same tensor without its place in the graph; what it carries stays.
    #[inline]
    #[must_use]
    pub fn untracked(&self) -> Self {
        self.bare().carrying(self)
    }

    /// The same tensor as a leaf of its own, whose gradient is wanted; what it carries stays.
    #[must_use]
    pub fn fresh_leaf(&self) -> Self {
        self.untracked().with_requires_grad(true)
    }

    #[inline]
    fn carrier(&self) -> Option<&Carrier> {
        match &self.link.as_deref()?.kind {
            Kind::Carrier(c) => Some(c),
            _ => None,
        }
    }

    fn with_tangents(mut self, tangents: SmallVec<[Tangent; 1]>) -> Self {
        self.link = Carrier {
            place: self.link().cloned(),
            tangents,
            batch: self.batch().iter().cloned().collect(),
        }
        .link();
        self
    }

    /// Gives the tensor another place in the graph; what it carries stays.
    #[inline]
    pub(super) fn set_place(&mut self, place: Option<Place>) {
        self.link = match self.carrier() {
            Some(c) => Carrier { place, ..c.clone() }.link(),
            None => place,
        };
    }

    /// The dimensions out of sight, those of the lowest level first.
    #[must_use]
    pub fn batch(&self) -> &[BatchDim] {
        self.carrier().map_or(&[], |c| &c.batch)
    }

    /// The whole batch: the dimensions out of sight come first.
    #[must_use]
    pub fn whole(&self) -> Self {
        let Some(c) = self.carrier().filter(|c| !c.batch.is_empty()) else {
            return self.clone();
        };
        let mut t = self.clone();
        let sizes: Vec<i64> = c.batch.iter().map(|d| d.size).collect();
        let strides: Vec<i64> = c.batch.iter().map(|d| d.stride).collect();
        t.shape = Dims::new(&sizes).concat(&self.shape);
        t.strides = Dims::new(&strides).concat(&self.strides);
        t.link = Carrier {
            batch: SmallVec::new(),
            ..c.clone()
        }
        .link();
        t
    }

    /// One example of this batch, whose first dimensions belong to some levels, in ascending order.
    #[must_use]
    pub fn example(&self, levels: &[u32]) -> Self {
        let hidden = levels
            .iter()
            .zip(self.shape.iter().zip(self.strides.iter()));
        let batch = hidden
            .map(|(&level, (&size, &stride))| BatchDim {
                level,
                size,
                stride,
                alike: false,
            })
            .collect();
        let mut t = self.clone();
        t.shape = Dims::new(&self.shape[levels.len()..]);
        t.strides = Dims::new(&self.strides[levels.len()..]);
        t.link = Carrier {
            place: self.link().cloned(),
            tangents: self.tangents().iter().cloned().collect(),
            batch,
        }
        .link();
        t
    }

    /// The same example, where all of some levels are known to have the same values.
    #[must_use]
    pub fn alike_at(mut self, levels: &[u32]) -> Self {
        let known = |d: &BatchDim| d.alike || levels.contains(&d.level);
        if self.batch().iter().all(|d| d.alike == known(d)) {
            return self;
        }
        let all = self.batch().iter();
        let batch = all.map(|d| BatchDim {
            alike: known(d),
            ..d.clone()
        });
        self.link = Carrier {
            batch: batch.collect(),
            ..self.carrier().cloned().unwrap_or_default()
        }
        .link();
        self
    }

    /// What a reader of values needs of it: the first example, of levels where all are alike, without history and tangents. None if
    /// there is no such level.
    #[must_use]
    pub fn settled(&self) -> Option<Self> {
        let batch = self.batch();
        if !batch.iter().any(|d| d.alike) {
            return None;
        }
        let mut t = self.bare();
        t.link = Carrier {
            batch: batch.iter().filter(|d| !d.alike).cloned().collect(),
            ..Carrier::default()
        }
        .link();
        Some(t)
    }
}
