//! What in-place writes do to the history of tensors that share memory.
//!
//! A storage notes how the tensor lies that views were first made of, and what was last written into that memory with a
//! history. Views made and forgotten cost nothing more; a view that is used after a write finds its history here.
//! Tensors cut off by `detach` are a family of their own.

use super::link::lock;
use super::place::{Place, WeakPlace};
use super::{Edge, GRAD, Meta, Tangent, Tensor, VIEW_OF_LEAF};
use crate::{DType, Device, Dims, Result, Storage};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How a tensor lies in its storage, and how its elements are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Sizes.
    pub shape: Dims,
    /// Strides, in elements.
    pub strides: Dims,
    /// The first element, in elements.
    pub offset: i64,
    /// The type of its elements.
    pub dtype: DType,
    /// They are conjugated when they are read.
    pub conj: bool,
    /// They are negated when they are read.
    pub neg: bool,
}

impl Layout {
    /// Of a tensor.
    #[must_use]
    pub fn of(t: &Tensor) -> Self {
        Self {
            shape: t.shape().clone(),
            strides: t.strides().clone(),
            offset: t.offset(),
            dtype: t.dtype(),
            conj: t.is_conj(),
            neg: t.is_neg(),
        }
    }

    /// What such a tensor looks like on a device.
    #[must_use]
    pub fn meta(&self, device: Device) -> Meta {
        Meta {
            shape: self.shape.clone(),
            dtype: self.dtype,
            device,
        }
    }

    /// A tensor that lies so in a storage.
    ///
    /// # Errors
    /// If it reaches outside.
    pub fn on(&self, storage: &Storage) -> Result<Tensor> {
        let (shape, strides) = (self.shape.clone(), self.strides.clone());
        let t = Tensor::checked(storage.clone(), shape, strides, self.offset, self.dtype)?;
        Ok(t.with_conj(self.conj).with_neg(self.neg))
    }
}

/// Why a view must not be written with a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Nothing forbids it.
    None,
    /// A function of the user's made it.
    InFunction,
    /// It is one of several views that one call made.
    OneOfSeveral,
    /// It was made while gradients were off.
    NoGrad,
    /// It was made in inference mode.
    Inference,
}

impl Mark {
    const ALL: [Self; 5] = [
        Self::None,
        Self::InFunction,
        Self::OneOfSeveral,
        Self::NoGrad,
        Self::Inference,
    ];
}

/// Where the mark begins in the number of a tensor's family.
const MARK: u32 = 29;
/// Where the number begins that tells a tensor from others that lie alike.
const ALIKE: u32 = 21;
/// The bits that are the family's number.
const NUMBER: u32 = (1 << ALIKE) - 1;
/// The greatest number that tells tensors apart which lie alike.
const MOST_ALIKE: u32 = (1 << (MARK - ALIKE)) - 1;

/// The tensors of one storage that write into one history.
#[derive(Clone)]
pub struct Family {
    group: u32,
    /// The tensor that the others are views of.
    pub base: Layout,
    /// What it looks like.
    pub meta: Meta,
    /// What was last written.
    pub head: Option<Place>,
    /// The tangents of `base`, by level: rows of elements that `base` and its views lie in.
    tangents: Vec<Tangent>,
    /// The place of the tensor when views were first made, and which result it was.
    place: Option<(WeakPlace, u16)>,
    /// Views were made.
    viewed: bool,
    /// The tensor became a leaf that wants a gradient after views were made.
    late: bool,
}

impl Family {
    /// Where the gradient goes of the tensor that the others are views of.
    #[must_use]
    pub fn edge(&self) -> Option<Edge> {
        let (to, nr) = match (&self.head, &self.place) {
            (Some(head), _) => (head.clone(), 0),
            (None, Some((place, nr))) => (place.upgrade()?, *nr),
            (None, None) => return None,
        };
        Some(Edge { to, nr })
    }
}

/// All families of a storage.
pub type Families = Vec<Family>;

static GROUPS: AtomicU32 = AtomicU32::new(1);

/// A number for what `detach` cuts off.
pub(super) fn new_group() -> u32 {
    1 + GROUPS.fetch_add(1, Relaxed) % NUMBER
}

impl Tensor {
    /// Notes that this tensor, which is no view, has views.
    #[cold]
    pub(crate) fn lay(&self) {
        self.storage().note_views();
        let edge = self.edge();
        self.with_family(|f| {
            if !std::mem::replace(&mut f.viewed, true) {
                f.place = edge.map(|e| (Place::weak(&e.to), e.nr));
            }
        });
    }

    /// What is noted of this tensor's family, which begins with it if it is new.
    fn with_family<R>(&self, f: impl FnOnce(&mut Family) -> R) -> R {
        self.storage().with_families(|list| {
            let at = list.iter().position(|f| f.group == self.group());
            let at = at.unwrap_or_else(|| {
                list.push(Family {
                    group: self.group(),
                    base: Layout::of(self),
                    meta: Meta::of(self),
                    head: None,
                    tangents: Vec::new(),
                    place: None,
                    viewed: false,
                    late: false,
                });
                list.len() - 1
            });
            f(&mut list[at])
        })
    }

    /// What is noted of the tensor that this one is a view of; nothing if it never had views.
    #[must_use]
    pub fn family(&self) -> Option<Family> {
        self.storage().known_families()?;
        self.storage()
            .with_families(|list| list.iter().find(|f| f.group == self.group()).cloned())
    }

    /// What was last written, with a history, where this tensor lies.
    #[must_use]
    pub fn head(&self) -> Option<Place> {
        if !self.storage().is_tracked() {
            return None;
        }
        self.storage().with_families(|list| {
            let found = list.iter().find(|f| f.group == self.group())?;
            found.head.clone()
        })
    }

    /// True if both are of one family, whose tensors are views of one and write into one history.
    #[must_use]
    pub fn is_of_family(&self, other: &Self) -> bool {
        self.shares_storage(other) && self.group() == other.group()
    }

    /// The number of this tensor's family.
    #[inline]
    pub(super) fn group(&self) -> u32 {
        self.group & NUMBER
    }

    /// What tells this tensor from others that lie alike, if who traces has numbered them; views begin with 0.
    #[must_use]
    pub fn nr_alike(&self) -> u32 {
        self.group >> ALIKE & MOST_ALIKE
    }

    /// The same tensor with such a number, of which there are few.
    #[must_use]
    pub fn numbered_alike(mut self, nr: u32) -> Self {
        self.group = self.group & !(MOST_ALIKE << ALIKE) | (nr & MOST_ALIKE) << ALIKE;
        self
    }

    /// The family's number and the mark, as a view has them.
    #[inline]
    pub(super) fn group_of_view(&self) -> u32 {
        self.group & !(MOST_ALIKE << ALIKE)
    }

    /// Why this view must not be written with a history.
    #[inline]
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark::ALL[(self.group >> MARK) as usize % Mark::ALL.len()]
    }

    /// The same view, which must not be written with a history.
    #[must_use]
    pub fn marked(mut self, mark: Mark) -> Self {
        self.mark_as(mark);
        self
    }

    #[inline]
    pub(super) fn mark_as(&mut self, mark: Mark) {
        self.group = self.group & ((1 << MARK) - 1) | (mark as u32) << MARK;
    }

    /// The same view as one of several that one call made.
    pub(crate) fn one_of_several(self) -> Self {
        if crate::mode::records() {
            self.marked(Mark::OneOfSeveral)
        } else {
            self
        }
    }

    /// What says to which family a view belongs that is made where calls are not recorded.
    pub(super) fn marked_apart(&self) -> u32 {
        let mark = if crate::mode::inference() {
            Mark::Inference
        } else {
            Mark::NoGrad
        };
        self.group() | (mark as u32) << MARK
    }

    /// The flags of such a view: what it shows wants a gradient, though it leads nowhere.
    pub(super) fn apart(&self, dtype: DType) -> u8 {
        if !dtype.is_float() && !dtype.is_complex() {
            return 0;
        }
        // It asks what all are views of, which need not want what a view that is a leaf does.
        if self.is_view() && self.is_leaf() && self.mark() == Mark::None {
            return self.flags & VIEW_OF_LEAF & self.flags & GRAD;
        }
        // What was written through another view has a history that this handle may not have seen.
        if self.flags & GRAD == 0 && self.head().is_some() {
            GRAD
        } else {
            self.flags & GRAD
        }
    }

    /// Whether this view's memory was written since the view got its history; nothing for one that has none.
    #[inline]
    #[must_use]
    pub fn is_outdated(&self) -> Option<bool> {
        let now = self.storage().version();
        match self.node() {
            Some(node) => {
                Some(node.version() != now && node.body().version_of(self.nr) != Some(now))
            }
            None if self.requires_grad() && self.link().is_none() => Some(self.nr != now as u16),
            None => None,
        }
    }

    /// Notes what was written into the memory of this tensor's family.
    pub fn set_head(&self, head: &Place) {
        let old = self.with_family(|f| f.head.replace(head.clone()));
        self.storage().track();
        drop(old);
    }

    /// The layout of the tensor that this one is a view of, and the tangents that were written into its memory.
    #[must_use]
    pub fn family_tangents(&self) -> Option<(Layout, Vec<Tangent>)> {
        self.storage().known_families()?;
        self.storage().with_families(|list| {
            let found = list.iter().find(|f| f.group == self.group())?;
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
    pub fn of_new_family(mut self) -> Self {
        let nr = self.nr_alike();
        self.group = new_group();
        self.numbered_alike(nr)
    }

    /// The same tensor as one that nobody else sees: no view, though it was made as one.
    #[must_use]
    pub fn of_its_own(mut self) -> Self {
        self.be_its_own();
        self.of_new_family()
    }

    /// Notes that this tensor, which is no view, lies otherwise than when views of it were made.
    pub(crate) fn lies_anew(&self) {
        if self.is_view() || self.storage().known_families().is_none() {
            return;
        }
        self.with_family(|f| {
            f.base = Layout::of(self);
            f.meta = Meta::of(self);
        });
    }

    /// Notes the place that this tensor, which is no view, has by a call in place that wrote nothing.
    pub fn moved(&self) {
        if self.is_view() {
            return;
        }
        let Some(edge) = self.edge() else { return };
        let old = self.with_family(|f| match &mut f.head {
            Some(head) => Some(std::mem::replace(head, edge.to)),
            None => {
                f.place = Some((Place::weak(&edge.to), edge.nr));
                None
            }
        });
        drop(old);
    }

    /// Notes that this tensor, which has views, wants a gradient as a leaf from now on, or no more.
    pub fn note_late_leaf(&self, wants: bool) {
        if self.is_view() || self.storage().known_families().is_none() {
            return;
        }
        let late = self.with_family(|f| {
            f.late = wants && f.viewed;
            f.late
        });
        if late {
            self.storage().track();
        }
    }

    /// Whether this view was made before what it shows became a leaf that wants a gradient.
    #[must_use]
    pub fn is_of_late_leaf(&self) -> bool {
        if self.requires_grad() || !self.storage().is_tracked() {
            return false;
        }
        self.storage()
            .with_families(|list| list.iter().any(|f| f.group == self.group() && f.late))
    }

    /// The same view as one of a leaf that wants a gradient: it wants one too, and leads nowhere.
    #[must_use]
    pub fn of_leaf(mut self) -> Self {
        self.flags |= GRAD | VIEW_OF_LEAF;
        self.nr = self.storage().version() as u16;
        self
    }

    /// Gives up what was last written where this tensor lies.
    pub fn forget_head(&self) {
        if self.storage().is_tracked() {
            drop(self.with_family(|f| f.head.take()));
        }
    }

    /// Whoever holds the only other handle of the tensor has the history of the last write: the storage needs to know it
    /// only if there are views.
    pub fn forget_own_head(&self) {
        if !self.storage().is_tracked() || self.is_view() {
            return;
        }
        let old = self.with_family(|f| {
            let head = if f.viewed { None } else { f.head.take() };
            if let Some(head) = &head {
                f.place = Some((Place::weak(head), 0));
            }
            head
        });
        drop(old);
    }
}

/// A tensor that a node keeps, apart from all history: it holds the bytes alone.
pub struct Bare(Tensor);

impl Bare {
    /// Of a tensor.
    #[inline]
    #[must_use]
    pub fn of(t: &Tensor) -> Self {
        t.storage().count_saved(true);
        Self(t.untracked())
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
