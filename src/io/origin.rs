//! Where an archive's bytes come from, and how the bytes of one storage are had later: read again from the file,
//! which must not have changed meanwhile.

use super::mmap::{Bytes, Private};
use super::tree::Data;
use super::{Archive, StorageRef};
use crate::{Error, Result, Storage, bail, ensure, err};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What tells one state of a file from another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified: Option<std::time::SystemTime>,
    #[cfg(unix)]
    inode: (u64, u64),
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self {
            size: meta.len(),
            modified: meta.modified().ok(),
            #[cfg(unix)]
            inode: {
                use std::os::unix::fs::MetadataExt;
                (meta.dev(), meta.ino())
            },
        }
    }

    /// What is different, for people.
    fn difference(&self, now: &Self) -> String {
        if self.size != now.size {
            return format!("its size was {} bytes and is {}", self.size, now.size);
        }
        #[cfg(unix)]
        if self.inode != now.inode {
            return "another file is in its place".into();
        }
        "it was written to".into()
    }
}

/// The file or memory that an archive was opened from.
pub struct Origin {
    path: Option<PathBuf>,
    /// Where that is, wherever the process works meanwhile.
    place: Option<PathBuf>,
    stamp: Option<Stamp>,
    /// Where the archive begins in the file.
    base: u64,
    pub(super) bytes: Bytes,
    open: Mutex<Weak<File>>,
}

impl Origin {
    pub(super) fn file(path: &Path, base: u64) -> Result<Self> {
        let (bytes, meta) = Bytes::map_with(path)?;
        let bytes = bytes.slice(base.min(bytes.len() as u64)..bytes.len() as u64)?;
        Ok(Self {
            path: Some(path.to_owned()),
            place: Some(std::path::absolute(path)?),
            stamp: Some(Stamp::of(&meta)),
            base,
            bytes,
            open: Mutex::default(),
        })
    }

    pub(super) fn memory(bytes: Bytes) -> Self {
        let (path, place, stamp, open) = (None, None, None, Mutex::default());
        Self {
            path,
            place,
            stamp,
            base: 0,
            bytes,
            open,
        }
    }

    /// A part of this origin as one of its own, for files inside files.
    pub(super) fn part(&self, start: u64, end: u64) -> Result<Self> {
        Ok(Self {
            path: self.path.clone(),
            place: self.place.clone(),
            stamp: self.stamp.clone(),
            base: self.base + start,
            bytes: self.bytes.slice(start..end)?,
            open: Mutex::default(),
        })
    }

    /// The path, if it is a file.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The file itself if it is still as it was when the archive was opened; none for memory. It is kept open as
    /// long as somebody holds it.
    ///
    /// # Errors
    /// If the file is gone or has changed, saying how.
    pub fn reopen(&self) -> Result<Option<Arc<File>>> {
        let (Some(path), Some(place), Some(stamp)) = (&self.path, &self.place, &self.stamp) else {
            return Ok(None);
        };
        let changed = |what: String| {
            err!(
                Checkpoint,
                "'{}' has changed since it was loaded: {what}; load it again",
                path.display()
            )
        };
        let gone = |e: std::io::Error| changed(format!("it cannot be opened any more ({e})"));
        let now = Stamp::of(&std::fs::metadata(place).map_err(gone)?);
        ensure!(
            now == *stamp,
            Checkpoint,
            "{}",
            changed(stamp.difference(&now))
        );
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.upgrade() {
            return Ok(Some(file));
        }
        let file = Arc::new(File::open(place).map_err(gone)?);
        *open = Arc::downgrade(&file);
        Ok(Some(file))
    }

    /// What it is, for people.
    pub(super) fn describe(&self) -> String {
        let path = self.path.as_ref();
        path.map_or_else(
            || "bytes in memory".to_owned(),
            |p| format!("file '{}'", p.display()),
        )
    }

    fn named(&self, e: Error) -> Error {
        match &self.path {
            Some(path) => Error::new(e.kind(), format!("'{}': {}", path.display(), e.message())),
            None => e,
        }
    }

    /// Copies bytes of the archive into `to`: from the file itself, so that a file that has shrunk is an error and
    /// no signal, and no page is mapped for it.
    pub(super) fn copy(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let len = to.len() as u64;
        #[cfg(unix)]
        if let Some(file) = self.reopen()? {
            use std::os::unix::fs::FileExt;
            let at = self
                .base
                .checked_add(offset)
                .ok_or_else(|| err!(Checkpoint, "an offset overflows"))?;
            return file
                .read_exact_at(to, at)
                .map_err(|e| self.named(err!(Io, "reading {len} bytes at {at}: {e}")));
        }
        #[cfg(not(unix))]
        self.reopen()?;
        let end = offset
            .checked_add(len)
            .ok_or_else(|| err!(Checkpoint, "an offset overflows"))?;
        to.copy_from_slice(&self.bytes.slice(offset..end).map_err(|e| self.named(e))?);
        Ok(())
    }
}

/// One storage of an archive: all that is needed to read its bytes later.
pub struct Part {
    archive: Arc<Archive>,
    storage: usize,
}

impl Part {
    /// Storage number `storage` of an archive.
    #[must_use]
    pub fn new(archive: Arc<Archive>, storage: usize) -> Self {
        Self { archive, storage }
    }

    fn located(&self) -> (&Archive, &StorageRef) {
        locate(&self.archive, &self.archive.tree().storages[self.storage])
    }

    /// How many bytes.
    #[must_use]
    pub fn nbytes(&self) -> u64 {
        self.archive.tree().storages[self.storage].nbytes
    }

    /// What it is, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let (archive, storage) = self.located();
        let file = archive.origin.describe();
        match storage.data {
            Data::Stored { offset } => {
                let at = archive.origin.base + offset;
                format!("{file}, bytes {at}..{}", at.saturating_add(storage.nbytes))
            }
            _ => format!("{file}, record '{}'", storage.key),
        }
    }

    /// All bytes, in little-endian order, in host memory.
    ///
    /// # Errors
    /// If the file has changed or cannot be read.
    pub fn fetch(&self) -> Result<Storage> {
        super::fetch::storages(&self.archive, &[self.storage])?
            .pop()
            .ok_or_else(|| err!(Checkpoint, "a storage that is not there"))
    }

    /// Some of them.
    ///
    /// # Errors
    /// As [`Part::fetch`].
    pub fn fetch_range(&self, start: u64, nbytes: u64) -> Result<Storage> {
        let (archive, storage) = self.located();
        super::fetch::range(archive, storage, start, nbytes)
    }
}

/// The archive among the shards that has the bytes of a storage, and its name for it.
pub(super) fn locate<'a>(
    archive: &'a Archive,
    storage: &'a StorageRef,
) -> (&'a Archive, &'a StorageRef) {
    let (mut archive, mut storage) = (archive, storage);
    // Shards have no shards of their own beyond a few levels.
    while let Data::Shard {
        shard,
        storage: inner,
    } = storage.data
    {
        let next = archive.shards.get(shard as usize);
        let Some((a, s)) = next.and_then(|a| Some((a, a.tree().storages.get(inner as usize)?)))
        else {
            break;
        };
        (archive, storage) = (a, s);
    }
    (archive, storage)
}

impl Archive {
    /// Which file has the bytes of a storage as they are (0 for this archive's own, else one more than the number of the
    /// shard), and where in it they begin.
    #[must_use]
    pub fn place(&self, storage: &StorageRef) -> Option<(usize, u64)> {
        match storage.data {
            Data::Stored { offset } if self.is_plain(storage) => {
                Some((0, self.origin.base.checked_add(offset)?))
            }
            Data::Shard { shard, storage } => {
                let archive = self.shards.get(shard as usize)?;
                let storage = archive.tree().storages.get(storage as usize)?;
                let (file, at) = archive.place(storage)?;
                (file == 0).then_some((shard as usize + 1, at))
            }
            _ => None,
        }
    }

    /// The files of [`Archive::place`], mapped so that writes stay in this process; none for memory.
    ///
    /// # Errors
    /// If a file has changed since it was opened, or cannot be mapped.
    pub fn map_private(&self) -> Result<Vec<Option<Private>>> {
        let mut maps: HashMap<PathBuf, Private> = HashMap::new();
        let mut out = Vec::with_capacity(self.shards.len() + 1);
        for archive in std::iter::once(self).chain(&self.shards) {
            let map = match archive.path() {
                // An index or an empty file has no storages.
                None => None,
                Some(_) if archive.origin.bytes.is_empty() => None,
                Some(path) => match maps.get(path) {
                    Some(map) => Some(map.clone()),
                    None => {
                        archive.origin.reopen()?;
                        let map = Private::map(path)?;
                        maps.insert(path.to_owned(), map.clone());
                        Some(map)
                    }
                },
            };
            out.push(map);
        }
        Ok(out)
    }

    /// True if the bytes lie in the file as they are.
    #[must_use]
    pub fn is_plain(&self, storage: &StorageRef) -> bool {
        let unit = storage.dtype.map_or(1, |d| d.to_real().size());
        matches!(storage.data, Data::Stored { .. }) && (!self.is_big_endian() || unit == 1)
    }

    /// Copies bytes of a storage, from `start` on and in little-endian order, into `to`.
    ///
    /// # Errors
    /// If the file has changed since it was opened, or cannot be read.
    pub fn copy_storage(&self, storage: &StorageRef, start: u64, to: &mut [u8]) -> Result<()> {
        let (archive, storage) = locate(self, storage);
        let end = start.checked_add(to.len() as u64);
        ensure!(
            end.is_some_and(|end| end <= storage.nbytes),
            Checkpoint,
            "bytes outside storage '{}'",
            storage.key
        );
        match storage.data {
            Data::Stored { offset } if archive.is_plain(storage) => {
                archive.origin.copy(offset + start, to)
            }
            Data::Meta | Data::Given => bail!(
                Checkpoint,
                "storage '{}' has no bytes in the file",
                storage.key
            ),
            _ => {
                archive.origin.reopen()?;
                let all = archive.read_storage(storage)?;
                to.copy_from_slice(&all[start as usize..start as usize + to.len()]);
                Ok(())
            }
        }
    }
}
