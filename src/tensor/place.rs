//! Counted pointers to places of the graph. They count as `Arc` does, but the object of a binding that a leaf is can hold its place
//! without counting: others then keep the object alive, and the last of them says that it has gone.

#![allow(
    unsafe_code,
    reason = "a counter of one's own, as that of `Arc` cannot tell that all holders but one have gone"
)]

use super::link::Link;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::*, fence};

/// What each holder counts for.
const HOLDER: usize = 2;
/// One more handle, that of the place's object, holds the place and is not counted.
const LENT: usize = 1;
/// More holders than memory has room for.
const LIMIT: usize = isize::MAX as usize;

/// Is told where a place is that nobody holds but its object, which may be looked after by [`Place::take_back`]. The place may be gone
/// by then: the address is a name, and must not be followed.
pub static LEFT: OnceLock<fn(usize)> = OnceLock::new();

struct Counted {
    holders: AtomicUsize,
    /// Those that only look, and one for all holders.
    watchers: AtomicUsize,
    link: ManuallyDrop<Link>,
}

/// A holder of a place.
pub struct Place(NonNull<Counted>);

/// Who looks at a place as long as others hold it.
pub struct WeakPlace(Option<NonNull<Counted>>);

// SAFETY: counters are atomic, and a `Link` is shared between threads as it is.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}
// SAFETY: as above.
unsafe impl Send for WeakPlace {}
// SAFETY: as above.
unsafe impl Sync for WeakPlace {}

impl Place {
    /// The first holder of a place.
    #[inline]
    #[must_use]
    pub fn new(link: Link) -> Self {
        let made = Box::new(Counted {
            holders: AtomicUsize::new(HOLDER),
            watchers: AtomicUsize::new(1),
            link: ManuallyDrop::new(link),
        });
        Self(NonNull::from(Box::leak(made)))
    }

    #[inline]
    fn counted(&self) -> &Counted {
        // SAFETY: the block lives as long as anybody holds it or looks at it.
        unsafe { self.0.as_ref() }
    }

    /// How many hold the place, but for an object that does without counting.
    #[inline]
    #[must_use]
    pub fn holders(this: &Self) -> usize {
        this.counted().holders.load(Relaxed) / HOLDER
    }

    /// Where it is.
    #[inline]
    #[must_use]
    pub fn at(this: &Self) -> *const Link {
        &raw const **this
    }

    /// Whether both are the same place.
    #[inline]
    #[must_use]
    pub fn same(a: &Self, b: &Self) -> bool {
        a.0 == b.0
    }

    /// One who looks at it.
    #[must_use]
    pub fn weak(this: &Self) -> WeakPlace {
        this.counted().watchers.fetch_add(1, Relaxed);
        WeakPlace(Some(this.0))
    }

    /// Whether an object holds the place without counting.
    #[inline]
    #[must_use]
    pub fn is_lent(this: &Self) -> bool {
        this.counted().holders.load(Relaxed) & LENT != 0
    }

    /// From now on this holder does not count, if there are others; gives whether that is so.
    ///
    /// # Safety
    /// The holder, or a clone that it is replaced by, stays until [`take_back`](Self::take_back) or [`count_again`](Self::count_again)
    /// has succeeded.
    pub unsafe fn lend(this: &Self) -> bool {
        let alone = HOLDER + HOLDER;
        let others = |n: usize| (n >= alone && n & LENT == 0).then(|| n - HOLDER + LENT);
        (this.counted().holders)
            .fetch_update(AcqRel, Relaxed, others)
            .is_ok()
    }

    /// The holder that does not count does so again if it is the only one; gives whether it was.
    #[must_use]
    pub fn take_back(this: &Self) -> bool {
        let holders = &this.counted().holders;
        holders
            .compare_exchange(LENT, HOLDER, AcqRel, Relaxed)
            .is_ok()
    }

    /// The holder that does not count does so again.
    pub fn count_again(this: &Self) {
        let lent = |n: usize| (n & LENT != 0).then(|| n - LENT + HOLDER);
        let _ = (this.counted().holders).fetch_update(AcqRel, Relaxed, lent);
    }

    /// What the last holder does, who was one of `before`.
    #[inline(never)]
    fn left(at: NonNull<Counted>, before: usize) {
        if before & LENT != 0 {
            if let Some(tell) = LEFT.get() {
                // SAFETY: only the address is computed; the place may be gone.
                tell(unsafe { &raw const (*at.as_ptr()).link } as usize);
            }
            return;
        }
        fence(Acquire);
        // SAFETY: nobody holds it any more, and nobody who looks can become a holder; the block goes after.
        unsafe { ManuallyDrop::drop(&mut (*at.as_ptr()).link) };
        drop(WeakPlace(Some(at)));
    }
}

impl Deref for Place {
    type Target = Link;

    #[inline]
    fn deref(&self) -> &Link {
        &self.counted().link
    }
}

impl Clone for Place {
    #[inline]
    fn clone(&self) -> Self {
        if self.counted().holders.fetch_add(HOLDER, Relaxed) > LIMIT {
            std::process::abort();
        }
        Self(self.0)
    }
}

impl Drop for Place {
    #[inline]
    fn drop(&mut self) {
        let before = self.counted().holders.fetch_sub(HOLDER, Release);
        if before < HOLDER + HOLDER {
            Self::left(self.0, before);
        }
    }
}

impl WeakPlace {
    /// Of no place.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    /// A holder, if anybody holds the place.
    #[must_use]
    pub fn upgrade(&self) -> Option<Place> {
        let at = self.0?;
        // SAFETY: the block lives as long as anybody looks at it.
        let holders = unsafe { &at.as_ref().holders };
        let held = |n: usize| (n != 0).then(|| n + HOLDER);
        holders
            .fetch_update(Acquire, Relaxed, held)
            .is_ok()
            .then_some(Place(at))
    }

    /// Where the place is or was; null for none.
    #[must_use]
    pub fn at(&self) -> *const Link {
        // SAFETY: the block lives as long as anybody looks at it; only an address is computed.
        self.0.map_or(std::ptr::null(), |at| unsafe {
            (&raw const (*at.as_ptr()).link).cast()
        })
    }
}

impl Default for WeakPlace {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for WeakPlace {
    fn clone(&self) -> Self {
        if let Some(at) = self.0 {
            // SAFETY: the block lives as long as anybody looks at it.
            unsafe { at.as_ref() }.watchers.fetch_add(1, Relaxed);
        }
        Self(self.0)
    }
}

impl Drop for WeakPlace {
    fn drop(&mut self) {
        let Some(at) = self.0 else { return };
        // SAFETY: the block lives as long as anybody looks at it: this was the last one if there was one.
        unsafe {
            if at.as_ref().watchers.fetch_sub(1, Release) == 1 {
                fence(Acquire);
                drop(Box::from_raw(at.as_ptr()));
            }
        }
    }
}
