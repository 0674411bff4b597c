//! The history of views and of what they are views of, once one of them was written.

use super::recorded::{self, Recorded};
use super::{saved, shown};
use crate::ops::core::writable;
use crate::ops::{Args, OwnedArgs, f};
use crate::tensor::{
    Backward, Edge, Edges, Family, Grads, Layout, Link, Mark, Meta, Node, Place, briefly,
};
use crate::{Error, Result, Storage, Tensor, bail, dims, err, mode};
use smallvec::smallvec;
use std::any::Any;
use std::borrow::Cow;

/// True if the history of a tensor is no more what this handle has.
#[must_use]
pub fn is_stale(t: &Tensor) -> bool {
    if t.is_python()
        && let Some(stale) = shown::is_stale(t)
    {
        return stale;
    }
    if t.is_view() {
        let unknown = || t.head().is_some() || t.is_of_late_leaf();
        return t.is_outdated().unwrap_or_else(unknown);
    }
    match (t.head(), t.link()) {
        (Some(head), Some(link)) => !Place::same(link, &head),
        (head, _) => head.is_some(),
    }
}

/// The tensor that a view is of, with its history as it is now; nothing if nobody noted it.
///
/// # Errors
/// If the storage was made too small for it.
pub fn base_of(view: &Tensor) -> Result<Option<Tensor>> {
    if view.is_python()
        && let Some(root) = shown::root_of(view)
    {
        return Ok(Some(root));
    }
    if !view.is_view() {
        return Ok(None);
    }
    let Some(family) = view.family() else {
        return Ok(None);
    };
    let base = family.base.on(view.storage())?;
    Ok(Some(match family.edge() {
        Some(edge) => base.tracked(edge.to, edge.nr),
        None => base,
    }))
}

/// Whether a write into a tensor is recorded.
#[must_use]
pub fn leads_somewhere(t: &Tensor) -> bool {
    t.requires_grad() || is_stale(t)
}

/// The tensor with its history as it is now.
///
/// # Errors
/// PyTorch's text for a view that must not be used after such a write.
pub fn current(t: &Tensor) -> Result<Cow<'_, Tensor>> {
    if !is_stale(t) {
        return Ok(Cow::Borrowed(t));
    }
    if t.is_python()
        && let Some(now) = shown::current(t)?
    {
        return Ok(Cow::Owned(now));
    }
    if !t.is_view() {
        return Ok(match t.head() {
            Some(head) => Cow::Owned(t.clone().tracked(head, 0)),
            None => Cow::Borrowed(t),
        });
    }
    if t.is_of_late_leaf() {
        return Ok(Cow::Owned(t.clone().of_leaf()));
    }
    if t.mark() != Mark::None {
        return Err(forbidden(t, true));
    }
    let Some(family) = t.family() else {
        return Ok(Cow::Borrowed(t));
    };
    let Some(edge) = family.edge() else {
        return Ok(Cow::Borrowed(t));
    };
    // A gradient is kept at one place, which every use of the view has to pass.
    let kept = t.link().and_then(|l| l.rare());
    if let Some(link) = kept.and_then(|k| k.moved(t.output_nr())) {
        let now = t.clone().tracked(link, 0);
        return Ok(Cow::Owned(current(&now)?.into_owned()));
    }
    let made = regenerated(t, &family, edge)?;
    if let (Some(kept), Some(link)) = (kept, made.link()) {
        kept.move_to(t.output_nr(), link);
    }
    Ok(Cow::Owned(made))
}

/// The arguments of a call with their history as it is now; nothing if they have it.
///
/// # Errors
/// As [`current`].
pub fn all_current(args: &Args<'_>) -> Result<Option<OwnedArgs>> {
    let mut stale = false;
    args.for_each_tensor(|_, t| stale |= is_stale(t));
    if !stale {
        return Ok(None);
    }
    let mut owned = args.to_owned();
    owned.replace_tensors(|_, t| Ok(crate::ops::helpers::changed(current(t)?)))?;
    Ok(Some(owned))
}

/// Refuses to write through a view, with a history, that its mark forbids.
///
/// # Errors
/// PyTorch's texts.
#[inline]
pub fn check_write(target: &Tensor) -> Result<()> {
    if target.is_python() && mode::records() {
        check_shown(target)?;
    }
    if target.is_view() && target.mark() != Mark::None && mode::records() {
        return Err(forbidden(target, false));
    }
    Ok(())
}

/// As [`check_write`], of a tensor whose class handles its calls.
#[cold]
fn check_shown(target: &Tensor) -> Result<()> {
    match shown::forbids(target) {
        Some((Mark::None, true)) => Err(writable::view_of_leaf()),
        Some((mark, _)) if mark != Mark::None => {
            Err(forbidden(&target.clone().marked(mark), false))
        }
        _ => Ok(()),
    }
}

/// That a view, or (`around`) what it is a view of, is written although its mark forbids it.
#[cold]
fn forbidden(view: &Tensor, around: bool) -> Error {
    let what = if around {
        "its base or another view of its base has been"
    } else {
        "is being"
    };
    let made_by = view.node().map(|n| (view.output_nr(), n.body().name()));
    let mark = view.mark();
    let apart = matches!(mark, Mark::NoGrad | Mark::Inference);
    let (mode, then) = if mark == Mark::Inference {
        ("inference mode", "in normal mode")
    } else {
        ("no_grad mode", "with grad mode enabled")
    };
    let prefix = match &made_by {
        Some((nr, name)) if !apart => {
            let name = briefly(name);
            format!("Output {nr} of {name} is a view and {what} modified inplace.")
        }
        Some((nr, name)) => {
            let name = briefly(name);
            format!(
                "Output {nr} of {name} is a view of a view which was created in {mode} and {what} modified inplace {then}."
            )
        }
        None => format!("A view was created in {mode} and {what} modified inplace {then}."),
    };
    err!(Runtime, "{prefix}{}", advice(mark))
}

/// What to do about a write that a mark forbids.
fn advice(mark: Mark) -> String {
    let block = |name: &str| {
        format!(
            " Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both \
             the view and the inplace either both inside the {name} block (if you don't want the inplace to be tracked) or both \
             outside (if you want the inplace to be tracked)."
        )
    };
    match mark {
        Mark::None => String::new(),
        Mark::NoGrad => block("no_grad"),
        Mark::Inference => block("inference_mode"),
        Mark::OneOfSeveral => " This view is the output of a function that returns multiple views. Such functions do not allow \
                               the output views to be modified inplace. You should replace the inplace operation by an \
                               out-of-place one."
            .to_owned(),
        Mark::InFunction => " This view was created inside a custom Function (or because an input was returned as-is) and the \
                             autograd logic to handle view+inplace would override the custom backward associated with the \
                             custom Function, leading to incorrect gradients. This behavior is forbidden. You can fix this by \
                             cloning the output of the custom Function."
            .to_owned(),
    }
}

/// A view with nodes that lead to what it is a view of, as that is now.
fn regenerated(view: &Tensor, family: &Family, base: Edge) -> Result<Tensor> {
    let at = Layout::of(view);
    if !is_plain(&family.base, &at) {
        return Ok(match by_calls(&family.base, &at, view.storage(), base)? {
            Some(edge) => view.clone().tracked(edge.to, edge.nr),
            None => view.clone(),
        });
    }
    let body = Regenerated {
        base: family.base.clone(),
        view: at,
    };
    let node = Node::new(
        Box::new(body),
        smallvec![Some(base)],
        smallvec![Meta::of(view)],
    );
    let node = node.at_version(view.storage().version());
    Ok(view.clone().tracked(Link::of_node(node), 0))
}

/// The history of a view that shows more than elements of `base`: calls on a tensor on such memory, which has the history `to`.
fn by_calls(base: &Layout, view: &Layout, on: &Storage, to: Edge) -> Result<Option<Edge>> {
    let whole = base.on(on)?.tracked(to.to, to.nr);
    let made = mode::with_grad(true, || seen(&whole, base, view, base.offset))?;
    Ok(made.edge())
}

/// Whether a view shows the elements of `base` as they are.
fn is_plain(base: &Layout, view: &Layout) -> bool {
    view.dtype == base.dtype && view.conj == base.conj && !view.neg
}

/// What a view shows of `whole`, which lies as `base` does but begins at `start`.
pub(super) fn seen(whole: &Tensor, base: &Layout, view: &Layout, start: i64) -> Result<Tensor> {
    let pairs = |d: &[i64], last: i64, times: i64| -> Vec<i64> {
        d.iter().map(|n| n * times).chain([last]).collect()
    };
    let moved = start - base.offset;
    let strided = |t: &Tensor, shape: &[i64], strides: &[i64], offset: i64| {
        if t.shape()[..] == *shape && t.strides()[..] == *strides && t.offset() == offset {
            return Ok(t.clone());
        }
        f::AsStrided::new(t, shape, strides)
            .storage_offset(offset)
            .call()
    };
    let mut t = whole.clone();
    match (base.dtype.is_complex(), view.dtype.is_complex()) {
        (true, false) => {
            t = f::view_as_real(&t)?;
            t = strided(&t, &view.shape, &view.strides, view.offset + 2 * moved)?;
        }
        (false, true) => {
            let (shape, strides) = (pairs(&view.shape, 2, 1), pairs(&view.strides, 1, 2));
            t = strided(&t, &shape, &strides, 2 * view.offset + moved)?;
            t = f::view_as_complex(&t)?;
        }
        _ => t = strided(&t, &view.shape, &view.strides, view.offset + moved)?,
    }
    if view.conj != (base.conj && view.dtype.is_complex()) {
        t = f::conj(&t)?;
    }
    if view.neg {
        t = f::_neg_view(&t)?;
    }
    Ok(t)
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
            0,
        )
    }
}

impl Backward for Regenerated {
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("AsStridedBackward0")
    }

    fn apply(&self, _: &Place, grads: &mut Grads) -> Result<Grads> {
        let made = grads.swap_remove(0).map(|g| self.back(&g)).transpose()?;
        Ok(smallvec![made])
    }

    fn release(&self) {}
}

/// The node of a write through a view, as what it was a view of sees it.
struct CopySlices {
    inner: Box<dyn Backward>,
    base: Layout,
    view: Layout,
}

impl CopySlices {
    /// The call, if it is one of a row.
    fn recorded(&self) -> Option<&Recorded> {
        let body: &dyn Any = &*self.inner;
        body.downcast_ref()
    }

    /// The place of the view itself after the write, for what the call saved of its result.
    fn own(&self, this: &Place) -> Result<Place> {
        if !mode::grad_enabled() {
            return Ok(this.clone());
        }
        let mut edge = Edge {
            to: this.clone(),
            nr: 0,
        };
        let device = edge.meta(crate::DType::F32).device;
        let mut base = self.base.clone();
        if !is_plain(&base, &self.view) {
            let bytes = |at: &Layout| {
                dims::storage_bytes(&at.shape, &at.strides, at.offset, at.dtype.size())
            };
            // Nothing is read: views alone are called.
            let memory = Storage::hollow(bytes(&base)?.max(bytes(&self.view)?), device);
            let Some(found) = by_calls(&base, &self.view, &memory, edge)? else {
                return Ok(this.clone());
            };
            (edge, base) = (found, self.view.clone());
        }
        let body = Regenerated {
            base,
            view: self.view.clone(),
        };
        let node = Node::new(
            Box::new(body),
            smallvec![Some(edge)],
            smallvec![self.view.meta(device)],
        );
        // Of the version after the write, or it would pass for the history of an older one.
        let node = node.at_version(this.node().map_or(0, Node::version));
        Ok(Link::of_node(node))
    }
}

impl Backward for CopySlices {
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("CopySlices")
    }

    fn apply(&self, this: &Place, grads: &mut Grads) -> Result<Grads> {
        let count = this.node().map_or(0, |n| n.edges().len());
        let Some(grad) = grads.swap_remove(0) else {
            return Ok(recorded::nothing(count));
        };
        // The gradient of all, laid out as the tensor was, so that the part is a view of it.
        let base = &self.base;
        let whole = f::NewEmptyStrided::new(&grad, &base.shape[..], &base.strides[..]).call()?;
        let whole = super::gather::written(&whole, &grad)?;
        let part = seen(&whole, base, &self.view, 0)?;
        let given = f::clone(&part)?;
        let mut given: Grads = smallvec![Some(given)];
        let mut made = match self.recorded() {
            Some(call) => call.back(this, &self.own(this)?, &given)?,
            None => self.inner.apply(this, &mut given)?,
        };
        let first = match made.first_mut().and_then(Option::take) {
            Some(g) => g,
            None => f::zeros_like(&part)?,
        };
        super::gather::written(&part, &first)?;
        // What was written through the view has its gradient in the part of the whole.
        made[0] = Some(current(&whole)?.into_owned());
        Ok(made)
    }

    fn release(&self) {
        self.inner.release();
    }
}

/// Notes a write with a history into `target`; gives the tensor with that history.
///
/// # Errors
/// If the target is a view that must not be written.
pub fn wrote(
    target: &Tensor,
    made: Tensor,
    body: Box<dyn Backward>,
    edges: Edges,
) -> Result<(Tensor, Place)> {
    let version = made.storage().version();
    let (link, made) = if target.is_view() {
        let Some(family) = target.family() else {
            bail!(
                Runtime,
                "{}() cannot keep the history of a write through a view whose base nobody noted",
                body.name()
            );
        };
        let node = through_view(target, &family, body, edges);
        let link = Link::of_node(node.at_version(version));
        let edge = Edge {
            to: link.clone(),
            nr: 0,
        };
        made.set_head(&link);
        let made = regenerated(&made, &family, edge)?;
        keep_retained(target, &made);
        (link, made)
    } else {
        let node = Node::new(body, edges, smallvec![Meta::of(&made)]);
        let link = Link::of_node(node.at_version(version));
        made.set_head(&link);
        let made = made.tracked(link.clone(), 0);
        keep_retained(target, &made);
        (link, made)
    };
    if target.is_python() {
        shown::wrote(target, &made);
    }
    super::anomaly::made(&link);
    if saved::packing()
        && let Some(body) = link.node().and_then(recorded)
    {
        body.save_results(&[&made])?;
    }
    Ok((made, link))
}

/// Lets a gradient that is kept be that of the tensor as it is after a write.
fn keep_retained(before: &Tensor, after: &Tensor) {
    let rare = before.link().and_then(|l| l.rare());
    if rare.is_some_and(|r| r.forget_retained(before.output_nr()))
        && let Some(link) = after.link()
    {
        link.make_rare().retain(after.output_nr());
    }
}

/// The node of a write through a view.
fn through_view(
    view: &Tensor,
    family: &Family,
    inner: Box<dyn Backward>,
    mut edges: Edges,
) -> Node {
    if let Some(first) = edges.first_mut() {
        *first = family.edge();
    }
    let slices = CopySlices {
        inner,
        base: family.base.clone(),
        view: Layout::of(view),
    };
    Node::new(Box::new(slices), edges, smallvec![family.meta.clone()])
}

/// What a node recorded, if it is a call of a row, into a tensor or through a view of one.
fn recorded(node: &Node) -> Option<&Recorded> {
    let body: &dyn Any = node.body();
    match body.downcast_ref::<CopySlices>() {
        Some(slices) => slices.recorded(),
        None => recorded::of(node),
    }
}
