//! A bar on standard error for long work; nothing where nobody sits at the terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// A bar of so many bytes.
pub struct Bar(ProgressBar);

impl Bar {
    pub fn new(bytes: u64, what: &'static str, quiet: bool) -> Self {
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(Some(bytes), target).with_message(what);
        let template = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Counts bytes that are done, from any thread.
    pub fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
