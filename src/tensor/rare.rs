//! What belongs to one tensor alone, and few have: now a gradient, later nodes, hooks and names.

use super::Tensor;
use std::any::Any;
use std::sync::Arc;

/// What few tensors have.
#[derive(Clone)]
pub(super) struct Rare {
    grad: Arc<dyn Keeper>,
}

/// Who keeps a tensor that belongs to another: the tensor itself, or the object of a binding around it.
pub trait Keeper: Any + Send + Sync {
    /// The tensor as it is now.
    fn tensor(&self) -> Tensor;
}

impl Keeper for Tensor {
    fn tensor(&self) -> Tensor {
        self.clone()
    }
}

impl Tensor {
    /// The gradient that was gathered for this tensor.
    #[must_use]
    pub fn grad(&self) -> Option<Tensor> {
        self.grad_keeper().map(|k| k.tensor())
    }

    /// Who keeps the gradient.
    #[must_use]
    pub fn grad_keeper(&self) -> Option<&Arc<dyn Keeper>> {
        self.rare.as_ref().map(|r| &r.grad)
    }

    /// The same tensor with this gradient, or without one.
    #[must_use]
    pub fn with_grad(mut self, grad: Option<Arc<dyn Keeper>>) -> Self {
        self.rare = grad.map(|grad| Arc::new(Rare { grad }));
        self
    }

    /// Takes away what belongs to one tensor alone.
    #[inline]
    pub fn strip(&mut self) {
        if self.rare.is_some() {
            self.rare = None;
        }
    }

    /// The same tensor with what belongs to `old` alone, whose place it takes.
    #[must_use]
    pub fn keeping(mut self, old: &Self) -> Self {
        self.rare.clone_from(&old.rare);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ViewPlan;
    use crate::{DType, Device, Dims};

    #[test]
    fn tensors_are_moved_without_memcpy() {
        assert!(size_of::<Tensor>() <= 128);
    }

    #[test]
    fn a_gradient_belongs_to_one_tensor() {
        let t = Tensor::empty(&[2], DType::F32, Device::META).unwrap();
        let t = t.clone().with_grad(Some(Arc::new(t)));
        assert_eq!(*t.grad().unwrap().shape(), Dims::from([2]));
        assert!(t.look(&ViewPlan::of(&t)).grad().is_none());
        let mut other = t.clone();
        other.strip();
        assert!(other.grad().is_none());
        assert!(t.with_grad(None).grad().is_none());
    }
}
