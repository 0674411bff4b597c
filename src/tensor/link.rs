//! What ties a tensor to the history of gradients: it is a leaf, where gradients gather, or a result of a node.

use super::Tensor;
use super::carrier::Carrier;
use super::hooks::Rare;
use super::node::Node;
pub use super::place::{Place, WeakPlace};
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Locks a mutex; what it guards stays whole whoever panicked.
pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place in the graph.
pub struct Link {
    /// What it is.
    pub kind: Kind,
    /// Where the engine that works on it now keeps its notes: its number, and a position; 0 if none does.
    pub(crate) scratch: AtomicU64,
    rare: OnceLock<Box<Rare>>,
}

/// What a place in the graph is.
pub enum Kind {
    /// A tensor that the user made: gradients end here.
    Leaf(Leaf),
    /// A call, whose gradients go on to what it was made of.
    Node(Node),
    /// No place of its own: that of a dual tensor, and its tangents.
    Carrier(Carrier),
}

/// A tensor that no recorded call made.
pub struct Leaf {
    /// The object of a binding that the tensor is; 0 if there is none. The binding alone reads and writes it.
    pub object: AtomicUsize,
    /// Whether gradients that arrive are gathered: not by a tensor that wants none any more.
    wanted: AtomicBool,
    variable: Mutex<Tensor>,
    grad: Mutex<Option<Arc<dyn Keeper>>>,
}

/// Who keeps a tensor that belongs to another: the tensor itself, or the object of a binding around it.
pub trait Keeper: Any + Send + Sync {
    /// The tensor as it is now.
    fn tensor(&self) -> Tensor;
}

impl Keeper for Tensor {
    fn tensor(&self) -> Tensor {
        self.clone()
    }
}

impl Link {
    #[inline]
    fn placed(kind: Kind) -> Place {
        Place::new(Self {
            kind,
            scratch: AtomicU64::new(0),
            rare: OnceLock::new(),
        })
    }

    /// The place of a leaf.
    pub(crate) fn leaf(variable: Tensor) -> Place {
        Self::placed(Kind::Leaf(Leaf {
            object: AtomicUsize::new(0),
            wanted: AtomicBool::new(true),
            variable: Mutex::new(variable),
            grad: Mutex::new(None),
        }))
    }

    /// The place of a dual tensor, with its tangents.
    pub(super) fn carrier(carrier: Carrier) -> Place {
        Self::placed(Kind::Carrier(carrier))
    }

    /// The place of a call.
    #[inline]
    #[must_use]
    pub fn of_node(node: Node) -> Place {
        Self::placed(Kind::Node(node))
    }

    /// The node, if it is one.
    #[inline]
    #[must_use]
    pub fn node(&self) -> Option<&Node> {
        match &self.kind {
            Kind::Node(n) => Some(n),
            Kind::Leaf(_) | Kind::Carrier(_) => None,
        }
    }

    /// The leaf, if it is one.
    #[inline]
    #[must_use]
    pub fn as_leaf(&self) -> Option<&Leaf> {
        match &self.kind {
            Kind::Leaf(l) => Some(l),
            Kind::Node(_) | Kind::Carrier(_) => None,
        }
    }

    /// Whether it is a leaf where nothing has gathered, with no hooks.
    pub(crate) fn is_bare_leaf(&self) -> bool {
        self.rare().is_none() && self.as_leaf().is_some_and(|l| lock(&l.grad).is_none())
    }

    /// Hooks and what else few places have, if there is any.
    #[inline]
    #[must_use]
    pub fn rare(&self) -> Option<&Rare> {
        self.rare.get().map(|r| &**r)
    }

    /// Hooks and what else few places have.
    pub fn make_rare(&self) -> &Rare {
        self.rare.get_or_init(Box::default)
    }
}

impl Leaf {
    /// The tensor, apart from its history.
    #[must_use]
    pub fn variable(&self) -> Tensor {
        lock(&self.variable).clone()
    }

    /// Looks at the tensor, apart from its history.
    pub fn with_variable<R>(&self, f: impl FnOnce(&Tensor) -> R) -> R {
        f(&lock(&self.variable))
    }

    /// Whether the tensor wants the gradients that arrive.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }

    /// The gradient gathered so far.
    #[must_use]
    pub fn grad(&self) -> Option<Arc<dyn Keeper>> {
        lock(&self.grad).clone()
    }

    /// Sets or forgets the gradient.
    pub fn set_grad(&self, grad: Option<Arc<dyn Keeper>>) {
        // The old one is dropped after the lock is free: it may run other people's code.
        let old = std::mem::replace(&mut *lock(&self.grad), grad);
        drop(old);
    }
}

impl Tensor {
    /// Its place in the graph, if it has one.
    #[inline]
    #[must_use]
    pub fn link(&self) -> Option<&Place> {
        let link = self.link.as_ref()?;
        match &link.kind {
            Kind::Carrier(c) => c.place.as_ref(),
            _ => Some(link),
        }
    }

    /// The handle of a leaf's place that this very tensor has: none that it carries.
    #[must_use]
    pub fn own_place(&self) -> Option<&Place> {
        self.link.as_ref().filter(|l| l.as_leaf().is_some())
    }

    /// Which of its node's results it is.
    #[inline]
    #[must_use]
    pub fn output_nr(&self) -> u16 {
        if self.link.is_some() { self.nr } else { 0 }
    }

    /// True if no recorded call made it.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        !self.requires_grad() || self.node().is_none()
    }

    /// The node that made it.
    #[inline]
    #[must_use]
    pub fn node(&self) -> Option<&Node> {
        self.link()?.node()
    }

    /// The same elements apart from all history.
    #[inline]
    #[must_use]
    pub fn bare(&self) -> Self {
        Self {
            storage: self.storage.clone(),
            shape: self.shape.clone(),
            strides: self.strides.clone(),
            offset: self.offset,
            dtype: self.dtype,
            flags: self.flags & !(super::GRAD | super::VIEW_OF_LEAF),
            nr: 0,
            group: self.group,
            link: None,
        }
    }

    /// The same tensor as a result of a node.
    #[inline]
    #[must_use]
    pub fn tracked(mut self, link: Place, nr: u16) -> Self {
        self.track(link, nr);
        self
    }

    /// Makes it a result of a node.
    #[inline]
    pub fn track(&mut self, link: Place, nr: u16) {
        self.flags |= super::GRAD;
        self.nr = nr;
        self.set_place(Some(link));
    }

    /// The same tensor as a leaf whose gradient is wanted, or is not. A result of a node stays what it is.
    #[must_use]
    pub fn with_requires_grad(mut self, on: bool) -> Self {
        if on && self.link().is_none() {
            let leaf = Link::leaf(self.bare());
            self.set_place(Some(leaf));
        } else if on && let Some(leaf) = self.link().and_then(|l| l.as_leaf()) {
            leaf.wanted.store(true, Relaxed);
        }
        self.flag(super::GRAD, on)
    }

    /// The gradient that was gathered for this tensor, or kept for it.
    #[must_use]
    pub fn grad(&self) -> Option<Tensor> {
        self.grad_keeper().map(|k| k.tensor())
    }

    /// Who keeps the gradient.
    #[must_use]
    pub fn grad_keeper(&self) -> Option<Arc<dyn Keeper>> {
        let link = self.link()?;
        match &link.kind {
            Kind::Leaf(leaf) => leaf.grad(),
            _ => link.rare()?.grad(self.nr),
        }
    }

    /// The same tensor with this gradient, or without one.
    #[must_use]
    pub fn with_grad(mut self, grad: Option<Arc<dyn Keeper>>) -> Self {
        if self.link().is_none() && grad.is_some() {
            let leaf = Link::leaf(self.bare());
            self.set_place(Some(leaf));
        }
        if let Some(link) = self.link() {
            match &link.kind {
                Kind::Leaf(leaf) => leaf.set_grad(grad),
                _ => link.make_rare().set_grad(self.nr, grad),
            }
        }
        self
    }

    /// The same tensor with the place in the graph that `old` has, which it replaces.
    #[must_use]
    pub fn keeping(mut self, old: &Self) -> Self {
        self.nr = old.nr;
        self.link.clone_from(&old.link);
        self
    }

    /// Tells the leaf how it lies now, and whether it wants gradients.
    #[inline]
    pub fn settle(&self) {
        if let Some(leaf) = self.link().and_then(|l| l.as_leaf()) {
            leaf.wanted.store(self.requires_grad(), Relaxed);
            let mut variable = lock(&leaf.variable);
            if !variable.lies_as(self) {
                let old = std::mem::replace(&mut *variable, self.bare());
                drop(variable);
                drop(old);
            }
        }
    }

    /// The same tensor without a place in the graph.
    #[must_use]
    pub fn unlinked(mut self) -> Self {
        self.link = None;
        self.nr = 0;
        self
    }
}
