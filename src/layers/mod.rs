//! What can stand between a call and its kernel. With nothing active it costs one thread-local load.

pub mod partial;
pub mod record;

use std::cell::Cell;

thread_local! {
    static RECORDING: Cell<u32> = const { Cell::new(0) };
}

/// True if a layer watches the calls of this thread.
#[inline]
#[must_use]
pub fn active() -> bool {
    RECORDING.get() > 0
}

/// Enters (`true`) or leaves the recording of factories on this thread; calls nest.
pub fn record_factories(enter: bool) {
    RECORDING.set(if enter {
        RECORDING.get() + 1
    } else {
        RECORDING.get().saturating_sub(1)
    });
}

/// Runs `f` with recording switched off on this thread.
pub(crate) fn without_recording<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(u32);
    impl Drop for Restore {
        fn drop(&mut self) {
            RECORDING.set(self.0);
        }
    }
    let _restore = Restore(RECORDING.replace(0));
    f()
}
