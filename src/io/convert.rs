//! From one format to another, tensor by tensor: never more in memory than the largest of them.

use super::fingerprint::{identity, name_of};
use super::tree::Data;
use super::verify::Progress;
use super::write::flat::{Flat, Item, elements};
use super::write::{self, Sink, npz, safetensors, sharded};
use super::{Archive, NamedTensor};
use crate::{Result, bail, ensure, err};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// A format to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// PyTorch's zip format.
    TorchZip,
    /// safetensors.
    Safetensors,
    /// NumPy's archive of arrays.
    Npz,
    /// One NumPy array.
    Npy,
}

impl Target {
    /// The format of this name: `pt`, `safetensors`, `npz`, `npy`, and the other usual endings.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "pt" | "pth" | "bin" | "ckpt" => Self::TorchZip,
            "safetensors" => Self::Safetensors,
            "npz" => Self::Npz,
            "npy" => Self::Npy,
            _ => return None,
        })
    }

    /// The format that a path asks for by its ending.
    #[must_use]
    pub fn from_path(path: &Path) -> Option<Self> {
        Self::from_name(path.extension()?.to_str()?)
    }
}

/// How to convert.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format to write; that of the path's ending if none is given.
    pub target: Option<Target>,
    /// Write several files with an index, each of at most so many bytes of tensors.
    pub max_shard_bytes: Option<u64>,
    /// Write tensors that share memory once for each name.
    pub duplicate: bool,
    /// Only tensors whose name one of these patterns matches, if there are any (`*` and `?` as in a shell).
    pub include: Vec<String>,
    /// No tensors whose name one of these patterns matches.
    pub exclude: Vec<String>,
    /// Taken off the front of names; only tensors whose name begins so are written.
    pub prefix: String,
}

impl Options {
    fn is_selective(&self) -> bool {
        !(self.include.is_empty() && self.exclude.is_empty() && self.prefix.is_empty())
    }

    fn selects(&self, name: &str) -> bool {
        name.starts_with(&self.prefix)
            && (self.include.is_empty() || self.include.iter().any(|p| matches(p, name)))
            && !self.exclude.iter().any(|p| matches(p, name))
    }
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct Converted {
    /// The files; the index, if there is one, last.
    pub files: Vec<PathBuf>,
    /// Names of tensors.
    pub tensors: u64,
    /// Bytes of the tensors, without what ties save.
    pub bytes: u64,
    /// Names of values that are no tensors, which the format cannot hold.
    pub left_out: Vec<String>,
}

/// How many bytes [`convert`] will tell its progress about.
#[must_use]
pub fn total_bytes(archive: &Archive, options: &Options) -> u64 {
    let mut seen = HashSet::new();
    let parts = archive.tensors();
    parts
        .iter()
        .filter(|t| options.selects(&t.name) && (options.duplicate || seen.insert(identity(t))))
        .fold(0u64, |n, t| n.saturating_add(nbytes(t)))
}

fn nbytes(t: &NamedTensor<'_>) -> u64 {
    (t.tensor.numel() as u64).saturating_mul(t.tensor.dtype.size() as u64)
}

/// Writes the checkpoint `archive` to `path` in another format, or some of its tensors. The whole file is written or
/// nothing. From PyTorch's format to itself everything is kept; the other formats hold named tensors only, and what
/// else there is, is [left out](Converted::left_out).
///
/// # Errors
/// If no format is given or it cannot hold one of the tensors, a tensor has no bytes, or the disk refuses.
pub fn convert(
    archive: &Archive,
    path: &Path,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Converted> {
    let target = options.target.or_else(|| Target::from_path(path));
    let target = target.ok_or_else(|| {
        err!(
            Value,
            "'{}' does not end in .pt, .safetensors, .npz or .npy: tell the format to write",
            path.display()
        )
    })?;
    if target == Target::TorchZip && options.max_shard_bytes.is_none() && !options.is_selective() {
        return whole(archive, path, progress);
    }
    let tensors = archive.tensors();
    let chosen: Vec<&NamedTensor<'_>> = tensors
        .iter()
        .filter(|t| options.selects(&t.name))
        .collect();
    if let Some(pattern) = options
        .include
        .iter()
        .find(|p| !tensors.iter().any(|t| matches(p, &t.name)))
    {
        bail!(Key, "no tensor is named '{pattern}'");
    }
    ensure!(
        !(chosen.is_empty() && options.is_selective()),
        Key,
        "no tensor has such a name"
    );
    let flat = flat_of(archive, &chosen, target, options)?;
    let mut provider = |n: u32, sink: &mut Sink<'_>| -> Result<()> {
        let t = chosen
            .get(n as usize)
            .ok_or_else(|| err!(Value, "no tensor {n}"))?;
        let bytes = archive.read_storage(t.storage)?;
        elements(&bytes, t.tensor, &mut |piece| {
            progress(piece.len() as u64);
            sink(piece)
        })?;
        bytes.release();
        Ok(())
    };
    let files = match (target, options.max_shard_bytes) {
        (Target::Npz | Target::Npy, Some(_)) => bail!(Value, "npz files have no shards"),
        (Target::Npz, None) => {
            npz::save(path, &flat, &mut provider)?;
            vec![path.to_owned()]
        }
        (Target::Npy, None) => {
            npz::save_one(path, &flat, &mut provider)?;
            vec![path.to_owned()]
        }
        (Target::Safetensors, None) => {
            safetensors::save(path, &flat, &mut provider)?;
            vec![path.to_owned()]
        }
        (Target::Safetensors, Some(max)) => {
            sharded::save(path, &flat, sharded::Kind::Safetensors, max, &mut provider)?
        }
        (Target::TorchZip, max) => {
            let max = max.unwrap_or(u64::MAX);
            sharded::save(path, &flat, sharded::Kind::TorchZip, max, &mut provider)?
        }
    };
    let bytes = flat.items.iter().filter(|i| i.tied.is_none());
    Ok(Converted {
        files,
        tensors: flat.items.len() as u64,
        bytes: bytes.map(|i| i.nbytes().unwrap_or(0)).sum(),
        left_out: if options.is_selective() {
            Vec::new()
        } else {
            archive.values().into_iter().map(|v| v.0).collect()
        },
    })
}

/// Everything, in PyTorch's format.
fn whole(archive: &Archive, path: &Path, progress: &Progress<'_>) -> Result<Converted> {
    let tree = archive.tree();
    let mut from = write::from_archive(archive, tree);
    write::save(path, tree, &mut |n, sink| {
        from(n, &mut |bytes| {
            let done = sink(bytes);
            progress(bytes.len() as u64);
            done
        })
    })?;
    let totals = archive.totals();
    Ok(Converted {
        files: vec![path.to_owned()],
        tensors: totals.names,
        bytes: totals.bytes,
        left_out: archive
            .metadata()
            .iter()
            .map(|(k, _)| format!("metadata '{k}'"))
            .collect(),
    })
}

fn flat_of(
    archive: &Archive,
    chosen: &[&NamedTensor<'_>],
    target: Target,
    options: &Options,
) -> Result<Flat> {
    let mut first = HashMap::new();
    let mut items = Vec::with_capacity(chosen.len());
    for (i, t) in chosen.iter().enumerate() {
        ensure!(
            t.storage.data != Data::Meta,
            Value,
            "tensor '{}' is a meta tensor and has no data to write",
            name_of(t)
        );
        ensure!(
            t.tensor.quant.is_none(),
            NotImplemented,
            "tensor '{}' is quantized, which only a whole file in PyTorch's format can hold",
            name_of(t)
        );
        let name = match t.name.get(options.prefix.len()..) {
            None | Some("") => name_of(t),
            Some(name) => name,
        };
        let empty = nbytes(t) == 0;
        let owner = *first.entry(identity(t)).or_insert(i as u32);
        items.push(Item {
            name: name.to_owned(),
            dtype: t.tensor.dtype,
            shape: t.tensor.shape().to_vec(),
            tied: Some(owner).filter(|&o| o != i as u32 && !options.duplicate && !empty),
        });
    }
    let mut metadata = archive.metadata().to_vec();
    if target == Target::Safetensors && !metadata.iter().any(|(k, _)| k == "format") {
        // What the libraries that load models ask for.
        metadata.push(("format".into(), "pt".into()));
    }
    let flat = Flat { items, metadata };
    flat.check()?;
    Ok(flat)
}

/// True if a name is of a pattern in which `*` stands for any characters and `?` for one.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the last star was, and what it has swallowed: only that need ever be tried again.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&'*') {
            star = Some((p, n));
            p += 1;
        } else if pattern.get(p).is_some_and(|&c| c == '?' || c == name[n]) {
            p += 1;
            n += 1;
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            p = at + 1;
            n = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

/// Bytes from text: `5GB`, `500MiB`, `1000`.
///
/// # Errors
/// If it is no such text.
pub fn parse_size(text: &str) -> Result<u64> {
    let bad = || {
        err!(
            Value,
            "'{text}' is no size: write 5GB, 500MiB or a number of bytes"
        )
    };
    let split = text.trim().find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.trim().split_at(split.unwrap_or(text.trim().len()));
    let unit = bytes_of_unit(unit.trim()).ok_or_else(bad)?;
    if let Ok(n) = number.parse::<u64>() {
        return n.checked_mul(unit).filter(|&n| n > 0).ok_or_else(bad);
    }
    let n: f64 = number.parse().map_err(|_| bad())?;
    let n = n * unit as f64;
    if (1.0..1e18).contains(&n) {
        Ok(n as u64)
    } else {
        Err(bad())
    }
}

fn bytes_of_unit(unit: &str) -> Option<u64> {
    Some(match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KIB" => 1 << 10,
        "MIB" => 1 << 20,
        "GIB" => 1 << 30,
        "TIB" => 1 << 40,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("5GB").unwrap(), 5_000_000_000);
        assert_eq!(parse_size("1.5 MiB").unwrap(), 3 << 19);
        assert_eq!(parse_size("77").unwrap(), 77);
        for bad in [
            "",
            "GB",
            "0",
            "-1",
            "5 apples",
            "1e300TB",
            "99999999999999999999",
        ] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, name, want) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("*.weight", "layer.0.weight", true),
            ("layer.?.*", "layer.0.weight", true),
            ("layer.?.*", "layer.10.weight", false),
            ("*a*b*c", "xxaxxbxxaxbxc", true),
            ("*a*b*c", "xxaxxbxxaxbx", false),
            ("**", "anything", true),
            ("?", "", false),
            ("é?", "éa", true),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
        let long = "a".repeat(5000);
        assert!(!matches(&format!("{}b", "*a".repeat(50)), &long));
    }
}
