//! Fake modes: while one is on, and for the tensors that it made, a call computes shapes, dtypes and devices, and no elements.
//!
//! The storage of a fake tensor has no bytes and claims a device, which need not exist.

use crate::mixed::Map;
use crate::storage::WeakStorage;
use crate::{Device, Storage, Tensor, mode};
use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// One fake mode.
#[derive(Default)]
pub struct FakeMode {
    /// Tells it from all others there ever were; 0 if there were too many.
    number: u32,
    allow_real: AtomicBool,
    twins: Mutex<Twins>,
    front: Mutex<Option<Box<dyn Any + Send>>>,
}

impl FakeMode {
    /// A mode that converts real tensors among the arguments of calls, or refuses them.
    #[must_use]
    pub fn new(allow_real: bool) -> Arc<Self> {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let next = |n: u32| n.checked_add(1);
        let before = NUMBERS.fetch_update(Relaxed, Relaxed, next);
        Arc::new(Self {
            number: before.map_or(0, |n| n + 1),
            allow_real: AtomicBool::new(allow_real),
            ..Self::default()
        })
    }

    /// What tells the mode from all others; 0 if nothing does.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Whether real tensors among the arguments of calls are converted; otherwise they are refused.
    #[must_use]
    pub fn allows_real(&self) -> bool {
        self.allow_real.load(Relaxed)
    }

    /// Sets whether real tensors are converted.
    pub fn set_allows_real(&self, on: bool) {
        self.allow_real.store(on, Relaxed);
    }

    /// What the program in front of the core keeps for the mode.
    pub fn with_front<R>(&self, f: impl FnOnce(&mut Option<Box<dyn Any + Send>>) -> R) -> R {
        f(&mut self.front.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The fake storage that stands for a storage in this mode, always the same one.
    #[must_use]
    pub fn storage_for(self: &Arc<Self>, real: &Storage, claim: Device) -> Storage {
        let mut twins = self.twins.lock().unwrap_or_else(PoisonError::into_inner);
        twins.of(real, || Storage::fake(real.nbytes(), claim, self))
    }

    /// A tensor that numbers of the program made, as one of this mode; a single element is remembered.
    #[must_use]
    pub fn lift(self: &Arc<Self>, t: &Tensor) -> Tensor {
        let storage = Storage::fake(t.storage().nbytes(), t.device(), self);
        if t.numel() == 1 && t.device().is_cpu() && !t.storage().is_hollow() {
            storage.remember(t.storage());
        }
        t.on_twin(storage)
    }

    /// A tensor as it is, without its elements and its history.
    #[must_use]
    pub fn twin(self: &Arc<Self>, t: &Tensor) -> Tensor {
        t.on_twin(self.storage_for(t.storage(), t.device()))
    }
}

/// Which storage without bytes stands for which other one, as long as both live.
#[derive(Default)]
pub struct Twins(Map<usize, (WeakStorage, WeakStorage)>);

impl Twins {
    /// The storage that stands for another, made if there is none yet.
    pub fn of(&mut self, real: &Storage, make: impl FnOnce() -> Storage) -> Storage {
        if let Some((of, twin)) = self.0.get(&real.id())
            && of.upgrade().is_some_and(|of| of.same(real))
            && let Some(twin) = twin.upgrade()
            && twin.nbytes() == real.nbytes()
        {
            return twin;
        }
        if self.0.len() >= 64 && self.0.len().is_power_of_two() {
            self.0.retain(|_, (of, twin)| of.lives() && twin.lives());
        }
        let twin = make();
        let pair = (real.downgrade(), twin.downgrade());
        self.0.insert(real.id(), pair);
        twin
    }
}

thread_local! {
    static MODES: RefCell<Vec<Arc<FakeMode>>> = const { RefCell::new(Vec::new()) };
}

/// Enters a mode on this thread.
pub fn enter(mode: Arc<FakeMode>) {
    MODES.with_borrow_mut(|m| m.push(mode));
    mode::set_layers(mode::layers() | mode::FAKING);
}

/// Leaves the mode that was entered last.
pub fn leave() {
    let (gone, more) = MODES.with_borrow_mut(|m| (m.pop(), !m.is_empty()));
    if !more {
        mode::set_layers(mode::layers() & !mode::FAKING);
    }
    drop(gone);
}

/// Switches the mode that was entered last off for a while, or on again; gives whether it was off.
pub fn pause(off: bool) -> bool {
    let any = MODES.with_borrow(|m| !m.is_empty());
    let bit = if any && !off { mode::FAKING } else { 0 };
    mode::set_layers(mode::layers() & !mode::FAKING | bit) & mode::FAKING == 0
}

/// Whether a mode is on, and `is` true of the one that was entered last.
pub(crate) fn current_is(is: impl FnOnce(&FakeMode) -> bool) -> bool {
    if mode::layers() & mode::FAKING == 0 {
        return false;
    }
    // A thread that ends may have no modes left.
    let found = MODES.try_with(|m| m.borrow().last().is_some_and(|m| is(m)));
    found.unwrap_or(false)
}

/// The mode that was entered last, if it is on.
#[must_use]
pub fn current() -> Option<Arc<FakeMode>> {
    if mode::layers() & mode::FAKING == 0 {
        return None;
    }
    MODES.with_borrow(|m| m.last().cloned())
}
