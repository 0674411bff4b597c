//! Reverse-mode gradients: calls of tensors that want one are recorded as nodes of a graph, and [`engine`] walks it back.
//!
//! What a call's gradient is says its row, as a text (`parse`, `rule`); the text is computed by calls of the table (`eval`), so that
//! backward runs on every device, under every layer, and twice.

pub mod anomaly;
pub mod engine;
pub mod eval;
mod fit;
pub mod forward;
pub mod gather;
mod inputs;
pub mod kept;
mod names;
mod parse;
mod ready;
pub mod recorded;
pub mod rule;
pub mod saved;
pub mod shown;
mod tangent;
pub mod value;
pub mod views;

use super::{Layer, Next};
use crate::ops::core::writable;
use crate::ops::op::{Body, Grad, Row};
use crate::ops::{Args, Call, Form, Op, OwnedArg, Ret, f, helpers};
use crate::tensor::{Backward, Edge, Edges, Grads, Link, Meta, Node, Place};
use crate::{DType, Result, Tensor, bail, mode, storage, tensor};
use recorded::Before;
use rule::Rule;
use smallvec::SmallVec;
use std::borrow::Cow;

/// Records calls of tensors that want a gradient.
pub struct Autograd;

impl Layer for Autograd {
    fn call(&self, c: Call, next: Next) -> Result<Ret> {
        if next.seen() & UNFOLLOWED != 0 && is_unfollowed(c.args) {
            return next.call(c);
        }
        if next.seen() & DATED == 0 || is_without_history(&c) {
            return track(c, next);
        }
        if let Form::InPlace(target) = &c.form
            && target.requires_grad()
        {
            views::check_write(target)?;
        }
        if let Some(now) = views::all_current(c.args)? {
            let args = now.borrow();
            let form = c.form.of(&args)?;
            return track(Call { args: &args, form }, next);
        }
        track(c, next)
    }
}

/// A tensor's history may be no more what it has: it is a view, or lies where something was written with a history.
const DATED: u32 =
    (storage::TRACKED as u32) << mode::STORAGE_FLAGS | (tensor::VIEW as u32) << mode::TENSOR_FLAGS;

/// A tensor was made in inference mode.
const UNFOLLOWED: u32 = (tensor::INFERENCE as u32) << mode::TENSOR_FLAGS;

/// Whether all tensors were made in inference mode: what is made of these alone has no history.
fn is_unfollowed(args: &Args) -> bool {
    let mut all = true;
    args.for_each_tensor(|_, t| all &= t.is_inference());
    all
}

/// Whether a call gives what has no history, or is other calls, which look for it themselves.
fn is_without_history(c: &Call) -> bool {
    let def = &c.args.op.def;
    let composed = matches!((def.grad, &def.body), (Grad::Unstated, Body::Compose(_)));
    matches!(c.form, Form::New)
        && (composed || matches!(def.grad, Grad::Zero) || gives_truths(&def.body))
}

/// Whether the results of a row are truth values, whatever it takes.
fn gives_truths(body: &Body) -> bool {
    matches!(body, Body::Kernel(k) if matches!(&k.row, Row::Map(r) if (r.types)(DType::F32).1 == DType::Bool))
}

/// Records a call, if its row has a gradient.
fn track(c: Call, next: Next) -> Result<Ret> {
    if let Form::Out(outs) = &c.form {
        // What has no gradient anyway is written; of such rows factories alone, which take no tensor, refuse leaves.
        let never = matches!(c.args.op.def.grad, Grad::Zero);
        let mut factory = never;
        c.args.for_each_tensor(|_, _| factory = false);
        let gradless = never && !factory || outs.iter().all(|t| t.dtype() == DType::Bool);
        if gradless || !wants(c.args) && !outs.iter().any(Tensor::requires_grad) {
            return next.call(c);
        }
        bail!(
            Runtime,
            "{}{}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments \
                 requires grad.",
            if factory { "aten::" } else { "" },
            c.args.name()
        );
    }
    let op = c.args.op;
    match (op.def.grad, &op.def.body) {
        (Grad::Rule(_), _) => match rule::of(op) {
            Ok(Some(rule)) => record(c, rule, next),
            Ok(None) => next.call(c),
            Err(text) => bail!(Runtime, "internal error in torchlike: {text}"),
        },
        (Grad::Through(f), _) => through(c, f),
        (Grad::Unstated, Body::Compose(_)) if matches!(c.form, Form::New) => next.call(c),
        (Grad::Unstated, Body::Compose(f)) => through(c, *f),
        (_, Body::Become(_)) => next.call(c),
        (Grad::Zero, _) if matches!(c.form, Form::InPlace(_)) => {
            // What is written has the history that was there, even if it is written by way of another type.
            check(&c)?;
            mode::with_grad(false, || next.call(c))
        }
        (Grad::Unstated, Body::Forward(_)) | (Grad::Zero, _) => {
            check(&c)?;
            next.call(c)
        }
        (Grad::Unstated | Grad::Refused, _) => refuse(c, next),
    }
}

/// Refuses to write where a gradient gathers, or through views that cannot keep the history.
fn check(c: &Call) -> Result<()> {
    let Form::InPlace(target) = &c.form else {
        return Ok(());
    };
    if wants(c.args) {
        views::check_write(target)?;
    }
    writable::check_leaf(target)
}

/// Whether an argument wants a gradient.
fn wants(args: &Args) -> bool {
    let mut any = false;
    args.for_each_tensor(|_, t| any |= t.requires_grad());
    any
}

/// A copy of what a call writes over, with the history and the tangents that it has now.
fn as_it_was(target: &Tensor) -> Result<Tensor> {
    let target = views::current(target)?;
    let was = mode::with_grad(false, || forward::without(|| f::clone(&target)))?;
    let was = match target.edge() {
        Some(edge) => was.tracked(edge.to, edge.nr),
        None => was,
    };
    forward::with_copies(was, &target)
}

/// Runs a composition, whose calls are recorded.
fn through(c: Call, f: fn(&Args) -> Result<Ret>) -> Result<Ret> {
    let target = match c.form {
        Form::InPlace(target) | Form::Within(target) => target,
        Form::New | Form::Out(_) => return f(c.args),
    };
    check(&c)?;
    // What the calls save of the target is kept as it is now.
    let mut args = c.args.to_owned();
    args.values[0] = OwnedArg::Tensor(as_it_was(target)?);
    let args = args.borrow();
    let ret = f(&args)?;
    let result = match &ret {
        Ret::Same(0) => {
            target.bump();
            return Ok(ret);
        }
        Ret::Same(i) => args.same(*i)?.clone(),
        _ => match ret.look().as_slice() {
            [one] => (*one).clone(),
            _ => bail!(Runtime, "{}_ has several results", c.args.name()),
        },
    };
    if target.is_view() || result.output_nr() != 0 || !result.tangents().is_empty() {
        // What it is a view of has to know.
        writable::check_target(target)?;
        writable::check_result(c.args, target, result.shape(), result.dtype())?;
        return Ok(Ret::Become(Box::new(gather::written(target, &result)?)));
    }
    mode::with_grad(false, || {
        writable::check_target(target)?;
        writable::check_result(c.args, target, result.shape(), result.dtype())?;
        writable::check_exact(c.args, target, result.dtype())?;
        helpers::copy_(target, &result)
    })?;
    let history = if result.dtype() == target.dtype() {
        result
    } else {
        f::to_dtype(&result, target.dtype())?
    };
    Ok(match history.edge() {
        Some(edge) => rebased(target, edge),
        None => Ret::Same(0),
    })
}

/// The tensor that was written, with the history of what was written.
fn rebased(target: &Tensor, edge: Edge) -> Ret {
    target.set_head(&edge.to);
    Ret::Become(Box::new(target.clone().tracked(edge.to, edge.nr)))
}

/// Records a call of a row with a text.
fn record(c: Call, rule: &'static Rule, next: Next) -> Result<Ret> {
    let op = c.args.op;
    let args = c.args;
    let target = c.form.target();
    let rule = rule.of_form(target.is_some());
    check(&c)?;
    let Some(before) = Before::look(args, rule, target.is_some())? else {
        return next.call(c);
    };
    let ret = match op.def.body {
        // Views note that they are views of a leaf only while gradients are on.
        Body::View(_) => next.call(c)?,
        _ => mode::with_grad(false, || next.call(c))?,
    };
    let mut made = match (&ret, target) {
        (Ret::Same(0), Some(target)) => Ret::Become(Box::new(target.clone())),
        (Ret::Same(_) | Ret::Value(_), _) => return Ok(ret),
        _ => ret,
    };
    let results = made.look();
    let nrs = recorded::outputs(rule, &results);
    if nrs.is_empty() {
        if let (true, Some(t)) = (computes_in(op), results.first()) {
            bail!(
                Runtime,
                "Autograd not support dtype: {}",
                t.dtype().scalar_type()
            );
        }
        drop(results);
        return Ok(made);
    }
    inputs::check_real(args, rule, nrs.iter().map(|&k| results[usize::from(k)]))?;
    let outs = looks(&results, &nrs);
    let version = results.first().map_or(0, |t| t.storage().version());
    let (body, edges) = before.finish(SmallVec::from_slice(&nrs), &results)?;
    drop(results);
    // A view in place writes nothing: only the handle changes.
    if let Some(target) = target.filter(|_| !op.is_view()) {
        let Ret::Become(made) = made else {
            return Ok(made);
        };
        let (made, _) = views::wrote(target, *made, body, edges)?;
        return Ok(Ret::Become(Box::new(made)));
    }
    let link = Link::of_node(Node::new(body, edges, outs).at_version(version));
    attach(&mut made, &link, &nrs, !op.is_view());
    if let Ret::Become(made) = &made {
        made.moved();
    }
    if saved::packing()
        && let Some(node) = link.node()
        && let Some(body) = recorded::of(node)
    {
        body.save_results(&made.look())?;
    }
    Ok(made)
}

/// Whether a row computes in a type that is asked for, as sums do, and is not there to convert.
#[cold]
fn computes_in(op: &Op) -> bool {
    let asks = |name| op.schema.position(name).is_some();
    asks("dtype") && !asks("device") && !op.is_view()
}

/// What the results of a node look like.
#[inline]
fn looks(results: &[&Tensor], nrs: &[u16]) -> SmallVec<[Meta; 1]> {
    let mut outs = SmallVec::new();
    for nr in nrs {
        outs.push(Meta::of(results[usize::from(*nr)]));
    }
    outs
}

/// Makes results those of a node; `nrs` says which. If they are the node's `own`, whatever it was made of, they are no views.
fn attach(ret: &mut Ret, link: &Place, nrs: &[u16], own: bool) {
    anomaly::made(link);
    ret.for_each_mut(|i, t| {
        if own {
            t.be_its_own();
        }
        if let Some(nr) = nrs.iter().position(|n| usize::from(*n) == i) {
            t.track(link.clone(), nr as u16);
        }
    });
}

/// A node that has no gradient, and says so when it is asked for one.
struct Refused {
    op: &'static Op,
    in_place: bool,
}

impl Backward for Refused {
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("NotImplemented")
    }

    fn apply(&self, _: &Place, _: &mut Grads) -> Result<Grads> {
        bail!(
            Runtime,
            "derivative for aten::{}{} is not implemented",
            names::family_name(self.op).replace('.', "_"),
            if self.in_place { "_" } else { "" }
        )
    }

    fn release(&self) {}
}

/// Runs a call whose row has no gradient; its results say so.
fn refuse(c: Call, next: Next) -> Result<Ret> {
    check(&c)?;
    let mut edges = Edges::new();
    c.args.for_each_tensor(|_, t| edges.push(t.edge()));
    let target = c.form.target().cloned();
    let op = c.args.op;
    let mut ret = match mode::with_grad(false, || next.call(c))? {
        Ret::Same(0) => match &target {
            Some(t) => Ret::Become(Box::new(t.clone())),
            None => return Ok(Ret::Same(0)),
        },
        ret => ret,
    };
    let float = |t: &Tensor| t.dtype().is_float() || t.dtype().is_complex();
    let results = ret.look();
    let floats = (0..results.len()).filter(|&i| float(results[i]));
    let nrs: SmallVec<[u16; 2]> = floats.map(|i| i as u16).collect();
    let outs = looks(&results, &nrs);
    drop(results);
    if nrs.is_empty() {
        return Ok(ret);
    }
    let in_place = target.is_some();
    let body = Box::new(Refused { op, in_place });
    if let (Some(target), Ret::Become(made)) = (&target, &ret) {
        let (made, _) = views::wrote(target, (**made).clone(), body, edges)?;
        return Ok(Ret::Become(Box::new(made)));
    }
    let link = Link::of_node(Node::new(body, edges, outs));
    attach(&mut ret, &link, &nrs, false);
    Ok(ret)
}
