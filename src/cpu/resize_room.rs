//! What resampling and its gradient take besides their results: the allocations of their kernels, in their order.

use super::resize::{Resampling, computed_in};
use super::room::Room;
use super::taps::Mode;
use crate::{Result, Tensor};

impl Resampling {
    /// What [`Resampling::run`] takes.
    ///
    /// # Errors
    /// If a size overflows.
    pub fn room(&self, room: &mut Room, x: &Tensor, out: &Tensor) -> Result<()> {
        if out.numel() == 0 {
            return Ok(());
        }
        let (order, _) = self.orders();
        let (x, to) = (x.permuted(&order), out.permuted(&order));
        if matches!(self.mode, Mode::Nearest | Mode::NearestExact) {
            return room.all_dense([Some(&x), Some(&to)], x.dtype());
        }
        let first = if self.channels_last { 1 } else { 2 };
        let mut y = room.dense(&x, computed_in(&x))?;
        for (i, &axis) in self.axes.iter().enumerate().rev() {
            if self.keeps(axis) {
                continue;
            }
            let shape = y.shape().with(first + i, axis.out);
            let made = if *to.shape() == shape && !y.shares_storage(&to) {
                room.dense(&to, y.dtype())?
            } else {
                room.empty(&shape, y.dtype())?
            };
            room.free(&y);
            y = made;
        }
        Ok(())
    }

    /// What [`Resampling::run_backward`] takes.
    ///
    /// # Errors
    /// If a size overflows.
    pub fn room_backward(&self, room: &mut Room, grad: &Tensor, out: &Tensor) -> Result<()> {
        if out.numel() == 0 {
            return Ok(());
        }
        let (order, _) = self.orders();
        let first = if self.channels_last { 1 } else { 2 };
        let moved = grad.permuted(&order);
        let mut sum = room.dense(&moved, computed_in(&moved))?;
        for (i, &axis) in self.axes.iter().enumerate() {
            if self.keeps(axis) {
                continue;
            }
            let made = room.empty(&sum.shape().with(first + i, axis.size), sum.dtype())?;
            room.free(&sum);
            sum = made;
        }
        Ok(())
    }
}
