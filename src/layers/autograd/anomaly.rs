//! Watching for what goes wrong on the way back: where the failing node's call was made, and which gradients are no numbers.

use crate::ops::f;
use crate::tensor::{Grads, Node, Place};
use crate::{Result, bail};
use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Who notes where nodes are made, and tells of it when one fails.
pub trait Witness: Send + Sync {
    /// A node was made, while `within` ran if one did.
    fn made(&self, link: &Place, within: Option<Place>);
    /// A node failed.
    fn failed(&self, link: &Place);
}

static WITNESS: OnceLock<Box<dyn Witness>> = OnceLock::new();
static MODE: AtomicU8 = AtomicU8::new(0);
const ON: u8 = 1;
const NUMBERS: u8 = 2;

/// Sets the witness of this process; the first one stays.
pub fn set_witness(witness: Box<dyn Witness>) {
    WITNESS.get_or_init(|| witness);
}

/// Switches watching, and the look for what is no number.
pub fn set(on: bool, numbers: bool) {
    let bits = (u8::from(on) * ON) | (u8::from(numbers) * NUMBERS);
    MODE.store(bits, Relaxed);
}

/// Whether nodes are watched, and whether gradients are searched for what is no number.
#[inline]
#[must_use]
pub fn get() -> (bool, bool) {
    let mode = MODE.load(Relaxed);
    (mode & ON != 0, mode & NUMBERS != 0)
}

/// Tells the witness of a node.
#[inline]
pub fn made(link: &Place) {
    if MODE.load(Relaxed) & ON != 0
        && let Some(witness) = WITNESS.get()
    {
        witness.made(link, RUNNING.with_borrow(|all| all.last().cloned()));
    }
}

thread_local! {
    /// The nodes that run on this thread while nodes are watched, the innermost last.
    static RUNNING: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

/// A node that runs, until it is dropped.
pub struct Running(bool);

impl Running {
    /// Notes a node, if nodes are watched.
    #[inline]
    #[must_use]
    pub fn note(link: &Place) -> Self {
        let watched = MODE.load(Relaxed) & ON != 0;
        if watched {
            RUNNING.with_borrow_mut(|all| all.push(link.clone()));
        }
        Self(watched)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0 {
            drop(RUNNING.with_borrow_mut(Vec::pop));
        }
    }
}

/// Looks at what a node gave.
///
/// # Errors
/// The node's own, and PyTorch's text if a gradient is no number.
#[inline]
pub fn checked(link: &Place, node: &Node, made: Result<Grads>) -> Result<Grads> {
    match get() {
        (false, _) => made,
        (true, numbers) => watched(link, node, made, numbers),
    }
}

#[cold]
fn watched(link: &Place, node: &Node, made: Result<Grads>, numbers: bool) -> Result<Grads> {
    let made = made.and_then(|grads| {
        if numbers {
            look(node, &grads)?;
        }
        Ok(grads)
    });
    if made.is_err()
        && let Some(witness) = WITNESS.get()
    {
        witness.failed(link);
    }
    made
}

fn look(node: &Node, grads: &Grads) -> Result<()> {
    for (i, grad) in grads.iter().enumerate() {
        let Some(grad) = grad else { continue };
        if grad.is_meta() || !f::_is_any_true(&f::isnan(grad)?)?.item()?.to_bool() {
            continue;
        }
        bail!(
            Runtime,
            "Function '{}' returned nan values in its {i}th output.",
            node.body().name()
        );
    }
    Ok(())
}
