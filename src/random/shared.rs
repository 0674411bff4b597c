//! Generators as calls see them: shared, locked, with a default one per process.

use super::Generator;
use std::cell::RefCell;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// A generator that several owners may draw from.
#[derive(Clone)]
pub struct SharedGenerator(Arc<Mutex<Generator>>);

impl SharedGenerator {
    /// Shares a generator.
    #[must_use]
    pub fn new(g: Generator) -> Self {
        Self(Arc::new(Mutex::new(g)))
    }

    /// Exclusive use of it.
    pub fn lock(&self) -> MutexGuard<'_, Generator> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if both are the same generator.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for SharedGenerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Generator(cpu)")
    }
}

static DEFAULT: LazyLock<SharedGenerator> =
    LazyLock::new(|| SharedGenerator::new(Generator::default()));

thread_local! {
    static OVERRIDE: RefCell<Option<SharedGenerator>> = const { RefCell::new(None) };
}

/// The generator that calls without one draw from.
#[must_use]
pub fn default_generator() -> SharedGenerator {
    OVERRIDE
        .with_borrow(Clone::clone)
        .unwrap_or_else(|| DEFAULT.clone())
}

/// Runs `f` with another default generator on this thread.
pub fn with_default_generator<R>(g: Generator, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<SharedGenerator>);
    impl Drop for Restore {
        fn drop(&mut self) {
            OVERRIDE.with_borrow_mut(|o| *o = self.0.take());
        }
    }
    let _restore = Restore(OVERRIDE.with_borrow_mut(|o| o.replace(SharedGenerator::new(g))));
    f()
}
