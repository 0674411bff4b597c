//! Writes to what all examples share.

use super::{Levels, alike, depth, is_at, varies, with_sizes};
use crate::dims::broadcast;
use crate::ops::Call;
use crate::ops::core::op::Body;
use crate::{Result, Tensor, bail};

/// Refuses to write what differs from example to example to a tensor that is the same for all.
///
/// # Errors
/// If a call does so, in PyTorch's words.
pub fn check(c: &Call, levels: &Levels) -> Result<()> {
    let op = c.args.op;
    let mutates = match &op.def.body {
        Body::Kernel(k) => k.traits.mutates,
        _ => 0,
    };
    let same = |t: &Tensor| {
        let at = |l: u32| !is_at(t, l) || !varies(t, l) && alike::differ(c.args, l);
        levels.iter().any(|l| at(l.0))
    };
    let mut shared = c.form.target().is_some_and(same);
    c.args
        .for_each_tensor(|i, t| shared |= i < 16 && mutates & 1 << i != 0 && same(t));
    if !shared {
        return Ok(());
    }
    let name = match op.def.name {
        // PyTorch's message names another function where numbers are filled in.
        "masked_fill" => "clamp_min",
        _ => op.public_name(),
    };
    let name = match name {
        "add"
        | "atan2"
        | "bitwise_and"
        | "bitwise_left_shift"
        | "bitwise_or"
        | "bitwise_right_shift"
        | "bitwise_xor"
        | "copysign"
        | "gcd"
        | "lcm" => return Err(too_small(c, levels)),
        "clamp_max" | "clamp_min" | "copy" | "div" | "logical_and" | "logical_or"
        | "logical_xor" | "mul" | "sub" => "inplace arithmetic".to_owned(),
        "bernoulli" => "inplace bernoulli".to_owned(),
        n @ ("fill" | "index_add" | "index_fill" | "index_put" | "scatter_add") => format!("{n}_"),
        n => format!("aten::{n}_"),
    };
    let place = match name.starts_with("aten::") {
        true => format!("at level {}", levels.last().map_or(0, |l| depth(l.0))),
        false => "in a vmap".to_owned(),
    };
    bail!(
        Runtime,
        "vmap: {name}(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has more \
         elements than `self`. This happened due to `other` being vmapped over but `self` not being vmapped over {place}. \
         Please try to use out-of-place operators instead of {name}. If said operator is being called inside the PyTorch \
         framework, please file a bug report instead."
    );
}

/// The same for compositions that are one operator in PyTorch, which messages name.
///
/// # Errors
/// As [`check`].
pub fn check_composed(c: &Call, levels: &Levels) -> Result<()> {
    match c.args.op.public_name() {
        "clamp" | "clip" | "fill" => check(c, levels),
        _ => Ok(()),
    }
}

/// That the target has no dimension for the examples.
fn too_small(c: &Call, levels: &Levels) -> crate::Error {
    let mut shape = None;
    c.args.for_each_tensor(|_, t| {
        let own = t.shape().clone();
        shape = match shape.take() {
            None => Some(own),
            Some(s) => broadcast(&s, &own).ok(),
        };
    });
    let own = c.form.target().map(|t| t.shape().clone());
    let own = own.unwrap_or_default();
    let all = with_sizes(levels, shape.as_ref().unwrap_or(&own));
    crate::err!(
        Runtime,
        "output with shape {own} doesn't match the broadcast shape {all}"
    )
}
