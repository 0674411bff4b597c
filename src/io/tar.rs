//! PyTorch's first format: a tar archive of four members, each a row of pickles and numbers.

use super::check::check;
use super::mmap::Bytes;
use super::rebuild::extent;
use super::tree::{Data, Object, StorageRef, TensorRef, Tree, Value};
use super::{Contents, Format, pickle};
use crate::io::names::{Known, classify};
use crate::{DType, Result, bail, ensure, err};
use std::collections::HashMap;
use std::sync::Arc;

/// True for a tar archive.
pub(super) fn looks_like(b: &[u8]) -> bool {
    b.get(257..262) == Some(b"ustar") || checked_header(b).is_some()
}

/// A number of a header.
fn octal(field: &[u8]) -> Option<u64> {
    // Sizes of 8 GiB and more are binary, marked by the first bit.
    if field[0] & 0x80 != 0 {
        let low = field.last_chunk::<8>()?;
        return Some(u64::from_be_bytes(*low) & (u64::MAX >> 1));
    }
    let text = std::str::from_utf8(field).ok()?;
    let text = text.trim_matches(|c: char| c == '\0' || c == ' ');
    if text.is_empty() {
        return Some(0);
    }
    u64::from_str_radix(text, 8).ok()
}

/// Name and size of the member whose header this is, if its checksum is right.
fn checked_header(b: &[u8]) -> Option<(String, u64, u8)> {
    let header = b.get(..512)?;
    let sum = header
        .iter()
        .enumerate()
        .map(|(i, &b)| {
            if (148..156).contains(&i) {
                32
            } else {
                u64::from(b)
            }
        })
        .sum::<u64>();
    (octal(&header[148..156])? == sum && header[0] != 0).then_some(())?;
    let name = header[..100].split(|&b| b == 0).next()?;
    let name = String::from_utf8_lossy(name);
    let name = name.trim_start_matches("./").to_owned();
    Some((name, octal(&header[124..136])?, header[156]))
}

/// Members by name: where each lies.
fn members(bytes: &Bytes) -> Result<HashMap<String, (u64, u64)>> {
    let (mut at, mut out) = (0u64, HashMap::new());
    let all = bytes.len() as u64;
    while at + 512 <= all {
        let header = &bytes[at as usize..];
        if header[..512].iter().all(|&b| b == 0) {
            break;
        }
        let (name, size, kind) = checked_header(header)
            .ok_or_else(|| err!(Checkpoint, "tar: a damaged header at offset {at}"))?;
        let start = at + 512;
        let end = start
            .checked_add(size)
            .filter(|&end| end <= all)
            .ok_or_else(|| {
                err!(
                    Checkpoint,
                    "tar: member '{name:.64}' at offset {at} is cut short; fetch the file again"
                )
            })?;
        if matches!(kind, 0 | b'0' | b'7') {
            ensure!(
                out.insert(name.clone(), (start, end)).is_none(),
                Checkpoint,
                "tar: member '{name:.64}' comes twice"
            );
        }
        ensure!(
            out.len() <= 10_000,
            Checkpoint,
            "tar: more than 10000 members"
        );
        at = end.div_ceil(512) * 512;
    }
    Ok(out)
}

/// A member that is read from front to back.
struct Reader<'a> {
    bytes: &'a Bytes,
    at: u64,
    end: u64,
    name: &'static str,
}

impl Reader<'_> {
    fn cut(&self) -> crate::Error {
        err!(
            Checkpoint,
            "tar: member '{}' is cut short at offset {}",
            self.name,
            self.at
        )
    }

    fn rest(&self) -> &[u8] {
        let range = self.at as usize..self.end as usize;
        self.bytes.get(range).unwrap_or(&[])
    }

    fn pickle(&mut self) -> Result<Tree> {
        let rest = self.rest();
        let (tree, used) = pickle::read(&rest[..rest.len().min(pickle::MAX_LEN)])?;
        self.at += used as u64;
        Ok(tree)
    }

    fn count(&mut self) -> Result<usize> {
        let tree = self.pickle()?;
        match tree.root {
            // Each has at least a few bytes.
            Value::Int(n) if n >= 0 && n as u64 <= self.end.saturating_sub(self.at) => {
                Ok(n as usize)
            }
            _ => bail!(
                Checkpoint,
                "tar: the length of '{}' is impossible",
                self.name
            ),
        }
    }

    fn i32(&mut self) -> Result<i32> {
        let n = self
            .rest()
            .first_chunk::<4>()
            .map(|b| i32::from_le_bytes(*b));
        self.at += 4;
        n.ok_or_else(|| self.cut())
    }

    fn i64(&mut self) -> Result<i64> {
        let n = self
            .rest()
            .first_chunk::<8>()
            .map(|b| i64::from_le_bytes(*b));
        self.at += 8;
        n.ok_or_else(|| self.cut())
    }
}

/// A key: a number or, in some versions, its digits.
fn key(tree: &Tree, value: Value) -> Result<i64> {
    match (value, tree.str(value)) {
        (Value::Int(n), _) => Some(n),
        (_, Some(text)) => text.parse().ok(),
        _ => None,
    }
    .ok_or_else(|| err!(Checkpoint, "tar: a key that is no number"))
}

/// Reads a checkpoint that PyTorch wrote as a tar archive.
pub(super) fn open(bytes: &Bytes) -> Result<Contents> {
    let members = members(bytes)?;
    let reader = |name: &'static str| -> Result<Reader<'_>> {
        let &(at, end) = members.get(name).ok_or_else(|| {
            err!(
                Checkpoint,
                "the file is a tar archive without a member '{name}', and not a checkpoint of PyTorch: extract it first"
            )
        })?;
        Ok(Reader {
            bytes,
            at,
            end,
            name,
        })
    };
    let mut pickled = reader("pickle")?;
    let mut tree = pickled.pickle()?;
    // The first versions wrote no system information.
    let system = match members.contains_key("sys_info") {
        true => reader("sys_info")?.pickle()?,
        false => Tree::new(),
    };
    ensure!(
        system.calls.is_empty(),
        Checkpoint,
        "tar: the system information calls something"
    );
    let little = system.pairs(system.root).and_then(|p| {
        p.iter()
            .find(|kv| system.str(kv.0) == Some("little_endian"))
    });
    let big_endian = little.is_some_and(|kv| kv.1 == Value::Bool(false));
    ensure!(
        !big_endian,
        Checkpoint,
        "tar: a checkpoint of a big-endian machine, which is not supported"
    );
    let storages = read_storages(reader("storages")?, &mut tree)?;
    let tensors = read_tensors(reader("tensors")?, &storages, &mut tree)?;
    for i in 0..tree.objects.len() {
        let Object::PersistentId(_) = tree.objects[i] else {
            continue;
        };
        let value = Value::Object(super::Id(i as u32));
        let id = tree.persistent_id(value).unwrap_or(Value::None);
        let module = match tree.tuple(id) {
            Some(&[tag, class, _, _]) if tree.str(tag) == Some("module") => Some(class),
            _ => None,
        };
        tree.objects[i] = if let Some(class) = module {
            let Some(&Object::Global(g)) = tree.object(class) else {
                bail!(Checkpoint, "tar: a class that is none")
            };
            tree.containers.push(g);
            Object::Global(g)
        } else {
            let number = key(&tree, id)?;
            let storage = storages
                .get(&number)
                .map(|&(n, dtype)| Object::Storage(n, Some(dtype)));
            let tensor = tensors.get(&number).map(|&n| Object::Tensor(n));
            tensor.or(storage).ok_or_else(|| {
                err!(
                    Checkpoint,
                    "tar: the pickle refers to {number}, which is no tensor"
                )
            })?
        };
    }
    super::rebuild::resolve_legacy(&mut tree, &mut |_, _| {
        Err(err!(Checkpoint, "tar: a storage in the pickle"))
    })?;
    check(&tree)?;
    Ok(Contents {
        format: Format::TorchTar,
        tree,
        big_endian,
        metadata: Vec::new(),
    })
}

/// Storages by key: their numbers and types.
fn read_storages(mut r: Reader<'_>, tree: &mut Tree) -> Result<HashMap<i64, (u32, DType)>> {
    let mut out: HashMap<i64, (u32, DType)> = HashMap::new();
    for _ in 0..r.count()? {
        let entry = r.pickle()?;
        let Some(&[id, location, class]) = entry.tuple(entry.root) else {
            bail!(Checkpoint, "tar: a storage that is not of three parts")
        };
        let Some(Known::Storage(Some(dtype))) = entry.global(class).map(classify) else {
            bail!(Checkpoint, "tar: a storage of an unknown class")
        };
        let location = entry.str(location).unwrap_or("cpu");
        let id = key(&entry, id)?;
        let count = r.i64()?;
        let nbytes = u64::try_from(count)
            .ok()
            .and_then(|n| n.checked_mul(dtype.size() as u64));
        let nbytes = nbytes
            .filter(|&n| n <= r.end.saturating_sub(r.at))
            .ok_or_else(|| r.cut())?;
        let storage = tree.push_storage(StorageRef {
            key: id.to_string().into(),
            dtype: Some(dtype),
            location: Arc::from(location),
            nbytes,
            data: Data::Stored { offset: r.at },
            crc: None,
        });
        r.at += nbytes;
        ensure!(
            out.insert(id, (storage, dtype)).is_none(),
            Checkpoint,
            "tar: storage {id} comes twice"
        );
    }
    // Views of storages: new key, key of the whole, first element, count.
    let views = r.pickle()?;
    for &view in views.items(views.root).unwrap_or(&[]) {
        let bad = || err!(Checkpoint, "tar: a view of a storage that does not fit");
        let Some(&[id, root, offset, count]) = views.tuple(view) else {
            return Err(bad());
        };
        let &(whole, dtype) = out.get(&key(&views, root)?).ok_or_else(bad)?;
        let (Value::Int(offset @ 0..), Value::Int(count @ 0..)) = (offset, count) else {
            return Err(bad());
        };
        let size = dtype.size() as u64;
        let (start, nbytes) = (
            (offset as u64).checked_mul(size).ok_or_else(bad)?,
            (count as u64).checked_mul(size).ok_or_else(bad)?,
        );
        let storage = tree.storages[whole as usize].clone();
        let end = start.checked_add(nbytes).ok_or_else(bad)?;
        let Data::Stored { offset } = storage.data else {
            return Err(bad());
        };
        ensure!(end <= storage.nbytes, Checkpoint, "{}", bad());
        let number = tree.push_storage(StorageRef {
            nbytes,
            data: Data::Stored {
                offset: offset + start,
            },
            ..storage
        });
        out.insert(key(&views, id)?, (number, dtype));
    }
    Ok(out)
}

/// Tensors by key: their numbers in the tree.
fn read_tensors(
    mut r: Reader<'_>,
    storages: &HashMap<i64, (u32, DType)>,
    tree: &mut Tree,
) -> Result<HashMap<i64, u32>> {
    let mut out = HashMap::new();
    for _ in 0..r.count()? {
        let entry = r.pickle()?;
        let Some(&[id, storage, class]) = entry.tuple(entry.root) else {
            bail!(Checkpoint, "tar: a tensor that is not of three parts")
        };
        ensure!(
            matches!(
                entry.global(class).map(classify),
                Some(Known::TypedTensor(_) | Known::Tensor)
            ),
            Checkpoint,
            "tar: a tensor of an unknown class"
        );
        let id = key(&entry, id)?;
        let storage = key(&entry, storage)?;
        let &(storage, dtype) = storages
            .get(&storage)
            .ok_or_else(|| err!(Checkpoint, "tar: tensor {id} has no storage"))?;
        let ndim = r.i32()?;
        // The count was written as 64 bits.
        r.i32()?;
        ensure!(
            (0..=64).contains(&ndim),
            Checkpoint,
            "tar: a tensor of {ndim} dimensions"
        );
        let read =
            |r: &mut Reader<'_>| -> Result<Vec<i64>> { (0..ndim).map(|_| r.i64()).collect() };
        let (shape, stride) = (read(&mut r)?, read(&mut r)?);
        let offset = r.i64()?;
        let needed = extent(&shape, &stride, offset, dtype)?;
        ensure!(
            needed <= tree.storages[storage as usize].nbytes,
            Checkpoint,
            "tar: tensor {id} needs {needed} bytes of its storage, which has {}",
            tree.storages[storage as usize].nbytes
        );
        tree.tensors
            .push(TensorRef::new(storage, dtype, &shape, &stride, offset));
        out.insert(id, (tree.tensors.len() - 1) as u32);
    }
    Ok(out)
}
