//! Nodes of calls whose rows have a text: what they save, and how they give gradients.

use super::engine;
use super::eval::Env;
use super::inputs::{Inputs, check_fixed, differentiable, leads_nowhere};
use super::rule::{Of, Rule};
use super::saved::{self, At, FREED, From, Saved};
use super::value::{Look, Val};
use crate::layers::modes;
use crate::ops::{Args, Op};
use crate::tensor::{Backward, Edge, Edges, Grads, Meta, Node, Place, link::lock};
use crate::{Result, Scalar, Tensor, bail, mode};
use smallvec::SmallVec;
use std::any::Any;
use std::borrow::Cow;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// A recorded call of a row.
pub struct Recorded {
    pub(super) op: &'static Op,
    pub(super) rule: &'static Rule,
    pub(super) name: Cow<'static, str>,
    /// For each input of the rule, where its edges begin; and the end.
    starts: SmallVec<[u16; 4]>,
    /// Which result each of the node's outputs is.
    pub(super) results: SmallVec<[u16; 2]>,
    /// What was saved, by slot. It is looked at while nothing is locked: unpacking may run code that comes back here.
    slots: Mutex<Arc<Slots>>,
}

/// What nodes have saved that saved nothing but tensors, once these are freed.
static GONE: LazyLock<Arc<Slots>> = LazyLock::new(|| filled(8, || Held::Gone));

/// What a node saved.
pub(super) type Slots = [Held];

/// So many slots.
pub(super) fn filled(n: usize, with: impl Fn() -> Held) -> Arc<Slots> {
    (0..n).map(|_| with()).collect()
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
    /// The node's body, whose results are still to come.
    body: Box<Recorded>,
    edges: Edges,
    /// The inputs that want a gradient, by bit.
    wanted: u64,
}

impl Before {
    /// Looks at the inputs of a call; nothing if none of them wants a gradient.
    ///
    /// # Errors
    /// If a tensor cannot be saved.
    pub fn look(args: &Args<'_>, rule: &'static Rule, written: bool) -> Result<Option<Self>> {
        check_fixed(args, rule)?;
        let overload = rule.overload(args);
        let inputs = Inputs::of(args, rule, overload > 0);
        if inputs.wanted == 0 && !leads_nowhere(args, rule) {
            return Ok(None);
        }
        let slots = inputs.slots(args, rule, written)?;
        let body = Recorded {
            op: args.op,
            rule,
            name: rule.name(args, overload, written),
            starts: inputs.starts,
            results: SmallVec::new(),
            slots: Mutex::new(slots),
        };
        Ok(Some(Self {
            body: Box::new(body),
            edges: inputs.edges,
            wanted: inputs.wanted,
        }))
    }

    /// The node's body and edges, once the call has run.
    ///
    /// # Errors
    /// If a result cannot be saved.
    pub fn finish(
        mut self,
        results: SmallVec<[u16; 2]>,
        ret: &[&Tensor],
    ) -> Result<(Box<Recorded>, Edges)> {
        let rule = self.body.rule;
        for (i, slot) in rule.slots.iter().enumerate() {
            let Of::Result(k) = slot.of else { continue };
            let Some(t) = ret.get(k) else { continue };
            if slot.needed_by & self.wanted == 0 {
                continue;
            }
            let held = match slot.asked {
                Some(asked) => Held::Val(Val::of_tensor(t, asked)?),
                // Packers see results with their history: see `save_results`.
                None if saved::packing() => Held::Gone,
                None => Held::Tensor(Saved::new(t, result_of(&results, k))?),
            };
            let slots = self.body.slots.get_mut();
            Arc::make_mut(slots.unwrap_or_else(PoisonError::into_inner))[i] = held;
        }
        self.body.results = results;
        Ok((self.body, self.edges))
    }
}

/// Where the history is of the result at a position, if some results are a node's.
pub(super) fn result_of(results: &[u16], k: usize) -> From {
    let nr = results.iter().position(|r| usize::from(*r) == k);
    nr.map_or(From::Nowhere, |nr| From::Output(nr as u16))
}

/// The results that have a gradient, by position.
pub fn outputs(rule: &Rule, ret: &[&Tensor]) -> SmallVec<[u16; 2]> {
    let mut found = SmallVec::new();
    let named = |i: usize| rule.results.is_empty() || rule.results.contains(&i);
    for (i, t) in ret.iter().enumerate() {
        if (ret.len() == 1 || named(i)) && differentiable(t.dtype()) {
            found.push(i as u16);
        }
    }
    found
}

impl Held {
    /// The value that is kept here, where it lies if it can be taken as it is.
    pub(super) fn look(&self, at: &At) -> Result<Look<'_>> {
        Ok(match self {
            Self::Val(v) => Look::Val(v),
            Self::Number(n) => Look::Made(Val::Number(*n)),
            Self::Gone => bail!(Runtime, "{FREED}"),
            Self::Tensor(s) => match s.look(at)? {
                Cow::Borrowed(t) => Look::Tensor(t),
                Cow::Owned(t) => Look::Made(Val::Tensor(t)),
            },
            Self::Tensors(list) => {
                let one = |s: &Option<Saved>| {
                    let s = s.as_ref();
                    s.map(|s| s.look(at).map(Cow::into_owned)).transpose()
                };
                Look::Made(Val::Tensors(list.iter().map(one).collect::<Result<_>>()?))
            }
        })
    }

    /// A tensor that is saved here: the only one, or that at a position of a list.
    pub(super) fn kept(&self, k: Option<usize>) -> Option<&Saved> {
        match (self, k) {
            (Self::Tensor(s), None) => Some(s),
            (Self::Tensors(list), Some(k)) => list.get(k)?.as_ref(),
            _ => None,
        }
    }

    /// The place of such a tensor.
    fn saved(&mut self, k: Option<usize>) -> Option<&mut Saved> {
        match (self, k) {
            (Self::Tensor(s), None) => Some(s),
            (Self::Tensors(list), Some(k)) => list.get_mut(k)?.as_mut(),
            _ => None,
        }
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

    /// What is saved now.
    pub(super) fn slots(&self) -> Arc<Slots> {
        lock(&self.slots).clone()
    }

    /// Keeps another tensor in a slot, or at a place of its list.
    pub(super) fn keep(&self, i: usize, k: Option<usize>, saved: Saved) {
        let mut slots = lock(&self.slots);
        let old = slots.clone();
        let held = &mut Arc::make_mut(&mut slots)[i];
        match held.saved(k) {
            Some(place) => *place = saved,
            None => *held = Held::Tensor(saved),
        }
        // Freeing may run code that comes back here.
        drop(slots);
        drop(old);
    }
}

impl Backward for Recorded {
    fn name(&self) -> Cow<'static, str> {
        self.name.clone()
    }

    fn apply(&self, this: &Place, grads: &mut Grads) -> Result<Grads> {
        self.back(this, this, grads)
    }

    fn release(&self) {
        let mut slots = lock(&self.slots);
        if slots.is_empty() {
            return;
        }
        if slots.iter().all(|h| matches!(h, Held::Tensor(_))) && slots.len() <= GONE.len() {
            let old = std::mem::replace(&mut *slots, GONE.clone());
            drop(slots);
            drop(old);
            return;
        }
        let mut old: SmallVec<[Held; 3]> = SmallVec::new();
        for held in Arc::make_mut(&mut slots) {
            if !matches!(held, Held::Val(_)) {
                old.push(std::mem::replace(held, Held::Gone));
            }
        }
        // Freeing may run code that comes back here.
        drop(slots);
        drop(old);
    }
}

impl Recorded {
    /// The gradients of the inputs; `own` is the place of the call's results, if that is not the node's.
    ///
    /// # Errors
    /// If what was saved is gone or was changed, or a call fails.
    pub fn back(&self, this: &Place, own: &Place, grads: &[Option<Tensor>]) -> Result<Grads> {
        let Some(node) = this.node() else {
            bail!(Runtime, "internal error in torchlike: no node");
        };
        let edges = node.edges();
        let mut made = nothing(edges.len());
        if grads.iter().all(Option::is_none) {
            return Ok(made);
        }
        let slots = self.slots();
        let at = At {
            this,
            own,
            name: &self.name,
            whole: mode::grad_enabled(),
        };
        let mut looks: SmallVec<[Look; 3]> = SmallVec::new();
        for held in slots.iter() {
            looks.push(held.look(&at)?);
        }
        let whole = self
            .results
            .iter()
            .enumerate()
            .all(|(i, r)| i == usize::from(*r));
        let placed = (!whole).then(|| self.placed(grads, node.outs()));
        let (by_result, outs) = match &placed {
            Some((grads, outs)) => (&grads[..], &outs[..]),
            None => (grads, node.outs()),
        };
        // Their number was an operand, which PyTorch keeps as a tensor.
        let of_operand = matches!(self.op.def.name, "mul" | "div");
        let _within = mode::Within::of((!of_operand).then_some(mode::FORMULA));
        // Of a walk to some inputs, gradients that lead elsewhere are not computed.
        let partial = engine::is_partial();
        let wants = |edge: &Edge| !partial || engine::will_run(&edge.to);
        for clause in self.rule.sequence.iter().map(|i| &self.rule.clauses[*i]) {
            let mut needs: SmallVec<[bool; 4]> = SmallVec::new();
            for i in &clause.inputs {
                needs.push(edges[self.span(*i)].iter().flatten().any(wants));
            }
            if !needs.contains(&true) {
                continue;
            }
            let env = Env {
                grads: by_result,
                outs,
                slots: &looks,
                needs: &needs,
                tangents: &[],
                op: self.op,
            };
            let value = env.eval(&clause.expr)?;
            self.put(&mut made, &clause.inputs, value)?;
            // What one expression made on its way is gone before the next, as in PyTorch.
            if modes::watch() {
                let goes_on: Vec<_> = made.iter().chain(grads).cloned().collect();
                modes::settled(&goes_on, false);
            }
        }
        Ok(made)
    }

    /// Gradients and looks by position among the results, of which some have no gradient.
    #[cold]
    fn placed(&self, grads: &[Option<Tensor>], metas: &[Meta]) -> (Grads, Vec<Meta>) {
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

/// So many gradients that are not there.
pub fn nothing(n: usize) -> Grads {
    let mut none = Grads::new();
    none.resize_with(n, || None);
    none
}
