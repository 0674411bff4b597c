//! Local headers, which have to agree with the directory.

use super::directory::widen;
use super::{Entry, Method, name_of, u16_at, u32_at, u64_at};
use crate::{Error, Result, ensure, err};

const LOCAL: u32 = 0x0403_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;
const LOCAL_LEN: usize = 30;

/// The header of an entry, and what to say of it.
struct Local<'a> {
    entry: &'a Entry,
    name: &'a str,
    bytes: &'a [u8],
}

impl<'a> Local<'a> {
    fn bad(&self, what: &str) -> Error {
        err!(
            Checkpoint,
            "zip entry '{}': its local header at offset {} {what}",
            self.name,
            self.entry.header
        )
    }

    fn ensure(&self, holds: bool, otherwise: &str) -> Result<()> {
        if holds {
            Ok(())
        } else {
            Err(self.bad(otherwise))
        }
    }

    fn short(&self, offset: usize) -> u16 {
        u16_at(self.bytes, offset).unwrap_or(0)
    }

    fn word(&self, offset: usize) -> u32 {
        u32_at(self.bytes, offset).unwrap_or(0)
    }

    /// Proves that name, method and flags are the directory's, and gives the extra field.
    fn extra(&self) -> Result<&'a [u8]> {
        self.ensure(self.bytes.len() >= LOCAL_LEN, "is cut short")?;
        self.ensure(self.word(0) == LOCAL, "has a wrong signature")?;
        let method = match self.entry.method {
            Method::Stored => 0,
            Method::Deflated => 8,
        };
        self.ensure(self.short(8) == method, "names another compression method")?;
        let flags = (self.short(6) ^ self.entry.flags) & 0x2049;
        self.ensure(flags == 0, "has other flags")?;
        let (name, extra) = (usize::from(self.short(26)), usize::from(self.short(28)));
        let (name_end, end) = (LOCAL_LEN + name, LOCAL_LEN + name + extra);
        let named = self.bytes.get(LOCAL_LEN..name_end) == Some(self.name.as_bytes());
        self.ensure(named, "has another name")?;
        let extra = self.bytes.get(name_end..end);
        extra.ok_or_else(|| self.bad("is cut short"))
    }

    fn check_sizes(&self, extra: &[u8]) -> Result<()> {
        let mut wide = [self.word(22), self.word(18)].map(u64::from);
        // Only some writers use zip64 here; torch's padding field is not a proper field list.
        if wide.contains(&0xffff_ffff) {
            widen(extra, &mut wide).map_err(|e| self.bad(e.message()))?;
        }
        let same = wide == [self.entry.size, self.entry.compressed];
        self.ensure(same, "has other sizes")?;
        self.ensure(self.word(14) == self.entry.crc, "has another checksum")
    }
}

/// Proves that the local header agrees with the directory, and sets where the data begins.
pub(super) fn check(b: &[u8], entry: &mut Entry, limit: u64) -> Result<()> {
    let start = usize::try_from(entry.header).unwrap_or(usize::MAX);
    let local = Local {
        entry,
        name: name_of(b, entry),
        bytes: b.get(start..limit as usize).unwrap_or(&[]),
    };
    local.ensure(entry.header < limit, "lies outside the file")?;
    let extra = local.extra()?;
    let before = LOCAL_LEN + local.name.len() + extra.len();
    let data = entry.header + before as u64;
    let end = data.checked_add(entry.compressed);
    let end = end
        .filter(|&end| end <= limit)
        .ok_or_else(|| local.bad("is followed by less data than the directory says"))?;
    if entry.flags & 8 == 0 {
        local.check_sizes(extra)?;
    } else {
        check_descriptor(b, entry, end, limit)
            .ok_or_else(|| local.bad("is followed by a descriptor that disagrees"))?;
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

/// Proves that no two entries share bytes.
pub(super) fn check_overlap(b: &[u8], entries: &[Entry]) -> Result<()> {
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
