//! Writing PyTorch's zip format, so that `torch.load(weights_only=True)` opens it.

use super::mmap::Bytes;
use super::pickle;
use super::tree::{Data, Tree};
use crate::{Result, ensure, err};
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Takes the next bytes of a storage.
pub type Sink<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// Hands the bytes of the storage of this number to the sink, in little-endian order and in as many pieces as
/// it likes. It is called once for each storage that is not meta, in the order of the file.
pub type Provider<'a> = dyn FnMut(u32, &mut Sink<'_>) -> Result<()> + 'a;

/// Records begin at multiples of this, so that they can be mapped as elements of any type.
const ALIGNMENT: u64 = 64;
/// What a 32-bit size or offset says when the real one is in a zip64 field.
const WIDE: u64 = 0xffff_ffff;

/// Writes a checkpoint to `path`, whole or not at all: to a file beside it, flushed to disk, then renamed.
///
/// # Errors
/// If the tree cannot be written, the provider fails or gives another number of bytes, or the disk refuses.
pub fn save(path: impl AsRef<Path>, tree: &Tree, provider: &mut Provider<'_>) -> Result<()> {
    let path = path.as_ref();
    // A link keeps pointing where it did; what it points to is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let root = target
        .file_stem()
        .and_then(|s| s.to_str())
        .unwrap_or("archive")
        .to_owned();
    let named = |e: std::io::Error| {
        let kind = crate::Error::from(std::io::Error::from(e.kind())).kind();
        crate::Error::new(kind, format!("cannot save '{}': {e}", path.display()))
    };
    let beside = beside(&target);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&beside)
        .map_err(named)?;
    let temporary = Temporary(beside);
    if let Ok(old) = fs::metadata(&target) {
        let _ = file.set_permissions(old.permissions());
    }
    let mut out = BufWriter::with_capacity(1 << 20, file);
    write(&mut out, tree, &root, provider)?;
    let file = out.into_inner().map_err(|e| named(e.into_error()))?;
    file.sync_all().map_err(named)?;
    fs::rename(&temporary.0, &target).map_err(named)?;
    std::mem::forget(temporary);
    // The rename itself is durable once the folder is; some file systems cannot do this, which is no failure.
    if let Some(folder) = target.parent().and_then(|p| File::open(p).ok()) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// A temporary file that is removed unless it was renamed.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The name of a temporary file in the folder of `target`.
fn beside(target: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(format!(".{}.{count}.tmp", std::process::id()));
    target.with_file_name(name)
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
    let root = if root.is_empty() || root.contains(['/', '\0']) || root.len() > 1000 {
        "archive"
    } else {
        root
    };
    let (pickle, used) = pickle::write(tree)?;
    let mut zip = ZipWriter {
        out,
        at: 0,
        entries: Vec::new(),
    };
    zip.small(format!("{root}/data.pkl"), &pickle)?;
    zip.small(format!("{root}/.format_version"), b"1")?;
    zip.small(
        format!("{root}/.storage_alignment"),
        ALIGNMENT.to_string().as_bytes(),
    )?;
    zip.small(format!("{root}/byteorder"), b"little")?;
    for (key, &number) in used.iter().enumerate() {
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
    archive: &'a super::Archive,
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

struct Written {
    name: String,
    at: u64,
    size: u64,
    crc: u32,
}

struct ZipWriter<'a> {
    out: &'a mut dyn Write,
    at: u64,
    entries: Vec<Written>,
}

impl ZipWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn small(&mut self, name: String, bytes: &[u8]) -> Result<()> {
        self.entry(name, bytes.len() as u64, |sink| sink(bytes))
    }

    /// Writes one stored entry. Its checksum is known only afterwards and follows in a descriptor.
    fn entry(
        &mut self,
        name: String,
        size: u64,
        fill: impl FnOnce(&mut Sink<'_>) -> Result<()>,
    ) -> Result<()> {
        let at = self.at;
        let wide = size >= WIDE;
        let mut extra = Vec::new();
        if wide {
            extra.extend_from_slice(&[1, 0, 16, 0]);
            extra.extend_from_slice(&size.to_le_bytes());
            extra.extend_from_slice(&size.to_le_bytes());
        }
        // A field of Z up to the next boundary, as PyTorch pads.
        let unpadded = at + 30 + name.len() as u64 + extra.len() as u64 + 4;
        let padding = unpadded.next_multiple_of(ALIGNMENT) - unpadded;
        extra.extend_from_slice(b"FB");
        extra.extend_from_slice(&(padding as u16).to_le_bytes());
        extra.resize(extra.len() + padding as usize, b'Z');
        let mut header = Vec::with_capacity(128);
        header.extend_from_slice(&0x0403_4b50u32.to_le_bytes());
        header.extend_from_slice(&[if wide { 45 } else { 20 }, 0, 8, 8]);
        header.extend_from_slice(&[0; 10]);
        let field = if wide { u32::MAX } else { 0 };
        header.extend_from_slice(&field.to_le_bytes());
        header.extend_from_slice(&field.to_le_bytes());
        header.extend_from_slice(&(name.len() as u16).to_le_bytes());
        header.extend_from_slice(&(extra.len() as u16).to_le_bytes());
        header.extend_from_slice(name.as_bytes());
        header.extend_from_slice(&extra);
        self.put(&header)?;
        let mut crc = crc32fast::Hasher::new();
        let mut written = 0u64;
        let out = &mut *self.out;
        fill(&mut |bytes: &[u8]| {
            written += bytes.len() as u64;
            ensure!(
                written <= size,
                Value,
                "record '{name}' was given more than its {size} bytes"
            );
            crc.update(bytes);
            Ok(out.write_all(bytes)?)
        })?;
        ensure!(
            written == size,
            Value,
            "record '{name}' was given {written} of its {size} bytes"
        );
        self.at += size;
        let crc = crc.finalize();
        let mut after = Vec::with_capacity(24);
        after.extend_from_slice(&0x0807_4b50u32.to_le_bytes());
        after.extend_from_slice(&crc.to_le_bytes());
        for _ in 0..2 {
            let bytes = size.to_le_bytes();
            after.extend_from_slice(if wide { &bytes } else { &bytes[..4] });
        }
        self.put(&after)?;
        self.entries.push(Written {
            name,
            at,
            size,
            crc,
        });
        Ok(())
    }

    /// Forty digits that are the same for the same content.
    fn identity(&self) -> String {
        let fold = |seed: u64, part: &dyn Fn(&Written) -> u64| {
            self.entries.iter().fold(seed, |h, e| {
                (h ^ part(e)).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
            })
        };
        let names = fold(0xcbf2_9ce4_8422_2325, &|e| {
            u64::from(crc32fast::hash(e.name.as_bytes())) ^ e.size << 32
        });
        let content = fold(0x8422_2325_cbf2_9ce4, &|e| u64::from(e.crc));
        format!("{names:020}{content:020}")
    }

    fn finish(mut self) -> Result<()> {
        let start = self.at;
        let entries = std::mem::take(&mut self.entries);
        let mut directory = Vec::with_capacity(entries.len() * 64);
        let clamp = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        for e in &entries {
            let mut extra = Vec::new();
            if e.size >= WIDE {
                extra.extend_from_slice(&e.size.to_le_bytes());
                extra.extend_from_slice(&e.size.to_le_bytes());
            }
            if e.at >= WIDE {
                extra.extend_from_slice(&e.at.to_le_bytes());
            }
            let version = if extra.is_empty() { 20 } else { 45 };
            directory.extend_from_slice(&0x0201_4b50u32.to_le_bytes());
            directory.extend_from_slice(&[version, 0, version, 0, 8, 8]);
            directory.extend_from_slice(&[0; 6]);
            directory.extend_from_slice(&e.crc.to_le_bytes());
            directory.extend_from_slice(&clamp(e.size).to_le_bytes());
            directory.extend_from_slice(&clamp(e.size).to_le_bytes());
            directory.extend_from_slice(&(e.name.len() as u16).to_le_bytes());
            let extra_len = if extra.is_empty() {
                0
            } else {
                extra.len() as u16 + 4
            };
            directory.extend_from_slice(&extra_len.to_le_bytes());
            directory.extend_from_slice(&[0; 10]);
            directory.extend_from_slice(&clamp(e.at).to_le_bytes());
            directory.extend_from_slice(e.name.as_bytes());
            if !extra.is_empty() {
                directory.extend_from_slice(&[1, 0]);
                directory.extend_from_slice(&(extra.len() as u16).to_le_bytes());
                directory.extend_from_slice(&extra);
            }
        }
        self.put(&directory)?;
        let (count, size, end) = (entries.len() as u64, directory.len() as u64, self.at);
        let mut last = Vec::with_capacity(98);
        if count >= 0xffff || size >= WIDE || start >= WIDE {
            last.extend_from_slice(&0x0606_4b50u32.to_le_bytes());
            last.extend_from_slice(&44u64.to_le_bytes());
            last.extend_from_slice(&[45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            for n in [count, count, size, start] {
                last.extend_from_slice(&n.to_le_bytes());
            }
            last.extend_from_slice(&0x0706_4b50u32.to_le_bytes());
            last.extend_from_slice(&0u32.to_le_bytes());
            last.extend_from_slice(&end.to_le_bytes());
            last.extend_from_slice(&1u32.to_le_bytes());
        }
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        last.extend_from_slice(&0x0605_4b50u32.to_le_bytes());
        last.extend_from_slice(&[0; 4]);
        last.extend_from_slice(&count.to_le_bytes());
        last.extend_from_slice(&count.to_le_bytes());
        last.extend_from_slice(&clamp(size).to_le_bytes());
        last.extend_from_slice(&clamp(start).to_le_bytes());
        last.extend_from_slice(&[0; 2]);
        self.put(&last)?;
        Ok(self.out.flush()?)
    }
}
