//! Rows without a rule: one call an example.

use super::{Levels, SLOW, aligned, example, is_at, with_sizes};
use crate::ops::{Call, Form, OwnedArgs, Ret, dispatch, f};
use crate::{Result, Tensor, bail, mode};

/// Runs a call once for each example of some levels, and puts the results together. `quiet`: that is as it should be.
///
/// # Errors
/// If there are no examples, or what the calls report.
pub fn looped(c: &Call, levels: &Levels, quiet: bool) -> Result<Ret> {
    let op = c.args.op;
    if !quiet && let Some(tell) = SLOW.get() {
        tell(op);
    }
    let count: i64 = levels.iter().map(|l| l.1).product();
    if count == 0 {
        bail!(
            Runtime,
            "The fallback path does not support vmap over dims of size 0."
        );
    }
    let target = c.form.target();
    if let Some(t) = target
        && levels.iter().any(|l| !is_at(t, l.0))
    {
        bail!(
            Runtime,
            "vmap: aten::{}_(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has more \
             elements than `self`. This happened due to `other` being vmapped over but `self` not being vmapped over in a vmap. \
             Please try to use out-of-place operators instead of {}_. If said operator is being called inside the PyTorch \
             framework, please file a bug report instead.",
            op.public_name(),
            op.public_name()
        );
    }
    let mut made: Vec<Vec<Option<Tensor>>> = Vec::new();
    let mut kind = None;
    for i in 0..count {
        let args = at(c, levels, i)?;
        let args = args.borrow();
        let form = match target {
            Some(_) => Form::InPlace(args.tensor(0)?),
            None => Form::New,
        };
        let one = Call { args: &args, form };
        let ret = match mode::with_layers(!mode::BATCHED, || dispatch::call(one))? {
            Ret::Same(i) => Ret::One(args.tensor(i)?.clone()),
            ret => ret,
        };
        made.push(match &ret {
            Ret::One(t) => vec![Some(t.clone())],
            Ret::Become(t) => vec![Some((**t).clone())],
            Ret::Tuple(l) | Ret::List(l) => l.iter().cloned().map(Some).collect(),
            Ret::Gaps(l) => l.clone(),
            Ret::Value(_) | Ret::Same(_) => return example(ret, levels),
        });
        kind = Some(ret);
    }
    match (target, kind) {
        (Some(_), _) | (_, None) => Ok(Ret::Same(0)),
        (None, Some(kind)) => example(together(kind, &made, levels)?, levels),
    }
}

/// Results of the form of one, of the examples' results.
fn together(kind: Ret, made: &[Vec<Option<Tensor>>], levels: &Levels) -> Result<Ret> {
    let stacked = |k: usize| -> Result<Tensor> {
        let each: Vec<Tensor> = made.iter().filter_map(|m| m[k].clone()).collect();
        let all = f::stack(&each[..])?;
        f::reshape(&all, &with_sizes(levels, each[0].shape())[..])
    };
    kind.map(|k, _| stacked(k))
}

/// The arguments of one example.
fn at(c: &Call, levels: &Levels, i: i64) -> Result<OwnedArgs> {
    let mut args = c.args.to_owned();
    let one = |t: &Tensor| -> Result<Tensor> {
        let mut t = aligned(t, levels, true)?;
        let mut rest = i;
        for (k, (_, size)) in levels.iter().enumerate().rev() {
            t = f::select(&t, k as i64, rest % size)?;
            rest /= size;
        }
        Ok(t)
    };
    args.replace_tensors(|_, t| (!t.batch().is_empty()).then(|| one(t)).transpose())?;
    Ok(args)
}
