//! Forward mode: calls of dual tensors give dual tensors.
//!
//! The call itself runs, and is recorded, as if it knew of no tangents; what is saved keeps them. Then each level, the lowest
//! first, computes the tangents of the results by calls of the table on operands that carry the levels below, so that levels
//! nest, and tangents are recorded where gradients are wanted.

use super::recorded::outputs;
use super::rule::{self, Of, Rule};
use super::{as_it_was, gather, tangent, through, views};
use crate::layers::{Layer, Next};
use crate::ops::core::helpers;
use crate::ops::op::{Body, Grad};
use crate::ops::{Args, Call, Form, Op, OwnedArg, OwnedArgs, Ret, f};
use crate::tensor::{Kind, Layout, Link, Place, WeakPlace};
use crate::{Result, Tensor, bail, captured, mode};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// Gives results their tangents.
pub struct Forward;

/// A level of forward mode that is open on this thread.
struct Level {
    number: u32,
    /// Tangents of results that their own nodes saved, by place: the node itself would keep itself alive by them.
    saved: HashMap<(*const Link, u16), (WeakPlace, Tensor)>,
}

thread_local! {
    static LEVELS: RefCell<Vec<Level>> = const { RefCell::new(Vec::new()) };
    static NEXT: Cell<u32> = const { Cell::new(1) };
    /// The level whose tangents are being computed, from operands that carry those below alone, and the number after the
    /// highest that was given by then.
    static AT: Cell<(u32, u32)> = const { Cell::new((u32::MAX, u32::MAX)) };
}

/// Opens a level on this thread and gives its number, which no other level has had.
#[must_use]
pub fn enter() -> u32 {
    let number = NEXT.get();
    NEXT.set(number + 1);
    let saved = HashMap::new();
    LEVELS.with_borrow_mut(|l| l.push(Level { number, saved }));
    enable(true);
    number
}

/// Closes a level of this thread, and those opened since. Tangents of it are no longer seen.
pub fn exit(number: u32) {
    let closed: Vec<Level> = LEVELS.with_borrow_mut(|l| {
        let at = l.iter().position(|l| l.number == number);
        at.map_or_else(Vec::new, |at| l.drain(at..).collect())
    });
    if LEVELS.with_borrow(Vec::is_empty) {
        enable(false);
    }
    // Outside of the borrow: dropping may run other people's code.
    drop(closed);
}

/// Looks for tangents from now on, or does not; gives what was so before.
pub fn enable(on: bool) -> bool {
    let bit = if on { mode::FORWARD } else { 0 };
    mode::set_layers(mode::layers() & !mode::FORWARD | bit) & mode::FORWARD != 0
}

/// Whether tangents are looked for on this thread.
#[must_use]
pub fn is_enabled() -> bool {
    mode::layers() & mode::FORWARD != 0 && !mode::inference()
}

/// Runs `f` without looking for tangents.
pub fn without<R>(f: impl FnOnce() -> R) -> R {
    mode::with_layers(!mode::FORWARD, f)
}

/// The numbers of the levels that are open on this thread, the lowest first; none while tangents are not looked for.
#[must_use]
pub fn open() -> Vec<u32> {
    if !is_enabled() {
        return Vec::new();
    }
    LEVELS.with_borrow(|l| l.iter().map(|l| l.number).collect())
}

fn is_open(number: u32) -> bool {
    LEVELS.with_borrow(|l| l.iter().any(|l| l.number == number))
}

/// Whether tangents of a level are out of sight, as those of one below are being computed, or its own.
fn is_hidden(number: u32) -> bool {
    let (at, end) = AT.get();
    (at..end).contains(&number)
}

/// The tensor with the tangents that were written into its memory through other tensors.
#[must_use]
pub fn current(t: &Tensor) -> Cow<'_, Tensor> {
    if !t.storage().is_tracked() {
        return Cow::Borrowed(t);
    }
    let Some((base, tangents)) = t.family_tangents() else {
        return Cow::Borrowed(t);
    };
    let mut now = Cow::Borrowed(t);
    for (level, row) in tangents {
        if t.tangent(level).is_some()
            || !is_seen(level)
            || row.dtype().to_real() != t.dtype().to_real()
        {
            continue;
        }
        if let Ok(tangent) = part(&row, &base, t) {
            now = Cow::Owned(now.into_owned().with_tangent(level, tangent));
        }
    }
    now
}

/// What of a row of elements, in which `base` lies, is where `t` is, or the whole batch of it.
fn part(row: &Tensor, base: &Layout, t: &Tensor) -> Result<Tensor> {
    views::seen(row, base, &Layout::of(&t.whole()), 0)
}

/// Writes a tangent where others see it: into the one that `target` has, or into one of the tensor that it is a view of.
fn write(target: &Tensor, level: u32, new: &Tensor) -> Result<Tensor> {
    if let Some(old) = target.tangent(level)
        && old.shape() == new.shape()
    {
        return gather::written(old, new);
    }
    let Some(base) = target.family().map(|f| f.base) else {
        return laid_as(target, new.clone());
    };
    let last = base.shape.iter().zip(base.strides.iter());
    let count = 1 + last.map(|(n, s)| (n - 1).max(0) * s).sum::<i64>();
    let row = f::NewZeros::new(new, &[count][..])
        .dtype(base.dtype)
        .call()?;
    let place = part(&row, &base, target)?;
    let tangent = gather::written(&place, new)?;
    // What shows all of the row is the row itself, and becomes what was written, with its own tangents.
    let row = if place.is_view() {
        row
    } else {
        tangent.clone()
    };
    target.set_family_tangent(level, row, is_open);
    Ok(tangent)
}

/// Runs `f`, which computes tangents of a level, where no tensor is seen with tangents of that level or those above.
fn below<R>(level: u32, f: impl FnOnce() -> R) -> R {
    struct Restore((u32, u32));
    impl Drop for Restore {
        fn drop(&mut self) {
            AT.set(self.0);
        }
    }
    let _restore = Restore(AT.replace((level, NEXT.get())));
    f()
}

/// Whether tangents of a level are seen.
fn is_seen(number: u32) -> bool {
    is_open(number) && !is_hidden(number)
}

/// Whether a tensor is seen to carry a tangent of an open level.
#[must_use]
pub fn is_dual(t: &Tensor) -> bool {
    is_enabled()
        && current(t)
            .tangents()
            .iter()
            .any(|(level, _)| is_seen(*level))
}

/// The open levels that arguments are seen to carry tangents of, the lowest first.
fn levels(args: &Args) -> SmallVec<[u32; 2]> {
    let mut found = SmallVec::new();
    args.for_each_tensor(|_, t| {
        for (level, _) in t.tangents() {
            if !found.contains(level) && is_seen(*level) {
                found.push(*level);
            }
        }
    });
    found.sort_unstable();
    found
}

impl Layer for Forward {
    fn call(&self, c: Call, next: Next) -> Result<Ret> {
        if mode::inference() {
            return next.call(c);
        }
        let mut tracked = false;
        c.args
            .for_each_tensor(|_, t| tracked |= t.storage().is_tracked());
        if !tracked {
            return carry(c, next);
        }
        let mut args = c.args.to_owned();
        args.replace_tensors(|_, t| Ok(helpers::changed(current(t))))?;
        let args = args.borrow();
        let form = c.form.of(&args)?;
        carry(Call { args: &args, form }, next)
    }
}

/// Runs a call, and gives its results the tangents that follow from those of its arguments.
fn carry(c: Call, next: Next) -> Result<Ret> {
    let levels = levels(c.args);
    let op = c.args.op;
    if let Form::Out(outs) = &c.form {
        let dual = |t: &Tensor| t.tangents().iter().any(|(level, _)| is_open(*level));
        if levels.is_empty() && !outs.iter().any(dual) {
            return next.call(c);
        }
        bail!(
            NotImplemented,
            "Trying to use forward AD with {}_out that does not support it because it is an out= function",
            op.public_name()
        );
    }
    if levels.is_empty() {
        return next.call(c);
    }
    match (op.def.grad, &op.def.body) {
        (Grad::Rule(_), _) => match rule::of(op) {
            Ok(Some(rule)) => dual(c, rule, &levels, next),
            Ok(None) => next.call(c),
            Err(text) => bail!(Runtime, "internal error in torchlike: {text}"),
        },
        (Grad::Through(f), _) => through(c, f),
        (Grad::Unstated, Body::Compose(_)) if matches!(c.form, Form::New) => next.call(c),
        (Grad::Unstated, Body::Compose(f)) => through(c, *f),
        (Grad::Zero, _) | (_, Body::Become(_) | Body::Forward(_)) => next.call(c),
        (Grad::Refused, _) => bail!(
            NotImplemented,
            "Trying to use forward AD with aten::{} that does not support it.",
            op.public_name()
        ),
        (Grad::Unstated, _) => Err(missing(op)),
    }
}

/// That a row has no derivative.
pub fn missing(op: &Op) -> crate::Error {
    crate::err!(
        NotImplemented,
        "Trying to use forward AD with {} that does not support it because it has not been implemented yet.\nPlease file an \
         issue to PyTorch at https://github.com/pytorch/pytorch/issues/new?template=feature-request.yml so that we can \
         prioritize its implementation or submit a PR adding the implementation to derivatives.yaml",
        op.public_name()
    )
}

/// Runs a call of dual tensors whose row has a text.
fn dual(c: Call, rule: &'static Rule, levels: &[u32], next: Next) -> Result<Ret> {
    let target = c.form.target().cloned();
    // A view in place writes nothing: only the handle changes.
    let written = target.as_ref().filter(|_| !c.args.op.is_view());
    let args = kept(c.args, written.is_some())?;
    let ret = match (without(|| next.call(c))?, &target) {
        (Ret::Same(0), Some(target)) => Ret::Become(Box::new(target.clone())),
        (ret @ (Ret::Same(_) | Ret::Value(_)), _) => return Ok(ret),
        (ret, _) => ret,
    };
    let nrs = outputs(rule, &ret.look());
    // Tangents are below the function whose writes are looked at.
    captured::aside(|| {
        let mut ret = ret.map(|_, t| Ok(t.below(0)))?;
        for &level in levels {
            let mut args = args.clone();
            let tangents = tangent::of_args(&args.borrow(), level);
            args.for_each_tensor_mut(|t| *t = t.clone().below(level));
            let made = below(level, || {
                let args = args.borrow();
                let made = tangent::of_results(rule, &args, &ret.look(), &nrs, &tangents)?;
                if target.is_some() || args.op.is_view() {
                    return Ok(made);
                }
                made.map(|made| laid(&ret.look(), &nrs, made)).transpose()
            })?;
            let Some(made) = made else { continue };
            ret = with_tangents(ret, rule, &nrs, level, made, written)?;
        }
        Ok(ret)
    })
}

/// Results with their tangents of a level.
fn with_tangents(
    ret: Ret,
    rule: &Rule,
    nrs: &[u16],
    level: u32,
    made: Vec<Tensor>,
    target: Option<&Tensor>,
) -> Result<Ret> {
    let mut made: SmallVec<[Option<Tensor>; 2]> = made.into_iter().map(Some).collect();
    if let (Some(target), Some(Some(new))) = (target, made.first_mut()) {
        *new = write(target, level, new)?;
    }
    ret.map(|i, t| {
        let at = nrs.iter().position(|n| usize::from(*n) == i);
        let Some(tangent) = at.and_then(|at| made[at].take()) else {
            return Ok(t);
        };
        if let (Some(link), Some(nr)) = (t.link(), at)
            && rule
                .slots
                .iter()
                .any(|s| s.of == Of::Result(i) && s.asked.is_none())
        {
            note(level, link, nr as u16, &tangent);
        }
        Ok(t.with_tangent(level, tangent))
    })
}

/// The tangents of new results, each lying as its result does: views of both are then the same views.
fn laid(results: &[&Tensor], nrs: &[u16], made: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let each = nrs.iter().zip(made);
    each.map(|(nr, tangent)| {
        let primal = results[usize::from(*nr)];
        match lies_alike(primal, &tangent) {
            true => Ok(tangent),
            false => laid_as(primal, tangent),
        }
    })
    .collect()
}

/// Whether two tensors of one shape lie alike in their memory: strides of dimensions of size 1 say nothing.
pub(super) fn lies_alike(a: &Tensor, b: &Tensor) -> bool {
    let strides = a.strides().iter().zip(b.strides().iter());
    let mut each = a.shape().iter().zip(strides);
    a.offset() == b.offset()
        && each.all(|(n, (one, other))| *n == 1 || one == other)
        && a.is_conj() == b.is_conj()
        && a.is_neg() == b.is_neg()
}

/// A tangent that lies in its memory as `primal` does in its own: a copy, if it lies otherwise.
///
/// # Errors
/// If memory cannot be had.
pub fn laid_as(primal: &Tensor, tangent: Tensor) -> Result<Tensor> {
    // Of one example, where it is a batch.
    let elements = |t: &Tensor| {
        let examples = t.whole().numel().checked_div(t.numel()).unwrap_or(1).max(1);
        t.storage().nbytes() / t.dtype().size() / examples as usize
    };
    let opaque = primal.storage().is_opaque() || tangent.storage().is_opaque();
    let same = elements(primal) == elements(&tangent) && lies_alike(primal, &tangent);
    if same || opaque || primal.numel() == 0 || primal.has_internal_overlap() {
        return Ok(tangent);
    }
    let row = f::new_zeros(&tangent, &[elements(primal) as i64][..])?;
    let place = f::AsStrided::new(&row, &primal.shape()[..], &primal.strides()[..])
        .storage_offset(primal.offset())
        .call()?;
    let conj = primal.is_conj() && tangent.dtype().is_complex();
    gather::written(&place.with_conj(conj).with_neg(primal.is_neg()), &tangent)
}

/// A copy, with copies of its tangents, which a write into the tensor changes as well.
///
/// # Errors
/// If memory cannot be had.
pub fn copy(t: &Tensor) -> Result<Tensor> {
    with_copies(without(|| f::clone(t))?, t)
}

/// A tensor with copies of the tangents of `t`, which have their histories.
///
/// # Errors
/// If memory cannot be had.
pub fn with_copies(mut made: Tensor, t: &Tensor) -> Result<Tensor> {
    for (level, tangent) in current(t).tangents() {
        made = made.with_tangent(*level, copy(tangent)?);
    }
    Ok(made)
}

/// The arguments, with a copy of what the call writes over.
fn kept(args: &Args, written: bool) -> Result<OwnedArgs> {
    let mut owned = args.to_owned();
    if let (true, Some(OwnedArg::Tensor(t))) = (written, owned.values.first_mut()) {
        *t = as_it_was(t)?;
    }
    Ok(owned)
}

/// Notes the tangent of a result that its node saved.
fn note(level: u32, link: &Place, nr: u16, tangent: &Tensor) {
    if !matches!(link.kind, Kind::Node(_)) {
        return;
    }
    LEVELS.with_borrow_mut(|l| {
        if let Some(l) = l.iter_mut().find(|l| l.number == level) {
            let entry = (Place::weak(link), tangent.clone());
            l.saved.insert((Place::at(link), nr), entry);
        }
    });
}

/// A result that its node saved, with the tangents it got since.
#[must_use]
pub fn noted(mut t: Tensor, link: &Place, nr: u16) -> Tensor {
    if !is_enabled() {
        return t;
    }
    let key = (Place::at(link), nr);
    let found: SmallVec<[(u32, Tensor); 1]> = LEVELS.with_borrow(|l| {
        let of = l
            .iter()
            .filter_map(|l| Some((l.number, l.saved.get(&key)?.1.clone())));
        of.collect()
    });
    for (level, tangent) in found {
        t = t.with_tangent(level, tangent);
    }
    t
}
