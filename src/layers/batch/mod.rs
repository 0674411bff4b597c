//! `vmap`: calls of one example that run on a batch of them.
//!
//! An example is its batch seen without some dimensions, whose sizes and strides it carries ([`Tensor::batch`]): no data moves, and what
//! asks for a shape sees one example. This layer stands above all others, so that they see whole batches, and one graph serves every nesting:
//! composed rows run as they are, others by a rule (`rules.rs`) as a call of whole batches, and the rest one example after the other.

mod alike;
pub mod given;
mod random;
mod rules;
mod shared;
mod single;

use super::{Layer, Next};
use crate::dims::MemoryFormat;
use crate::layers::autograd::gather;
use crate::ops::batch;
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, Body, Grad};
use crate::ops::{Args, Call, Form, Ret, Value, dispatch, f, resize};
use crate::{Dims, Result, Tensor, bail, ensure, mode, warning};
use alike::varies;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};

/// Runs calls of examples on their batches.
pub struct Batching;

/// What random operators do under `vmap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Randomness {
    /// They are refused.
    Error,
    /// Each example has numbers of its own.
    Different,
    /// All examples have the same numbers.
    Same,
}

/// A level of `vmap`.
#[derive(Clone, Copy)]
struct Level {
    number: u32,
    size: i64,
    randomness: Randomness,
    /// A rule of whole batches runs, for which the level is not there.
    aside: bool,
    /// Its examples differ in their tangents alone.
    tangents: bool,
}

thread_local! {
    static OPEN: RefCell<Vec<Level>> = const { RefCell::new(Vec::new()) };
    static NEXT: Cell<u32> = const { Cell::new(1) };
}

/// Warns that an operator (`aten::sin`) has no rule, and runs once for each example.
pub fn warn_of_loop(name: &str) {
    warning::say(&format!(
        "There is a performance drop because we have not yet implemented the batching rule for {name}. Please file us an \
         issue on GitHub so that we can prioritize its implementation."
    ));
}

/// Opens a level on this thread for so many examples; gives its number, which no other level has had.
#[must_use]
pub fn enter(size: i64, randomness: Randomness) -> u32 {
    let number = NEXT.get();
    NEXT.set(number + 1);
    OPEN.with_borrow_mut(|l| {
        l.push(Level {
            number,
            size,
            randomness,
            aside: false,
            tangents: false,
        });
    });
    mode::set_layers(mode::layers() | mode::BATCHED);
    number
}

/// Says of the innermost level that its examples differ in their tangents alone: what is made of equal values needs no
/// examples of its own there.
pub fn differ_in_tangents() {
    OPEN.with_borrow_mut(|open| {
        if let Some(level) = open.last_mut() {
            level.tangents = true;
        }
    });
}

/// Sets a level of this thread and those opened since aside: random operators draw as if they were not open. Gives the
/// numbers of those that were not aside before, for [`take_back`].
#[must_use]
pub fn set_aside(number: u32) -> Vec<u32> {
    let mut set = Vec::new();
    OPEN.with_borrow_mut(|open| {
        for level in open
            .iter_mut()
            .skip_while(|l| l.number != number)
            .filter(|l| !l.aside)
        {
            level.aside = true;
            set.push(level.number);
        }
    });
    set
}

/// Ends what [`set_aside`] began for these levels.
pub fn take_back(numbers: &[u32]) {
    OPEN.with_borrow_mut(|open| {
        for level in open.iter_mut().filter(|l| numbers.contains(&l.number)) {
            level.aside = false;
        }
    });
}

/// How many examples an open level has, and what random operators do there.
#[must_use]
pub fn about(number: u32) -> Option<(i64, Randomness)> {
    OPEN.with_borrow(|l| {
        let level = l.iter().find(|l| l.number == number)?;
        Some((level.size, level.randomness))
    })
}

/// How many levels of this thread are open around an open level, itself included; 0 for any other number.
#[must_use]
pub fn depth(number: u32) -> usize {
    OPEN.with_borrow(|l| {
        l.iter()
            .position(|l| l.number == number)
            .map_or(0, |i| i + 1)
    })
}

/// Whether a level is open on this thread.
#[must_use]
pub fn is_on() -> bool {
    mode::layers() & mode::BATCHED != 0
}

/// Whether a level is open on this thread that is not set aside.
#[must_use]
pub fn is_at_work() -> bool {
    is_on() && OPEN.with_borrow(|l| l.iter().any(|l| !l.aside))
}

/// Closes a level of this thread, and those opened since.
pub fn exit(number: u32) {
    given::forget(number);
    let none = OPEN.with_borrow_mut(|l| {
        if let Some(at) = l.iter().position(|l| l.number == number) {
            l.truncate(at);
        }
        l.is_empty()
    });
    if none {
        mode::set_layers(mode::layers() & !mode::BATCHED);
    }
}

/// Takes a dimension out of sight: the result is one example of level `number`.
///
/// # Errors
/// If there is no such dimension.
pub fn hide(t: &Tensor, dim: i64, number: u32) -> Result<Tensor> {
    let first = f::MovedimInt::new(t, dim, 0).call()?;
    let dim = if dim < 0 { dim + t.ndim() as i64 } else { dim };
    let mut levels: SmallVec<[u32; 2]> = first.batch().iter().map(|d| d.level).collect();
    levels.push(number);
    let example = first.whole().example(&levels);
    if dim != 0 {
        given::note(&example, number, dim);
    }
    Ok(example)
}

/// The examples of level `number` along dimension `dim` again; what is the same for all of them is repeated `size` times.
///
/// # Errors
/// If there is no such dimension.
pub fn show(t: &Tensor, dim: i64, number: u32, size: i64) -> Result<Tensor> {
    let first = if is_at(t, number) {
        let below = t.batch().iter().map(|d| d.level).filter(|l| *l != number);
        let below: SmallVec<[u32; 2]> = below.collect();
        t.whole().example(&below)
    } else if differs(t, &[(number, size)]) {
        shown_at(t, &Levels::from_slice(&[(number, size)]))?
    } else {
        let one = f::unsqueeze(t, 0)?;
        f::expand(&one, &Dims::from([size]).concat(t.shape())[..])?
    };
    // What has a history gets a node between examples and batch.
    if crate::dims::wrap_dim(dim, first.ndim())? == 0 && !first.requires_grad() {
        return Ok(first);
    }
    f::MovedimInt::new(&first, 0, dim).call()
}

/// True for an example of a level.
#[must_use]
pub fn is_at(t: &Tensor, number: u32) -> bool {
    t.batch().iter().any(|d| d.level == number)
}

/// True if a tensor, or a tangent of it, differs from example to example of some levels.
pub fn differs(t: &Tensor, levels: &[(u32, i64)]) -> bool {
    let own = levels.iter().any(|l| is_at(t, l.0));
    own || t.tangents().iter().any(|(_, u)| differs(u, levels))
}

/// The whole batch of a tensor as one of `like`'s: with the dimensions that are out of sight there first, repeated where `t` has none. It
/// stays an example of the levels that `like` is none of.
///
/// # Errors
/// If it cannot be expanded.
pub fn whole_as(t: &Tensor, like: &Tensor) -> Result<Tensor> {
    if t.batch().is_empty() && like.batch().is_empty() {
        return Ok(t.clone());
    }
    shown_at(t, &levels_of(like))
}

/// The examples of some levels along the first dimensions; it stays an example of the others.
fn shown_at(t: &Tensor, own: &Levels) -> Result<Tensor> {
    let mut more = levels_of(t);
    more.retain(|l| own.iter().all(|o| o.0 != l.0));
    let all = sorted(own, &more);
    let whole = aligned(t, &all, true)?;
    if more.is_empty() {
        return Ok(whole);
    }
    let order = more.iter().chain(own);
    Ok(reordered(&whole, &all, order)?.example(&numbers(&more)))
}

/// An example of the levels of `like`, beside those that it is one of already; the dimensions of `like`'s levels come first.
///
/// # Errors
/// If they are not there.
pub fn example_like(whole: &Tensor, like: &Tensor) -> Result<Tensor> {
    let own = levels_of(like);
    if own.is_empty() {
        return Ok(whole.clone());
    }
    let more = levels_of(whole);
    let all = sorted(&own, &more);
    let now: Levels = more.iter().chain(&own).copied().collect();
    Ok(reordered(&whole.whole(), &now, all.iter())?.example(&numbers(&all)))
}

/// As [`example_like`], of the same values: what is alike in `like` is so in it.
///
/// # Errors
/// If the dimensions are not there.
pub fn same_example(whole: &Tensor, like: &Tensor) -> Result<Tensor> {
    let alike = like.batch().iter().filter(|d| d.alike).map(|d| d.level);
    let alike: SmallVec<[u32; 2]> = alike.collect();
    Ok(example_like(whole, like)?.alike_at(&alike))
}

fn sorted(a: &Levels, b: &Levels) -> Levels {
    let mut all: Levels = a.iter().chain(b).copied().collect();
    all.sort_unstable();
    all
}

/// The first dimensions, which are those of `now`, in another order.
fn reordered<'l>(
    t: &Tensor,
    now: &Levels,
    wanted: impl Iterator<Item = &'l (u32, i64)>,
) -> Result<Tensor> {
    let at = |l: &(u32, i64)| now.iter().position(|n| n.0 == l.0).unwrap_or(0) as i64;
    let mut order: Vec<i64> = wanted.map(at).collect();
    if order.is_sorted() {
        return Ok(t.clone());
    }
    order.extend(order.len() as i64..t.ndim() as i64);
    f::permute(t, &order[..])
}

/// A tensor whose examples of all open levels are apart, even where they are the same; of levels whose examples differ in
/// tangents alone if it is one of them.
///
/// # Errors
/// If it cannot be expanded.
pub fn each_apart(t: &Tensor) -> Result<Tensor> {
    if !is_on() {
        return Ok(t.clone());
    }
    let levels: Levels = OPEN.with_borrow(|open| {
        let wanted = open.iter().filter(|l| !l.tangents || is_at(t, l.number));
        wanted.map(|l| (l.number, l.size)).collect()
    });
    let alike: SmallVec<[u32; 2]> = numbers(&levels)
        .into_iter()
        .filter(|&l| !varies(t, l))
        .collect();
    let apart = aligned(t, &levels, true)?.example(&numbers(&levels));
    Ok(apart.alike_at(&alike))
}

/// Levels with their numbers of examples, in ascending order.
type Levels = SmallVec<[(u32, i64); 2]>;

/// The levels that a tensor is an example of.
fn levels_of(t: &Tensor) -> Levels {
    t.batch().iter().map(|d| (d.level, d.size)).collect()
}

/// The numbers of levels.
fn numbers(levels: &[(u32, i64)]) -> SmallVec<[u32; 2]> {
    levels.iter().map(|l| l.0).collect()
}

/// Sizes with those of levels before them.
fn with_sizes(levels: &[(u32, i64)], shape: &[i64]) -> Dims {
    let sizes: SmallVec<[i64; 4]> = levels.iter().map(|l| l.1).collect();
    Dims::new(&sizes).concat(shape)
}

fn levels(args: &Args) -> Levels {
    let mut found = Levels::new();
    args.for_each_tensor(|_, t| {
        for d in t.batch() {
            if !found.iter().any(|l| l.0 == d.level) {
                found.push((d.level, d.size));
            }
        }
    });
    found.sort_unstable();
    found
}

/// The whole batch with a dimension for each level: of size 1, or repeated if told, where the tensor is the same for all. Its tangents
/// become whole batches with it.
fn aligned(t: &Tensor, levels: &[(u32, i64)], expand: bool) -> Result<Tensor> {
    let missing = |level: u32| !is_at(t, level);
    let along = t.tangents();
    let alone = |l: &(u32, i64)| missing(l.0) && differs(t, &[*l]);
    let expand = expand || levels.iter().any(alone);
    let mut whole = t.clone().below(0).whole();
    for (i, (level, _)) in levels.iter().enumerate() {
        if missing(*level) {
            whole = f::unsqueeze(&whole, i as i64)?;
        }
    }
    let shape = with_sizes(levels, t.shape());
    if expand && whole.shape() != &shape {
        whole = f::expand(&whole, &shape[..])?;
    }
    if along.is_empty() {
        return Ok(whole);
    }
    let like = whole.example(&numbers(levels));
    for (level, u) in along {
        let tangent = whole_as(&example_like(u, t)?, &like)?;
        whole = whole.with_tangent(*level, tangent);
    }
    Ok(whole)
}

impl Layer for Batching {
    fn call(&self, c: Call, next: Next) -> Result<Ret> {
        if !alike::any(c.args) {
            return self.batched(c, next);
        }
        alike::call(c, |c| self.batched(c, next))
    }
}

impl Batching {
    fn batched(&self, c: Call, next: Next) -> Result<Ret> {
        let levels = levels(c.args);
        let op = c.args.op;
        if let Body::Kernel(k) = &op.def.body
            && k.traits.draws
        {
            return random::draw(c, next);
        }
        if levels.is_empty() {
            return next.call(c);
        }
        if let Form::Out(_) = &c.form {
            bail!(
                Runtime,
                "Batching rule not implemented for aten::{}.out; the fallback path doesn't work on out= or view ops.",
                op.public_name().replace('.', "_")
            );
        }
        if let Body::Compose(_) | Body::Forward(_) = &op.def.body {
            shared::check_composed(&c, &levels)?;
        }
        match (&op.def.body, op.def.batch, op.def.grad) {
            (Body::Compose(_), Batch::Derived, Grad::Through(f)) => composed(c, f),
            (Body::Compose(f), Batch::Derived, _) => composed(c, *f),
            (Body::Forward(f), ..) => {
                let args = f(c.args)?;
                dispatch::call(Call {
                    args: &args.borrow(),
                    form: c.form,
                })
            }
            (Body::Become(_), ..) => Ok(Ret::Become(Box::new(resized(&c)?))),
            (Body::Kernel(k), Batch::Derived, Grad::Through(f)) if !k.traits.pointwise => {
                composed(c, f)
            }
            (Body::Kernel(k), Batch::Derived, _) if k.traits.data_dependent => {
                Err(batch::dynamic(op.public_name()))
            }
            _ => {
                shared::check(&c, &levels)?;
                rules::run(&c, &levels)
            }
        }
    }
}

/// Runs a composition, whose calls come here again.
fn composed(c: Call, f: fn(&Args) -> Result<Ret>) -> Result<Ret> {
    let Some(target) = c.form.target() else {
        return f(c.args);
    };
    let made = match f(c.args)? {
        Ret::Same(0) => return Ok(Ret::Same(0)),
        Ret::Same(i) => c.args.tensor(i)?.clone(),
        ret => ret.one()?,
    };
    Ok(Ret::Become(Box::new(gather::written(target, &made)?)))
}

/// A result as one example of levels.
fn example(ret: Ret, levels: &[(u32, i64)]) -> Result<Ret> {
    let numbers = numbers(levels);
    if let Ret::Value(Value::Scalar(_)) = &ret {
        return Err(helpers::data_dependent());
    }
    ret.map(|_, t| {
        if t.ndim() < numbers.len() {
            bail!(
                Runtime,
                "internal error in torchlike: a call of a batch gave {} dimensions",
                t.ndim()
            );
        }
        Ok(t.example(&numbers))
    })
}

/// Examples of another size, each of which keeps its first elements.
fn resized(c: &Call) -> Result<Tensor> {
    let t = c.args.tensor(0)?;
    let size = match c.args.op.public_name() {
        "resize" => c.args.ints(1)?,
        "resize_as" => c.args.tensor(1)?.shape(),
        name => bail!(
            Runtime,
            "vmap: {name}_ of a tensor that is being vmapped over is not supported"
        ),
    };
    resize::check_resizable(t)?;
    ensure!(
        matches!(
            c.args.format(2),
            None | Some(MemoryFormat::Contiguous | MemoryFormat::Preserve)
        ),
        Runtime,
        "resize_: batching rule only supports None or Contiguous MemoryFormat"
    );
    if let Some(d) = size.iter().find(|d| **d < 0) {
        bail!(
            Runtime,
            "Trying to create tensor with negative dimension {d}: {size}"
        );
    }
    let count = size.iter().product::<i64>();
    let mut flat = f::reshape(t, &[-1])?;
    let more = count - flat.numel();
    if more > 0 {
        flat = f::cat(&[flat, f::new_zeros(t, &[more])?][..])?;
    }
    f::reshape(&f::narrow(&flat, 0, 0i64, count)?, size)
}
