//! Whether devices may round single precision operands to fewer bits (TF32), as PyTorch's flags of this name say.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static PRODUCTS: AtomicBool = AtomicBool::new(true);
static CONVOLUTIONS: AtomicBool = AtomicBool::new(true);

/// True if products keep single precision.
#[must_use]
pub fn products() -> bool {
    PRODUCTS.load(Relaxed)
}

/// True if convolutions keep single precision.
#[must_use]
pub fn convolutions() -> bool {
    CONVOLUTIONS.load(Relaxed)
}

/// Sets whether products keep single precision.
pub fn keep_in_products(keep: bool) {
    PRODUCTS.store(keep, Relaxed);
}

/// Sets whether convolutions keep single precision.
pub fn keep_in_convolutions(keep: bool) {
    CONVOLUTIONS.store(keep, Relaxed);
}
