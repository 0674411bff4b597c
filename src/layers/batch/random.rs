//! Random operators under `vmap`: each open level, the innermost first, makes the call one of all its examples, or of one that stands
//! for all. So numbers are drawn in PyTorch's order: those of the outermost level's first example come first.

use super::{
    Level, Levels, OPEN, Randomness, hide, is_at, rules, set_aside, shared, show, single,
    take_back, varies,
};
use crate::layers::Next;
use crate::layers::autograd::gather;
use crate::ops::core::op::{Batch, Body};
use crate::ops::{Arg, Args, Call, Form, OwnedArg, OwnedArgs, Ret, dispatch, f};
use crate::{Dims, Result, Tensor, bail};

/// Draws random numbers, if the open levels allow it.
///
/// # Errors
/// If a level does not, or what the calls report.
pub fn draw(c: Call, next: Next) -> Result<Ret> {
    let Some(level) = OPEN.with_borrow(|l| l.iter().rfind(|l| !l.aside).copied()) else {
        return next.call(c);
    };
    if matches!(c.form, Form::Out(_)) {
        bail!(
            Runtime,
            "vmap: We do not support calling out variants of random operations inside of vmap. Please use non-out variants as a \
             workaround"
        );
    }
    let mut varies = false;
    c.args
        .for_each_tensor(|_, t| varies |= is_at(t, level.number));
    if varies {
        rules::check_example(c.args)?;
    }
    match level.randomness {
        Randomness::Error => bail!(
            Runtime,
            "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' \
             randomness flags on vmap or perform the randomness operation out of vmap"
        ),
        Randomness::Same if !varies => outside(level, c),
        Randomness::Same => same(&c, level),
        Randomness::Different => different(&c, level),
    }
}

/// The call where a level, and those inside it, are not open.
fn outside(level: Level, c: Call) -> Result<Ret> {
    let aside = set_aside(level.number);
    let made = dispatch::call(c);
    take_back(&aside);
    made
}

/// The call with other arguments, in the form it was made in.
fn with(c: &Call, args: &Args, level: Level) -> Result<Ret> {
    let form = c.form.again(args)?;
    let made = outside(level, Call { args, form })?;
    Ok(match made {
        Ret::Same(i) if c.form.target().is_none() => Ret::One(args.tensor(i)?.clone()),
        made => made,
    })
}

/// True for rows that give the shape of a tensor alone to what they draw.
fn is_like(args: &Args) -> bool {
    let pointwise = matches!(&args.op.def.body, Body::Kernel(k) if k.traits.pointwise);
    pointwise && args.op.schema.position("size").is_none()
}

/// One example in place of all.
fn first(t: &Tensor, level: Level) -> Result<Tensor> {
    f::select(&show(t, 0, level.number, level.size)?, 0, 0)
}

/// The same numbers for all examples, which differ otherwise.
fn same(c: &Call, level: Level) -> Result<Ret> {
    let mut others = false;
    c.args
        .for_each_tensor(|i, t| others |= i > 0 && is_at(t, level.number));
    if others || !is_like(c.args) {
        bail!(
            Runtime,
            "Vmap does not currently support same randomness with a batched tensor input. Please file an issue with functorch"
        );
    }
    let mut args = c.args.to_owned();
    args.replace_tensors(|i, t| {
        let one = (i == 0).then(|| first(t, level)).transpose()?;
        match (&one, c.form.target()) {
            (Some(one), Some(_)) => f::new_empty(one, one.shape()).map(Some),
            _ => Ok(one),
        }
    })?;
    let made = with(c, &args.borrow(), level)?;
    let Some(target) = c.form.target() else {
        return Ok(made);
    };
    let made = match made {
        Ret::Become(t) => *t,
        _ => args.borrow().tensor(0)?.clone(),
    };
    Ok(Ret::Become(Box::new(gather::written(target, &made)?)))
}

/// Numbers of its own for each example.
fn different(c: &Call, level: Level) -> Result<Ret> {
    let Level { number, size, .. } = level;
    let target = c.form.target();
    let mut given = false;
    c.args
        .for_each_tensor(|i, t| given |= i > 0 && is_at(t, number));
    if given {
        shared::check(c, &Levels::from_slice(&[(number, size)]))?;
    }
    if target.is_some_and(|t| !varies(t, number)) {
        bail!(
            Runtime,
            "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same randomness. If this \
             is necessary for your usage, please file an issue with functorch."
        );
    }
    let mut args = c.args.to_owned();
    let sizes = args.op.schema.position("size");
    if let Some(at) = sizes {
        if let OwnedArg::Plain(Arg::Ints(own)) = &args.values[at] {
            args.values[at] = OwnedArg::Plain(Arg::Ints(Dims::from([size]).concat(own)));
        }
    } else {
        match args.op.def.batch {
            _ if is_like(c.args) => spread(&mut args, &[], level)?,
            Batch::Broadcasting(own) => spread(&mut args, own, level)?,
            Batch::Fold(n) => return folded(c, args, n, level),
            _ => return one_by_one(c, level),
        }
    }
    let made = with(c, &args.borrow(), level)?;
    match made {
        Ret::Same(0) if target.is_some() => Ok(Ret::Same(0)),
        made => made.map(|_, t| hide(&t, 0, number)),
    }
}

/// Shows the examples of a level before all dimensions of those that differ, and of the first tensor, which may alone say what is drawn;
/// `own` says how many of each tensor's last dimensions do not broadcast.
fn spread(args: &mut OwnedArgs, own: &[usize], level: Level) -> Result<()> {
    let own = |i: usize| own.get(i).copied().unwrap_or(0);
    let (mut widest, mut first) = (0, None);
    args.borrow().for_each_tensor(|i, t| {
        first.get_or_insert(i);
        widest = widest.max(t.ndim().saturating_sub(own(i)));
    });
    args.replace_tensors(|i, t| {
        if first != Some(i) && !is_at(t, level.number) {
            return Ok(None);
        }
        let mut whole = show(t, 0, level.number, level.size)?;
        for _ in t.ndim().saturating_sub(own(i))..widest {
            whole = f::unsqueeze(&whole, 1)?;
        }
        Ok(Some(whole))
    })
}

/// Rows whose tensor has a batch of its own before `last` dimensions: the examples join it.
fn folded(c: &Call, mut args: OwnedArgs, last: usize, level: Level) -> Result<Ret> {
    let mut own = None;
    args.replace_tensors(|_, t| {
        let whole = show(t, 0, level.number, level.size)?;
        if t.ndim() > last {
            own = Some(t.shape()[0]);
            return f::Flatten::new(&whole).end_dim(1).call().map(Some);
        }
        Ok(Some(whole))
    })?;
    with(c, &args.borrow(), level)?.map(|_, t| {
        let t = match own {
            Some(own) => f::unflatten(&t, 0, &[level.size, own][..])?,
            None => t,
        };
        hide(&t, 0, level.number)
    })
}

/// One call an example.
fn one_by_one(c: &Call, level: Level) -> Result<Ret> {
    if c.form.target().is_some() {
        bail!(
            Runtime,
            "vmap: {}_ with different randomness is not supported",
            c.args.op.public_name()
        );
    }
    let made = (0..level.size).map(|i| {
        let mut args = c.args.to_owned();
        args.replace_tensors(|_, t| {
            let one = || f::select(&show(t, 0, level.number, level.size)?, 0, i);
            is_at(t, level.number).then(one).transpose()
        })?;
        with(c, &args.borrow(), level)
    });
    let all = single::stacked(made.collect::<Result<Vec<_>>>()?)?;
    all.map(|_, t| hide(&t, 0, level.number))
}
