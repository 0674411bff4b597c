//! Writing PyTorch's zip format, so that `torch.load(weights_only=True)` opens it.

use super::atomic::AtomicFile;
use super::zip::{ALIGNMENT, ZipWriter};
use super::{Provider, Sink};
use crate::io::mmap::Bytes;
use crate::io::tree::{Data, Tree};
use crate::io::{Archive, pickle};
use crate::{Result, err};
use std::io::Write;
use std::path::Path;

/// Writes a checkpoint to `path`, whole or not at all: to a file beside it, flushed to disk, then renamed.
///
/// # Errors
/// If the tree cannot be written, the provider fails or gives another number of bytes, or the disk refuses.
pub fn save(path: impl AsRef<Path>, tree: &Tree, provider: &mut Provider<'_>) -> Result<()> {
    let path = path.as_ref();
    let mut out = AtomicFile::create(path)?;
    write(&mut out, tree, root_of(path), provider)?;
    out.flush()?.publish()
}

/// The folder that records have in the archive: the name of the file, as PyTorch has it.
pub(super) fn root_of(path: &Path) -> &str {
    path.file_stem()
        .and_then(|s| s.to_str())
        .unwrap_or("archive")
}

/// Writes a checkpoint into memory; see [`save`].
///
/// # Errors
/// As [`save`], without a disk.
pub fn to_vec(tree: &Tree, provider: &mut Provider<'_>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    write(&mut out, tree, "archive", provider)?;
    Ok(out)
}

/// Writes a checkpoint as a stream, from its first byte to its last; see [`save`]. `root` names the folder in the archive.
///
/// # Errors
/// As [`save`].
pub fn write(
    out: &mut dyn Write,
    tree: &Tree,
    root: &str,
    provider: &mut Provider<'_>,
) -> Result<()> {
    let root = root_name(root);
    let (pickle, used) = pickle::write(tree, pickle::Form::Zip)?;
    let mut zip = ZipWriter::new(out);
    zip.small(format!("{root}/data.pkl"), &pickle)?;
    zip.small(format!("{root}/.format_version"), b"1")?;
    zip.small(
        format!("{root}/.storage_alignment"),
        ALIGNMENT.to_string().as_bytes(),
    )?;
    zip.small(format!("{root}/byteorder"), b"little")?;
    for (key, &pickle::Used { number, .. }) in used.iter().enumerate() {
        let storage = tree
            .storages
            .get(number as usize)
            .filter(|s| s.data != Data::Meta);
        let nbytes = storage
            .ok_or_else(|| err!(Value, "storage {number} has no bytes to save"))?
            .nbytes;
        zip.entry(format!("{root}/data/{key}"), nbytes, |sink| {
            provider(number, sink)
        })?;
    }
    zip.small(format!("{root}/version"), b"3\n")?;
    let id = zip.identity();
    zip.small(format!("{root}/.data/serialization_id"), id.as_bytes())?;
    zip.finish()
}

/// The bytes of every storage of an archive, for writing it again.
pub fn from_archive<'a>(
    archive: &'a Archive,
    tree: &'a Tree,
) -> impl FnMut(u32, &mut Sink<'_>) -> Result<()> + 'a {
    move |number, sink| {
        let storage = tree
            .storages
            .get(number as usize)
            .ok_or_else(|| err!(Value, "no storage {number}"))?;
        let bytes: Bytes = archive.read_storage(storage)?;
        sink(&bytes)
    }
}

/// The name of the folder that all records lie in, which may be any plain name.
fn root_name(asked: &str) -> &str {
    if asked.is_empty() || asked.contains(['/', '\0']) || asked.len() > 1000 {
        "archive"
    } else {
        asked
    }
}
