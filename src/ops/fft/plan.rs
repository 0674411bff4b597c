//! How results of transforms lie: PyTorch's layouts on the host.
//!
//! The dimensions that are not transformed come first, those of larger strides before others; then the transformed ones. At most
//! seven are transformed at a time.

use crate::Dims;
use crate::dims::settle;
use smallvec::SmallVec;
use std::cmp::Reverse;

/// The most dimensions of one pass.
const AT_A_TIME: usize = 7;

/// Strides of a result of a pass over some dimensions, which lie as they are listed; or, but for the last, `sorted` by their strides.
#[must_use]
pub fn ordered(shape: &[i64], strides: &[i64], dims: &[usize], sorted: bool) -> Dims {
    let mut order: SmallVec<[usize; 8]> = (0..shape.len()).filter(|d| !dims.contains(d)).collect();
    settle(&mut order, |d| Reverse(strides[*d]));
    let mut last: SmallVec<[usize; 8]> = dims.iter().copied().collect();
    if sorted && let Some((_, others)) = last.split_last_mut() {
        settle(others, |d| Reverse(strides[*d]));
    }
    order.extend(last);
    let mut made = Dims::filled(shape.len(), 0);
    let mut step = 1;
    for d in order.into_iter().rev() {
        made[d] = step;
        step *= shape[d].max(1);
    }
    made
}

/// Strides of a result of complex transforms along some dimensions.
#[must_use]
pub fn complex(shape: &[i64], strides: &[i64], dims: &[usize]) -> Dims {
    let mut now = Dims::new(strides);
    let mut left: SmallVec<[usize; 8]> = dims.iter().copied().collect();
    while !left.is_empty() {
        settle(&mut left, |d| Reverse(now[*d]));
        let first = left.len().saturating_sub(AT_A_TIME);
        let pass: SmallVec<[usize; 4]> = left.drain(first..).collect();
        now = ordered(shape, &now, &pass, false);
    }
    now
}
