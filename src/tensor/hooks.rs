//! What few places of the graph have: hooks, gradients kept for results, and what a binding keeps beside them.

use super::link::{Keeper, Link, lock};
use super::node::Grads;
use super::place::Place;
use crate::{DType, Result};
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Somebody who is told of gradients.
pub trait Hook: Any + Send + Sync {
    /// Sees gradients, and may replace them. `others` are, for a hook after a node, the gradients that came in.
    ///
    /// # Errors
    /// Its own.
    fn run(&self, link: &Place, grads: &mut Grads, others: Option<&Grads>) -> Result<()>;
}

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before a node, or before a leaf gathers: sees the gradient of this result.
    Result(u16),
    /// Before a node: sees the gradients of all its results.
    Before,
    /// After a node: sees the gradients of its inputs, and those of its results.
    After,
    /// After a leaf has gathered its gradient.
    Gathered,
}

/// What few places have.
#[derive(Default)]
pub struct Rare {
    hooks: Mutex<Vec<(u64, When, Arc<dyn Hook>)>>,
    kept: Mutex<Vec<Kept>>,
    /// The type that gradients of a leaf are brought to, if it is not the leaf's; `Some(None)` for any.
    wanted: Mutex<Option<Option<DType>>>,
    /// The binding's own.
    pub face: Mutex<Option<Box<dyn Any + Send + Sync>>>,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Link {
    /// The type that gradients gathered here have, or none if they keep theirs; `own` is the leaf's.
    #[must_use]
    pub fn grad_dtype(&self, own: DType) -> Option<DType> {
        let wanted = self.rare().and_then(|r| *lock(&r.wanted));
        wanted.unwrap_or(Some(own))
    }

    /// Says which type gradients gathered here have; none if they keep theirs.
    pub fn set_grad_dtype(&self, wanted: Option<DType>) {
        *lock(&self.make_rare().wanted) = Some(wanted);
    }

    /// The hooks of a moment.
    pub fn hooks(&self, when: When) -> Vec<(When, Arc<dyn Hook>)> {
        let found = self.rare().map(|r| r.hooks(|w| w == when));
        found.unwrap_or_default()
    }
}

impl Rare {
    /// Adds a hook, and gives the number by which it is removed.
    pub fn hook(&self, when: When, hook: Arc<dyn Hook>) -> u64 {
        let id = NEXT.fetch_add(1, Relaxed);
        lock(&self.hooks).push((id, when, hook));
        id
    }

    /// Removes a hook; one that is gone is no error.
    pub fn unhook(&self, id: u64) {
        let mut hooks = lock(&self.hooks);
        let found = hooks.iter().position(|h| h.0 == id);
        let old = found.map(|i| hooks.remove(i));
        // Dropped after the lock is free: it may run other people's code.
        drop(hooks);
        drop(old);
    }

    /// Removes all hooks.
    pub fn forget_hooks(&self) {
        let old = std::mem::take(&mut *lock(&self.hooks));
        drop(old);
    }

    /// The hooks of a moment, in order.
    #[must_use]
    pub fn hooks(&self, wanted: impl Fn(When) -> bool) -> Vec<(When, Arc<dyn Hook>)> {
        lock(&self.hooks)
            .iter()
            .filter(|h| wanted(h.1))
            .map(|h| (h.1, h.2.clone()))
            .collect()
    }

    /// From now on the gradient of a result is kept.
    pub fn retain(&self, nr: u16) {
        self.with_kept(nr, |k| k.retains = true);
    }

    /// The gradient of a result is kept no more; gives whether it was.
    pub fn forget_retained(&self, nr: u16) -> bool {
        let mut list = lock(&self.kept);
        let found = list.iter_mut().find(|k| k.nr == nr);
        found.is_some_and(|k| std::mem::replace(&mut k.retains, false))
    }

    /// The results whose gradients are kept.
    #[must_use]
    pub fn retained(&self) -> Vec<u16> {
        let list = lock(&self.kept);
        list.iter().filter(|k| k.retains).map(|k| k.nr).collect()
    }

    /// The gradient of a result.
    #[must_use]
    pub fn grad(&self, nr: u16) -> Option<Arc<dyn Keeper>> {
        let list = lock(&self.kept);
        list.iter().find(|k| k.nr == nr)?.grad.clone()
    }

    /// Sets or forgets the gradient of a result.
    pub fn set_grad(&self, nr: u16, grad: Option<Arc<dyn Keeper>>) {
        // The old one is dropped after the lock is free: it may run other people's code.
        let old = self.with_kept(nr, |k| std::mem::replace(&mut k.grad, grad));
        drop(old);
    }

    /// Where the history of a result is now whose gradient is kept: of a view that was written through another one.
    #[must_use]
    pub fn moved(&self, nr: u16) -> Option<Place> {
        let list = lock(&self.kept);
        list.iter().find(|k| k.nr == nr)?.moved.clone()
    }

    /// Notes where the history of a result is now; its gradient is kept there, if it was here.
    pub fn move_to(&self, nr: u16, link: &Place) {
        let grad = self.with_kept(nr, |k| {
            if !std::mem::replace(&mut k.retains, false) {
                return None;
            }
            k.moved = Some(link.clone());
            Some(k.grad.take())
        });
        if let Some(grad) = grad {
            link.make_rare().retain(0);
            link.make_rare().set_grad(0, grad);
        }
    }

    fn with_kept<R>(&self, nr: u16, f: impl FnOnce(&mut Kept) -> R) -> R {
        let mut list = lock(&self.kept);
        let i = list.iter().position(|k| k.nr == nr).unwrap_or_else(|| {
            list.push(Kept {
                nr,
                retains: false,
                grad: None,
                moved: None,
            });
            list.len() - 1
        });
        f(&mut list[i])
    }
}

/// The gradient of one result.
struct Kept {
    nr: u16,
    retains: bool,
    grad: Option<Arc<dyn Keeper>>,
    moved: Option<Place>,
}
