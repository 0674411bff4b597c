//! A reader of zip archives that proves what it is told before anything is read.
//!
//! Only the central directory is believed, and only where each local header agrees with it: ranges lie
//! in the file, no two entries overlap, no name occurs twice. Checksums are known but not verified on open.

mod directory;
mod header;

use super::mmap::Bytes;
use crate::{Result, ensure, err};
use directory::Directory;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;

/// How an entry's bytes are kept in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// As they are.
    Stored,
    /// Compressed with deflate.
    Deflated,
}

/// One file of a zip archive.
#[derive(Clone, Debug)]
pub struct Entry {
    name: (usize, u16),
    header: u64,
    flags: u16,
    /// How the bytes are kept.
    pub method: Method,
    /// Where they begin in the file.
    pub data: u64,
    /// How many bytes of the file they take.
    pub compressed: u64,
    /// How many bytes they are.
    pub size: u64,
    /// The CRC-32 of the bytes.
    pub crc: u32,
}

/// An archive whose directory has been read and proved.
pub struct Zip {
    bytes: Bytes,
    entries: Vec<Entry>,
    names: NameTable,
}

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(
        b.get(at..at.checked_add(2)?)?.try_into().ok()?,
    ))
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        b.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(
        b.get(at..at.checked_add(8)?)?.try_into().ok()?,
    ))
}

/// The first bytes of what a compressed range inflates to: `want` of them, or all if they are fewer.
///
/// # Errors
/// If the range does not lie in the file, or is damaged.
pub fn inflate_head(bytes: &Bytes, at: u64, compressed: u64, want: u64) -> Result<Bytes> {
    let end = at
        .checked_add(compressed)
        .ok_or_else(|| err!(Checkpoint, "a compressed range overflows"))?;
    let input = bytes.slice(at..end)?;
    let mut out = Vec::new();
    flate2::read::DeflateDecoder::new(&input[..])
        .take(want)
        .read_to_end(&mut out)
        .map_err(|e| err!(Checkpoint, "damaged compressed data at offset {at}: {e}"))?;
    Ok(Bytes::from(out))
}

impl Zip {
    /// Reads and proves the directory of an archive.
    ///
    /// # Errors
    /// Of kind `Checkpoint`, naming the offset and what is wrong there.
    pub fn open(bytes: Bytes) -> Result<Self> {
        let directory = Directory::find(&bytes)?;
        let mut entries = directory.entries(&bytes)?;
        // Large records lie far apart; small ones are best read as they come.
        let apart = bytes.len() / (entries.len() + 1) > 256 << 10;
        if apart {
            bytes.scattered(true);
        }
        for entry in &mut entries {
            header::check(&bytes, entry, directory.start as u64)?;
        }
        if apart {
            bytes.scattered(false);
        }
        header::check_overlap(&bytes, &entries)?;
        let names = NameTable::build(&bytes, &entries)?;
        Ok(Self {
            bytes,
            entries,
            names,
        })
    }

    /// All entries, in the order of the directory.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The name of entry `i`.
    #[must_use]
    pub fn name(&self, i: usize) -> &str {
        self.entries.get(i).map_or("", |e| name_of(&self.bytes, e))
    }

    /// The entry of this name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.names.find(&self.bytes, &self.entries, name)
    }

    /// The bytes of entry `i`: a slice of the file if stored, else inflated into memory, never more than
    /// `limit` bytes nor more than the directory says.
    ///
    /// # Errors
    /// If the entry is larger than `limit`, or its compressed bytes are damaged.
    pub fn read(&self, i: usize, limit: u64) -> Result<Bytes> {
        let entry = self
            .entries
            .get(i)
            .ok_or_else(|| err!(Checkpoint, "no entry number {i}"))?;
        let name = name_of(&self.bytes, entry);
        ensure!(
            entry.size <= limit,
            Checkpoint,
            "record '{name}' at offset {} has {} bytes where at most {limit} are expected",
            entry.data,
            entry.size
        );
        match entry.method {
            Method::Stored => self.bytes.slice(entry.data..entry.data + entry.compressed),
            Method::Deflated => inflate(&self.bytes, entry.data, entry.compressed, entry.size)
                .map_err(|e| err!(Checkpoint, "record '{name}': {e}")),
        }
    }
}

/// Inflates `compressed` bytes at `at` to exactly `size` bytes.
///
/// # Errors
/// If the data is damaged, or inflates to another number of bytes.
pub fn inflate(bytes: &Bytes, at: u64, compressed: u64, size: u64) -> Result<Bytes> {
    let end = at
        .checked_add(compressed)
        .ok_or_else(|| err!(Checkpoint, "a compressed range overflows"))?;
    let input = bytes.slice(at..end)?;
    // Deflate cannot exceed 1032 to 1; a larger claim is a lie and must not reserve memory.
    ensure!(
        size / 1040 <= compressed,
        Checkpoint,
        "{compressed} compressed bytes at offset {at} cannot hold the {size} bytes claimed"
    );
    let size =
        usize::try_from(size).map_err(|_| err!(Memory, "{size} bytes do not fit into memory"))?;
    let mut out = Vec::new();
    out.try_reserve_exact(size)
        .map_err(|_| err!(Memory, "no memory for {size} inflated bytes"))?;
    let mut decoder = flate2::read::DeflateDecoder::new(&input[..]).take(size as u64 + 1);
    decoder
        .read_to_end(&mut out)
        .map_err(|e| err!(Checkpoint, "damaged compressed data at offset {at}: {e}"))?;
    ensure!(
        out.len() == size,
        Checkpoint,
        "compressed data at offset {at} inflates to {} than the {size} bytes claimed",
        if out.len() > size { "more" } else { "fewer" }
    );
    Ok(Bytes::from(out))
}

fn raw_name<'a>(bytes: &'a [u8], entry: &Entry) -> &'a [u8] {
    let (at, len) = entry.name;
    bytes.get(at..at + usize::from(len)).unwrap_or(&[])
}

fn name_of<'a>(bytes: &'a [u8], entry: &Entry) -> &'a str {
    std::str::from_utf8(raw_name(bytes, entry)).unwrap_or("")
}

/// An open-addressing table from names to entries that keeps no copies of the names.
struct NameTable {
    slots: Vec<u32>,
    hasher: RandomState,
}

impl NameTable {
    fn build(b: &[u8], entries: &[Entry]) -> Result<Self> {
        let mut table = Self {
            slots: vec![u32::MAX; (entries.len() * 2 + 1).next_power_of_two()],
            hasher: RandomState::new(),
        };
        for (i, entry) in entries.iter().enumerate() {
            let (slot, used) = table.probe(b, entries, raw_name(b, entry));
            ensure!(
                !used,
                Checkpoint,
                "zip directory lists '{}' twice",
                name_of(b, entry)
            );
            table.slots[slot] = i as u32;
        }
        Ok(table)
    }

    /// The slot of `name`, and whether it is taken.
    fn probe(&self, b: &[u8], entries: &[Entry], name: &[u8]) -> (usize, bool) {
        let mask = self.slots.len() - 1;
        let mut slot = self.hasher.hash_one(name) as usize & mask;
        loop {
            match entries.get(self.slots[slot] as usize) {
                None => return (slot, false),
                Some(e) if raw_name(b, e) == name => return (slot, true),
                Some(_) => slot = (slot + 1) & mask,
            }
        }
    }

    fn find(&self, b: &[u8], entries: &[Entry], name: &[u8]) -> Option<usize> {
        let (slot, used) = self.probe(b, entries, name);
        used.then(|| self.slots[slot] as usize)
    }
}
