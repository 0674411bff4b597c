//! What the core has to say beside its results. Whoever listens is told (in the binding Python's `warnings`); without a
//! listener it goes to the standard error stream.

use std::fmt::Arguments;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static LISTENER: OnceLock<fn(&str)> = OnceLock::new();
static ALWAYS: AtomicBool = AtomicBool::new(false);

/// Sets who is told from now on; a second listener is ignored.
pub fn listen(listener: fn(&str)) {
    let _ = LISTENER.set(listener);
}

/// Sets whether what is said once in a process is said every time; returns what it was.
pub fn set_always(always: bool) -> bool {
    ALWAYS.swap(always, Relaxed)
}

/// Whether what is said once in a process is said every time.
#[must_use]
pub fn is_always() -> bool {
    ALWAYS.load(Relaxed)
}

/// Says something.
#[cold]
pub fn say(text: &str) {
    match LISTENER.get() {
        Some(listener) => listener(text),
        None => eprintln!("Warning: {text}"),
    }
}

/// Says something the first time only; [`crate::warn_once`] has a place for `said`.
#[inline]
pub fn once(said: &AtomicBool, text: Arguments<'_>) {
    if !said.load(Relaxed) || is_always() {
        say_now(said, text);
    }
}

#[cold]
#[inline(never)]
fn say_now(said: &AtomicBool, text: Arguments<'_>) {
    said.store(true, Relaxed);
    say(&text.to_string());
}

/// Says something (a format) the first time that this place is reached.
#[macro_export]
macro_rules! warn_once {
    ($($text:tt)+) => {{
        static SAID: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        $crate::warning::once(&SAID, format_args!($($text)+));
    }};
}
