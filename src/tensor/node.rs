//! Nodes of the graph: a recorded call, the places its gradients go to, and what its results looked like.

use super::Tensor;
use super::link::Kind;
use super::place::Place;
use crate::parts::located;
use crate::{DType, Device, Dims, Result};
use smallvec::SmallVec;
use std::any::Any;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};

/// Gradients by position; those that are not defined are zero.
pub type Grads = SmallVec<[Option<Tensor>; 2]>;

/// A recorded call.
pub struct Node {
    body: Box<dyn Backward>,
    edges: Edges,
    outs: SmallVec<[Meta; 1]>,
    seq: u64,
    /// How often its result's memory had been written when the node was made.
    version: u32,
}

/// Where a gradient goes: a place, and which of its results it belongs to.
#[derive(Clone)]
pub struct Edge {
    /// The place.
    pub to: Place,
    /// Which of its results.
    pub nr: u16,
}

/// What a result looked like, and its gradient has to.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Sizes.
    pub shape: Dims,
    /// Element type.
    pub dtype: DType,
    /// Where it is.
    pub device: Device,
}

/// What a node does.
pub trait Backward: Any + Send + Sync {
    /// Its name: `MulBackward0`.
    fn name(&self) -> Cow<'static, str>;

    /// The gradients of its inputs, one an edge, from those of its results, which it may take. `this` is the place of the
    /// node itself.
    ///
    /// # Errors
    /// If what it saved is gone or was changed, or a call fails.
    fn apply(&self, this: &Place, grads: &mut Grads) -> Result<Grads>;

    /// Gives up what was saved.
    fn release(&self);

    /// How often the memory of one of several results had been written, where that is not the same for all.
    fn version_of(&self, _nr: u16) -> Option<u32> {
        None
    }
}

impl Meta {
    /// Of a tensor.
    #[inline]
    #[must_use]
    pub fn of(t: &Tensor) -> Self {
        Self {
            shape: t.shape().clone(),
            dtype: t.dtype(),
            device: located(t),
        }
    }

    /// Whether a tensor looks so.
    #[must_use]
    pub fn fits(&self, t: &Tensor) -> bool {
        *t.shape() == self.shape && t.dtype() == self.dtype && located(t) == self.device
    }
}

/// Where the gradients of a node's inputs go.
pub type Edges = SmallVec<[Option<Edge>; 3]>;

/// The name of a node, with the namespace of those that PyTorch gives one.
#[must_use]
pub fn fully(name: &str) -> Cow<'_, str> {
    match name {
        "AccumulateGrad" | "CopySlices" | "CopyBackwards" | "NotImplemented" => {
            Cow::Owned(format!("torch::autograd::{name}"))
        }
        _ => Cow::Borrowed(name),
    }
}

/// The name of a node as messages tell it: that of the call, and its number if it is not the first of its name.
#[must_use]
pub fn briefly(name: &str) -> String {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match (bare.strip_suffix("Backward"), &name[bare.len()..]) {
        (Some(call), "0") => call.to_owned(),
        (Some(call), number) => format!("{call}{number}"),
        (None, _) => fully(name).into_owned(),
    }
}

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

impl Node {
    /// A node, the newest of this thread.
    #[inline]
    #[must_use]
    pub fn new(body: Box<dyn Backward>, edges: Edges, outs: SmallVec<[Meta; 1]>) -> Self {
        Self {
            body,
            edges,
            outs,
            seq: NEXT.with(|next| next.replace(next.get() + 1)),
            version: 0,
        }
    }

    /// The number of the next node of this thread.
    #[must_use]
    pub fn next_seq() -> u64 {
        NEXT.get()
    }

    /// The same node, of a result whose memory had been written this often.
    #[inline]
    #[must_use]
    pub fn at_version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// How often its result's memory had been written when the node was made.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What it does.
    #[inline]
    #[must_use]
    pub fn body(&self) -> &dyn Backward {
        &*self.body
    }

    /// Where its gradients go: one an input.
    #[inline]
    #[must_use]
    pub fn edges(&self) -> &[Option<Edge>] {
        &self.edges
    }

    /// What its results looked like.
    #[inline]
    #[must_use]
    pub fn outs(&self) -> &[Meta] {
        &self.outs
    }

    /// Its number: nodes made later on the same thread have larger ones.
    #[inline]
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }
}

impl Tensor {
    /// Where its gradient goes, if one is wanted.
    #[inline]
    #[must_use]
    pub fn edge(&self) -> Option<Edge> {
        if !self.requires_grad() {
            return None;
        }
        self.link().map(|link| Edge {
            to: link.clone(),
            nr: self.output_nr(),
        })
    }
}

impl Edge {
    /// Whether a gradient looks as it has to.
    #[must_use]
    pub fn fits(&self, grad: &Tensor) -> bool {
        let alike = |t: &Tensor| {
            let wanted = self.to.grad_dtype(t.dtype());
            grad.shape() == t.shape()
                && wanted.is_none_or(|d| grad.dtype() == d)
                && located(grad) == located(t)
        };
        match &self.to.kind {
            Kind::Leaf(leaf) => leaf.with_variable(alike),
            Kind::Node(node) => node.outs[usize::from(self.nr)].fits(grad),
            Kind::Carrier(_) => false,
        }
    }

    /// What a gradient has to look like, which is of type `given` now.
    #[must_use]
    pub fn meta(&self, given: DType) -> Meta {
        match &self.to.kind {
            Kind::Leaf(leaf) => {
                let meta = Meta::of(&leaf.variable());
                let dtype = self.to.grad_dtype(meta.dtype).unwrap_or(given);
                Meta { dtype, ..meta }
            }
            Kind::Node(node) => node.outs[usize::from(self.nr)].clone(),
            // No edge leads to one: `Tensor::link` looks through it.
            Kind::Carrier(_) => Meta {
                shape: Dims::default(),
                dtype: DType::F32,
                device: Device::META,
            },
        }
    }
}

thread_local! {
    /// Places that wait to be dropped, while one is being dropped: chains are as long as programs run.
    static WAITING: RefCell<Option<Vec<Edge>>> = const { RefCell::new(None) };
}

impl Drop for Node {
    fn drop(&mut self) {
        // Places that others hold as well stay: most leaves, and what is still in use.
        let held_here = |e: &Edge| Place::holders(&e.to) == 1;
        let edges = self.edges.iter_mut().filter_map(Option::take);
        let mut edges = edges.filter(held_here).peekable();
        if edges.peek().is_none() {
            return;
        }
        let first = WAITING.try_with(|w| match &mut *w.borrow_mut() {
            Some(waiting) => {
                waiting.extend(edges.by_ref());
                false
            }
            empty => {
                *empty = Some(edges.by_ref().collect());
                true
            }
        });
        if first != Ok(true) {
            return;
        }
        while let Some(edge) = WAITING.with_borrow_mut(|w| w.as_mut().and_then(Vec::pop)) {
            drop(edge);
        }
        WAITING.set(None);
    }
}

/// The gradient of a result that nothing depends on.
///
/// # Errors
/// If memory cannot be had.
pub fn zeros(meta: &Meta) -> Result<Tensor> {
    crate::wiring::zeros(&meta.shape, meta.dtype, meta.device)
}
