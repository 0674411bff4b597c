//! What stands for the GPU modules in a build without the `cuda` feature: the same entries, each an ordinary error.

use crate::{Error, err};

#[cold]
fn none() -> Error {
    err!(Assertion, "Torch not compiled with CUDA enabled")
}

/// Pointwise kernels.
pub mod map {
    use crate::cpu::map::Ctx;
    use crate::ops::args::Arg;
    use crate::ops::core::typed::Operand;
    use crate::{DType, Result, Tensor};

    /// The expression of a pointwise row.
    ///
    /// # Errors
    /// Always.
    pub fn run(_: &str, _: &[Arg], _: DType, _: Ctx, _: &Tensor) -> Result<()> {
        Err(super::none())
    }

    /// One of two operands by a condition.
    ///
    /// # Errors
    /// Always.
    pub fn choose(
        _: &crate::Tensor,
        _: &crate::Tensor,
        _: Operand,
        _: Operand,
    ) -> crate::Result<()> {
        Err(super::none())
    }

    /// Fills a tensor.
    ///
    /// # Errors
    /// Always.
    pub fn fill_with(_: &crate::Tensor, _: crate::Scalar) -> crate::Result<()> {
        Err(super::none())
    }
}

/// Copies.
pub mod copy {
    use crate::{DType, Result, Tensor};

    /// A row-major copy.
    ///
    /// # Errors
    /// Always.
    pub fn dense(_: &Tensor, _: DType) -> Result<Tensor> {
        Err(super::none())
    }

    /// Copies between any two tensors.
    ///
    /// # Errors
    /// Always.
    pub fn copy_into(_: &Tensor, _: &Tensor) -> Result<()> {
        Err(super::none())
    }
}

/// Folds.
pub mod reduce {
    use crate::cpu::reduce::{Kind, Post};
    use crate::{Result, Tensor};

    /// A fold over dimensions.
    ///
    /// # Errors
    /// Always.
    pub fn run_kind(_: Kind, _: &Tensor, _: &Tensor, _: &[usize], _: f64, _: Post) -> Result<()> {
        Err(super::none())
    }

    /// Extremes and where they are.
    ///
    /// # Errors
    /// Always.
    pub fn arg_extreme(
        _: Option<&Tensor>,
        _: &Tensor,
        _: &Tensor,
        _: &[usize],
        _: bool,
    ) -> Result<()> {
        Err(super::none())
    }
}

/// Matrix products.
pub mod blas {
    use crate::{Result, Scalar, Tensor};

    /// A product.
    ///
    /// # Errors
    /// Always.
    pub fn product(
        _: &Tensor,
        _: &Tensor,
        _: &Tensor,
        _: Scalar,
        _: Scalar,
        _: Option<&Tensor>,
    ) -> Result<()> {
        Err(super::none())
    }
}

/// Random numbers.
pub mod random {
    use crate::random::Distribution;
    use crate::{Device, Result, Tensor};

    /// Fills a tensor.
    ///
    /// # Errors
    /// Always.
    pub fn fill(_: &Distribution, _: &Tensor) -> Result<()> {
        Err(super::none())
    }

    /// Seeds the devices: none.
    ///
    /// # Errors
    /// If a device is named.
    pub fn seed(device: Option<Device>, _: u64) -> Result<()> {
        if device.is_some() {
            Err(super::none())
        } else {
            Ok(())
        }
    }
}

/// Memory.
pub mod alloc {
    use crate::{Device, Result, Storage};

    /// What a device's memory is used for, in bytes.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Stats {
        /// In blocks of living tensors.
        pub allocated: usize,
        /// Taken from the driver.
        pub reserved: usize,
        /// The most that was ever allocated.
        pub peak: usize,
    }

    /// Uninitialised device memory.
    ///
    /// # Errors
    /// Always.
    pub fn empty_storage(_: usize, _: Device) -> Result<Storage> {
        Err(super::none())
    }

    /// Gives cached memory back: there is none.
    ///
    /// # Errors
    /// Never.
    pub fn empty_cache() -> Result<()> {
        Ok(())
    }

    /// Nothing is used.
    #[must_use]
    pub fn stats(_: usize) -> Stats {
        Stats::default()
    }
}

/// Devices.
pub mod driver {
    use crate::{Device, Result};

    /// A GPU, of which there are none.
    #[derive(Clone, Copy, Debug)]
    pub struct Gpu {
        /// Compute capability.
        pub arch: (i32, i32),
        /// Multiprocessors.
        pub processors: u32,
        /// Threads that a multiprocessor holds.
        pub threads: u32,
    }

    impl Gpu {
        /// The name for people.
        ///
        /// # Errors
        /// Always.
        pub fn name(&self) -> Result<String> {
            Err(super::none())
        }

        /// The memory it has.
        ///
        /// # Errors
        /// Always.
        pub fn total_memory(&self) -> Result<usize> {
            Err(super::none())
        }

        /// Free and total memory.
        ///
        /// # Errors
        /// Always.
        pub fn memory(&self) -> Result<(usize, usize)> {
            Err(super::none())
        }

        /// Waits for nothing.
        ///
        /// # Errors
        /// Always.
        pub fn wait(&self) -> Result<()> {
            Err(super::none())
        }
    }

    /// No devices.
    #[must_use]
    pub fn count() -> usize {
        0
    }

    /// Refuses every device.
    ///
    /// # Errors
    /// Always.
    pub fn check(_: Device) -> Result<()> {
        Err(super::none())
    }

    /// A device.
    ///
    /// # Errors
    /// Always.
    pub fn gpu(_: Device) -> Result<&'static Gpu> {
        Err(super::none())
    }

    /// None was.
    #[must_use]
    pub fn opened() -> bool {
        false
    }
}
