//! The tangents of a call's results, from those of its operands: by the row's text, or derived from its gradient.

use super::engine::{self, Options};
use super::eval::Env;
use super::fit::fitted;
use super::forward::{laid_as, lies_alike, missing};
use super::parse::Expr;
use super::rule::{Clause, Fixed, Of, Rule, Slot, Tangent};
use super::value::{Look, Val};
use super::views;
use crate::ops::op::Body;
use crate::ops::{Arg, Args, OwnedArg, dispatch, f};
use crate::tensor::{Edge, Meta};
use crate::{Dims, Result, Tensor, bail, mode};
use std::borrow::Cow;

/// A call that ran, and the tangents of its operands.
struct Dual<'d, 'a> {
    rule: &'static Rule,
    args: &'d Args<'a>,
    results: &'d [&'d Tensor],
    /// Which results have a gradient.
    nrs: &'d [u16],
    /// One a parameter.
    tangents: &'d [Val],
}

/// The tangents that arguments carry for a level, one a parameter.
#[must_use]
pub fn of_args(args: &Args, level: u32) -> Vec<Val> {
    let one = |t: &Tensor| t.tangent(level).cloned();
    let each = args.values.iter().map(|v| match v {
        Arg::Tensor(t) => one(t).map_or(Val::None, Val::Tensor),
        Arg::Tensors(list) => Val::Tensors(list.iter().map(|t| one(t)).collect()),
        Arg::OptTensors(list) => Val::Tensors(list.iter().map(|t| one((*t)?)).collect()),
        _ => Val::None,
    });
    each.collect()
}

/// Whether there is a tangent in a value.
fn some(v: &Val) -> bool {
    match v {
        Val::Tensor(_) => true,
        Val::Tensors(list) => list.iter().any(Option::is_some),
        _ => false,
    }
}

/// The tangents of the results `nrs`, which are those that have a gradient; nothing if no operand that matters has a tangent.
/// `tangents` are those of the arguments.
///
/// # Errors
/// If the row has no derivative, or what its calls report.
pub fn of_results(
    rule: &'static Rule,
    args: &Args,
    results: &[&Tensor],
    nrs: &[u16],
    tangents: &[Val],
) -> Result<Option<Vec<Tensor>>> {
    if nrs.is_empty() || !rule.inputs.iter().any(|i| some(&tangents[*i])) {
        return Ok(None);
    }
    let refused = |f: &Fixed| !f.constant && some(&tangents[f.input]);
    if rule.fixed.iter().any(refused) {
        return Err(missing(args.op));
    }
    let dual = Dual {
        rule,
        args,
        results,
        nrs,
        tangents,
    };
    dual.tangents().map(Some)
}

impl Dual<'_, '_> {
    fn tangents(&self) -> Result<Vec<Tensor>> {
        let _within = mode::Within::of(Some(mode::FORMULA));
        let made = match &self.rule.tangent {
            Tangent::Linear => self.linear(true)?,
            Tangent::Pointwise => self.pointwise()?,
            Tangent::Text(expr, slots) => self.text(expr, &self.slots(slots)?)?,
            Tangent::Twice if self.args.op.is_view() => self.viewed()?,
            Tangent::Twice => self.twice()?,
            Tangent::Derived => match self.args.op.def.body {
                Body::View(_) => self.linear(true)?,
                Body::Kernel(ref k) if k.traits.pointwise && self.is_real() => self.pointwise()?,
                _ => self.twice()?,
            },
        };
        let each = self.nrs.iter().zip(made);
        each.map(|(nr, t)| self.fitted(t, self.results[usize::from(*nr)]))
            .collect()
    }

    fn is_real(&self) -> bool {
        let mut complex = self.results.iter().any(|t| t.dtype().is_complex());
        self.args
            .for_each_tensor(|_, t| complex |= t.dtype().is_complex());
        !complex
    }

    /// What a text says; operands without a tangent have zeros.
    fn text(&self, expr: &Expr, slots: &[Look]) -> Result<Vec<Option<Tensor>>> {
        let mut looks = Vec::new();
        let mut tangents = self.tangents.to_vec();
        for (arg, tangent) in self.args.values.iter().zip(&mut tangents) {
            let meta = match (arg, &tangent) {
                (Arg::Tensor(x), Val::None) => Meta::of(x),
                (Arg::Scalar(_), _) => Meta {
                    shape: Dims::default(),
                    ..Meta::of(self.results[0])
                },
                _ => continue,
            };
            *tangent = Val::Undefined(looks.len());
            looks.push(meta);
        }
        let env = Env {
            grads: &[],
            outs: &looks,
            slots,
            needs: &[],
            tangents: &tangents,
            op: self.args.op,
        };
        match env.eval(expr)? {
            Val::Tensor(t) => Ok(vec![Some(t)]),
            Val::Tensors(list) => Ok(list),
            Val::None | Val::Undefined(_) => Ok(vec![None; self.nrs.len()]),
            other => bail!(
                Runtime,
                "internal error in torchlike: {} has {other:?} for a tangent",
                self.args.name()
            ),
        }
    }

    /// Whether tangents lie in memory as their tensors do.
    fn lies_alike(&self) -> bool {
        self.rule
            .inputs
            .iter()
            .all(|&i| match (&self.args.values[i], &self.tangents[i]) {
                (Arg::Tensor(t), Val::Tensor(of)) => t.shape() == of.shape() && lies_alike(t, of),
                _ => false,
            })
    }

    /// A view that sees memory, of tangents that lie as their tensors do.
    fn viewed(&self) -> Result<Vec<Option<Tensor>>> {
        let mut tangents = self.tangents.to_vec();
        for &i in &self.rule.inputs {
            if let (Arg::Tensor(t), Val::Tensor(of)) = (&self.args.values[i], &mut tangents[i]) {
                *of = laid_as(t, of.clone())?;
            }
        }
        let laid = Dual {
            tangents: &tangents,
            ..*self
        };
        match laid.lies_alike() {
            true => laid.linear(false).or_else(|_| self.twice()),
            false => self.twice(),
        }
    }

    /// The row itself, of the tangents; `again`: of copies if there is no such view of a tangent that lies as its tensor does not.
    fn linear(&self, again: bool) -> Result<Vec<Option<Tensor>>> {
        let mut args = self.args.to_owned();
        for &i in &self.rule.inputs {
            match (&mut args.values[i], &self.tangents[i]) {
                (OwnedArg::Tensor(t), Val::Tensor(of)) => *t = of.clone(),
                (OwnedArg::Tensor(t), _) => *t = f::zeros_like(t)?,
                (OwnedArg::Tensors(list), Val::Tensors(of)) => {
                    for (t, of) in list.iter_mut().zip(of) {
                        *t = of.clone().map_or_else(|| f::zeros_like(t), Ok)?;
                    }
                }
                _ => {}
            }
        }
        let mut ret = dispatch::fresh(&args.borrow());
        if again && ret.is_err() && self.args.op.is_view() {
            args.replace_tensors(|_, t| t.contiguous().map(Some))?;
            ret = dispatch::fresh(&args.borrow());
        }
        let ret = ret?;
        let made = ret.look();
        let of = |nr: &u16| made.get(usize::from(*nr)).map(|t| (*t).clone());
        Ok(self.nrs.iter().map(of).collect())
    }

    /// The clauses of the gradient, whose matrix is diagonal, on the conjugated tangents.
    fn pointwise(&self) -> Result<Vec<Option<Tensor>>> {
        let slots = self.slots(&self.rule.slots)?;
        let mut sum: Option<Tensor> = None;
        for clause in &self.rule.clauses {
            let [input] = clause.inputs[..] else {
                return self.twice();
            };
            let Val::Tensor(t) = &self.tangents[self.rule.inputs[input]] else {
                continue;
            };
            let grads = [Some(f::conj(t)?)];
            if let Val::Tensor(part) = self.gradient(clause, &slots, &grads, &[true])? {
                let part = f::conj(&part)?;
                sum = Some(match sum {
                    Some(sum) => f::add(&sum, &part)?,
                    None => part,
                });
            }
        }
        Ok(vec![sum])
    }

    /// By the gradient of the gradient, which is linear in what it is given: the derivative of vjp(u) by u, for the tangents.
    fn twice(&self) -> Result<Vec<Option<Tensor>>> {
        let record = mode::grad_enabled() && self.is_tracked();
        let slots = self.slots(&self.rule.slots)?;
        let mut grads = vec![None; self.results.len()];
        let mut inputs = Vec::new();
        for nr in self.nrs {
            let result = self.results[usize::from(*nr)];
            let u = f::zeros_like(result)?.bare().with_requires_grad(true);
            inputs.extend(u.edge());
            grads[usize::from(*nr)] = Some(u);
        }
        let mut roots = Vec::new();
        mode::with_grad(true, || -> Result<()> {
            for clause in &self.rule.clauses {
                self.backward(clause, &slots, &grads, &mut roots)?;
            }
            Ok(())
        })?;
        if roots.is_empty() {
            return Ok(vec![None; self.nrs.len()]);
        }
        let options = Options {
            keep_graph: record,
            create_graph: record,
            inputs,
            gather: false,
        };
        engine::run(roots, &options)
    }

    /// What one clause gives for the operands that have a tangent, each with it.
    fn backward(
        &self,
        clause: &Clause,
        slots: &[Look],
        grads: &[Option<Tensor>],
        roots: &mut Vec<(Edge, Tensor)>,
    ) -> Result<()> {
        let place = |i: &usize| self.rule.inputs[*i];
        let needs: Vec<bool> = clause
            .inputs
            .iter()
            .map(|i| some(&self.tangents[place(i)]))
            .collect();
        if !needs.contains(&true) {
            return Ok(());
        }
        let made = match self.gradient(clause, slots, grads, &needs)? {
            Val::Tensor(t) => vec![Some(t)],
            Val::Tensors(list) => list,
            _ => return Ok(()),
        };
        let mut operands = Vec::new();
        for i in &clause.inputs {
            match (&self.args.values[place(i)], &self.tangents[place(i)]) {
                (Arg::Tensor(x), Val::Tensor(t)) => operands.push(Some((*x, t.clone()))),
                (Arg::Tensors(list), Val::Tensors(of)) => {
                    let each = list.iter().zip(of).map(|(x, t)| Some((*x, t.clone()?)));
                    operands.extend(each);
                }
                (Arg::OptTensors(list), Val::Tensors(of)) => {
                    let each = list.iter().zip(of).map(|(x, t)| Some(((*x)?, t.clone()?)));
                    operands.extend(each);
                }
                _ => operands.push(None),
            }
        }
        for (g, operand) in made.into_iter().zip(operands) {
            if let (Some(g), Some((x, t))) = (g, operand) {
                let g = fitted(g, &Meta::of(x), String::new, 0)?;
                let g = views::current(&g)?;
                if let Some(edge) = g.edge() {
                    let meta = edge.meta(t.dtype());
                    let t = fitted(t, &meta, String::new, 0)?;
                    roots.push((edge, t));
                }
            }
        }
        Ok(())
    }

    /// What a clause gives for gradients of the results.
    fn gradient(
        &self,
        clause: &Clause,
        slots: &[Look],
        grads: &[Option<Tensor>],
        needs: &[bool],
    ) -> Result<Val> {
        if matches!(clause.expr, Expr::Refused(_)) {
            return Err(missing(self.args.op));
        }
        let outs: Vec<Meta> = self.results.iter().map(|t| Meta::of(t)).collect();
        let env = Env {
            grads,
            outs: &outs,
            slots,
            needs,
            tangents: &[],
            op: self.args.op,
        };
        env.eval(&clause.expr)
    }

    fn is_tracked(&self) -> bool {
        let tracked = |t: &Tensor| views::current(t).is_ok_and(|t| t.requires_grad());
        let mut any = false;
        self.args.for_each_tensor(|_, t| any |= tracked(t));
        any || self.tangents.iter().any(|v| match v {
            Val::Tensor(t) => tracked(t),
            Val::Tensors(list) => list.iter().flatten().any(tracked),
            _ => false,
        })
    }

    /// What the slots of a text hold.
    fn slots(&self, slots: &[Slot]) -> Result<Vec<Look<'static>>> {
        let each = slots.iter().map(|slot| {
            let value = match slot.of {
                _ if !slot.used() => Val::None,
                Of::Input(i) => Val::of(&self.args.values[i]),
                Of::Result(k) => match self.results.get(k) {
                    Some(t) => Val::Tensor((*t).clone()),
                    None => Val::None,
                },
            };
            Ok(Look::Made(match slot.asked {
                Some(asked) if slot.used() => value.ask(asked)?,
                _ => value,
            }))
        });
        each.collect()
    }

    /// A tangent of the shape and type of its result, that shares no memory with another unless the result is a view.
    fn fitted(&self, tangent: Option<Tensor>, result: &Tensor) -> Result<Tensor> {
        let Some(mut t) = tangent else {
            return f::zeros_like(result).map(|t| t.bare());
        };
        if let Cow::Owned(now) = views::current(&t)? {
            t = now;
        }
        if t.dtype() != result.dtype() {
            if t.dtype().is_complex() && !result.dtype().is_complex() {
                t = f::real(&t)?;
            }
            t = f::to_dtype(&t, result.dtype())?;
        }
        if t.shape() != result.shape() {
            t = f::expand(&t, &result.shape()[..])?;
        }
        let another = |v: &Val| match v {
            Val::Tensor(of) => of.shares_storage(&t),
            Val::Tensors(list) => list.iter().flatten().any(|of| of.shares_storage(&t)),
            _ => false,
        };
        if self.args.op.is_view() || !self.tangents.iter().any(another) {
            return Ok(t);
        }
        f::clone(&t)
    }
}
