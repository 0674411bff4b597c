//! What kernels take besides their results: a tally that follows a kernel's allocations without making them.
//!
//! Functions that go with a kernel ask for stand-ins, tensors without elements, where the kernel asks the allocator for memory.
//! What a scope took is given back at its end, as what a function holds is dropped when it returns.

use super::{alloc, copy, lines, pool};
use crate::{DType, Device, Result, Tensor, bail, dims};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A tally of the blocks that are held, and of those that were when they were most.
#[derive(Debug)]
pub struct Room {
    /// Storages of stand-ins, with their bytes.
    held: Vec<(usize, usize)>,
    most: (usize, Vec<usize>),
    threads: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            held: Vec::new(),
            most: (0, Vec::new()),
            threads: pool::num_threads(),
        }
    }
}

impl Room {
    /// The threads that kernels may use.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// A tensor that the kernel makes.
    ///
    /// # Errors
    /// If the size overflows.
    pub fn empty(&mut self, shape: &[i64], dtype: DType) -> Result<Tensor> {
        Ok(self.hold(Tensor::empty(shape, dtype, Device::META)?))
    }

    /// So many elements.
    ///
    /// # Errors
    /// As [`Room::empty`].
    pub fn elements(&mut self, n: usize, dtype: DType) -> Result<()> {
        self.empty(&[n as i64], dtype).map(drop)
    }

    /// What [`dense`](super::copy::dense) makes of a tensor: the tensor itself, or a row-major one. So are results that a kernel
    /// writes row-major and then brings to their place.
    ///
    /// # Errors
    /// As [`Room::empty`].
    pub fn dense(&mut self, t: &Tensor, dtype: DType) -> Result<Tensor> {
        if t.dtype() == dtype && t.is_contiguous() && !t.is_lazy() {
            return Ok(t.clone());
        }
        self.empty(t.shape(), dtype)
    }

    /// The same of several tensors, those that there are.
    ///
    /// # Errors
    /// As [`Room::empty`].
    pub fn all_dense<'t>(
        &mut self,
        tensors: impl IntoIterator<Item = Option<&'t Tensor>>,
        dtype: DType,
    ) -> Result<()> {
        let mut tensors = tensors.into_iter().flatten();
        tensors.try_for_each(|t| self.dense(t, dtype).map(drop))
    }

    /// What a kernel takes that reads dense operands and writes dense results in one type.
    ///
    /// # Errors
    /// As [`Room::empty`].
    pub fn operands<'t>(
        &mut self,
        inputs: impl IntoIterator<Item = Option<&'t Tensor>>,
        outs: &'t [Tensor],
        dtype: DType,
    ) -> Result<()> {
        self.all_dense(inputs.into_iter().chain(outs.iter().map(Some)), dtype)
    }

    /// What [`converted`](super::copy::converted) makes of a tensor.
    ///
    /// # Errors
    /// As [`Room::empty`].
    pub fn converted(&mut self, t: &Tensor, dtype: DType) -> Result<Tensor> {
        let strides = dims::preserved_strides(t.shape(), t.strides());
        let made = Tensor::empty_strided(t.shape().clone(), strides, dtype, Device::META)?;
        Ok(self.hold(made))
    }

    /// What [`read`](super::lines::read) makes of a tensor, and [`target`](super::lines::target) of a result.
    ///
    /// # Errors
    /// As [`Room::empty`].
    pub fn lines(&mut self, t: &Tensor, dims: &[usize], dtype: DType) -> Result<Tensor> {
        self.dense(&t.permuted(&lines::order(t.ndim(), dims)), dtype)
    }

    /// What [`lists`] notes.
    ///
    /// # Errors
    /// As [`Room::empty`].
    pub fn lists(&mut self, tasks: usize, each: usize) -> Result<()> {
        self.elements(tasks.min(self.threads).saturating_mul(each), DType::U8)
    }

    /// Gives a tensor back that was taken.
    pub fn free(&mut self, t: &Tensor) {
        let id = t.storage().id();
        // Others may have had the same number before.
        if let Some(at) = self.held.iter().rposition(|(held, _)| *held == id) {
            self.held.remove(at);
        }
    }

    fn hold(&mut self, made: Tensor) -> Tensor {
        let bytes = made.storage().nbytes();
        if bytes > 0 {
            self.held.push((made.storage().id(), bytes));
            let now = self.held.iter().map(|(_, n)| alloc::size_class(*n)).sum();
            if now > self.most.0 {
                self.most = (now, self.held.iter().map(|(_, n)| *n).collect());
            }
        }
        made
    }

    /// Runs `f`, and gives back what it took.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn within(&mut self, f: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let before = self.held.len();
        f(self)?;
        self.held.truncate(before);
        Ok(())
    }

    /// Runs `f`, and gives back what it took but for the tensor that it returns.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn keep(&mut self, f: impl FnOnce(&mut Self) -> Result<Tensor>) -> Result<Tensor> {
        let before = self.held.len();
        let made = f(self)?;
        let id = made.storage().id();
        let kept = self.held[before..].iter().copied().rfind(|h| h.0 == id);
        self.held.truncate(before);
        self.held.extend(kept);
        Ok(made)
    }

    /// The blocks, in bytes as they were asked for, at the moment when they were most.
    #[must_use]
    pub fn into_blocks(self) -> Vec<usize> {
        self.most.1
    }
}

/// Notes lists of so many bytes that tasks make for themselves while this is held: as many as threads can be at work.
#[must_use]
pub fn lists(tasks: usize, each: usize) -> alloc::Noted {
    alloc::Noted::new(tasks.min(pool::num_threads()).saturating_mul(each))
}

/// What tasks work in: made before they begin, as often as threads can be at work, so that it does not depend on how
/// threads run.
pub struct Rooms<T>(Mutex<Vec<T>>);

impl<T> Rooms<T> {
    /// Makes what so many tasks need.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn new(tasks: usize, make: impl Fn() -> Result<T>) -> Result<Self> {
        let count = tasks.min(pool::num_threads());
        let made = (0..count).map(|_| make()).collect::<Result<_>>()?;
        Ok(Self(Mutex::new(made)))
    }

    fn list(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a task in one of them.
    ///
    /// # Errors
    /// Those of `f`, or that more run at a time than there are threads.
    pub fn with<R>(&self, f: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        let Some(room) = self.list().pop() else {
            bail!(
                Runtime,
                "internal error in torchlike: more tasks than threads"
            );
        };
        let done = f(&room);
        self.list().push(room);
        done
    }

    /// Runs `f` for every task, in rooms and on the threads of the pool; `grain` tasks are done by the time others could begin
    /// to help.
    ///
    /// # Errors
    /// One of those of `f`.
    pub fn run(
        &self,
        tasks: usize,
        grain: usize,
        f: impl Fn(usize, &T) -> Result<()> + Sync,
    ) -> Result<()>
    where
        T: Send,
    {
        let failed = Mutex::new(None);
        pool::parallel_for(tasks, grain, |mut some| {
            let done = self.with(|room| some.try_for_each(|task| f(task, room)));
            if let (Err(e), Ok(mut slot)) = (done, failed.lock()) {
                *slot = Some(e);
            }
        });
        failed.into_inner().ok().flatten().map_or(Ok(()), Err)
    }
}

/// A tensor's elements row-major: itself if it lies so, else a copy in the memory of `room`.
///
/// # Errors
/// If there is no conversion.
pub fn dense_in(t: &Tensor, room: Option<&Tensor>) -> Result<Tensor> {
    let Some(room) = room.filter(|r| t.dtype() != r.dtype() || !t.is_contiguous()) else {
        return Ok(t.clone());
    };
    let strides = dims::contiguous_strides(t.shape());
    let made = room.view_with(t.shape().clone(), strides, room.offset());
    copy::copy(&made, t)?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_give_back_what_they_took() {
        let mut room = Room::default();
        let kept = room.keep(|r| {
            r.elements(100, DType::F32)?;
            r.empty(&[10], DType::F32)
        });
        assert_eq!(kept.unwrap().numel(), 10);
        room.within(|r| r.elements(50, DType::F64)).unwrap();
        room.within(|r| r.elements(2, DType::F64)).unwrap();
        let mut most = room.into_blocks();
        most.sort_unstable();
        assert_eq!(most, [40, 400]);
    }
}
