//! Work for a device beside the host, as data: the text of a kernel, what it is compiled for, and its arguments.
//!
//! A launcher in this folder makes a [`Job`] of tensors and numbers; the accelerator compiles the text once for each head, and
//! starts it. Texts are in `cuda/kernels`, after `machine.cuh`, `common.cuh` and `tools.cuh`.

use crate::{DType, Result, Tensor, err};
use smallvec::SmallVec;
use std::ffi::c_void;
use std::fmt::{Display, Write as _};

/// Threads of a block, everywhere.
pub const BLOCK: i64 = 256;

/// Dimensions of a [`View`], at most.
const DIMS: usize = 8;

/// The device's name of a dtype in memory; none if its kernels do not know it.
#[must_use]
pub fn storage_type(d: DType) -> Option<&'static str> {
    use DType::*;
    Some(match d {
        Bool => "bool",
        U8 => "u8",
        I8 => "i8",
        I16 => "i16",
        I32 => "i32",
        I64 => "i64",
        U16 => "u16",
        U32 => "u32",
        U64 => "u64",
        F16 => "f16",
        BF16 => "bf16",
        F32 => "float",
        F64 => "double",
        C32 => "ch",
        C64 => "cf",
        C128 => "cd",
        _ => return None,
    })
}

/// The dtype in which a device computes another.
#[must_use]
pub fn computed(d: DType) -> DType {
    match d {
        DType::F16 | DType::BF16 => DType::F32,
        DType::C32 => DType::C64,
        d => d,
    }
}

/// A kernel's file and the kernel in it.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The text of the file.
    pub file: &'static str,
    /// The name of the kernel.
    pub name: &'static str,
}

/// Where the elements of a tensor are, in row-major order.
#[derive(Clone, Copy, Debug)]
pub struct View {
    ptr: u64,
    dims: usize,
    shape: [i64; DIMS],
    strides: [i64; DIMS],
}

impl View {
    /// A tensor's own layout.
    ///
    /// # Errors
    /// If it has too many dimensions.
    pub fn of(t: &Tensor) -> Result<Self> {
        Self::with(t, t.shape(), t.strides())
    }

    /// Another layout from a tensor's first element on; neighbouring dimensions that continue each other are joined.
    ///
    /// # Errors
    /// If it has too many dimensions.
    pub fn with(t: &Tensor, shape: &[i64], strides: &[i64]) -> Result<Self> {
        Self::after(t, 0, shape, strides)
    }

    /// As [`View::with`], from an element on.
    ///
    /// # Errors
    /// If it has too many dimensions.
    pub fn after(t: &Tensor, first: i64, shape: &[i64], strides: &[i64]) -> Result<Self> {
        let start =
            (t.data_ptr() as usize as u64).wrapping_add_signed(first * t.dtype().size() as i64);
        let mut v = Self {
            ptr: start,
            dims: 0,
            shape: [1; DIMS],
            strides: [0; DIMS],
        };
        for (&size, &step) in shape.iter().zip(strides) {
            if size == 1 {
                continue;
            }
            if v.dims > 0 && v.strides[v.dims - 1] == step * size {
                (v.shape[v.dims - 1], v.strides[v.dims - 1]) = (v.shape[v.dims - 1] * size, step);
                continue;
            }
            if v.dims == DIMS {
                return Err(err!(
                    NotImplemented,
                    "CUDA kernels take tensors of up to {DIMS} dimensions"
                ));
            }
            (v.shape[v.dims], v.strides[v.dims]) = (size, step);
            v.dims += 1;
        }
        Ok(v)
    }
}

/// A kernel with its head and arguments.
#[derive(Debug)]
pub struct Job {
    /// What runs.
    pub kernel: Kernel,
    /// Type names and definitions that come before the file's text.
    pub head: String,
    /// The arguments in 8-byte words, and where each begins.
    words: SmallVec<[u64; 64]>,
    starts: SmallVec<[usize; 16]>,
    flags: SmallVec<[usize; 1]>,
    known: bool,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory of a block, beside what its text declares.
    pub shared: u32,
}

impl Job {
    /// A kernel of a file.
    #[must_use]
    pub fn new(kernel: Kernel) -> Self {
        Self {
            kernel,
            head: String::new(),
            words: SmallVec::new(),
            starts: SmallVec::new(),
            flags: SmallVec::new(),
            known: true,
            threads: BLOCK as u32,
            shared: 0,
        }
    }

    /// With a name for a dtype in memory; the name with `V` after it is what it is computed in.
    #[must_use]
    pub fn ty(mut self, name: &str, d: DType) -> Self {
        match (storage_type(d), storage_type(computed(d))) {
            (Some(memory), Some(value)) => {
                let _ = writeln!(
                    self.head,
                    "typedef {memory} {name};\ntypedef {value} {name}V;"
                );
            }
            _ => self.known = false,
        }
        self
    }

    /// With a definition.
    #[must_use]
    pub fn define(mut self, name: &str, value: impl Display) -> Self {
        let _ = writeln!(self.head, "#define {name} {value}");
        self
    }

    /// With another number of threads in a block.
    #[must_use]
    pub fn threads(mut self, n: u32) -> Self {
        self.threads = n;
        self
    }

    /// With so many bytes of shared memory.
    #[must_use]
    pub fn shared(mut self, bytes: i64) -> Self {
        self.shared = bytes as u32;
        self
    }

    /// With a tensor's address.
    #[must_use]
    pub fn at(self, t: &Tensor) -> Self {
        self.word(t.data_ptr() as usize as u64)
    }

    /// With the address of a tensor that may be absent.
    #[must_use]
    pub fn maybe(self, t: Option<&Tensor>) -> Self {
        self.word(t.map_or(0, |t| t.data_ptr() as usize as u64))
    }

    /// With a whole number.
    #[must_use]
    pub fn int(self, i: i64) -> Self {
        self.word(i as u64)
    }

    /// With a number in double precision.
    #[must_use]
    pub fn real(self, f: f64) -> Self {
        self.word(f.to_bits())
    }

    fn word(mut self, w: u64) -> Self {
        self.starts.push(self.words.len());
        self.words.push(w);
        self
    }

    /// With a layout.
    #[must_use]
    pub fn view(mut self, v: &View) -> Self {
        self.starts.push(self.words.len());
        self.push(v);
        self
    }

    fn push(&mut self, v: &View) {
        self.words.push(v.ptr);
        self.words.push(v.dims as u64);
        self.words.extend(v.shape.iter().map(|&s| s as u64));
        self.words.extend(v.strides.iter().map(|&s| s as u64));
    }

    /// With layouts and whole numbers, as one structure.
    #[must_use]
    pub fn group(
        mut self,
        views: impl IntoIterator<Item = View>,
        numbers: impl IntoIterator<Item = i64>,
    ) -> Self {
        self.starts.push(self.words.len());
        views.into_iter().for_each(|v| self.push(&v));
        self.words.extend(numbers.into_iter().map(|i| i as u64));
        self
    }

    /// With the layout of a tensor.
    ///
    /// # Errors
    /// If it has too many dimensions.
    pub fn tensor(self, t: &Tensor) -> Result<Self> {
        Ok(self.view(&View::of(t)?))
    }

    /// With the address of the word that says to the host that an index was out of bounds.
    #[must_use]
    pub fn flag(mut self) -> Self {
        self.flags.push(self.words.len());
        self.word(0)
    }

    /// The arguments, each at its own address; `flag` is that of the word that kernels set.
    pub fn arguments(&mut self, flag: u64) -> SmallVec<[*mut c_void; 16]> {
        let words = &mut self.words[..];
        self.flags.iter().for_each(|&i| words[i] = flag);
        self.starts
            .iter()
            .map(|&i| std::ptr::from_mut(&mut words[i]).cast())
            .collect()
    }

    /// Runs one thread for each of `n` elements, at the device where `there` lies.
    ///
    /// # Errors
    /// If the kernel cannot be had, or a dtype is unknown to devices.
    pub fn each(self, there: &Tensor, n: i64) -> Result<()> {
        self.blocks(there, (n + BLOCK - 1) / BLOCK)
    }

    /// Runs so many blocks, at the device where `there` lies.
    ///
    /// # Errors
    /// As [`Job::each`].
    pub fn blocks(mut self, there: &Tensor, blocks: i64) -> Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        if !self.known {
            return Err(err!(
                NotImplemented,
                "no CUDA kernel for dtype '{}'",
                there.dtype().scalar_type()
            ));
        }
        let blocks = u32::try_from(blocks).ok().filter(|&b| b < 1 << 31);
        let blocks = blocks.ok_or_else(|| err!(Runtime, "too many elements for one launch"))?;
        super::accelerator()?.start(&mut self, there.device(), blocks)
    }
}
