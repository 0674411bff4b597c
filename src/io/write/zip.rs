//! Writing zip archives of stored entries, as a stream: no byte is ever gone back to.

use super::{Sink, pieces};
use crate::{Result, ensure};
use std::io::Write;

/// Entries begin at multiples of this, so that they can be mapped as elements of any type.
pub const ALIGNMENT: u64 = 64;
/// What a 32-bit size or offset says when the real one is in a zip64 field.
const WIDE: u64 = 0xffff_ffff;

struct Written {
    name: String,
    at: u64,
    size: u64,
    crc: u32,
}

pub(super) struct ZipWriter<'a> {
    out: &'a mut dyn Write,
    at: u64,
    entries: Vec<Written>,
}

impl<'a> ZipWriter<'a> {
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self {
            out,
            at: 0,
            entries: Vec::new(),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    pub fn small(&mut self, name: String, bytes: &[u8]) -> Result<()> {
        self.entry(name, bytes.len() as u64, |sink| sink(bytes))
    }

    /// Writes one stored entry. Its checksum is known only afterwards and follows in a descriptor.
    pub fn entry(
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
            pieces(bytes, &mut |piece| {
                crc.update(piece);
                Ok(out.write_all(piece)?)
            })
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
    pub fn identity(&self) -> String {
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

    pub fn finish(mut self) -> Result<()> {
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
