//! GGUF: a header of typed values, a list of tensors, and their data.

use super::ggml::Kind;
use super::mmap::Bytes;
use super::tree::{Coding, Data, Object, StorageRef, TensorRef, Tree};
use super::{Contents, Format};
use crate::{DType, Result, bail, ensure, err};
use std::collections::HashSet;
use std::fmt::Write;
use std::sync::Arc;

/// Dimensions of one tensor; ggml has four.
const MAX_DIMS: u32 = 8;
/// Items of an array that are shown; vocabularies have a hundred thousand.
const SHOWN: u64 = 16;
/// Bytes of a name or key.
const MAX_NAME: u64 = 65_535;

/// True for a GGUF file.
pub(super) fn looks_like(b: &[u8]) -> bool {
    b.starts_with(b"GGUF")
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    big: bool,
    /// Version 1 counted in 32 bits.
    narrow: bool,
}

macro_rules! numbers {
    ($($name:ident $type:ty;)+) => {
        $(fn $name(&mut self) -> Result<$type> {
            let bytes = self.array()?;
            Ok(if self.big { <$type>::from_be_bytes(bytes) } else { <$type>::from_le_bytes(bytes) })
        })+
    };
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: u64) -> Result<&'a [u8]> {
        let end = usize::try_from(n)
            .ok()
            .and_then(|n| self.at.checked_add(n))
            .filter(|&end| end <= self.bytes.len());
        let end = end.ok_or_else(|| {
            err!(
                Checkpoint,
                "GGUF: {n} bytes are due at offset {} and {} are left: the file is truncated, fetch it again",
                self.at,
                self.bytes.len() - self.at
            )
        })?;
        let found = &self.bytes[self.at..end];
        self.at = end;
        Ok(found)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64)?);
        Ok(out)
    }

    numbers! { u16 u16; u32 u32; u64 u64; i16 i16; i32 i32; i64 i64; f32 f32; f64 f64; }

    fn count(&mut self) -> Result<u64> {
        if self.narrow {
            self.u32().map(u64::from)
        } else {
            self.u64()
        }
    }

    fn text(&mut self, limit: u64) -> Result<&'a str> {
        let at = self.at;
        let n = self.count()?;
        ensure!(
            n <= limit,
            Checkpoint,
            "GGUF: a text of {n} bytes at offset {at}"
        );
        std::str::from_utf8(self.take(n)?)
            .map_err(|_| err!(Checkpoint, "GGUF: a text that is not UTF-8 at offset {at}"))
    }

    /// Adds a value as JSON to `out`; long arrays by their length only.
    fn value(&mut self, kind: u32, depth: u32, out: &mut String) -> Result<()> {
        let _ = match kind {
            0 => write!(out, "{}", self.array::<1>()?[0]),
            1 => write!(out, "{}", self.array::<1>()?[0] as i8),
            2 => write!(out, "{}", self.u16()?),
            3 => write!(out, "{}", self.i16()?),
            4 => write!(out, "{}", self.u32()?),
            5 => write!(out, "{}", self.i32()?),
            6 => write!(out, "{}", self.f32()?),
            7 => match self.array::<1>()?[0] {
                0 => write!(out, "false"),
                1 => write!(out, "true"),
                other => bail!(Checkpoint, "GGUF: a truth value of {other}"),
            },
            8 => {
                let text = self.text(u64::MAX)?;
                if depth == 0 {
                    write!(out, "{text}")
                } else {
                    write!(out, "{}", serde_json::Value::from(text))
                }
            }
            9 => {
                self.values(depth, out)?;
                Ok(())
            }
            10 => write!(out, "{}", self.u64()?),
            11 => write!(out, "{}", self.i64()?),
            12 => write!(out, "{}", self.f64()?),
            other => bail!(
                Checkpoint,
                "GGUF: a value of the unknown type {other} at offset {}",
                self.at
            ),
        };
        Ok(())
    }

    /// An array of values.
    fn values(&mut self, depth: u32, out: &mut String) -> Result<()> {
        ensure!(depth < 4, Checkpoint, "GGUF: arrays nested too deep");
        let (inner, n) = (self.u32()?, self.count()?);
        ensure!(
            n <= (self.bytes.len() - self.at) as u64,
            Checkpoint,
            "GGUF: an array of {n} values is longer than the file"
        );
        out.push('[');
        let mut unused = String::new();
        for i in 0..n {
            if n > SHOWN {
                unused.clear();
                self.value(inner, depth + 1, &mut unused)?;
                continue;
            }
            if i > 0 {
                out.push_str(", ");
            }
            self.value(inner, depth + 1, out)?;
        }
        if n > SHOWN {
            let _ = write!(out, "{n} values");
        }
        out.push(']');
        Ok(())
    }
}

/// What the header says of a tensor.
struct Listed<'a> {
    name: &'a str,
    shape: Vec<i64>,
    kind: u32,
    offset: u64,
}

impl<'a> Reader<'a> {
    /// A reader after the version, whose order of bytes and width of counts it knows.
    fn start(bytes: &'a [u8]) -> Result<Self> {
        let mut r = Reader {
            bytes,
            at: 4,
            big: false,
            narrow: false,
        };
        let mut version = r.u32()?;
        if version > 0xFFFF {
            (r.big, version) = (true, version.swap_bytes());
        }
        ensure!(
            (1..=3).contains(&version),
            Checkpoint,
            "GGUF: version {version}; 1 to 3 are known"
        );
        r.narrow = version == 1;
        Ok(r)
    }

    /// The metadata as texts, and the alignment of the data.
    fn metadata(&mut self, values: u64) -> Result<(Vec<(String, String)>, u64)> {
        let (mut metadata, mut alignment) = (Vec::new(), 32u64);
        for _ in 0..values {
            let key = self.text(MAX_NAME)?;
            let kind = self.u32()?;
            let mut text = String::new();
            self.value(kind, 0, &mut text)?;
            if key == "general.alignment" {
                let said = text.parse().ok();
                alignment = said
                    .filter(|a: &u64| a.is_power_of_two() && *a <= 1 << 20)
                    .ok_or_else(|| err!(Checkpoint, "GGUF: an alignment of {text:.32}"))?;
            }
            metadata.push((key.to_owned(), text));
        }
        Ok((metadata, alignment))
    }

    fn listed(&mut self) -> Result<Listed<'a>> {
        let name = self.text(MAX_NAME)?;
        let n = self.u32()?;
        ensure!(
            n <= MAX_DIMS,
            Checkpoint,
            "GGUF: tensor '{name:.200}' has {n} dimensions"
        );
        let impossible = |_| {
            err!(
                Checkpoint,
                "GGUF: a size of tensor '{name:.200}' is impossible"
            )
        };
        let mut shape = Vec::new();
        for _ in 0..n {
            shape.push(i64::try_from(self.count()?).map_err(impossible)?);
        }
        // The fastest dimension comes first in the file.
        shape.reverse();
        Ok(Listed {
            name,
            shape,
            kind: self.u32()?,
            offset: self.u64()?,
        })
    }
}

/// Reads the header of a GGUF file and proves it.
pub(super) fn open(bytes: &Bytes) -> Result<Contents> {
    let mut r = Reader::start(bytes)?;
    let (tensors, values) = (r.count()?, r.count()?);
    let left = (bytes.len() - r.at) as u64;
    ensure!(
        tensors <= left / 24 && values <= left / 9,
        Checkpoint,
        "GGUF: {tensors} tensors and {values} values are more than the file can hold"
    );
    let (metadata, alignment) = r.metadata(values)?;
    let (mut list, mut names) = (Vec::new(), HashSet::new());
    for _ in 0..tensors {
        let listed = r.listed()?;
        ensure!(
            names.insert(listed.name),
            Checkpoint,
            "GGUF: tensor '{:.200}' comes twice",
            listed.name
        );
        list.push(listed);
    }
    let start = (r.at as u64).div_ceil(alignment) * alignment;
    Ok(Contents {
        format: Format::Gguf,
        tree: tree(list, start, bytes.len() as u64, r.big)?,
        big_endian: r.big,
        metadata,
    })
}

/// The dictionary of the tensors, whose data begin at `start` and lie apart from each other.
fn tree(list: Vec<Listed>, start: u64, len: u64, big: bool) -> Result<Tree> {
    let (mut tree, mut pairs, mut ranges) = (Tree::new(), Vec::new(), Vec::new());
    let location: Arc<str> = Arc::from("cpu");
    for Listed {
        name,
        shape,
        kind,
        offset,
    } in list
    {
        let (tensor, storage) = one(name, &shape, kind, offset, start, big, &location)?;
        let (Data::Stored { offset } | Data::Coded { offset, .. }) = storage.data else {
            bail!(Checkpoint, "GGUF: a tensor without data")
        };
        let end = offset.checked_add(storage.file_bytes());
        let end = end.filter(|&end| end <= len).ok_or_else(|| {
            err!(
                Checkpoint,
                "GGUF: tensor '{name:.200}' reaches beyond the end of the file: it is truncated, fetch it again"
            )
        })?;
        ranges.push((offset, end));
        let storage = tree.push_storage(storage);
        let key = tree.push_str(name);
        pairs.push((key, tree.push_tensor(TensorRef { storage, ..tensor })));
    }
    ranges.sort_unstable();
    let apart = |w: &[(u64, u64)]| w[0].1 <= w[1].0 || w[0].0 == w[0].1;
    ensure!(
        ranges.windows(2).all(apart),
        Checkpoint,
        "GGUF: the data of two tensors overlap"
    );
    ensure!(!tree.overflow, Checkpoint, "GGUF: the names are too long");
    tree.root = tree.push_dict(Object::Dict, pairs);
    Ok(tree)
}

fn one(
    name: &str,
    shape: &[i64],
    kind: u32,
    offset: u64,
    start: u64,
    big: bool,
    location: &Arc<str>,
) -> Result<(TensorRef, StorageRef)> {
    let bad = |what: &str| err!(Checkpoint, "GGUF: tensor '{name:.200}': {what}");
    let kind = Kind::from_number(kind)
        .ok_or_else(|| bad(&format!("its number type {kind} is not known")))?;
    let (block, size) = (kind.block() as i64, kind.block_bytes() as u64);
    let row = shape.last().copied().unwrap_or(1);
    ensure!(
        row % block == 0,
        Checkpoint,
        "{}",
        bad(&format!("its rows of {row} are no whole blocks of {block}"))
    );
    let dtype = kind.dtype().unwrap_or(DType::F32);
    let stride = crate::dims::contiguous_strides(shape);
    let nbytes = super::extent(shape, &stride, 0, dtype)?;
    let offset = start
        .checked_add(offset)
        .ok_or_else(|| bad("its offset overflows"))?;
    let data = if kind.dtype().is_some() {
        Data::Stored { offset }
    } else {
        ensure!(
            !big,
            NotImplemented,
            "GGUF: tensor '{name:.200}': blocks of {} in a big-endian file",
            kind.name()
        );
        let blocks = nbytes / dtype.size() as u64 / block as u64;
        let len = blocks
            .checked_mul(size)
            .ok_or_else(|| bad("its size overflows"))?;
        let coding = Coding::Blocks(kind);
        Data::Coded {
            offset,
            len,
            coding,
        }
    };
    let storage = StorageRef {
        key: name.into(),
        dtype: Some(dtype),
        location: Arc::clone(location),
        nbytes,
        data,
        crc: None,
    };
    Ok((TensorRef::new(0, dtype, shape, &stride, 0), storage))
}
