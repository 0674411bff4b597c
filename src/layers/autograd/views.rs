//! The history of views and of what they are views of, once one of them was written.

use super::recorded::Recorded;
use crate::ops::{Args, OwnedArgs, f};
use crate::tensor::{Backward, Edge, Grads, Layout, Link, Meta, Node};
use crate::{Result, Tensor, bail, mode};
use smallvec::smallvec;
use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

/// The tensor with its history as it is now.
#[must_use]
pub fn current(t: &Tensor) -> Cow<'_, Tensor> {
    if !t.storage().is_tracked() {
        return Cow::Borrowed(t);
    }
    let Some((base, _, Some(head))) = t.family() else {
        return Cow::Borrowed(t);
    };
    let own = t.link();
    if !t.is_view() {
        return match own {
            Some(link) if Arc::ptr_eq(link, &head) => Cow::Borrowed(t),
            _ => Cow::Owned(t.clone().tracked(head, 0)),
        };
    }
    let made_at = own.and_then(|l| l.node()).map(Node::version);
    if made_at == Some(t.storage().version()) {
        return Cow::Borrowed(t);
    }
    Cow::Owned(regenerated(t, base, head))
}

/// A view with a node that leads to what was written last.
fn regenerated(view: &Tensor, base: Layout, head: Arc<Link>) -> Tensor {
    let body = Regenerated {
        base,
        view: Layout::of(view),
    };
    let edge = Edge { to: head, nr: 0 };
    let node = Node::new(
        Box::new(body),
        smallvec![Some(edge)],
        smallvec![Meta::of(view)],
    );
    let node = node.at_version(view.storage().version());
    view.clone().tracked(Link::of_node(node), 0)
}

/// The arguments of a call with their history as it is now.
#[must_use]
pub fn all_current(args: &Args<'_>) -> OwnedArgs {
    let mut owned = args.to_owned();
    owned.for_each_tensor_mut(|t| {
        if let Cow::Owned(now) = current(t) {
            *t = now;
        }
    });
    owned
}

/// The node of a view whose history was written anew.
struct Regenerated {
    base: Layout,
    view: Layout,
}

impl Regenerated {
    fn back(&self, grad: &Tensor) -> Result<Tensor> {
        let (b, v) = (&self.base, &self.view);
        f::_grad_as_strided_back(
            grad,
            &b.shape[..],
            &b.strides[..],
            &v.shape[..],
            &v.strides[..],
            v.offset,
            b.offset,
        )
    }
}

impl Backward for Regenerated {
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("AsStridedBackward0")
    }

    fn apply(&self, _: &Arc<Link>, mut grads: Grads) -> Result<Grads> {
        let made = grads.swap_remove(0).map(|g| self.back(&g)).transpose()?;
        Ok(smallvec![made])
    }

    fn release(&self) {}
}

/// The node of a write through a view, as what it was a view of sees it.
struct CopySlices {
    inner: Recorded,
    base: Layout,
    view: Layout,
}

impl Backward for CopySlices {
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("CopySlices")
    }

    fn apply(&self, this: &Arc<Link>, mut grads: Grads) -> Result<Grads> {
        let count = this.node().map_or(0, |n| n.edges().len());
        let Some(grad) = grads.swap_remove(0) else {
            return Ok(std::iter::repeat_n(None, count).collect());
        };
        // The gradient of all, laid out as the tensor was, so that the part is a view of it.
        let (b, v) = (&self.base, &self.view);
        let whole = f::NewEmptyStrided::new(&grad, &b.shape[..], &b.strides[..]).call()?;
        let whole = super::gather::written(&whole, &grad)?;
        let part = f::AsStrided::new(&whole, &v.shape[..], &v.strides[..])
            .storage_offset(v.offset - b.offset)
            .call()?;
        let given = f::clone(&part)?;
        let mut made = self.inner.apply(this, smallvec![Some(given)])?;
        let first = match made.first_mut().and_then(Option::take) {
            Some(g) => g,
            None => f::zeros_like(&part)?,
        };
        super::gather::written(&part, &first)?;
        // What was written through the view has its gradient in the part of the whole.
        made[0] = Some(whole);
        Ok(made)
    }

    fn release(&self) {
        self.inner.release();
    }
}

/// Where the gradient goes of what a view was first made of.
fn base_edge(view: &Tensor, head: Option<&Arc<Link>>) -> Option<Edge> {
    if let Some(head) = head {
        return Some(Edge {
            to: head.clone(),
            nr: 0,
        });
    }
    let mut edge = view.edge()?;
    loop {
        let up = {
            let node = edge.to.node()?;
            let body: &dyn Any = node.body();
            match body.downcast_ref::<Recorded>() {
                Some(r) if r.is_view() => node.edges().first()?.clone()?,
                _ => return Some(edge),
            }
        };
        if up.to.node().is_none() {
            return Some(up);
        }
        edge = up;
    }
}

/// Notes a write with a history into `target`; gives the tensor with that history.
///
/// # Errors
/// If the target is a view that must not be written.
pub fn wrote(
    target: &Tensor,
    made: Tensor,
    body: Recorded,
    edges: smallvec::SmallVec<[Option<Edge>; 2]>,
) -> Result<Tensor> {
    let family = target.is_view().then(|| target.family()).flatten();
    let Some((base, meta, head)) = family else {
        if target.is_view() && mode::grad_enabled() {
            bail!(
                Runtime,
                "A view was created in no_grad mode and is being modified inplace with grad mode enabled. Given that this use \
                 case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the view and \
                 the inplace either both inside the no_grad block (if you don't want the inplace to be tracked) or both \
                 outside (if you want the inplace to be tracked)."
            );
        }
        let outs = smallvec![Meta::of(&made)];
        let node = Node::new(Box::new(body), edges, outs).at_version(made.storage().version());
        let link = Link::of_node(node);
        super::anomaly::made(&link);
        made.set_head(&link);
        // A gradient that is kept is that of the tensor as it is now.
        let rare = target.link().and_then(|l| l.rare());
        if rare.is_some_and(|r| r.forget_retained(target.output_nr())) {
            link.make_rare().retain(0);
        }
        return Ok(made.tracked(link, 0));
    };
    let mut edges = edges;
    if let Some(first) = edges.first_mut() {
        *first = base_edge(target, head.as_ref());
    }
    let slices = CopySlices {
        inner: body,
        base: base.clone(),
        view: Layout::of(target),
    };
    let node = Node::new(Box::new(slices), edges, smallvec![meta]);
    let link = Link::of_node(node.at_version(made.storage().version()));
    super::anomaly::made(&link);
    made.set_head(&link);
    Ok(regenerated(&made, base, link))
}
