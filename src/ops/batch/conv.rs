//! Convolutions of whole batches, and their gradients: examples join the batch, or weights that differ become groups.

use super::{Made, hidden, one};
use crate::ops::core::op::Hidden;
use crate::ops::f;
use crate::{Dims, Result, Tensor};

/// The examples' dimensions of the first operand that has any.
fn batch_of(operands: &[Option<&Tensor>], h: Hidden) -> Dims {
    let differing = operands.iter().enumerate().filter(|(i, _)| h.differs(*i));
    let found = differing.filter_map(|(_, t)| *t).next();
    found.map_or_else(Dims::default, |t| hidden(t, h.k))
}

/// `[batch * N, ...]` as `[batch, N, ...]`.
fn apart(t: &Tensor, n: i64, batch: &Dims) -> Result<Tensor> {
    f::reshape(t, &batch.concat(&[n]).concat(&t.shape()[1..])[..])
}

/// `convolution`.
pub fn convolution(a: &f::Convolution, h: Hidden) -> Made {
    let (x, k) = (a.input, h.k as i64);
    let n = x.shape()[h.hides(0)];
    if !h.differs(1) && !h.differs(2) {
        let joined = flattened(x, 0, k)?;
        let all = f::Convolution {
            input: &joined,
            ..a.clone()
        };
        return one(apart(&all.call()?, n, &hidden(x, h.k)));
    }
    let batch = batch_of(&[Some(x), Some(a.weight), a.bias], h);
    let joined = into_channels(&h.repeated(0, x, &batch)?, h)?;
    let weight = flattened(&h.repeated(1, a.weight, &batch)?, 0, k)?;
    let bias = a.bias.map(|b| flattened(&h.repeated(2, b, &batch)?, 0, k));
    let bias = bias.transpose()?;
    let all = f::Convolution {
        input: &joined,
        weight: &weight,
        bias: bias.as_ref(),
        groups: a.groups * batch.iter().product::<i64>(),
        ..a.clone()
    };
    let of_one = &a.weight.shape()[h.hides(1)..];
    let channels = match a.transposed {
        true => of_one[1] * a.groups,
        false => of_one[0],
    };
    one(out_of_channels(&all.call()?, channels, &batch))
}

/// The gradient of a convolution's input.
pub fn convolution_input(a: &f::_GradConvolutionInput, h: Hidden) -> Made {
    let operands = [a.grad_output, a.input, a.weight];
    let batch = batch_of(&operands.map(Some), h);
    let of_one = &a.input.shape()[h.hides(1)..];
    if !h.differs(2) {
        let joined = |i: usize| flattened(&h.repeated(i, operands[i], &batch)?, 0, h.k as i64);
        let all = f::_GradConvolutionInput {
            grad_output: &joined(0)?,
            input: &joined(1)?,
            ..a.clone()
        };
        return one(apart(&all.call()?, of_one[0], &batch));
    }
    let [grad_output, input, weight] = &as_groups(operands, &batch, h)?;
    let all = f::_GradConvolutionInput {
        grad_output,
        input,
        weight,
        groups: a.groups * batch.iter().product::<i64>(),
        ..a.clone()
    };
    one(out_of_channels(&all.call()?, of_one[1], &batch))
}

/// The gradient of a convolution's weight, of which each example has its own.
pub fn convolution_weight(a: &f::_GradConvolutionWeight, h: Hidden) -> Made {
    let operands = [a.grad_output, a.input, a.weight];
    let batch = batch_of(&operands.map(Some), h);
    let [grad_output, input, weight] = &as_groups(operands, &batch, h)?;
    let all = f::_GradConvolutionWeight {
        grad_output,
        input,
        weight,
        groups: a.groups * batch.iter().product::<i64>(),
        ..a.clone()
    };
    let of_one = &a.weight.shape()[h.hides(2)..];
    one(f::reshape(&all.call()?, &batch.concat(of_one)[..]))
}

/// Gradient, input and weight of all examples as those of one convolution, in which each is a group, or several.
fn as_groups(operands: [&Tensor; 3], batch: &Dims, h: Hidden) -> Result<[Tensor; 3]> {
    let whole = |i: usize| h.repeated(i, operands[i], batch);
    let weight = flattened(&whole(2)?, 0, h.k as i64)?;
    Ok([
        into_channels(&whole(0)?, h)?,
        into_channels(&whole(1)?, h)?,
        weight,
    ])
}

pub(super) fn flattened(t: &Tensor, from: i64, to: i64) -> Result<Tensor> {
    f::Flatten::new(t).start_dim(from).end_dim(to).call()
}

/// `[batch, N, C, ...]` as `[N, batch * C, ...]`.
pub(super) fn into_channels(t: &Tensor, h: Hidden) -> Result<Tensor> {
    let first = flattened(t, 0, h.k as i64 - 1)?;
    flattened(&f::MovedimInt::new(&first, 0, 1).call()?, 1, 2)
}

/// `[N, batch * channels, ...]` as `[batch, N, channels, ...]`.
pub(super) fn out_of_channels(t: &Tensor, channels: i64, batch: &Dims) -> Result<Tensor> {
    let count: i64 = batch.iter().product();
    let apart = Dims::from([t.shape()[0], count, channels]).concat(&t.shape()[2..]);
    let first = f::MovedimInt::new(&f::reshape(t, &apart[..])?, 1, 0).call()?;
    f::reshape(&first, &batch.concat(&first.shape()[1..])[..])
}
