//! Reading many storages at once: several threads, each taking the next piece.

#![allow(
    unsafe_code,
    reason = "several threads fill parts of one fresh allocation"
)]

use super::origin::locate;
use super::{Archive, StorageRef};
use crate::{Device, Error, Result, Storage, err};
use std::sync::Mutex;
use std::sync::PoisonError;

/// Bytes of one piece: large enough for a read to cost no more than the copy.
const PIECE: usize = 8 << 20;
/// Below this many bytes another thread costs more than it saves.
const WORTH: u64 = 4 << 20;

struct Piece<'a> {
    storage: usize,
    start: u64,
    to: &'a mut [u8],
}

/// Reads storages of an archive into host memory of their own, in the order asked for.
///
/// # Errors
/// If one cannot be read, or memory cannot be had.
pub fn storages(archive: &Archive, wanted: &[usize]) -> Result<Vec<Storage>> {
    let list = &archive.tree().storages;
    let mut made = Vec::with_capacity(wanted.len());
    let (mut pieces, mut total) = (Vec::new(), 0u64);
    for &i in wanted {
        let r = list
            .get(i)
            .ok_or_else(|| err!(Checkpoint, "no storage number {i}"))?;
        let n = usize::try_from(r.nbytes)
            .map_err(|_| err!(Memory, "a storage of {} bytes is too large", r.nbytes))?;
        made.push(Storage::empty(n, Device::CPU)?);
        total = total.saturating_add(r.nbytes);
    }
    for (&i, storage) in wanted.iter().zip(&made) {
        let (at, r) = locate(archive, &list[i]);
        // What has to be decoded is decoded in one go.
        let piece = if at.is_plain(r) { PIECE } else { usize::MAX };
        let mut start = 0;
        if storage.nbytes() == 0 {
            continue;
        }
        // SAFETY: the storage was just made, owns this many bytes, outlives the pieces and is not shown to anybody
        // before they are gone; bytes are only written here.
        let bytes = unsafe { std::slice::from_raw_parts_mut(storage.ptr(), storage.nbytes()) };
        for to in bytes.chunks_mut(piece) {
            let len = to.len() as u64;
            pieces.push(Piece {
                storage: i,
                start,
                to,
            });
            start += len;
        }
    }
    // The files stay open while all is read.
    let _open: Vec<_> = std::iter::once(archive)
        .chain(&archive.shards)
        .filter(|_| !pieces.is_empty())
        .take(64)
        .map(|a| a.origin.reopen())
        .collect::<Result<_>>()?;
    let threads = if total < WORTH {
        1
    } else {
        std::thread::available_parallelism()
            .map_or(1, usize::from)
            .clamp(1, 8)
    };
    let queue = Mutex::new(pieces.into_iter());
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    let work = || {
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(piece) = next else { return };
            if let Err(e) = archive.copy_storage(&list[piece.storage], piece.start, piece.to) {
                failed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_or_insert(e);
                return;
            }
        }
    };
    if threads == 1 {
        work();
    } else {
        std::thread::scope(|s| {
            for _ in 1..threads {
                s.spawn(work);
            }
            work();
        });
    }
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(e) => Err(e),
        None => Ok(made),
    }
}

/// Reads some bytes of a storage into host memory.
///
/// # Errors
/// As [`storages`].
pub fn range(archive: &Archive, storage: &StorageRef, start: u64, nbytes: u64) -> Result<Storage> {
    filled(nbytes, |to| archive.copy_storage(storage, start, to))
}

/// Host memory of this many bytes, filled by a function.
///
/// # Errors
/// What the function reports, or if memory cannot be had.
pub(super) fn filled(nbytes: u64, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Storage> {
    let n = usize::try_from(nbytes)
        .map_err(|_| err!(Memory, "a storage of {nbytes} bytes is too large"))?;
    let made = Storage::empty(n, Device::CPU)?;
    if n > 0 {
        // SAFETY: as above: fresh, of this size, and not shared yet.
        fill(unsafe { std::slice::from_raw_parts_mut(made.ptr(), n) })?;
    }
    Ok(made)
}
