//! Factories that are asked for a sparse layout, or for a tensor like a sparse one.

use crate::ops::core::args::{Arg, Args, OwnedArg};
use crate::ops::core::dispatch;
use crate::ops::core::helpers::to_copy;
use crate::ops::core::op::Ret;
use crate::ops::create::factory::check_size;
use crate::ops::f;
use crate::ops::sparse::coo::Coo;
use crate::ops::sparse::pressed::Pressed;
use crate::ops::sparse::{Sparse, is_sparse};
use crate::parts::{Compressed, Layout, located};
use crate::{DType, Device, Dims, Result, Scalar, Tensor, bail, ensure, mode};

/// What a factory is asked for.
struct Wanted {
    /// The size that is named, if it is not that of a tensor.
    size: Option<Dims>,
    layout: Layout,
    dtype: DType,
    device: Device,
}

/// The result of a factory; nothing if the call is none that gives or follows a sparse tensor.
///
/// # Errors
/// If there is no such tensor.
pub(super) fn answer(args: &Args) -> Result<Option<Ret>> {
    let at = |name: &str| args.op.schema.position(name);
    let Some(position) = at("layout") else {
        return Ok(None);
    };
    let asked = match &args.values[position] {
        Arg::Layout(l) => Some(*l),
        _ => None,
    };
    let model = args.tensor(0).ok();
    let layout = asked.unwrap_or_else(|| model.map_or(Layout::Strided, stored));
    if layout == Layout::Strided && !model.is_some_and(is_sparse) {
        return Ok(None);
    }
    let wanted = Wanted {
        size: at("size").map(|i| args.ints(i).cloned()).transpose()?,
        layout,
        dtype: at("dtype")
            .and_then(|i| args.dtype(i))
            .or(model.map(Tensor::dtype))
            .unwrap_or_else(mode::default_dtype),
        device: at("device")
            .and_then(|i| args.device(i))
            .or(model.map(located))
            .unwrap_or_else(mode::default_device),
    };
    let made = match (args.op.def.name, model) {
        (_, Some(t)) if layout == Layout::Strided => {
            return strided(args, t, wanted.size).map(Some);
        }
        ("zeros" | "empty" | "new_zeros" | "new_empty", _) => wanted.empty(args)?,
        ("zeros_like", Some(t)) => wanted.zeros_like(args, t)?,
        ("empty_like" | "ones_like" | "full_like", Some(t)) => wanted.filled_like(args, t)?,
        ("randn_like", Some(t)) if asked.is_none_or(|l| l == stored(t)) => drawn_like(args, t)?,
        _ => return Err(refused(args, layout)),
    };
    Ok(Some(Ret::One(made)))
}

/// An empty tensor in the place of a sparse `out`, for factories that clear it.
///
/// # Errors
/// If there is no such tensor.
pub(super) fn in_place_of(args: &Args, out: &Tensor) -> Result<Option<Ret>> {
    if !matches!(args.op.def.name, "zeros" | "empty") || !is_sparse(out) {
        return Ok(None);
    }
    let wanted = Wanted {
        size: Some(args.ints(0)?.clone()),
        layout: stored(out),
        dtype: out.dtype(),
        device: located(out),
    };
    wanted.empty(args).map(|t| Some(Ret::One(t)))
}

fn stored(t: &Tensor) -> Layout {
    t.storage().parts().map_or(Layout::Strided, |p| p.stored())
}

#[cold]
fn refused(args: &Args, layout: Layout) -> crate::Error {
    match args.op.def.name {
        "full" | "ones" if layout == Layout::Coo => {
            crate::err!(Runtime, "full(...) is not implemented for sparse layout")
        }
        _ => crate::err!(
            NotImplemented,
            "{}() makes no tensors of layout {}; make a strided one and convert it with to_sparse()",
            args.name(),
            layout.name()
        ),
    }
}

/// With the entries of a compressed tensor and values that are drawn.
fn drawn_like(args: &Args, t: &Tensor) -> Result<Tensor> {
    let Some(s @ Sparse::Pressed(_)) = Sparse::of(t) else {
        return Err(refused(args, stored(t)));
    };
    let mut owned = args.to_owned();
    owned.values[0] = OwnedArg::Tensor(s.values().clone());
    if let Some(i) = args.op.schema.position("layout") {
        owned.values[i] = OwnedArg::Plain(Arg::None);
    }
    let values = dispatch::fresh(&owned.borrow())?.one()?;
    s.with_values(values)
}

/// A strided tensor like a sparse one.
fn strided(args: &Args, t: &Tensor, size: Option<Dims>) -> Result<Ret> {
    let layout = stored(t);
    ensure!(
        size.is_some() || layout == Layout::Coo,
        Runtime,
        "empty_like with different sparse layout is not supported (self is {} but you requested Strided)",
        layout.word()
    );
    // What is recorded has a recorded model, so that the result becomes real with it.
    let model = match Sparse::of(t).map(|s| s.values().clone()) {
        Some(v) if v.is_meta() => f::NewEmpty::new(&v, t.shape()).call()?,
        _ => Tensor::hollow(
            t.shape().clone(),
            crate::dims::contiguous_strides(t.shape()),
            0,
            t.dtype(),
        ),
    };
    let mut owned = args.to_owned();
    owned.values[0] = OwnedArg::Tensor(model);
    let device = args.op.schema.position("device");
    if let Some(i) = device.filter(|&i| args.device(i).is_none()) {
        owned.values[i] = OwnedArg::Plain(Arg::Device(located(t)));
    }
    dispatch::fresh(&owned.borrow())
}

impl Wanted {
    fn room(&self, shape: &[i64], dtype: DType) -> Result<Tensor> {
        crate::wiring::zeros(shape, dtype, self.device)
    }

    /// By coordinates, without any.
    fn coo(&self, size: &Dims, sparse: usize) -> Result<Tensor> {
        check_size(size)?;
        let shape = Dims::new(&[0]).concat(&size[sparse..]);
        Coo {
            indices: self.room(&[sparse as i64, 0], DType::I64)?,
            values: self.room(&shape, self.dtype)?,
            shape: size.clone(),
            coalesced: true,
        }
        .build()
    }

    /// Compressed, without entries; the last `dense` dimensions stay dense.
    fn pressed(
        &self,
        size: &Dims,
        kind: Compressed,
        block: Option<[i64; 2]>,
        dense: usize,
    ) -> Result<Tensor> {
        let Some(batch) = size.len().checked_sub(dense + 2) else {
            bail!(
                Runtime,
                "sparse_compressed_tensor_with_dims: dimensionality must be at least dense_dim(={dense}) + sparse_dim(=2), \
                 but got {}",
                size.len()
            );
        };
        let line = if kind.rows() { batch } else { batch + 1 };
        let [r, c] = block.unwrap_or([1, 1]);
        let lines = size[line] / if kind.rows() { r } else { c };
        let lead = Dims::new(&size[..batch]);
        let none = lead.concat(&[0]);
        let blocks: &[i64] = if block.is_some() { &[r, c] } else { &[] };
        Pressed {
            kind,
            compressed: self.room(&lead.concat(&[lines + 1]), DType::I64)?,
            plain: self.room(&none, DType::I64)?,
            values: self.room(&none.concat(blocks).concat(&size[batch + 2..]), self.dtype)?,
            shape: size.clone(),
        }
        .build()
    }

    /// Of a size, without entries.
    fn empty(&self, args: &Args) -> Result<Tensor> {
        let name = args.name().trim_start_matches("new_");
        let Some(size) = &self.size else {
            return Err(refused(args, self.layout));
        };
        check_size(size)?;
        match self.layout {
            Layout::Compressed(kind) => {
                ensure!(
                    size.len() >= 2,
                    Runtime,
                    "torch.{name}: Only batched sparse compressed (non-block) tensors are supported, but got size {size}"
                );
                ensure!(
                    !kind.blocks(),
                    Runtime,
                    "{name}_sparse_compressed expected sparse compressed (non-block) tensor layout but got {}",
                    self.layout.word()
                );
                self.pressed(size, kind, None, 0)
            }
            _ => self.coo(size, size.len()),
        }
    }

    /// Without entries, with the same dimensions dense as of a sparse tensor.
    fn zeros_like(&self, args: &Args, t: &Tensor) -> Result<Tensor> {
        let like = Sparse::of(t);
        if !matches!(like, Some(Sparse::Pressed(_))) {
            unformatted(args)?;
        }
        let (dense, block) = match &like {
            Some(Sparse::Coo(c)) => (t.ndim() - c.sparse_dims(), None),
            Some(Sparse::Pressed(p)) => (t.ndim() - p.batch() - 2, p.block()),
            None => (0, None),
        };
        match self.layout {
            Layout::Compressed(kind) => {
                ensure!(
                    block.is_some() || !kind.blocks(),
                    Runtime,
                    "sparse_compressed_tensor_with_dims: blocksize needs to be a tuple of size 2, but got 0"
                );
                self.pressed(t.shape(), kind, block.filter(|_| kind.blocks()), dense)
            }
            _ => self.coo(t.shape(), t.ndim() - dense),
        }
    }

    /// With the entries of a compressed tensor, but other values; by coordinates there are none.
    fn filled_like(&self, args: &Args, t: &Tensor) -> Result<Tensor> {
        let number = match args.op.def.name {
            "empty_like" => None,
            "full_like" => Some(args.scalar(1)?),
            _ => Some(Scalar::Int(1)),
        };
        match (Sparse::of(t), number) {
            (Some(Sparse::Coo(_)), None) if self.layout == Layout::Coo => self.zeros_like(args, t),
            (Some(Sparse::Pressed(p)), number) => {
                let layout = Layout::Compressed(p.kind);
                ensure!(
                    layout == self.layout,
                    Runtime,
                    "empty_like with different sparse layout is not supported (self is {} but you requested {})",
                    layout.word(),
                    self.layout.word()
                );
                let moved = |part: &Tensor| to_copy(part, part.dtype(), self.device);
                let (dtype, device) = (self.dtype, self.device);
                let values = match number {
                    Some(n) => f::FullLike::new(&p.values, n)
                        .dtype(dtype)
                        .device(device)
                        .call()?,
                    None => f::EmptyLike::new(&p.values)
                        .dtype(dtype)
                        .device(device)
                        .call()?,
                };
                Pressed {
                    compressed: moved(&p.compressed)?,
                    plain: moved(&p.plain)?,
                    values,
                    ..p
                }
                .build()
            }
            _ => Err(refused(args, self.layout)),
        }
    }
}

/// Refuses a memory format, which is for strided tensors.
fn unformatted(args: &Args) -> Result<()> {
    let format = args
        .op
        .schema
        .position("memory_format")
        .and_then(|i| args.format(i));
    ensure!(
        format.is_none(),
        Runtime,
        "memory format option is only supported by strided tensors"
    );
    Ok(())
}
