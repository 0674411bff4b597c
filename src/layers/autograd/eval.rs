//! Computing what the text of a gradient says, by calls of the table.

use super::parse::{Binary, Callee, Expr};
use super::rule::rows;
use super::value::{Look, Val, item, of_numbers, of_plain, of_ret};
use crate::dims::MemoryFormat;
use crate::layers::modes;
use crate::ops::{Args, Call, Op, Ret, dispatch, f};
use crate::tensor::{Meta, node};
use crate::{Dims, Result, Scalar, Tensor, bail, err};
use smallvec::{SmallVec, smallvec};
use std::sync::LazyLock;

/// What the names in a text stand for.
pub struct Env<'e> {
    /// The gradients of the results, by position.
    pub grads: &'e [Option<Tensor>],
    /// What the results looked like; for a tangent, the operands without one.
    pub outs: &'e [Meta],
    /// What was saved.
    pub slots: &'e [Look<'e>],
    /// Which of the clause's inputs want a gradient.
    pub needs: &'e [bool],
    /// The tangents of the parameters.
    pub tangents: &'e [Val],
    /// The row.
    pub op: &'static Op,
}

/// Values that a call takes, in the order of the parameters.
type Looks<'s> = SmallVec<[Look<'s>; 3]>;

/// Calls the first of some rows that takes the values.
fn call(
    name: &str,
    overloads: &[&'static Op],
    values: &[Look],
    named: &[(&str, Look)],
    in_place: bool,
) -> Result<Val> {
    for op in overloads {
        let mut args = Args::empty(op);
        if fit(&mut args, values, named).is_some() {
            let call = if in_place {
                Call::in_place(&args)?
            } else {
                Call::new(&args)
            };
            return match dispatch::call(call)? {
                Ret::One(t) => Ok(Val::Tensor(t)),
                Ret::Become(t) => Ok(Val::Tensor(*t)),
                Ret::Same(i) => Ok(Val::of(&args.values[i])),
                ret => Ok(of_ret(ret)),
            };
        }
    }
    bail!(
        Runtime,
        "internal error in torchlike: no form of {name}() takes {values:?} {named:?}"
    )
}

/// Puts values where the parameters of a row are; nothing if they do not fit.
fn fit<'v>(args: &mut Args<'v>, values: &'v [Look], named: &'v [(&str, Look)]) -> Option<()> {
    let params = &args.op.schema.params;
    if values.len() > params.len() {
        return None;
    }
    for (v, p) in values.iter().zip(params) {
        args.values.push(v.fit(p)?);
    }
    let mut used = 0;
    for p in &params[values.len()..] {
        let found = named.iter().find(|(name, _)| *name == p.name);
        used += usize::from(found.is_some());
        args.values.push(match found {
            Some((_, v)) => v.fit(p)?,
            None => p.default.clone()?,
        });
    }
    (used == named.len()).then_some(())
}

impl Env<'_> {
    /// Computes an expression.
    ///
    /// # Errors
    /// What its calls report.
    pub fn eval(&self, e: &Expr) -> Result<Val> {
        self.look(e).map(Look::own)
    }

    /// The value of an expression, where it lies if it is there already.
    fn look(&self, e: &Expr) -> Result<Look<'_>> {
        let made = match e {
            Expr::Grad(k) => match self.grads.get(*k) {
                Some(Some(g)) => return Ok(Look::Tensor(g)),
                _ => Val::Undefined(*k),
            },
            Expr::Slot(i) => return Ok(self.slots[*i].lend()),
            Expr::Conj(e, callee) => return self.conj(e, callee),
            Expr::Binary(op, a, b) => return self.binary(*op, a, b),
            Expr::Call(callee, args, kwargs) => self.called(callee, args, kwargs)?,
            Expr::If(parts) => {
                let [test, then, other] = &**parts;
                let chosen = if self.look(test)?.truth() {
                    then
                } else {
                    other
                };
                return self.look(chosen);
            }
            Expr::Tangent(i) => match self.tangents.get(*i) {
                Some(v) => return Ok(Look::Val(v)),
                None => Val::None,
            },
            Expr::Grads => Val::Tensors(self.grads.to_vec()),
            Expr::Needs => Val::Bools(self.needs.to_vec()),
            Expr::Number(s) => Val::Number(*s),
            Expr::None => Val::None,
            Expr::Word(w) => Val::Word(w.clone()),
            Expr::List(list) => self.list(list)?,
            Expr::Ask(e, asked) => self.look(e)?.ask(*asked)?,
            Expr::Item(e, i) => item(self.eval(e)?, *i)?,
            Expr::Not(e) => Val::Number(Scalar::Bool(!self.look(e)?.truth())),
            Expr::Refused(what) => bail!(
                NotImplemented,
                "the derivative for '{}' is not implemented.",
                what.as_deref().unwrap_or(self.op.public_name())
            ),
        };
        Ok(Look::Made(made))
    }

    /// The conjugate; real values are their own.
    fn conj(&self, e: &Expr, callee: &Callee) -> Result<Look<'_>> {
        let value = self.look(e)?;
        if value.tensor().is_some_and(|t| !t.dtype().is_complex()) {
            return Ok(value);
        }
        self.called_with(callee, smallvec![value], &[])
            .map(Look::Made)
    }

    fn called(&self, callee: &Callee, args: &[Expr], kwargs: &[(String, Expr)]) -> Result<Val> {
        // PyTorch's compiler computes the arguments of calls, and of operators, from the last to the first.
        let mut named = Vec::with_capacity(kwargs.len());
        for (name, e) in kwargs.iter().rev() {
            named.push((name.as_str(), self.look(e)?));
        }
        let first = self.number_first(callee, args)?;
        let mut values = Looks::new();
        let (object, args) = args.split_at(usize::from(callee.method).min(args.len()));
        for a in object.iter().chain(args.iter().rev()) {
            values.push(self.look(a)?);
        }
        values[object.len()..].reverse();
        if let (Some(number), Some(last)) = (first, values.last_mut()) {
            *last = number;
        }
        self.called_with(callee, values, &named)
    }

    /// The number that elements are chosen beside, as the tensor that PyTorch makes of it before it tests them, for
    /// those who watch.
    fn number_first(&self, callee: &Callee, args: &[Expr]) -> Result<Option<Look<'_>>> {
        let [_, of, Expr::Number(n)] = args else {
            return Ok(None);
        };
        if callee.name != "where" || !modes::watch() {
            return Ok(None);
        }
        let of = self.look(of)?;
        let Some(t) = of.tensor().filter(|_| matches!(args[1], Expr::Grad(_))) else {
            return Ok(None);
        };
        let made = f::ScalarTensor::new(*n).dtype(t.dtype()).device(t.device());
        Ok(Some(Look::Made(Val::Tensor(made.call()?))))
    }

    fn called_with(
        &self,
        callee: &Callee,
        mut values: Looks,
        named: &[(&str, Look)],
    ) -> Result<Val> {
        for (at, v) in values.iter_mut().enumerate() {
            self.define(v, &callee.overloads, at)?;
        }
        // Numbers may stand where formulas have tensors.
        let numbers: Option<SmallVec<[Scalar; 2]>> = values.iter().map(Look::number).collect();
        if let Some(n) = numbers.and_then(|numbers| of_numbers(&callee.name, &numbers)) {
            return Ok(Val::Number(n));
        }
        let Callee {
            name, overloads, ..
        } = callee;
        call(name, overloads, &values, named, callee.in_place)
    }

    fn list(&self, list: &[Expr]) -> Result<Val> {
        let values = list
            .iter()
            .map(|e| self.eval(e))
            .collect::<Result<Vec<_>>>()?;
        let tensors = |v: &Val| matches!(v, Val::Tensor(_) | Val::None | Val::Undefined(_));
        if !values.is_empty() && values.iter().all(tensors) {
            return Ok(Val::Tensors(
                values
                    .into_iter()
                    .map(|v| match v {
                        Val::Tensor(t) => Some(t),
                        _ => None,
                    })
                    .collect(),
            ));
        }
        let ints: Vec<i64> = values
            .iter()
            .map(|v| match v {
                Val::Number(s) => Ok(s.to_i64()),
                other => Err(err!(
                    Runtime,
                    "internal error in torchlike: {other:?} in a list"
                )),
            })
            .collect::<Result<_>>()?;
        Ok(Val::Ints(Dims::new(&ints)))
    }

    /// Zeros for a gradient that did not arrive, where every form of a row wants a tensor.
    #[inline]
    fn define(&self, v: &mut Look, overloads: &[&'static Op], at: usize) -> Result<()> {
        let Some(k) = v.is_undefined() else {
            return Ok(());
        };
        let takes = |op: &&'static Op| op.schema.params.get(at).is_some_and(|p| p.optional);
        if !overloads.iter().any(takes) {
            *v = Look::Made(self.zeros(k)?);
        }
        Ok(())
    }

    #[cold]
    fn zeros(&self, k: usize) -> Result<Val> {
        let meta = self
            .outs
            .get(k)
            .ok_or_else(|| err!(Runtime, "internal error in torchlike: no result {k}"))?;
        node::zeros(meta).map(Val::Tensor)
    }

    fn binary(&self, op: Binary, a: &Expr, b: &Expr) -> Result<Look<'_>> {
        if matches!(op, Binary::And | Binary::Or) {
            let a = self.look(a)?;
            let decided = a.truth() == matches!(op, Binary::Or);
            return if decided { Ok(a) } else { self.look(b) };
        }
        let mut b = self.look(b)?;
        let mut a = self.look(a)?;
        if a.tensor().is_none()
            && let (Some(x), Some(y)) = (a.val(), b.val())
            && let Some(made) = of_plain(op, x, y)?
        {
            return Ok(Look::Made(made));
        }
        if !self.tangents.is_empty()
            && let Some(made) = with_zeros(op, &a, &b)?
        {
            return Ok(Look::Made(made));
        }
        let (name, overloads) = tensor_operator(op)?;
        self.define(&mut a, overloads, 0)?;
        self.define(&mut b, overloads, 1)?;
        if matches!(op, Binary::Sub | Binary::Div)
            && let (Some(n), Some(t)) = (a.number(), b.tensor())
            && (modes::watch() || t.is_python())
        {
            // As PyTorch's formulas begin with a number.
            let full = f::EmptyLike::new(t)
                .memory_format(MemoryFormat::Preserve)
                .call()?;
            f::Fill::new(&full, n).call_()?;
            a = Look::Made(Val::Tensor(full));
            return call(name, overloads, &[a, b], &[], true).map(Look::Made);
        }
        call(name, overloads, &[a, b], &[], false).map(Look::Made)
    }
}

/// Of operands of which one is a tangent that is not there: zeros, which cost nothing.
fn with_zeros(op: Binary, a: &Look, b: &Look) -> Result<Option<Val>> {
    let undefined = |l: &Look| l.is_undefined().is_some();
    Ok(match (op, undefined(a), undefined(b)) {
        (Binary::Mul | Binary::Div, true, _) => Some(a.lend().own()),
        (Binary::Mul, _, true) | (Binary::Add, true, _) => Some(b.lend().own()),
        (Binary::Add | Binary::Sub, _, true) => Some(a.lend().own()),
        (Binary::Sub, true, _) => match b.tensor() {
            Some(t) => Some(Val::Tensor(crate::ops::f::neg(t)?)),
            None => None,
        },
        _ => None,
    })
}

type Named = (&'static str, Vec<&'static Op>);

fn tensor_operator(op: Binary) -> Result<(&'static str, &'static [&'static Op])> {
    static FOUND: LazyLock<[Named; 9]> = LazyLock::new(|| {
        ["add", "sub", "mul", "div", "pow", "eq", "ne", "lt", "gt"].map(|n| (n, rows(n)))
    });
    let found = FOUND.get(op as usize);
    let (name, rows) = found.ok_or_else(|| err!(Runtime, "internal error in torchlike: {op:?}"))?;
    Ok((name, rows))
}
