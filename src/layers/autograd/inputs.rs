//! The inputs of a call that is recorded: which want a gradient, and what is saved of them.

use super::recorded::{Held, Slots, filled};
use super::rule::{Of, Rule, Slot};
use super::saved::{From, Saved};
use super::value::Val;
use crate::ops::core::schema::Kind;
use crate::ops::{Arg, Args};
use crate::tensor::Edges;
use crate::{DType, Result, Tensor, ensure};
use smallvec::SmallVec;
use std::sync::Arc;

/// What wants a gradient among the inputs of a call.
pub struct Inputs {
    /// For each, where its edges begin; and the end.
    pub starts: SmallVec<[u16; 4]>,
    /// Where their gradients go.
    pub edges: Edges,
    /// Those that want one, by bit.
    pub wanted: u64,
    /// The call is that of an overload that takes a number.
    overload: bool,
}

/// Whether tensors of a type can have a gradient.
pub fn differentiable(d: DType) -> bool {
    d.is_float() || d.is_complex()
}

/// Refuses a call where an input wants a gradient that may not.
///
/// # Errors
/// PyTorch's text.
pub fn check_fixed(args: &Args<'_>, rule: &Rule) -> Result<()> {
    for fixed in &rule.fixed {
        if let Arg::Tensor(t) = &args.values[fixed.input] {
            ensure!(
                !t.requires_grad(),
                Runtime,
                "The function '{}' is not differentiable with respect to argument '{}'. This input cannot have requires_grad True.",
                Rule::refusal(fixed.who.as_deref(), args),
                args.op.schema.params[fixed.input].name
            );
        }
    }
    Ok(())
}

/// Refuses complex results where they have no gradient.
///
/// # Errors
/// PyTorch's text.
pub fn check_real<'t>(
    args: &Args<'_>,
    rule: &Rule,
    mut results: impl Iterator<Item = &'t Tensor>,
) -> Result<()> {
    let Some(who) = &rule.real else {
        return Ok(());
    };
    ensure!(
        !results.any(|t| t.dtype().is_complex()),
        Runtime,
        "{} does not support automatic differentiation for outputs with complex dtype.",
        Rule::refusal(who.as_deref(), args)
    );
    Ok(())
}

impl Inputs {
    /// Those of a call.
    #[inline]
    pub fn of(args: &Args<'_>, rule: &Rule, overload: bool) -> Self {
        let mut starts = SmallVec::new();
        let mut edges = Edges::new();
        let mut wanted = 0u64;
        let edge = |t: &Tensor| {
            if differentiable(t.dtype()) {
                t.edge()
            } else {
                None
            }
        };
        for (k, &i) in rule.inputs.iter().enumerate() {
            let start = edges.len();
            starts.push(start as u16);
            match &args.values[i] {
                Arg::Tensor(t) => edges.push(edge(t)),
                Arg::Tensors(list) => edges.extend(list.iter().map(|t| edge(t))),
                Arg::OptTensors(list) => edges.extend(list.iter().map(|t| edge((*t)?))),
                Arg::Scalar(_) if overload => {}
                _ => edges.push(None),
            }
            let any = edges[start..].iter().any(Option::is_some);
            wanted |= u64::from(any) << k;
        }
        starts.push(edges.len() as u16);
        Self {
            starts,
            edges,
            wanted,
            overload,
        }
    }

    /// What is saved of the arguments, in the order in which packers see it.
    ///
    /// # Errors
    /// If a tensor cannot be saved.
    #[inline]
    pub fn slots(&self, args: &Args<'_>, rule: &Rule, written: bool) -> Result<Arc<Slots>> {
        let mut slots = filled(rule.slots.len(), || Held::Gone);
        let list = Arc::make_mut(&mut slots);
        for &at in &rule.order {
            list[at] = self.held(args, &rule.slots[at], written)?;
        }
        Ok(slots)
    }

    /// What is in a slot before the call has run.
    #[inline(always)]
    fn held(&self, args: &Args<'_>, slot: &Slot, written: bool) -> Result<Held> {
        match slot.of {
            Of::Input(i) if slot.needed_by & self.wanted != 0 => self.saved(args, i, slot, written),
            _ => Ok(Held::Val(Val::None)),
        }
    }

    /// What is saved of an argument.
    #[inline]
    fn saved(&self, args: &Args<'_>, i: usize, slot: &Slot, written: bool) -> Result<Held> {
        let value = &args.values[i];
        if let Some(asked) = slot.asked {
            let found = match value {
                Arg::Tensor(t) => Val::of_tensor(t, asked)?,
                other => Val::of(other).ask(asked)?,
            };
            return Ok(Held::Val(found));
        }
        let first = slot.input.map(|p| self.starts[p]);
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
}

/// Whether an input wants a gradient that has nowhere to go: a view that was made while gradients were off.
#[cold]
pub fn leads_nowhere(args: &Args<'_>, rule: &Rule) -> bool {
    let wants = |t: &Tensor| t.requires_grad() && differentiable(t.dtype());
    rule.inputs.iter().any(|i| match &args.values[*i] {
        Arg::Tensor(t) => wants(t),
        Arg::Tensors(list) => list.iter().any(|t| wants(t)),
        Arg::OptTensors(list) => list.iter().any(|t| t.is_some_and(wants)),
        _ => false,
    })
}
