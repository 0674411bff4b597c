//! NumPy's arrays: `.npy`, a header and the elements, and `.npz`, a zip archive of such files.

use super::mmap::Bytes;
use super::tree::{Coding, Data, Object, StorageRef, TensorRef, Tree, Value};
use super::zip::{Method, Zip};
use super::{Contents, Format};
use crate::{DType, Result, bail, ensure, err};
use std::sync::Arc;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Bytes of a header; NumPy itself refuses more than ten thousand.
const MAX_HEADER: usize = 1 << 16;
/// Texts of one array that become a list of strings.
const MAX_TEXTS: i64 = 1 << 20;

/// True for an array in a file of its own.
pub(super) fn looks_like(b: &[u8]) -> bool {
    b.starts_with(MAGIC)
}

/// True for a zip archive of arrays.
pub(super) fn is_npz(zip: &Zip) -> bool {
    let names = (0..zip.entries().len()).map(|i| zip.name(i));
    let mut some = false;
    for name in names {
        if !name.ends_with(".npy") {
            return false;
        }
        some = true;
    }
    some
}

/// What an array is made of.
enum Elements {
    Numbers(DType),
    /// Fixed-size texts: bytes of one, and whether they are UTF-32.
    Texts(usize, bool),
}

struct Header {
    elements: Elements,
    big: bool,
    fortran: bool,
    shape: Vec<i64>,
    /// Where the elements begin.
    start: usize,
}

/// A reader of the Python literal that a header is: a dictionary of strings, truth values and tuples of integers.
struct Literal<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Literal<'a> {
    fn skip(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn eat(&mut self, token: &[u8]) -> bool {
        self.skip();
        let found = self.text[self.at..].starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn string(&mut self) -> Option<&'a str> {
        self.skip();
        let quote = *self
            .text
            .get(self.at)
            .filter(|q| matches!(q, b'\'' | b'"'))?;
        let rest = &self.text[self.at + 1..];
        let len = rest.iter().position(|&b| b == quote)?;
        self.at += len + 2;
        std::str::from_utf8(&rest[..len]).ok()
    }

    fn integer(&mut self) -> Option<i64> {
        self.skip();
        let rest = &self.text[self.at..];
        let len = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        self.at += len;
        // Python 2 wrote long integers with this letter.
        let n = std::str::from_utf8(&rest[..len]).ok()?.parse().ok();
        self.eat(b"L");
        n
    }

    fn tuple(&mut self) -> Option<Vec<i64>> {
        let mut out = Vec::new();
        self.eat(b"(").then_some(())?;
        while !self.eat(b")") {
            out.push(self.integer()?);
            if !self.eat(b",") {
                return self.eat(b")").then_some(out);
            }
            (out.len() <= 64).then_some(())?;
        }
        Some(out)
    }
}

fn header(b: &[u8], name: &str) -> Result<Header> {
    let bad = |what: &str| err!(Checkpoint, "npy array '{name:.200}': {what}");
    let version = b.get(6).copied().unwrap_or(0);
    let (len, from) = match version {
        1 => (
            b.get(8..10)
                .map(|l| usize::from(u16::from_le_bytes([l[0], l[1]]))),
            10,
        ),
        2 | 3 => (
            b.get(8..12)
                .map(|l| u32::from_le_bytes([l[0], l[1], l[2], l[3]]) as usize),
            12,
        ),
        other => bail!(
            Checkpoint,
            "{}",
            bad(&format!("version {other}; 1 to 3 are known"))
        ),
    };
    let len = len
        .filter(|&n| b.starts_with(MAGIC) && n <= MAX_HEADER)
        .ok_or_else(|| bad("a damaged header"))?;
    let text = b
        .get(from..from + len)
        .ok_or_else(|| bad("its header is cut short: the file is truncated, fetch it again"))?;
    let mut r = Literal { text, at: 0 };
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    let broken = || bad("a header that cannot be read");
    r.eat(b"{").then_some(()).ok_or_else(broken)?;
    while !r.eat(b"}") {
        let key = r.string().ok_or_else(broken)?;
        r.eat(b":").then_some(()).ok_or_else(broken)?;
        match key {
            "descr" => {
                if r.eat(b"[") {
                    return Err(bad(
                        "its elements are records of several fields, and no numbers",
                    ));
                }
                descr = r.string();
            }
            "fortran_order" => {
                fortran = if r.eat(b"True") {
                    Some(true)
                } else {
                    r.eat(b"False").then_some(false)
                };
            }
            "shape" => shape = r.tuple(),
            _ => return Err(broken()),
        }
        if !r.eat(b",") {
            r.eat(b"}").then_some(()).ok_or_else(broken)?;
            break;
        }
    }
    let (Some(descr), Some(fortran), Some(shape)) = (descr, fortran, shape) else {
        return Err(broken());
    };
    let (order, code) = descr.split_at_checked(1).ok_or_else(broken)?;
    let dtype = match code {
        "b1" => DType::Bool,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "u1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        "c8" => DType::C64,
        "c16" => DType::C128,
        _ => {
            let size = code.get(1..).and_then(|n| n.parse::<usize>().ok());
            let (wide, size) = match (code.as_bytes().first(), size) {
                (Some(b'U'), Some(n)) => (true, n.checked_mul(4)),
                (Some(b'S' | b'a'), Some(n)) => (false, Some(n)),
                (Some(b'O'), _) => {
                    return Err(bad(
                        "its elements are pickled Python objects, which are not read",
                    ));
                }
                _ => {
                    return Err(bad(&format!(
                        "its dtype '{descr:.32}' has no counterpart among tensors"
                    )));
                }
            };
            let size = size
                .filter(|&n| n <= 1 << 20)
                .ok_or_else(|| bad("texts that are too long"))?;
            return Ok(Header {
                elements: Elements::Texts(size, wide),
                big: order == ">",
                fortran,
                shape,
                start: from + len,
            });
        }
    };
    ensure!(
        matches!(order, "<" | ">" | "|" | "="),
        Checkpoint,
        "{}",
        broken()
    );
    Ok(Header {
        elements: Elements::Numbers(dtype),
        big: order == ">",
        fortran,
        shape,
        start: from + len,
    })
}

/// Where an array's file is in the whole.
enum Place {
    Stored {
        offset: u64,
        len: u64,
    },
    Deflated {
        offset: u64,
        compressed: u64,
        len: u64,
    },
}

fn array(bytes: &Bytes, place: &Place, name: &str, tree: &mut Tree) -> Result<Value> {
    let bad = |what: &str| err!(Checkpoint, "npy array '{name:.200}': {what}");
    let (head, len) = match *place {
        Place::Stored { offset, len } => {
            let end = offset
                .checked_add(len)
                .ok_or_else(|| bad("an offset overflows"))?;
            (bytes.slice(offset..end)?, len)
        }
        Place::Deflated {
            offset,
            compressed,
            len,
        } => {
            let want = len.min(MAX_HEADER as u64 + 16);
            let head = super::zip::inflate_head(bytes, offset, compressed, want)?;
            (head, len)
        }
    };
    let h = header(&head, name)?;
    let numbers = match h.elements {
        Elements::Numbers(dtype) => dtype,
        Elements::Texts(size, wide) => return texts(bytes, place, &h, (size, wide), name, tree),
    };
    let mut stride = crate::dims::contiguous_strides(&h.shape);
    if h.fortran {
        let mut step = 1i64;
        for (s, &n) in stride.iter_mut().zip(&h.shape) {
            *s = step;
            step = step.saturating_mul(n.max(1));
        }
    }
    let nbytes = super::extent(&h.shape, &stride, 0, numbers)?;
    let have = len
        .checked_sub(h.start as u64)
        .ok_or_else(|| bad("its header is cut short"))?;
    ensure!(
        nbytes <= have,
        Checkpoint,
        "{}",
        bad(&format!(
            "shape {:?} of {numbers} needs {nbytes} bytes and there are {have}: the file is truncated, fetch it again",
            h.shape
        ))
    );
    let unit = numbers.to_real().size() as u8;
    let unit = if h.big { unit } else { 1 };
    let data = match *place {
        Place::Stored { offset, .. } => {
            let offset = offset + h.start as u64;
            if unit > 1 {
                Data::Coded {
                    offset,
                    len: nbytes,
                    coding: Coding::Swapped(unit),
                }
            } else {
                Data::Stored { offset }
            }
        }
        Place::Deflated {
            offset, compressed, ..
        } => {
            ensure!(
                nbytes == have,
                Checkpoint,
                "{}",
                bad("its file is longer than its elements")
            );
            Data::Coded {
                offset,
                len: compressed,
                coding: Coding::Deflated {
                    skip: h.start as u32,
                    unit,
                },
            }
        }
    };
    // The checksum that a zip directory has covers the header too, so it is not the storage's.
    let storage = tree.push_storage(StorageRef {
        key: name.into(),
        dtype: Some(numbers),
        location: Arc::from("cpu"),
        nbytes,
        data,
        crc: None,
    });
    Ok(tree.push_tensor(TensorRef::new(storage, numbers, &h.shape, &stride, 0)))
}

/// An array of texts as nested lists of strings or bytes.
fn texts(
    bytes: &Bytes,
    place: &Place,
    h: &Header,
    (size, wide): (usize, bool),
    name: &str,
    tree: &mut Tree,
) -> Result<Value> {
    let bad = |what: &str| err!(Checkpoint, "npy array '{name:.200}': {what}");
    let count = h
        .shape
        .iter()
        .try_fold(1i64, |n, &s| n.checked_mul(s))
        .filter(|&n| n <= MAX_TEXTS)
        .ok_or_else(|| bad("more texts than can be listed"))?;
    let all = match *place {
        Place::Stored { offset, len } => bytes.slice(offset..offset.saturating_add(len))?,
        Place::Deflated {
            offset,
            compressed,
            len,
        } => {
            ensure!(
                len <= 1 << 28,
                Checkpoint,
                "{}",
                bad("more texts than can be listed")
            );
            super::zip::inflate(bytes, offset, compressed, len)?
        }
    };
    let need = (count as usize).checked_mul(size);
    let data = need
        .and_then(|n| all.get(h.start..h.start.checked_add(n)?))
        .ok_or_else(|| bad("its texts are cut short: the file is truncated, fetch it again"))?;
    let mut items = Vec::with_capacity(count as usize);
    for i in 0..count as usize {
        let text = &data[i * size..(i + 1) * size];
        if wide {
            let chars = text.chunks_exact(4).map(|c| {
                let c = [c[0], c[1], c[2], c[3]];
                if h.big {
                    u32::from_be_bytes(c)
                } else {
                    u32::from_le_bytes(c)
                }
            });
            let chars: Vec<u32> = chars.collect();
            let end = chars.iter().rposition(|&c| c != 0).map_or(0, |n| n + 1);
            let text: Option<String> = chars[..end].iter().map(|&c| char::from_u32(c)).collect();
            let text = text.ok_or_else(|| bad("a text that is no Unicode"))?;
            items.push(tree.push_str(&text));
        } else {
            let end = text.iter().rposition(|&c| c != 0).map_or(0, |n| n + 1);
            items.push(tree.push_bytes(Object::Bytes, &text[..end]));
        }
    }
    if h.fortran && h.shape.len() > 1 {
        return Err(bad("texts in column-major order"));
    }
    for &n in h.shape.iter().skip(1).rev() {
        ensure!(n > 0, Checkpoint, "{}", bad("texts of no elements"));
        let rows = items.chunks(n as usize).map(<[Value]>::to_vec);
        let rows: Vec<_> = rows.collect();
        items = rows
            .into_iter()
            .map(|r| tree.push_list(Object::List, r))
            .collect();
    }
    if h.shape.is_empty() {
        return items.pop().ok_or_else(|| bad("no text"));
    }
    Ok(tree.push_list(Object::List, items))
}

/// Reads an array in a file of its own: the tree is that one tensor.
pub(super) fn open(bytes: &Bytes) -> Result<Contents> {
    let mut tree = Tree::new();
    let place = Place::Stored {
        offset: 0,
        len: bytes.len() as u64,
    };
    tree.root = array(bytes, &place, "array", &mut tree)?;
    Ok(Contents {
        format: Format::Npy,
        tree,
        big_endian: false,
        metadata: Vec::new(),
    })
}

/// Reads a zip archive of arrays: the tree is a dictionary of them by name.
pub(super) fn open_npz(bytes: &Bytes, zip: &Zip) -> Result<Contents> {
    let (mut tree, mut pairs) = (Tree::new(), Vec::new());
    for (i, entry) in zip.entries().iter().enumerate() {
        let name = zip.name(i);
        let name = name.strip_suffix(".npy").unwrap_or(name);
        let place = match entry.method {
            Method::Stored => Place::Stored {
                offset: entry.data,
                len: entry.size,
            },
            Method::Deflated => Place::Deflated {
                offset: entry.data,
                compressed: entry.compressed,
                len: entry.size,
            },
        };
        let key = tree.push_str(name);
        let value = array(bytes, &place, name, &mut tree)?;
        pairs.push((key, value));
    }
    tree.root = tree.push_dict(Object::Dict, pairs);
    ensure!(!tree.overflow, Checkpoint, "the names are too long");
    Ok(Contents {
        format: Format::Npz,
        tree,
        big_endian: false,
        metadata: Vec::new(),
    })
}
