//! What in-place writes do to the history of tensors that share memory.
//!
//! A storage notes how the tensor lies that views were first made of, and what was last written into that memory with a
//! history. Views made and forgotten cost nothing more; a view that is used after a write finds its history here.
//! Tensors cut off by `detach` are a family of their own.

use super::link::{Link, lock};
use super::{Meta, Tangent, Tensor};
use crate::{Dims, Storage};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How a tensor lies in its storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Sizes.
    pub shape: Dims,
    /// Strides, in elements.
    pub strides: Dims,
    /// The first element, in elements.
    pub offset: i64,
}

impl Layout {
    /// Of a tensor.
    #[must_use]
    pub fn of(t: &Tensor) -> Self {
        Self {
            shape: t.shape().clone(),
            strides: t.strides().clone(),
            offset: t.offset(),
        }
    }
}

/// The tensors of one storage that write into one history.
pub struct Family {
    group: u32,
    /// The tensor that the others are views of.
    pub base: Layout,
    /// What it looks like.
    pub meta: Meta,
    /// What was last written.
    pub head: Option<Arc<Link>>,
    /// The tangents of `base`, by level: rows of elements that `base` and its views lie in.
    tangents: Vec<Tangent>,
    /// Views were made.
    viewed: bool,
}

/// All families of a storage.
pub type Families = Vec<Family>;

static GROUPS: AtomicU32 = AtomicU32::new(1);

/// A number for what `detach` cuts off.
pub(super) fn new_group() -> u32 {
    GROUPS.fetch_add(1, Relaxed)
}

impl Tensor {
    /// Notes that this tensor, which is no view, has views.
    #[cold]
    pub(super) fn lay(&self) {
        self.storage().note_views();
        self.with_family(|f| f.viewed = true);
    }

    /// What is noted of this tensor's family, which begins with it if it is new.
    fn with_family<R>(&self, f: impl FnOnce(&mut Family) -> R) -> R {
        self.storage().with_families(|list| {
            let at = list.iter().position(|f| f.group == self.group);
            let at = at.unwrap_or_else(|| {
                list.push(Family {
                    group: self.group,
                    base: Layout::of(self),
                    meta: Meta::of(self),
                    head: None,
                    tangents: Vec::new(),
                    viewed: false,
                });
                list.len() - 1
            });
            f(&mut list[at])
        })
    }

    /// How the tensor lies that this one is a view of, and what was last written there; nothing if it never had views.
    #[must_use]
    pub fn family(&self) -> Option<(Layout, Meta, Option<Arc<Link>>)> {
        self.storage().known_families()?;
        self.storage().with_families(|list| {
            let found = list.iter().find(|f| f.group == self.group)?;
            Some((found.base.clone(), found.meta.clone(), found.head.clone()))
        })
    }

    /// Notes what was written into the memory of this tensor's family.
    pub fn set_head(&self, head: &Arc<Link>) {
        let old = self.with_family(|f| f.head.replace(head.clone()));
        self.storage().track();
        drop(old);
    }

    /// The layout of the tensor that this one is a view of, and the tangents that were written into its memory.
    #[must_use]
    pub fn family_tangents(&self) -> Option<(Layout, Vec<Tangent>)> {
        self.storage().known_families()?;
        self.storage().with_families(|list| {
            let found = list.iter().find(|f| f.group == self.group)?;
            let some = !found.tangents.is_empty();
            some.then(|| (found.base.clone(), found.tangents.clone()))
        })
    }

    /// Notes the tangent, of a level, of the tensor that this one is a view of; those of levels that are closed go.
    pub fn set_family_tangent(&self, level: u32, tangent: Tensor, is_open: impl Fn(u32) -> bool) {
        let old = self.with_family(|f| {
            let (mut kept, old): (Vec<_>, Vec<_>) = std::mem::take(&mut f.tangents)
                .into_iter()
                .partition(|t| t.0 != level && is_open(t.0));
            kept.push((level, tangent));
            f.tangents = kept;
            old
        });
        self.storage().track();
        drop(old);
    }

    /// The same tensor as one that knows nothing of what else lies in its memory.
    #[must_use]
    pub fn apart(mut self) -> Self {
        self.group = new_group();
        self
    }

    /// Whoever holds the only other handle of the tensor has the history of the last write: the storage needs to know it
    /// only if there are views.
    pub fn forget_own_head(&self) {
        if !self.storage().is_tracked() || self.is_view() {
            return;
        }
        let old = self.with_family(|f| if f.viewed { None } else { f.head.take() });
        drop(old);
    }
}

/// A tensor that a node keeps, apart from all history: it holds the bytes alone.
pub struct Bare(Tensor);

impl Bare {
    /// Of a tensor.
    #[must_use]
    pub fn of(t: &Tensor) -> Self {
        t.storage().count_saved(true);
        Self(t.bare().carrying(t))
    }

    /// The tensor.
    #[must_use]
    pub fn get(&self) -> &Tensor {
        &self.0
    }
}

impl Clone for Bare {
    fn clone(&self) -> Self {
        Self::of(&self.0)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.0.storage().count_saved(false);
    }
}

impl Storage {
    /// Gives up all heads and tangents, once nothing but saved tensors lies here.
    #[cold]
    pub(crate) fn forget_heads(&self) {
        let take = |f: &mut Family| (f.head.take(), std::mem::take(&mut f.tangents));
        let old: Vec<_> = self.with_families(|list| list.iter_mut().map(take).collect());
        drop(old);
    }

    fn with_families<R>(&self, f: impl FnOnce(&mut Families) -> R) -> R {
        f(&mut lock(self.families()))
    }
}
