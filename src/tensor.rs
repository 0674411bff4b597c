//! A tensor: a storage seen through a shape, strides, an offset and a dtype. All but the storage is plain data.

mod carrier;
pub(crate) mod family;
mod flags;
pub(crate) mod hooks;
pub(crate) mod link;
pub(crate) mod node;
mod overlap;
pub(crate) mod place;

pub use carrier::{BatchDim, Tangent};
pub use family::{Bare, Families, Family, Layout, Mark};
pub use hooks::{Hook, Rare, When};
pub use link::{Keeper, Kind, Leaf, Link, Place, WeakPlace};
pub use node::{Backward, Edge, Edges, Grads, Meta, Node, briefly, fully};
pub use overlap::Overlap;

use crate::dims::{self, Dims, MemoryFormat};
use crate::plan::ViewPlan;
use crate::{DType, Device, Result, Storage, bail, mode};

/// A view of a storage.
#[derive(Clone)]
pub struct Tensor {
    storage: Storage,
    shape: Dims,
    strides: Dims,
    offset: i64,
    dtype: DType,
    flags: u8,
    /// Which of its node's results it is.
    nr: u16,
    /// Which family of its storage it belongs to: 0, or the number of a `detach`; the highest bits are its [`Mark`], and below
    /// these is its number among tensors that lie alike.
    group: u32,
    /// Its place in the history of gradients; views and results start without.
    link: Option<Place>,
}

const CONJ: u8 = 1;
const NEG: u8 = 2;
/// A gradient is wanted.
pub(crate) const GRAD: u8 = 4;
/// It was made as a view of another tensor.
pub(crate) const VIEW: u8 = 8;
pub(crate) const INFERENCE: u8 = 16;
/// A view, made while gradients were on, of a leaf that requires them.
pub(crate) const VIEW_OF_LEAF: u8 = 32;
/// The Python class of this tensor handles its calls itself.
const PYTHON: u8 = 64;

/// Writes through it are not counted: what `.data` gives.
const SILENT: u8 = 128;

/// Flags that a layer always wants to see.
pub(crate) const WATCHED: u8 = PYTHON;
/// Flags of a view whose elements are changed when they are read.
pub(crate) const LAZY: u8 = CONJ | NEG;

impl Tensor {
    /// A tensor over a storage, unchecked: for this file alone, which has proved that the layout lies within the storage.
    #[inline]
    fn from_parts(storage: Storage, shape: Dims, strides: Dims, offset: i64, dtype: DType) -> Self {
        Self {
            storage,
            shape,
            strides,
            offset,
            dtype,
            flags: 0,
            nr: 0,
            group: 0,
            link: None,
        }
    }

    /// A tensor over a storage, checked to lie within it.
    ///
    /// # Errors
    /// PyTorch's `setStorage` text if the layout reaches outside, or its text for negative values.
    pub fn checked(
        storage: Storage,
        shape: Dims,
        strides: Dims,
        offset: i64,
        dtype: DType,
    ) -> Result<Self> {
        if shape.len() != strides.len() {
            bail!(Runtime, "mismatch in length of strides and shape");
        }
        if strides.iter().any(|&s| s < 0) {
            bail!(
                Runtime,
                "as_strided: Negative strides are not supported at the moment, got strides: {strides}"
            );
        }
        if shape.iter().any(|&d| d < 0) {
            bail!(
                Runtime,
                "Storage size calculation overflowed with sizes={shape} and strides={strides}"
            );
        }
        if offset < 0 {
            bail!(Runtime, "Tensor: invalid storage offset {offset}");
        }
        let need = dims::storage_bytes(&shape, &strides, offset, dtype.size())?;
        if need > storage.nbytes() {
            bail!(
                Runtime,
                "setStorage: sizes {shape}, strides {strides}, storage offset {offset}, and itemsize {} requiring a storage \
                 size of {need} are out of bounds for storage of size {}",
                dtype.size(),
                storage.nbytes()
            );
        }
        Ok(Self::from_parts(storage, shape, strides, offset, dtype))
    }

    /// All bytes of a storage.
    #[must_use]
    pub fn bytes_of(storage: &Storage) -> Self {
        let n = storage.nbytes() as i64;
        Self::from_parts(storage.clone(), [n].into(), [1].into(), 0, DType::U8)
    }

    /// A layout without memory behind it, whatever its size: for what is more than strided numbers, and for places in
    /// records.
    #[must_use]
    pub(crate) fn hollow(shape: Dims, strides: Dims, offset: i64, dtype: DType) -> Self {
        Self::from_parts(Storage::meta(0), shape, strides, offset, dtype)
    }

    /// An uninitialised row-major tensor.
    ///
    /// # Errors
    /// If the size overflows, a dimension is negative, or memory cannot be had.
    pub fn empty(shape: &[i64], dtype: DType, device: Device) -> Result<Self> {
        Self::empty_strided(
            Dims::new(shape),
            dims::contiguous_strides(shape),
            dtype,
            device,
        )
    }

    /// An uninitialised tensor with these strides.
    ///
    /// # Errors
    /// As [`Tensor::empty`].
    #[inline]
    pub fn empty_strided(shape: Dims, strides: Dims, dtype: DType, device: Device) -> Result<Self> {
        Self::laid(shape, strides, dtype, |nbytes| {
            Storage::empty(nbytes, device)
        })
    }

    /// A tensor that lies so on a storage, which is made for as many bytes as it needs.
    ///
    /// # Errors
    /// If a size is negative, they are too large, or the storage cannot be made.
    #[inline]
    pub(crate) fn laid(
        shape: Dims,
        strides: Dims,
        dtype: DType,
        storage: impl FnOnce(usize) -> Result<Storage>,
    ) -> Result<Self> {
        if let Some(&d) = shape.iter().find(|&&d| d < 0) {
            bail!(
                Runtime,
                "Trying to create tensor with negative dimension {d}: {shape}"
            );
        }
        if dtype == DType::C32 {
            crate::warn_once!(
                "ComplexHalf support is experimental and many operators don't support it yet."
            );
        }
        let nbytes = dims::storage_bytes(&shape, &strides, 0, dtype.size())?;
        Ok(Self::from_parts(storage(nbytes)?, shape, strides, 0, dtype))
    }

    /// The sizes.
    #[inline]
    #[must_use]
    pub fn shape(&self) -> &Dims {
        &self.shape
    }

    /// The strides, in elements.
    #[inline]
    #[must_use]
    pub fn strides(&self) -> &Dims {
        &self.strides
    }

    /// The position of the first element in the storage, in elements.
    #[inline]
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// The element type.
    #[inline]
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shared storage.
    #[inline]
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Where the data is.
    #[inline]
    #[must_use]
    pub fn device(&self) -> Device {
        self.storage.device()
    }

    /// True on the meta device.
    #[inline]
    #[must_use]
    pub fn is_meta(&self) -> bool {
        self.device().is_meta()
    }

    /// The number of dimensions.
    #[inline]
    #[must_use]
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements.
    #[inline]
    #[must_use]
    pub fn numel(&self) -> i64 {
        self.shape.iter().product()
    }

    /// The size of dimension `dim`, counted from the end if negative.
    ///
    /// # Errors
    /// If there is no such dimension.
    pub fn size(&self, dim: i64) -> Result<i64> {
        if self.ndim() == 0 {
            bail!(
                Index,
                "Dimension specified as {dim} but tensor has no dimensions"
            );
        }
        Ok(self.shape[dims::wrap_dim(dim, self.ndim())?])
    }

    /// The address of the first element, null on meta.
    #[inline]
    #[must_use]
    pub fn data_ptr(&self) -> *mut u8 {
        let base = self.storage.ptr();
        if base.is_null() {
            base
        } else {
            base.wrapping_offset(self.offset as isize * self.dtype.size() as isize)
        }
    }

    /// True if row-major without gaps.
    #[inline]
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        dims::is_contiguous(&self.shape, &self.strides)
    }

    /// True if dense in the given format.
    #[must_use]
    pub fn is_contiguous_in(&self, format: MemoryFormat) -> bool {
        match format {
            MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d => {
                dims::is_channels_last(&self.shape, &self.strides, format)
            }
            _ => self.is_contiguous(),
        }
    }

    /// All flags that the door looks at, in the places that [`crate::mode`] names.
    #[inline]
    #[must_use]
    pub(crate) fn glance(&self) -> u32 {
        let dtype = if self.dtype.is_quantized() {
            mode::QUANTIZED
        } else {
            0
        };
        u32::from(self.flags) << mode::TENSOR_FLAGS
            | u32::from(self.storage.flags()) << mode::STORAGE_FLAGS
            | dtype
    }

    /// True if nothing but memory goes with the tensor: it keeps no other owner, source or gradient alive, or not alone.
    #[inline]
    #[must_use]
    pub fn owns_only_memory(&self) -> bool {
        let others_too = |l: &Place| Place::holders(l) > 1;
        (self.link.as_ref()).is_none_or(|l| others_too(l) || l.is_bare_leaf())
            && self.storage.owns_only_memory()
    }

    /// The view that a plan describes; the caller has checked that it lies within the storage.
    #[inline]
    #[must_use]
    pub(crate) fn look(&self, plan: &ViewPlan) -> Self {
        let mut view = self.raw_view(plan);
        if plan.detached {
            view.flags &= !VIEW;
            view.group = family::new_group();
        } else if self.flags & INFERENCE != 0 {
            // Nobody follows what is made of these.
            view.flags &= !VIEW;
        } else if mode::records() {
            view.flags |= self.note_view();
        } else {
            if mode::layers() & mode::FORWARD != 0 {
                // A tangent that is written into the view is one of what it shows.
                self.note_viewed();
            }
            view.flags |= self.apart(plan.dtype);
            view.group = self.marked_apart();
            view.nr = self.storage.version() as u16;
        }
        view
    }

    /// As [`Tensor::look`], for kernels: memory that lies otherwise, of which the storage notes nothing and which has no history.
    #[inline]
    #[must_use]
    pub(crate) fn raw_view(&self, plan: &ViewPlan) -> Self {
        let mut flags = self.flags & (INFERENCE | SILENT) | VIEW;
        if plan.conj {
            flags |= CONJ;
        }
        if plan.neg {
            flags |= NEG;
        }
        Self {
            storage: self.storage.clone(),
            shape: plan.shape.clone(),
            strides: plan.strides.clone(),
            offset: plan.offset,
            dtype: plan.dtype,
            flags,
            nr: 0,
            group: self.group_of_view(),
            link: None,
        }
    }

    /// Notes that a view is made, if this is none itself.
    #[inline]
    fn note_viewed(&self) {
        if self.flags & VIEW == 0 && (self.group() != 0 || !self.storage.has_families()) {
            self.lay();
        }
    }

    /// Notes that a view is made while gradients are on; gives the flags that it has by that.
    #[inline]
    fn note_view(&self) -> u8 {
        self.note_viewed();
        if self.flags & (GRAD | VIEW_OF_LEAF) == 0 {
            return 0;
        }
        let of_leaf = self.flags & GRAD != 0 && self.is_leaf();
        if of_leaf {
            VIEW_OF_LEAF
        } else {
            self.flags & VIEW_OF_LEAF
        }
    }

    /// The same layout on a storage that stands for this one's: a view if this is one, without its history.
    #[must_use]
    pub(crate) fn on_twin(&self, storage: Storage) -> Self {
        let (shape, strides) = (self.shape.clone(), self.strides.clone());
        let mut twin = Self::from_parts(storage, shape, strides, self.offset, self.dtype);
        twin.flags = self.flags & (LAZY | INFERENCE | VIEW);
        twin
    }

    /// True if both are the same elements of one storage, of one dtype and in one order.
    #[must_use]
    pub fn lies_as(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || self.shares_storage(other)
                && self.offset == other.offset
                && self.dtype == other.dtype
                && self.shape() == other.shape()
                && self.strides() == other.strides()
    }

    /// This view as what `base` becomes by an in-place operator: what `base` is apart from its layout stays.
    #[must_use]
    pub(crate) fn in_place_of(mut self, base: &Self) -> Self {
        self.flags = self.flags & LAZY | base.flags & !LAZY;
        self.nr = base.nr;
        self.link.clone_from(&base.link);
        if self.group() == base.group() {
            // The mark: where it is made anew says nothing about the view.
            self.group = base.group;
        }
        self.numbered_alike(base.nr_alike())
    }

    /// Another shape on the same storage, all else kept; the caller has made the storage large enough.
    #[must_use]
    pub(crate) fn laid_out(&self, shape: Dims, strides: Dims) -> Self {
        Self {
            shape,
            strides,
            ..self.clone()
        }
    }

    /// Checks that the tensor lies within its storage, which may have shrunk since it was made.
    ///
    /// # Errors
    /// PyTorch's `setStorage` text if it does not.
    pub fn check_inside(&self) -> Result<()> {
        let need = dims::storage_bytes(&self.shape, &self.strides, self.offset, self.dtype.size())?;
        if need > self.storage.nbytes() && !self.storage.is_opaque() {
            bail!(
                Runtime,
                "setStorage: sizes {}, strides {}, storage offset {}, and itemsize {} requiring a storage size of {need} are out \
                 of bounds for storage of size {}",
                self.shape,
                self.strides,
                self.offset,
                self.dtype.size(),
                self.storage.nbytes()
            );
        }
        Ok(())
    }

    /// True for sparse and quantised tensors, which are more than strided numbers.
    #[inline]
    #[must_use]
    pub fn has_parts(&self) -> bool {
        self.storage.is_opaque() || self.dtype.is_quantized()
    }

    /// Broadcast strides for reading with shape `to`.
    #[inline]
    #[must_use]
    pub fn strides_for(&self, to: &[i64]) -> Dims {
        dims::broadcast_strides(&self.shape, &self.strides, to)
    }

    /// True if the tensors' storages are one.
    #[must_use]
    pub fn shares_storage(&self, other: &Self) -> bool {
        self.storage.same(&other.storage)
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Tensor({} {} on {})",
            self.dtype,
            self.shape,
            self.device()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_moved_without_memcpy() {
        assert!(size_of::<Tensor>() <= 128);
    }

    #[test]
    fn a_gradient_belongs_to_one_tensor() {
        let t = Tensor::empty(&[2], DType::F32, Device::META).unwrap();
        let t = t.clone().with_grad(Some(std::sync::Arc::new(t)));
        assert_eq!(*t.grad().unwrap().shape(), Dims::from([2]));
        assert!(t.look(&ViewPlan::of(&t)).grad().is_none());
        assert!(t.with_grad(None).grad().is_none());
    }
}
