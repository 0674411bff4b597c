//! Nodes of calls whose rows have a text: what they save, and how they give gradients.

use super::eval::{Env, Val};
use super::rule::{Asked, Of, Rule, Slot};
use super::saved::{FREED, From, Saved};
use crate::ops::{Arg, Args, Op, Ret};
use crate::tensor::{Backward, Edge, Grads, Link, link::lock};
use crate::{DType, Result, Tensor, bail, ensure, mode};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::{Arc, Mutex};

/// A recorded call of a row.
pub struct Recorded {
    op: &'static Op,
    rule: &'static Rule,
    name: Cow<'static, str>,
    /// For each input of the rule, where its edges begin; and the end.
    starts: SmallVec<[u16; 4]>,
    /// Which result each of the node's outputs is.
    results: SmallVec<[u16; 2]>,
    /// What was saved, by slot.
    state: Mutex<SmallVec<[Held; 3]>>,
}

/// What is in a slot.
#[derive(Clone)]
enum Held {
    /// A value that is no tensor, or nothing as nobody needs it.
    Val(Val),
    /// A tensor that was freed.
    Gone,
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
        if edges.iter().all(Option::is_none) {
            return Ok(None);
        }
        let mut before = Self {
            rule,
            name: rule.name(args, written),
            starts,
            edges,
            slots: SmallVec::new(),
        };
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
            // The call writes over it: what it was is kept.
            Arg::Tensor(t) if written && i == 0 => {
                let was = mode::with_grad(false, || crate::ops::f::clone(t))?.carrying(t);
                Held::Tensor(save(&was, 0)?)
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
            other => Held::Val(Val::of(other)),
        })
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
            if !self.rule.wants(slot, |i| self.wanted(i)) {
                continue;
            }
            let Some(t) = ret.get(k) else { continue };
            self.slots[i] = match slot.asked {
                Some(asked) => Held::Val(Val::Tensor((*t).clone()).ask(asked)?),
                None => {
                    let nr = results.iter().position(|r| usize::from(*r) == k);
                    let from = nr.map_or(From::Nowhere, |nr| From::Output(nr as u16));
                    Held::Tensor(Saved::new(t, from)?)
                }
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

/// The results that have a gradient, by position.
pub fn outputs(rule: &Rule, ret: &[&Tensor]) -> SmallVec<[u16; 2]> {
    let named = |i: usize| rule.results.is_empty() || rule.results.contains(&i);
    (0..ret.len())
        .filter(|&i| (ret.len() == 1 || named(i)) && differentiable(ret[i].dtype()))
        .map(|i| i as u16)
        .collect()
}

impl Held {
    fn unpack(&self, this: &Arc<Link>, name: &str, whole: bool) -> Result<Val> {
        Ok(match self {
            Self::Val(v) => v.clone(),
            Self::Gone => bail!(Runtime, "{FREED}"),
            Self::Tensor(s) => Val::Tensor(s.unpack(this, name, whole)?),
            Self::Tensors(list) => Val::Tensors(
                list.iter()
                    .map(|s| s.as_ref().map(|s| s.unpack(this, name, whole)).transpose())
                    .collect::<Result<_>>()?,
            ),
        })
    }
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

    fn unpacked(&self, this: &Arc<Link>, whole: bool) -> Result<SmallVec<[Val; 3]>> {
        // The slots are copied first: unpacking may run code that comes back here.
        let slots = {
            let state = lock(&self.state);
            state.clone()
        };
        slots
            .iter()
            .map(|s| s.unpack(this, &self.name, whole))
            .collect()
    }

    /// What was saved, by name: for whoever looks at the graph.
    ///
    /// # Errors
    /// If it is gone, or was changed.
    pub fn saved(&self, this: &Arc<Link>) -> Result<Vec<(String, Val)>> {
        let values = self.unpacked(this, true)?;
        let shown = self.shown().map(|(i, _)| values[i].clone());
        Ok(self.names().zip(shown).collect())
    }

    /// The slots that PyTorch's nodes show as well.
    fn shown(&self) -> impl Iterator<Item = (usize, &'static Slot)> + '_ {
        let hidden = [Some(Asked::Given), Some(Asked::DType), Some(Asked::Device)];
        let slots = self.rule.slots.iter().enumerate();
        slots.filter(move |(_, s)| s.used() && !hidden.contains(&s.asked))
    }

    /// The names of what was saved.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.shown().map(|(_, s)| {
            let name = match s.of {
                Of::Input(i) => self.op.schema.params[i].name.to_owned(),
                Of::Result(0) if self.op.schema.returns == crate::ops::schema::Returns::One => {
                    "result".to_owned()
                }
                Of::Result(k) => format!("result{k}"),
            };
            match s.asked {
                Some(asked) => format!("{name}_{}", asked.word()),
                None => name,
            }
        })
    }
}

impl Backward for Recorded {
    fn name(&self) -> Cow<'static, str> {
        self.name.clone()
    }

    fn apply(&self, this: &Arc<Link>, grads: Grads) -> Result<Grads> {
        let Some(node) = this.node() else {
            bail!(Runtime, "internal error in torchlike: no node");
        };
        if grads.iter().all(Option::is_none) {
            return Ok(std::iter::repeat_n(None, node.edges().len()).collect());
        }
        let slots = self.unpacked(this, mode::grad_enabled())?;
        // By position among the results, of which some have no gradient.
        let last = self.results.iter().max().map_or(0, |r| usize::from(*r) + 1);
        let mut by_result: Grads = std::iter::repeat_n(None, last).collect();
        let mut outs = vec![node.outs()[0].clone(); last];
        for ((grad, out), r) in grads.into_iter().zip(node.outs()).zip(&self.results) {
            by_result[usize::from(*r)] = grad;
            outs[usize::from(*r)].clone_from(out);
        }
        let edges = node.edges();
        let mut made: Grads = std::iter::repeat_n(None, edges.len()).collect();
        for clause in &self.rule.clauses {
            let wanted = |i: &usize| edges[self.span(*i)].iter().any(Option::is_some);
            let needs: SmallVec<[bool; 4]> = clause.inputs.iter().map(wanted).collect();
            if !needs.contains(&true) {
                continue;
            }
            let env = Env {
                grads: &by_result,
                outs: &outs,
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
