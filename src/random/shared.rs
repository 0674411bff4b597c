//! Generators as calls see them: shared, locked, with a default one per process.

use super::generator::entropy;
use super::{Generator, Philox};
use crate::{Device, Result, bail};
use std::cell::RefCell;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// A generator that several owners may draw from.
#[derive(Clone)]
pub struct SharedGenerator(Source);

#[derive(Clone)]
enum Source {
    Host(Arc<Mutex<Generator>>),
    Device(Device, Arc<Mutex<Philox>>),
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedGenerator {
    /// Shares a generator of the host.
    #[must_use]
    pub fn new(g: Generator) -> Self {
        Self(Source::Host(Arc::new(Mutex::new(g))))
    }

    /// Shares a generator of a device.
    #[must_use]
    pub fn on_device(device: Device, g: Philox) -> Self {
        Self(Source::Device(device, Arc::new(Mutex::new(g))))
    }

    /// Where it draws.
    #[must_use]
    pub fn device(&self) -> Device {
        match self.0 {
            Source::Host(_) => Device::CPU,
            Source::Device(device, _) => device,
        }
    }

    /// Exclusive use of a host's generator.
    ///
    /// # Errors
    /// If it is a device's.
    pub fn host(&self) -> Result<MutexGuard<'_, Generator>> {
        match &self.0 {
            Source::Host(g) => Ok(lock(g)),
            Source::Device(device, _) => bail!(
                Runtime,
                "Expected a 'cpu' device type for generator but found '{}'",
                device.kind.name()
            ),
        }
    }

    /// Exclusive use of a device's generator.
    ///
    /// # Errors
    /// If it is the host's.
    pub fn philox(&self) -> Result<MutexGuard<'_, Philox>> {
        match &self.0 {
            Source::Device(_, g) => Ok(lock(g)),
            Source::Host(_) => bail!(
                Runtime,
                "Expected a 'cuda' device type for generator but found 'cpu'"
            ),
        }
    }

    /// For what draws on the host in a device's place: a generator that a device's seeds, which thereby moves on.
    ///
    /// # Errors
    /// If it is the host's.
    pub fn for_host(&self) -> Result<Self> {
        let Philox { seed, offset } = self.philox()?.take(4);
        // The golden ratio's bits keep neighbouring offsets apart.
        Ok(Self::new(Generator::new(
            seed ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        )))
    }

    /// The seed last set.
    #[must_use]
    pub fn initial_seed(&self) -> u64 {
        match &self.0 {
            Source::Host(g) => lock(g).initial_seed(),
            Source::Device(_, g) => lock(g).seed,
        }
    }

    /// Starts again from a seed.
    pub fn manual_seed(&self, seed: u64) {
        match &self.0 {
            Source::Host(g) => lock(g).manual_seed(seed),
            Source::Device(_, g) => *lock(g) = Philox::new(seed),
        }
    }

    /// Seeds from the operating system's entropy and gives the seed; of devices one that a double holds.
    pub fn seed(&self) -> u64 {
        let seed = match &self.0 {
            Source::Host(_) => entropy(),
            Source::Device(..) => entropy() & ((1 << 53) - 1),
        };
        self.manual_seed(seed);
        seed
    }

    /// The state, in PyTorch's format.
    #[must_use]
    pub fn get_state(&self) -> Vec<u8> {
        match &self.0 {
            Source::Host(g) => lock(g).get_state().to_vec(),
            Source::Device(_, g) => lock(g).get_state().to_vec(),
        }
    }

    /// Takes a state that [`SharedGenerator::get_state`] gave.
    ///
    /// # Errors
    /// If it is no such state.
    pub fn set_state(&self, state: &[u8]) -> Result<()> {
        match &self.0 {
            Source::Host(g) => lock(g).set_state(state),
            Source::Device(_, g) => lock(g).set_state(state),
        }
    }

    /// Another generator in the same state.
    #[must_use]
    pub fn copied(&self) -> Self {
        match &self.0 {
            Source::Host(g) => Self::new(lock(g).clone()),
            Source::Device(device, g) => Self::on_device(*device, *lock(g)),
        }
    }

    /// True if both are the same generator.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Source::Host(a), Source::Host(b)) => Arc::ptr_eq(a, b),
            (Source::Device(_, a), Source::Device(_, b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl std::fmt::Debug for SharedGenerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Generator({})", self.device())
    }
}

static DEFAULT: LazyLock<SharedGenerator> =
    LazyLock::new(|| SharedGenerator::new(Generator::new(entropy())));

thread_local! {
    static OVERRIDE: RefCell<Option<SharedGenerator>> = const { RefCell::new(None) };
}

/// The generator that calls without one draw from; nobody knows its numbers before somebody seeds it.
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
