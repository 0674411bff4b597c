//! Nodes of calls whose rows have a text: what they save, and how they give gradients.

use super::eval::{Env, Val};
use super::rule::{Of, Rule, Slot};
use super::saved::{self, FREED, From, Saved};
use crate::ops::core::schema::Kind;
use crate::ops::{Arg, Args, Op, Ret};
use crate::tensor::{Backward, Edge, Grads, Link, Meta, Node, link::lock};
use crate::{DType, Result, Scalar, Tensor, bail, ensure, mode};
use smallvec::SmallVec;
use std::any::Any;
use std::borrow::Cow;
use std::sync::{Arc, Mutex};

/// A recorded call of a row.
pub struct Recorded {
    pub(super) op: &'static Op,
    pub(super) rule: &'static Rule,
    pub(super) name: Cow<'static, str>,
    /// For each input of the rule, where its edges begin; and the end.
    starts: SmallVec<[u16; 4]>,
    /// Which result each of the node's outputs is.
    pub(super) results: SmallVec<[u16; 2]>,
    /// What was saved, by slot.
    pub(super) state: Mutex<SmallVec<[Held; 3]>>,
}

/// What is in a slot.
#[derive(Clone)]
pub(super) enum Held {
    /// A value that is no tensor, or nothing as nobody needs it.
    Val(Val),
    /// A tensor that was freed.
    Gone,
    /// A number in the place of a tensor, which PyTorch saves as one.
    Number(Scalar),
    /// A tensor.
    Tensor(Saved),
    /// Several.
    Tensors(Vec<Option<Saved>>),
}

/// What is saved before a call runs.
pub struct Before {
    rule: &'static Rule,
    name: Cow<'static, str>,
    starts: SmallVec<[u16; 4]>,
    edges: SmallVec<[Option<Edge>; 2]>,
    slots: SmallVec<[Held; 3]>,
    /// The call is that of an overload that takes a number.
    overload: bool,
}

fn differentiable(d: DType) -> bool {
    d.is_float() || d.is_complex()
}

/// Refuses a call where an input wants a gradient that may not.
fn check_fixed(args: &Args<'_>, rule: &Rule) -> Result<()> {
    for (i, who) in &rule.fixed {
        if let Arg::Tensor(t) = &args.values[*i] {
            ensure!(
                !t.requires_grad(),
                Runtime,
                "The function '{}' is not differentiable with respect to argument '{}'. This input cannot have requires_grad True.",
                Rule::refusal(who.as_deref(), args),
                args.op.schema.params[*i].name
            );
        }
    }
    Ok(())
}

impl Before {
    /// Looks at the inputs of a call; nothing if none of them wants a gradient.
    ///
    /// # Errors
    /// If a tensor cannot be saved.
    pub fn look(args: &Args<'_>, rule: &'static Rule, written: bool) -> Result<Option<Self>> {
        check_fixed(args, rule)?;
        let overload = rule.overload(args) > 0;
        let mut starts = SmallVec::new();
        let mut edges: SmallVec<[Option<Edge>; 2]> = SmallVec::new();
        let edge = |t: &Tensor| {
            if differentiable(t.dtype()) {
                t.edge()
            } else {
                None
            }
        };
        for &i in &rule.inputs {
            starts.push(edges.len() as u16);
            match &args.values[i] {
                Arg::Tensor(t) => edges.push(edge(t)),
                Arg::Tensors(list) => edges.extend(list.iter().map(|t| edge(t))),
                Arg::OptTensors(list) => edges.extend(list.iter().map(|t| edge((*t)?))),
                Arg::Scalar(_) if overload => {}
                _ => edges.push(None),
            }
        }
        starts.push(edges.len() as u16);
        if edges.iter().all(Option::is_none) && !leads_nowhere(args, rule) {
            return Ok(None);
        }
        let mut before = Self {
            rule,
            name: rule.name(args, written),
            starts,
            edges,
            slots: SmallVec::new(),
            overload,
        };
        if saved::packing() {
            let nothing = || Held::Val(Val::None);
            before.slots.resize_with(rule.slots.len(), nothing);
            for &i in &rule.order {
                before.slots[i] = before.input(args, &rule.slots[i], written)?;
            }
            return Ok(Some(before));
        }
        for slot in &rule.slots {
            let held = before.input(args, slot, written)?;
            before.slots.push(held);
        }
        Ok(Some(before))
    }

    fn wanted(&self, input: usize) -> bool {
        let of = usize::from(self.starts[input])..usize::from(self.starts[input + 1]);
        self.edges[of].iter().any(Option::is_some)
    }

    fn input(&self, args: &Args<'_>, slot: &Slot, written: bool) -> Result<Held> {
        let Of::Input(i) = slot.of else {
            return Ok(Held::Val(Val::None));
        };
        if !self.rule.wants(slot, |i| self.wanted(i)) {
            return Ok(Held::Val(Val::None));
        }
        let value = &args.values[i];
        if let Some(asked) = slot.asked {
            return Val::of(value).ask(asked).map(Held::Val);
        }
        let place = self.rule.inputs.iter().position(|p| *p == i);
        let first = place.map(|p| self.starts[p]);
        let save = |t: &Tensor, k: usize| {
            let edge = first.map(|f| f + k as u16);
            let from = edge.filter(|e| self.edges[usize::from(*e)].is_some());
            Saved::new(t, from.map_or(From::Nowhere, From::Edge))
        };
        Ok(match value {
            // The call writes over it: what it was is kept, with the history that it had.
            Arg::Tensor(t) if written && i == 0 => {
                Held::Tensor(Saved::alone(&super::forward::copy(t)?, None)?)
            }
            Arg::Tensor(t) => Held::Tensor(save(t, 0)?),
            Arg::Tensors(list) => Held::Tensors(
                list.iter()
                    .enumerate()
                    .map(|(k, t)| save(t, k).map(Some))
                    .collect::<Result<_>>()?,
            ),
            Arg::OptTensors(list) => Held::Tensors(
                list.iter()
                    .enumerate()
                    .map(|(k, t)| t.map(|t| save(t, k)).transpose())
                    .collect::<Result<_>>()?,
            ),
            Arg::Scalar(n) if self.stands_for_tensor(args, i) => Held::Number(*n),
            other => Held::Val(Val::of(other)),
        })
    }

    /// Whether a number is given where a tensor might be, to an overload of tensors.
    fn stands_for_tensor(&self, args: &Args<'_>, i: usize) -> bool {
        !self.overload && args.op.schema.params[i].kind == Kind::Operand
    }

    /// The node's body and edges, once the call has run.
    ///
    /// # Errors
    /// If a result cannot be saved.
    pub fn finish(
        mut self,
        op: &'static Op,
        results: &SmallVec<[u16; 2]>,
        ret: &[&Tensor],
    ) -> Result<(Recorded, SmallVec<[Option<Edge>; 2]>)> {
        for (i, slot) in self.rule.slots.iter().enumerate() {
            let Of::Result(k) = slot.of else { continue };
            let Some(t) = ret.get(k) else { continue };
            if !self.rule.wants(slot, |i| self.wanted(i)) {
                continue;
            }
            self.slots[i] = match slot.asked {
                Some(asked) => Held::Val(Val::Tensor((*t).clone()).ask(asked)?),
                // Packers see results with their history: see `save_results`.
                None if saved::packing() => Held::Gone,
                None => Held::Tensor(Saved::new(t, result_of(results, k))?),
            };
        }
        let complex = |r: &u16| ret[usize::from(*r)].dtype().is_complex();
        ensure!(
            !(self.rule.real && results.iter().any(complex)),
            Runtime,
            "{} does not support automatic differentiation for outputs with complex dtype.",
            op.public_name()
        );
        let recorded = Recorded {
            op,
            rule: self.rule,
            name: self.name,
            starts: self.starts,
            results: results.clone(),
            state: Mutex::new(self.slots),
        };
        Ok((recorded, self.edges))
    }
}

/// Where the history is of the result at a position, if some results are a node's.
pub(super) fn result_of(results: &[u16], k: usize) -> From {
    let nr = results.iter().position(|r| usize::from(*r) == k);
    nr.map_or(From::Nowhere, |nr| From::Output(nr as u16))
}

/// Whether an input wants a gradient that has nowhere to go: a view that was made while gradients were off.
#[cold]
fn leads_nowhere(args: &Args<'_>, rule: &Rule) -> bool {
    let wants = |t: &Tensor| t.requires_grad() && differentiable(t.dtype());
    rule.inputs.iter().any(|i| match &args.values[*i] {
        Arg::Tensor(t) => wants(t),
        Arg::Tensors(list) => list.iter().any(|t| wants(t)),
        Arg::OptTensors(list) => list.iter().any(|t| t.is_some_and(wants)),
        _ => false,
    })
}

/// The results that have a gradient, by position.
pub fn outputs(rule: &Rule, ret: &[&Tensor]) -> SmallVec<[u16; 2]> {
    let named = |i: usize| rule.results.is_empty() || rule.results.contains(&i);
    (0..ret.len())
        .filter(|&i| (ret.len() == 1 || named(i)) && differentiable(ret[i].dtype()))
        .map(|i| i as u16)
        .collect()
}

impl Held {
    pub(super) fn unpack(&self, at: &At) -> Result<Val> {
        let At {
            this,
            own,
            name,
            whole,
        } = *at;
        Ok(match self {
            Self::Val(v) => v.clone(),
            Self::Number(n) => Val::Number(*n),
            Self::Gone => bail!(Runtime, "{FREED}"),
            Self::Tensor(s) => Val::Tensor(s.unpack(this, own, name, whole)?),
            Self::Tensors(list) => Val::Tensors(
                list.iter()
                    .map(|s| {
                        let s = s.as_ref();
                        s.map(|s| s.unpack(this, own, name, whole)).transpose()
                    })
                    .collect::<Result<_>>()?,
            ),
        })
    }

    /// A tensor that is saved here: the only one, or that at a position of a list.
    pub(super) fn saved(&mut self, k: Option<usize>) -> Option<&mut Saved> {
        match (self, k) {
            (Self::Tensor(s), None) => Some(s),
            (Self::Tensors(list), Some(k)) => list.get_mut(k)?.as_mut(),
            _ => None,
        }
    }
}

/// Where something is unpacked.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    /// The node.
    pub(super) this: &'a Arc<Link>,
    /// The place of its results.
    pub(super) own: &'a Arc<Link>,
    /// Its name.
    pub(super) name: &'a str,
    /// With history.
    pub(super) whole: bool,
}

impl Recorded {
    /// True if it recorded a view.
    #[must_use]
    pub fn is_view(&self) -> bool {
        self.op.is_view()
    }

    fn span(&self, input: usize) -> std::ops::Range<usize> {
        usize::from(self.starts[input])..usize::from(self.starts[input + 1])
    }

    fn unpacked(
        &self,
        this: &Arc<Link>,
        own: &Arc<Link>,
        whole: bool,
    ) -> Result<SmallVec<[Val; 3]>> {
        // The slots are copied first: unpacking may run code that comes back here.
        let slots = {
            let state = lock(&self.state);
            state.clone()
        };
        let at = At {
            this,
            own,
            name: &self.name,
            whole,
        };
        slots.iter().map(|s| s.unpack(&at)).collect()
    }
}

impl Backward for Recorded {
    fn name(&self) -> Cow<'static, str> {
        self.name.clone()
    }

    fn apply(&self, this: &Arc<Link>, grads: Grads) -> Result<Grads> {
        self.back(this, this, grads)
    }

    fn release(&self) {
        let mut state = lock(&self.state);
        let saved = state.iter_mut().filter(|h| !matches!(h, Held::Val(_)));
        let old: SmallVec<[Held; 3]> = saved.map(|h| std::mem::replace(h, Held::Gone)).collect();
        // Freeing may run code that comes back here.
        drop(state);
        drop(old);
    }
}

impl Recorded {
    /// The gradients of the inputs; `own` is the place of the call's results, if that is not the node's.
    ///
    /// # Errors
    /// If what was saved is gone or was changed, or a call fails.
    pub fn back(&self, this: &Arc<Link>, own: &Arc<Link>, grads: Grads) -> Result<Grads> {
        let Some(node) = this.node() else {
            bail!(Runtime, "internal error in torchlike: no node");
        };
        if grads.iter().all(Option::is_none) {
            return Ok(std::iter::repeat_n(None, node.edges().len()).collect());
        }
        let slots = self.unpacked(this, own, mode::grad_enabled())?;
        let whole = self
            .results
            .iter()
            .enumerate()
            .all(|(i, r)| i == usize::from(*r));
        let placed = (!whole).then(|| self.placed(&grads, node.outs()));
        let (by_result, outs) = match &placed {
            Some((grads, outs)) => (&grads[..], &outs[..]),
            None => (&grads[..], node.outs()),
        };
        let edges = node.edges();
        let mut made: Grads = std::iter::repeat_n(None, edges.len()).collect();
        for clause in &self.rule.clauses {
            let wanted = |i: &usize| edges[self.span(*i)].iter().any(Option::is_some);
            let needs: SmallVec<[bool; 4]> = clause.inputs.iter().map(wanted).collect();
            if !needs.contains(&true) {
                continue;
            }
            let env = Env {
                grads: by_result,
                outs,
                slots: &slots,
                needs: &needs,
                tangents: &[],
                row: self.op.public_name(),
            };
            let value = env.eval(&clause.expr)?;
            self.put(&mut made, &clause.inputs, value)?;
        }
        Ok(made)
    }

    /// Gradients and looks by position among the results, of which some have no gradient.
    #[cold]
    fn placed(&self, grads: &Grads, metas: &[Meta]) -> (Grads, Vec<Meta>) {
        let last = self.results.iter().max().map_or(0, |r| usize::from(*r) + 1);
        let mut by_result: Grads = std::iter::repeat_n(None, last).collect();
        let mut outs = vec![metas[0].clone(); last];
        for ((grad, out), r) in grads.iter().zip(metas).zip(&self.results) {
            by_result[usize::from(*r)].clone_from(grad);
            outs[usize::from(*r)].clone_from(out);
        }
        (by_result, outs)
    }

    /// Puts the value of a clause where its inputs' edges are.
    fn put(&self, made: &mut Grads, inputs: &[usize], value: Val) -> Result<()> {
        match (inputs, value) {
            (_, Val::None | Val::Undefined(_)) => {}
            ([input], Val::Tensor(t)) => {
                let at = self.span(*input).start;
                made[at] = Some(t);
            }
            ([input], Val::Tensors(list)) => {
                for (at, t) in self.span(*input).zip(list) {
                    made[at] = t;
                }
            }
            (inputs, Val::Tensors(list)) => {
                for (input, t) in inputs.iter().zip(list) {
                    let at = self.span(*input).start;
                    made[at] = t;
                }
            }
            (_, other) => bail!(
                Runtime,
                "internal error in torchlike: {} has {other:?} for a gradient",
                self.name
            ),
        }
        Ok(())
    }
}

/// What a node recorded, if it is a call of a row.
#[must_use]
pub fn of(node: &Node) -> Option<&Recorded> {
    let body: &dyn Any = node.body();
    body.downcast_ref()
}

/// All tensors of a result.
pub fn tensors(ret: &Ret) -> SmallVec<[&Tensor; 2]> {
    match ret {
        Ret::One(t) => std::iter::once(t).collect(),
        Ret::Become(t) => std::iter::once(&**t).collect(),
        Ret::Tuple(list) | Ret::List(list) => list.iter().collect(),
        Ret::Gaps(list) => list.iter().flatten().collect(),
        Ret::Same(_) | Ret::Value(_) => SmallVec::new(),
    }
}
