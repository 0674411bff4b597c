//! NumPy's arrays: `.npy`, a header and the elements, and `.npz`, a zip archive of such files.

use super::mmap::Bytes;
use super::tree::{Coding, Data, Object, StorageRef, TensorRef, Tree, Value};
use super::zip::{Entry, Method, Zip};
use super::{Contents, Format};
use crate::{DType, Dims, Error, Result, err};
use std::sync::Arc;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Bytes of a header; NumPy itself refuses more than ten thousand.
const MAX_HEADER: usize = 1 << 16;
/// Texts of one array that become a list of strings.
const MAX_TEXTS: i64 = 1 << 20;

/// Bytes of one compressed array of texts.
const MAX_TEXT: u64 = 1 << 28;
const BROKEN: &str = "a header that cannot be read";

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

    fn truth(&mut self) -> Option<bool> {
        if self.eat(b"True") {
            return Some(true);
        }
        self.eat(b"False").then_some(false)
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

/// What is wrong with an array, by its name.
fn bad(name: &str, what: &str) -> Error {
    err!(Checkpoint, "npy array '{name:.200}': {what}")
}

/// The text of the header, and where it ends.
fn header_text<'a>(b: &'a [u8], name: &str) -> Result<(&'a [u8], usize)> {
    let short = |l: &[u8]| usize::from(u16::from_le_bytes([l[0], l[1]]));
    let long = |l: &[u8]| u32::from_le_bytes([l[0], l[1], l[2], l[3]]) as usize;
    let (len, from) = match b.get(6).copied().unwrap_or(0) {
        1 => (b.get(8..10).map(short), 10),
        2 | 3 => (b.get(8..12).map(long), 12),
        other => return Err(bad(name, &format!("version {other}; 1 to 3 are known"))),
    };
    let len = len
        .filter(|&n| b.starts_with(MAGIC) && n <= MAX_HEADER)
        .ok_or_else(|| bad(name, "a damaged header"))?;
    let text = b.get(from..from + len).ok_or_else(|| {
        bad(
            name,
            "its header is cut short: the file is truncated, fetch it again",
        )
    })?;
    Ok((text, from + len))
}

/// The entries of the dictionary that a header is.
struct Fields<'a> {
    descr: &'a str,
    fortran: bool,
    shape: Vec<i64>,
}

impl<'a> Fields<'a> {
    fn of(descr: Option<&'a str>, fortran: Option<bool>, shape: Option<Vec<i64>>) -> Option<Self> {
        Some(Self {
            descr: descr?,
            fortran: fortran?,
            shape: shape?,
        })
    }
}

fn fields<'a>(text: &'a [u8], name: &str) -> Result<Fields<'a>> {
    let mut r = Literal { text, at: 0 };
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    let broken = || bad(name, BROKEN);
    r.eat(b"{").then_some(()).ok_or_else(broken)?;
    while !r.eat(b"}") {
        let key = r.string().ok_or_else(broken)?;
        r.eat(b":").then_some(()).ok_or_else(broken)?;
        match key {
            "descr" if r.eat(b"[") => {
                let what = "its elements are records of several fields, and no numbers";
                return Err(bad(name, what));
            }
            "descr" => descr = r.string(),
            "fortran_order" => fortran = r.truth(),
            "shape" => shape = r.tuple(),
            _ => return Err(broken()),
        }
        if !r.eat(b",") {
            r.eat(b"}").then_some(()).ok_or_else(broken)?;
            break;
        }
    }
    Fields::of(descr, fortran, shape).ok_or_else(broken)
}

/// Element types by NumPy's codes.
const CODES: &[(&str, DType)] = &[
    ("b1", DType::Bool),
    ("i1", DType::I8),
    ("i2", DType::I16),
    ("i4", DType::I32),
    ("i8", DType::I64),
    ("u1", DType::U8),
    ("u2", DType::U16),
    ("u4", DType::U32),
    ("u8", DType::U64),
    ("f2", DType::F16),
    ("f4", DType::F32),
    ("f8", DType::F64),
    ("c8", DType::C64),
    ("c16", DType::C128),
];

/// What a code says, but for its order of bytes.
fn elements(code: &str, descr: &str, name: &str) -> Result<Elements> {
    if let Some((_, dtype)) = CODES.iter().find(|c| c.0 == code) {
        return Ok(Elements::Numbers(*dtype));
    }
    let size = code.get(1..).and_then(|n| n.parse::<usize>().ok());
    let (wide, size) = match (code.as_bytes().first(), size) {
        (Some(b'U'), Some(n)) => (true, n.checked_mul(4)),
        (Some(b'S' | b'a'), Some(n)) => (false, Some(n)),
        (Some(b'O'), _) => {
            let what = "its elements are pickled Python objects, which are not read";
            return Err(bad(name, what));
        }
        _ => {
            let what = format!("its dtype '{descr:.32}' has no counterpart among tensors");
            return Err(bad(name, &what));
        }
    };
    let size = size.filter(|&n| n <= 1 << 20);
    let size = size.ok_or_else(|| bad(name, "texts that are too long"))?;
    Ok(Elements::Texts(size, wide))
}

fn header(b: &[u8], name: &str) -> Result<Header> {
    let (text, start) = header_text(b, name)?;
    let Fields {
        descr,
        fortran,
        shape,
    } = fields(text, name)?;
    let (order, code) = descr.split_at_checked(1).ok_or_else(|| bad(name, BROKEN))?;
    let elements = elements(code, descr, name)?;
    if matches!(elements, Elements::Numbers(_)) && !matches!(order, "<" | ">" | "|" | "=") {
        return Err(bad(name, BROKEN));
    }
    Ok(Header {
        elements,
        big: order == ">",
        fortran,
        shape,
        start,
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

impl Place {
    fn of(entry: &Entry) -> Self {
        let (offset, len) = (entry.data, entry.size);
        match entry.method {
            Method::Stored => Self::Stored { offset, len },
            Method::Deflated => Self::Deflated {
                offset,
                compressed: entry.compressed,
                len,
            },
        }
    }

    /// The bytes of the file, or as many as a header may take; and how many there are.
    fn head(&self, bytes: &Bytes, name: &str) -> Result<(Bytes, u64)> {
        match *self {
            Self::Stored { offset, len } => {
                let end = offset.checked_add(len);
                let end = end.ok_or_else(|| bad(name, "an offset overflows"))?;
                Ok((bytes.slice(offset..end)?, len))
            }
            Self::Deflated {
                offset,
                compressed,
                len,
            } => {
                let want = len.min(MAX_HEADER as u64 + 16);
                let head = super::zip::inflate_head(bytes, offset, compressed, want)?;
                Ok((head, len))
            }
        }
    }

    /// All bytes of a file of texts.
    fn whole(&self, bytes: &Bytes, name: &str) -> Result<Bytes> {
        match *self {
            Self::Stored { offset, len } => bytes.slice(offset..offset.saturating_add(len)),
            Self::Deflated { len, .. } if len > MAX_TEXT => {
                Err(bad(name, "more texts than can be listed"))
            }
            Self::Deflated {
                offset,
                compressed,
                len,
            } => super::zip::inflate(bytes, offset, compressed, len),
        }
    }

    /// How the `nbytes` of elements after the header are read, `have` being there.
    fn data(&self, h: &Header, unit: u8, nbytes: u64, have: u64) -> Option<Data> {
        match *self {
            Self::Stored { offset, .. } => {
                let offset = offset + h.start as u64;
                Some(if unit > 1 {
                    Data::Coded {
                        offset,
                        len: nbytes,
                        coding: Coding::Swapped(unit),
                    }
                } else {
                    Data::Stored { offset }
                })
            }
            Self::Deflated {
                offset, compressed, ..
            } => (nbytes == have).then_some(Data::Coded {
                offset,
                len: compressed,
                coding: Coding::Deflated {
                    skip: h.start as u32,
                    unit,
                },
            }),
        }
    }
}

impl Header {
    fn strides(&self) -> Dims {
        let mut strides = crate::dims::contiguous_strides(&self.shape);
        if self.fortran {
            let mut step = 1i64;
            for (s, &n) in strides.iter_mut().zip(&self.shape) {
                *s = step;
                step = step.saturating_mul(n.max(1));
            }
        }
        strides
    }
}

fn array(bytes: &Bytes, place: &Place, name: &str, tree: &mut Tree) -> Result<Value> {
    let (head, len) = place.head(bytes, name)?;
    let h = header(&head, name)?;
    let numbers = match h.elements {
        Elements::Numbers(dtype) => dtype,
        Elements::Texts(size, wide) => {
            let all = place.whole(bytes, name)?;
            return texts(&all, &h, (size, wide), name, tree);
        }
    };
    let stride = h.strides();
    let nbytes = super::extent(&h.shape, &stride, 0, numbers)?;
    let have = len
        .checked_sub(h.start as u64)
        .ok_or_else(|| bad(name, "its header is cut short"))?;
    if nbytes > have {
        let what = format!(
            "shape {:?} of {numbers} needs {nbytes} bytes and there are {have}: the file is truncated, fetch it again",
            h.shape
        );
        return Err(bad(name, &what));
    }
    let unit = if h.big {
        numbers.to_real().size() as u8
    } else {
        1
    };
    let data = place
        .data(&h, unit, nbytes, have)
        .ok_or_else(|| bad(name, "its file is longer than its elements"))?;
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

/// One text, without the zeros after it.
fn text(bytes: &[u8], wide: bool, big: bool, tree: &mut Tree) -> Option<Value> {
    if !wide {
        let end = bytes.iter().rposition(|&c| c != 0).map_or(0, |n| n + 1);
        return Some(tree.push_bytes(Object::Bytes, &bytes[..end]));
    }
    let read = if big {
        u32::from_be_bytes
    } else {
        u32::from_le_bytes
    };
    let chars: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|&c| read(c)).collect();
    let end = chars.iter().rposition(|&c| c != 0).map_or(0, |n| n + 1);
    let text: Option<String> = chars[..end].iter().map(|&c| char::from_u32(c)).collect();
    Some(tree.push_str(&text?))
}

/// An array of texts as nested lists of strings or bytes.
fn texts(
    all: &[u8],
    h: &Header,
    (size, wide): (usize, bool),
    name: &str,
    tree: &mut Tree,
) -> Result<Value> {
    let count = h.shape.iter().try_fold(1i64, |n, &s| n.checked_mul(s));
    let count = count.filter(|&n| n <= MAX_TEXTS);
    let count = count.ok_or_else(|| bad(name, "more texts than can be listed"))? as usize;
    let data = count
        .checked_mul(size)
        .and_then(|n| all.get(h.start..h.start.checked_add(n)?));
    let data = data.ok_or_else(|| {
        bad(
            name,
            "its texts are cut short: the file is truncated, fetch it again",
        )
    })?;
    let mut items = Vec::with_capacity(count);
    for i in 0..count {
        let item = text(&data[i * size..(i + 1) * size], wide, h.big, tree);
        items.push(item.ok_or_else(|| bad(name, "a text that is no Unicode"))?);
    }
    nested(items, h, name, tree)
}

/// Items in row-major order as lists in lists, by the shape.
fn nested(mut items: Vec<Value>, h: &Header, name: &str, tree: &mut Tree) -> Result<Value> {
    if h.fortran && h.shape.len() > 1 {
        return Err(bad(name, "texts in column-major order"));
    }
    for &n in h.shape.iter().skip(1).rev() {
        if n <= 0 {
            return Err(bad(name, "texts of no elements"));
        }
        let rows = items.chunks(n as usize);
        items = rows
            .map(|r| tree.push_list(Object::List, r.to_vec()))
            .collect();
    }
    if h.shape.is_empty() {
        return items.pop().ok_or_else(|| bad(name, "no text"));
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
        let place = Place::of(entry);
        let key = tree.push_str(name);
        let value = array(bytes, &place, name, &mut tree)?;
        pairs.push((key, value));
    }
    tree.root = tree.push_dict(Object::Dict, pairs);
    if tree.overflow {
        return Err(err!(Checkpoint, "the names are too long"));
    }
    Ok(Contents {
        format: Format::Npz,
        tree,
        big_endian: false,
        metadata: Vec::new(),
    })
}
