//! What a tensor's flag byte says.

use super::{CONJ, GRAD, INFERENCE, LAZY, Mark, NEG, PYTHON, SILENT, Tensor, VIEW, VIEW_OF_LEAF};

impl Tensor {
    /// True for a lazily conjugated view.
    #[inline]
    #[must_use]
    pub fn is_conj(&self) -> bool {
        self.flags & CONJ != 0
    }

    /// True for a lazily negated view.
    #[inline]
    #[must_use]
    pub fn is_neg(&self) -> bool {
        self.flags & NEG != 0
    }

    /// True if a lazy conjugation or negation has to be applied when reading.
    #[inline]
    #[must_use]
    pub fn is_lazy(&self) -> bool {
        self.flags & LAZY != 0
    }

    /// The same tensor, writes through which are not counted, or are.
    #[must_use]
    pub fn silent(self, on: bool) -> Self {
        self.flag(SILENT, on)
    }

    /// Counts one change in place.
    #[inline]
    pub fn bump(&self) {
        if self.flags & SILENT == 0 {
            self.storage.bump();
        } else {
            self.storage.written();
        }
    }

    /// How often the tensor's memory was changed in place.
    #[must_use]
    pub fn version(&self) -> u32 {
        if self.flags & SILENT == 0 {
            self.storage.version()
        } else {
            0
        }
    }

    /// True if gradients are wanted.
    #[inline]
    #[must_use]
    pub fn requires_grad(&self) -> bool {
        self.flags & GRAD != 0
    }

    /// True if made as a view of another tensor.
    #[must_use]
    pub fn is_view(&self) -> bool {
        self.flags & VIEW != 0
    }

    /// Makes it a tensor of its own: what a call made, however it was made.
    #[inline]
    pub(crate) fn be_its_own(&mut self) {
        self.flags &= !(VIEW | GRAD | VIEW_OF_LEAF);
        self.mark_as(Mark::None);
    }

    /// True if made under `inference_mode`.
    #[must_use]
    pub fn is_inference(&self) -> bool {
        self.flags & INFERENCE != 0
    }

    #[inline]
    pub(super) fn flag(mut self, bit: u8, on: bool) -> Self {
        self.flags = if on {
            self.flags | bit
        } else {
            self.flags & !bit
        };
        self
    }

    /// The same tensor with the lazy conjugation set as told.
    #[must_use]
    pub fn with_conj(self, on: bool) -> Self {
        self.flag(CONJ, on)
    }

    /// The same tensor with the lazy negation set as told.
    #[must_use]
    pub fn with_neg(self, on: bool) -> Self {
        self.flag(NEG, on)
    }

    /// The same tensor with the inference flag set as told.
    #[inline]
    #[must_use]
    pub fn with_inference(self, on: bool) -> Self {
        self.flag(INFERENCE, on)
    }

    /// True for a view, made while gradients were on, of a leaf that requires them.
    #[must_use]
    pub fn is_view_of_leaf(&self) -> bool {
        self.flags & VIEW_OF_LEAF != 0
    }

    /// True if the Python class of this tensor handles its calls itself (`__torch_dispatch__`).
    #[must_use]
    pub fn is_python(&self) -> bool {
        self.flags & PYTHON != 0
    }

    /// The same tensor with that flag set as told.
    #[must_use]
    pub fn with_python(self, on: bool) -> Self {
        self.flag(PYTHON, on)
    }
}
