//! Rows without a rule: one call an example.

use super::{Levels, aligned, differs, example, warn_of_loop, with_sizes};
use crate::layers::autograd::gather;
use crate::ops::{Call, Form, OwnedArgs, Ret, Value, dispatch, f};
use crate::{Result, Tensor, bail, mode};

/// Runs a call once for each example of some levels, and puts the results together.
///
/// # Errors
/// If there are no examples, or what the calls report.
pub fn looped(c: &Call, levels: &Levels) -> Result<Ret> {
    let op = c.args.op;
    warn_of_loop(&format!("aten::{}", op.public_name()));
    let count: i64 = levels.iter().map(|l| l.1).product();
    check_any(count)?;
    let target = c.form.target();
    // Tangents may be examples of other levels.
    let layers = match mode::layers() & mode::FORWARD {
        0 => !mode::BATCHED,
        _ => !0,
    };
    let mut made: Vec<Vec<Option<Tensor>>> = Vec::new();
    let mut kind = None;
    for i in 0..count {
        let mut args = at(c, levels, i)?;
        if target.is_some() {
            // Each example is written apart from the others, which its gradient may have to know as they were.
            args.replace_tensors(|i, t| (i == 0).then(|| f::clone(t)).transpose())?;
        }
        let args = args.borrow();
        let form = match target {
            Some(_) => Form::InPlace(args.tensor(0)?),
            None => Form::New,
        };
        let one = Call { args: &args, form };
        let ret = match mode::with_layers(layers, || dispatch::call(one))? {
            Ret::Same(i) => Ret::One(args.tensor(i)?.clone()),
            ret => ret,
        };
        if matches!(&ret, Ret::Same(_))
            || matches!(&ret, Ret::Value(v) if !matches!(v, Value::None))
        {
            return example(ret, levels);
        }
        made.push(parts(&ret));
        kind = Some(ret);
    }
    let Some(kind) = kind else {
        return Ok(Ret::Same(0));
    };
    let all = example(together(kind, &made, levels)?, levels)?;
    match target {
        None => Ok(all),
        Some(t) => Ok(Ret::Become(Box::new(gather::written(t, &all.one()?)?))),
    }
}

fn check_any(count: i64) -> Result<()> {
    if count == 0 {
        bail!(
            Runtime,
            "The fallback path does not support vmap over dims of size 0."
        );
    }
    Ok(())
}

/// The tensors of a result, in order.
fn parts(ret: &Ret) -> Vec<Option<Tensor>> {
    match ret {
        Ret::One(t) => vec![Some(t.clone())],
        Ret::Become(t) => vec![Some((**t).clone())],
        Ret::Tuple(l) | Ret::List(l) => l.iter().cloned().map(Some).collect(),
        Ret::Gaps(l) => l.clone(),
        Ret::Value(_) | Ret::Same(_) => Vec::new(),
    }
}

/// The results of each example of a level, put together along a new first dimension.
///
/// # Errors
/// If there are none, or they do not fit together.
pub fn stacked(mut each: Vec<Ret>) -> Result<Ret> {
    check_any(each.len() as i64)?;
    let made: Vec<_> = each.iter().map(parts).collect();
    let kind = each.swap_remove(0);
    kind.map(|k, _| {
        let column: Vec<Tensor> = made.iter().filter_map(|m| m[k].clone()).collect();
        f::stack(&column[..])
    })
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
    args.replace_tensors(|_, t| differs(t, levels).then(|| one(t)).transpose())?;
    Ok(args)
}
