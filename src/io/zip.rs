//! A reader of zip archives that proves what it is told before anything is read.
//!
//! Only the central directory is believed, and only where each local header agrees with it: ranges lie
//! in the file, no two entries overlap, no name occurs twice. Checksums are known but not verified on open.

use super::mmap::Bytes;
use crate::{Result, bail, ensure, err};
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

const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const LOCAL: u32 = 0x0403_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;
const CENTRAL_LEN: usize = 46;
const LOCAL_LEN: u64 = 30;

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

/// Where the central directory lies, and how many entries it lists.
struct Directory {
    start: usize,
    end: usize,
    count: u64,
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
        let directory = find_directory(&bytes)?;
        let mut entries = read_directory(&bytes, &directory)?;
        // Large records lie far apart; small ones are best read as they come.
        let apart = bytes.len() / (entries.len() + 1) > 256 << 10;
        if apart {
            bytes.scattered(true);
        }
        for entry in &mut entries {
            check_local(&bytes, entry, directory.start as u64)?;
        }
        if apart {
            bytes.scattered(false);
        }
        check_overlap(&bytes, &entries)?;
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

fn find_directory(b: &[u8]) -> Result<Directory> {
    let cut = "the file is truncated or damaged (an incomplete download?); fetch it again";
    let lowest = b.len().saturating_sub(22 + 0xffff);
    let end = (lowest..=b.len().saturating_sub(22)).rev().find(|&at| {
        u32_at(b, at) == Some(END)
            && u16_at(b, at + 20).is_some_and(|n| at + 22 + usize::from(n) == b.len())
    });
    let Some(end) = end.filter(|_| b.len() >= 22) else {
        bail!(
            Checkpoint,
            "no zip end record in the last bytes of {}: the central directory is missing; {cut}",
            b.len()
        );
    };
    let short = || {
        err!(
            Checkpoint,
            "zip end record at offset {end} is cut short; {cut}"
        )
    };
    let f16 = |at: usize| u16_at(b, end + at).ok_or_else(short);
    let f32 = |at: usize| u32_at(b, end + at).ok_or_else(short);
    ensure!(
        f16(4)? == 0 && f16(6)? == 0,
        Checkpoint,
        "zip end record at offset {end}: archives of several disks are not supported"
    );
    ensure!(
        f16(8)? == f16(10)?,
        Checkpoint,
        "zip end record at offset {end}: two different entry counts"
    );
    let (mut count, mut size, mut start) = (
        u64::from(f16(10)?),
        u64::from(f32(12)?),
        u64::from(f32(16)?),
    );
    let mut limit = end;
    let locator = end
        .checked_sub(20)
        .filter(|&at| u32_at(b, at) == Some(LOCATOR64));
    if let Some(locator) = locator {
        let damaged = |what: &str| {
            err!(
                Checkpoint,
                "zip64 end record named at offset {locator}: {what}"
            )
        };
        let at = u64_at(b, locator + 8).ok_or_else(short)?;
        let at = usize::try_from(at)
            .ok()
            .filter(|&at| at < locator)
            .ok_or_else(|| damaged("lies outside the file"))?;
        ensure!(
            u32_at(b, at) == Some(END64),
            Checkpoint,
            "no zip64 end record at offset {at}, where offset {locator} says it is"
        );
        let f64 = |o: usize| u64_at(b, at + o).ok_or_else(short);
        ensure!(
            f64(4)?.checked_add(at as u64 + 12) == Some(locator as u64),
            Checkpoint,
            "zip64 end record at offset {at} has a wrong length"
        );
        ensure!(
            f64(16)? == 0,
            Checkpoint,
            "zip64 end record at offset {at}: several disks"
        );
        let wide = (f64(32)?, f64(40)?, f64(48)?);
        ensure!(
            f64(24)? == wide.0,
            Checkpoint,
            "zip64 end record at offset {at}: two different entry counts"
        );
        let agrees = (count == 0xffff || count == wide.0)
            && (size == 0xffff_ffff || size == wide.1)
            && (start == 0xffff_ffff || start == wide.2);
        ensure!(
            agrees,
            Checkpoint,
            "zip end records at offsets {at} and {end} disagree"
        );
        (count, size, start) = wide;
        limit = at;
    }
    ensure!(
        start.checked_add(size) == Some(limit as u64),
        Checkpoint,
        "zip central directory of {size} bytes at offset {start} does not end at the end record at offset {limit}"
    );
    ensure!(
        count <= size / CENTRAL_LEN as u64,
        Checkpoint,
        "zip directory of {size} bytes at offset {start} cannot list the {count} entries claimed"
    );
    Ok(Directory {
        start: start as usize,
        end: limit,
        count,
    })
}

fn read_directory(b: &[u8], directory: &Directory) -> Result<Vec<Entry>> {
    let mut entries = Vec::with_capacity(directory.count as usize);
    let mut at = directory.start;
    while at < directory.end {
        let short = || {
            err!(
                Checkpoint,
                "zip directory entry at offset {at} is cut short"
            )
        };
        let h = b
            .get(at..directory.end)
            .filter(|h| h.len() >= CENTRAL_LEN)
            .ok_or_else(short)?;
        ensure!(
            u32_at(h, 0) == Some(CENTRAL),
            Checkpoint,
            "no zip directory entry at offset {at}, where one is due"
        );
        let f16 = |o: usize| u16_at(h, o).unwrap_or(0);
        let f32 = |o: usize| u32_at(h, o).unwrap_or(0);
        let (name_len, extra_len, comment_len) = (
            usize::from(f16(28)),
            usize::from(f16(30)),
            usize::from(f16(32)),
        );
        let total = CENTRAL_LEN + name_len + extra_len + comment_len;
        ensure!(
            total <= h.len(),
            Checkpoint,
            "zip directory entry at offset {at} reaches beyond the directory"
        );
        let name = std::str::from_utf8(&h[CENTRAL_LEN..CENTRAL_LEN + name_len]).map_err(|_| {
            err!(
                Checkpoint,
                "zip directory entry at offset {at}: its name is not UTF-8"
            )
        })?;
        ensure!(
            !name.is_empty() && !name.contains('\0'),
            Checkpoint,
            "zip directory entry at offset {at}: its name is empty or holds NUL"
        );
        let flags = f16(8);
        ensure!(
            flags & 0x2041 == 0,
            Checkpoint,
            "zip entry '{name}' at offset {at} is encrypted, which is not supported"
        );
        ensure!(
            f16(34) == 0,
            Checkpoint,
            "zip entry '{name}' at offset {at} is on another disk"
        );
        let method = match f16(10) {
            0 => Method::Stored,
            8 => Method::Deflated,
            other => bail!(
                Checkpoint,
                "zip entry '{name}' at offset {at} uses compression method {other}, which is not supported"
            ),
        };
        let extra = &h[CENTRAL_LEN + name_len..CENTRAL_LEN + name_len + extra_len];
        let mut wide = [u64::from(f32(24)), u64::from(f32(20)), u64::from(f32(42))];
        widen(extra, &mut wide)
            .map_err(|e| err!(Checkpoint, "zip entry '{name}' at offset {at}: {e}"))?;
        let [size, compressed, header] = wide;
        ensure!(
            method != Method::Stored || size == compressed,
            Checkpoint,
            "zip entry '{name}' at offset {at} is stored, yet has two sizes: {compressed} and {size}"
        );
        let name = (at + CENTRAL_LEN, name_len as u16);
        entries.push(Entry {
            name,
            header,
            flags,
            method,
            data: 0,
            compressed,
            size,
            crc: f32(16),
        });
        at += total;
    }
    ensure!(
        entries.len() as u64 == directory.count,
        Checkpoint,
        "zip directory at offset {} has {} entries where {} are claimed",
        directory.start,
        entries.len(),
        directory.count
    );
    Ok(entries)
}

/// Replaces sizes and offset of all ones by those of the zip64 extra field.
fn widen(extra: &[u8], fields: &mut [u64]) -> Result<()> {
    let mut at = 0;
    let mut found = None;
    while at < extra.len() {
        // Fewer than four bytes left over are padding, which some writers leave.
        let (Some(id), Some(len)) = (u16_at(extra, at), u16_at(extra, at + 2)) else {
            break;
        };
        let body = extra.get(at + 4..at + 4 + usize::from(len));
        let body =
            body.ok_or_else(|| err!(Checkpoint, "an extra field reaches beyond its header"))?;
        if id == 1 {
            ensure!(found.is_none(), Checkpoint, "two zip64 extra fields");
            found = Some(body);
        }
        at += 4 + usize::from(len);
    }
    let mut used = 0;
    for field in fields.iter_mut().filter(|f| **f == 0xffff_ffff) {
        let Some(body) = found else { continue };
        *field = u64_at(body, used)
            .ok_or_else(|| err!(Checkpoint, "a zip64 extra field that is too short"))?;
        used += 8;
    }
    Ok(())
}

/// Proves that the local header agrees with the directory, and sets where the data begins.
fn check_local(b: &[u8], entry: &mut Entry, limit: u64) -> Result<()> {
    let at = entry.header;
    let name = name_of(b, entry);
    let bad = |what: &str| {
        err!(
            Checkpoint,
            "zip entry '{name}': its local header at offset {at} {what}"
        )
    };
    let start = usize::try_from(at)
        .ok()
        .filter(|_| at < limit)
        .ok_or_else(|| bad("lies outside the file"))?;
    let h = &b[start..limit as usize];
    ensure!(
        h.len() as u64 >= LOCAL_LEN,
        Checkpoint,
        "{}",
        bad("is cut short")
    );
    ensure!(
        u32_at(h, 0) == Some(LOCAL),
        Checkpoint,
        "{}",
        bad("has a wrong signature")
    );
    let f16 = |o: usize| u16_at(h, o).unwrap_or(0);
    let f32 = |o: usize| u32_at(h, o).unwrap_or(0);
    let method = if entry.method == Method::Stored { 0 } else { 8 };
    ensure!(
        f16(8) == method,
        Checkpoint,
        "{}",
        bad("names another compression method")
    );
    ensure!(
        (f16(6) ^ entry.flags) & 0x2049 == 0,
        Checkpoint,
        "{}",
        bad("has other flags")
    );
    let (name_len, extra_len) = (usize::from(f16(26)), usize::from(f16(28)));
    ensure!(
        h.get(30..30 + name_len) == Some(name.as_bytes()),
        Checkpoint,
        "{}",
        bad("has another name")
    );
    let extra = h
        .get(30 + name_len..30 + name_len + extra_len)
        .ok_or_else(|| bad("is cut short"))?;
    let data = at + LOCAL_LEN + (name_len + extra_len) as u64;
    let end = data
        .checked_add(entry.compressed)
        .filter(|&end| end <= limit);
    let end = end.ok_or_else(|| bad("is followed by less data than the directory says"))?;
    if entry.flags & 8 == 0 {
        let mut wide = [u64::from(f32(22)), u64::from(f32(18))];
        // Only some writers use zip64 here; torch's padding field is not a proper field list.
        if wide.contains(&0xffff_ffff) {
            widen(extra, &mut wide).map_err(|e| bad(e.message()))?;
        }
        ensure!(
            wide == [entry.size, entry.compressed],
            Checkpoint,
            "{}",
            bad("has other sizes")
        );
        ensure!(
            f32(14) == entry.crc,
            Checkpoint,
            "{}",
            bad("has another checksum")
        );
    } else {
        check_descriptor(b, entry, end, limit)
            .ok_or_else(|| bad("is followed by a descriptor that disagrees"))?;
    }
    entry.data = data;
    Ok(())
}

/// The record after the data repeats checksum and sizes, the latter with 32 or 64 bits each.
fn check_descriptor(b: &[u8], entry: &Entry, end: u64, limit: u64) -> Option<()> {
    let d = b.get(end as usize..limit as usize)?;
    let skip = if u32_at(d, 0) == Some(DESCRIPTOR) {
        4
    } else {
        0
    };
    let narrow = (
        u64::from(u32_at(d, skip + 4)?),
        u64::from(u32_at(d, skip + 8)?),
    );
    let wide = u64_at(d, skip + 4).zip(u64_at(d, skip + 12));
    let sizes = (entry.compressed, entry.size);
    (u32_at(d, skip)? == entry.crc && (narrow == sizes || wide == Some(sizes))).then_some(())
}

fn check_overlap(b: &[u8], entries: &[Entry]) -> Result<()> {
    let mut order: Vec<u32> = (0..entries.len() as u32).collect();
    order.sort_unstable_by_key(|&i| entries[i as usize].header);
    for pair in order.windows(2) {
        let (first, second) = (&entries[pair[0] as usize], &entries[pair[1] as usize]);
        ensure!(
            first.data + first.compressed <= second.header,
            Checkpoint,
            "zip entries '{}' and '{}' overlap at offset {}",
            name_of(b, first),
            name_of(b, second),
            second.header
        );
    }
    Ok(())
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
