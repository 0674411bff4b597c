//! The central directory: where it is, and what it lists.

use super::{Entry, Method, u16_at, u32_at, u64_at};
use crate::{Error, Result, bail, ensure, err};

const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const CENTRAL_LEN: usize = 46;
const END_LEN: usize = 22;
const LOCATOR64_LEN: usize = 20;
/// What is said of files that end too early.
const CUT: &str = "the file is truncated or damaged (an incomplete download?); fetch it again";

/// Where the central directory lies, and how many entries it lists.
pub(super) struct Directory {
    pub(super) start: usize,
    end: usize,
    count: u64,
}

/// What an end record says: entries, bytes of the directory, and where it begins.
#[derive(Clone, Copy)]
struct Claim {
    count: u64,
    size: u64,
    start: u64,
}

impl Claim {
    /// True if this record says the same as the wider one, or leaves it to that.
    fn agrees(&self, wide: &Self) -> bool {
        (self.count == 0xffff || self.count == wide.count)
            && (self.size == 0xffff_ffff || self.size == wide.size)
            && (self.start == 0xffff_ffff || self.start == wide.start)
    }
}

fn short(end: usize) -> Error {
    err!(
        Checkpoint,
        "zip end record at offset {end} is cut short; {CUT}"
    )
}

/// Where the last record of the file is.
fn find_end(b: &[u8]) -> Result<usize> {
    let highest = b.len().saturating_sub(END_LEN);
    let lowest = highest.saturating_sub(0xffff);
    let end = (lowest..=highest).rev().find(|&at| {
        u32_at(b, at) == Some(END)
            && u16_at(b, at + 20).is_some_and(|n| at + END_LEN + usize::from(n) == b.len())
    });
    end.ok_or_else(|| {
        err!(
            Checkpoint,
            "no zip end record in the last bytes of {}: the central directory is missing; {CUT}",
            b.len()
        )
    })
}

fn end_record(b: &[u8], end: usize) -> Result<Claim> {
    let f16 = |at: usize| u16_at(b, end + at).ok_or_else(|| short(end));
    let f32 = |at: usize| u32_at(b, end + at).ok_or_else(|| short(end));
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
    Ok(Claim {
        count: f16(10)?.into(),
        size: f32(12)?.into(),
        start: f32(16)?.into(),
    })
}

/// The zip64 end record that the locator at `locator` names, and where it is.
fn wide_record(b: &[u8], locator: usize, end: usize) -> Result<(Claim, usize)> {
    let at = u64_at(b, locator + 8).ok_or_else(|| short(end))?;
    let at = usize::try_from(at).ok().filter(|&at| at < locator);
    let at = at.ok_or_else(|| {
        err!(
            Checkpoint,
            "zip64 end record named at offset {locator}: lies outside the file"
        )
    })?;
    ensure!(
        u32_at(b, at) == Some(END64),
        Checkpoint,
        "no zip64 end record at offset {at}, where offset {locator} says it is"
    );
    let f64 = |o: usize| u64_at(b, at + o).ok_or_else(|| short(end));
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
    let claim = Claim {
        count: f64(32)?,
        size: f64(40)?,
        start: f64(48)?,
    };
    ensure!(
        f64(24)? == claim.count,
        Checkpoint,
        "zip64 end record at offset {at}: two different entry counts"
    );
    Ok((claim, at))
}

impl Directory {
    /// Finds the directory by the records at the end of the file, which have to agree.
    pub(super) fn find(b: &[u8]) -> Result<Self> {
        let end = find_end(b)?;
        let (mut claim, mut limit) = (end_record(b, end)?, end);
        let locator = end.checked_sub(LOCATOR64_LEN);
        if let Some(locator) = locator.filter(|&at| u32_at(b, at) == Some(LOCATOR64)) {
            let (wide, at) = wide_record(b, locator, end)?;
            ensure!(
                claim.agrees(&wide),
                Checkpoint,
                "zip end records at offsets {at} and {end} disagree"
            );
            (claim, limit) = (wide, at);
        }
        let Claim { count, size, start } = claim;
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
        Ok(Self {
            start: start as usize,
            end: limit,
            count,
        })
    }

    /// All that it lists.
    pub(super) fn entries(&self, b: &[u8]) -> Result<Vec<Entry>> {
        let mut entries = Vec::with_capacity(self.count as usize);
        let mut at = self.start;
        while at < self.end {
            let record = Record::at(&b[at..self.end], at)?;
            entries.push(record.entry()?);
            at += record.total();
        }
        ensure!(
            entries.len() as u64 == self.count,
            Checkpoint,
            "zip directory at offset {} has {} entries where {} are claimed",
            self.start,
            entries.len(),
            self.count
        );
        Ok(entries)
    }
}

/// One entry of the directory.
struct Record<'a> {
    /// From the entry to the end of the directory.
    bytes: &'a [u8],
    at: usize,
    name: usize,
    extra: usize,
    comment: usize,
}

impl<'a> Record<'a> {
    fn at(bytes: &'a [u8], at: usize) -> Result<Self> {
        ensure!(
            bytes.len() >= CENTRAL_LEN,
            Checkpoint,
            "zip directory entry at offset {at} is cut short"
        );
        ensure!(
            u32_at(bytes, 0) == Some(CENTRAL),
            Checkpoint,
            "no zip directory entry at offset {at}, where one is due"
        );
        let length = |o: usize| usize::from(u16_at(bytes, o).unwrap_or(0));
        let record = Self {
            bytes,
            at,
            name: length(28),
            extra: length(30),
            comment: length(32),
        };
        ensure!(
            record.total() <= bytes.len(),
            Checkpoint,
            "zip directory entry at offset {at} reaches beyond the directory"
        );
        Ok(record)
    }

    fn total(&self) -> usize {
        CENTRAL_LEN + self.name + self.extra + self.comment
    }

    fn short(&self, offset: usize) -> u16 {
        u16_at(self.bytes, offset).unwrap_or(0)
    }

    fn word(&self, offset: usize) -> u32 {
        u32_at(self.bytes, offset).unwrap_or(0)
    }

    fn name(&self) -> Result<&'a str> {
        let at = self.at;
        let name = &self.bytes[CENTRAL_LEN..CENTRAL_LEN + self.name];
        let name = std::str::from_utf8(name).map_err(|_| {
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
        Ok(name)
    }

    fn method(&self, name: &str) -> Result<Method> {
        let at = self.at;
        ensure!(
            self.short(8) & 0x2041 == 0,
            Checkpoint,
            "zip entry '{name}' at offset {at} is encrypted, which is not supported"
        );
        ensure!(
            self.short(34) == 0,
            Checkpoint,
            "zip entry '{name}' at offset {at} is on another disk"
        );
        match self.short(10) {
            0 => Ok(Method::Stored),
            8 => Ok(Method::Deflated),
            other => bail!(
                Checkpoint,
                "zip entry '{name}' at offset {at} uses compression method {other}, which is not supported"
            ),
        }
    }

    fn entry(&self) -> Result<Entry> {
        let (at, name) = (self.at, self.name()?);
        let method = self.method(name)?;
        let extra = CENTRAL_LEN + self.name;
        let extra = &self.bytes[extra..extra + self.extra];
        let mut wide = [self.word(24), self.word(20), self.word(42)].map(u64::from);
        widen(extra, &mut wide)
            .map_err(|e| err!(Checkpoint, "zip entry '{name}' at offset {at}: {e}"))?;
        let [size, compressed, header] = wide;
        ensure!(
            method != Method::Stored || size == compressed,
            Checkpoint,
            "zip entry '{name}' at offset {at} is stored, yet has two sizes: {compressed} and {size}"
        );
        Ok(Entry {
            name: (at + CENTRAL_LEN, self.name as u16),
            header,
            flags: self.short(8),
            method,
            data: 0,
            compressed,
            size,
            crc: self.word(16),
        })
    }
}

/// Replaces sizes and offset of all ones by those of the zip64 extra field.
pub(super) fn widen(extra: &[u8], fields: &mut [u64]) -> Result<()> {
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
