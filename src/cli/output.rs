//! Tables, numbers and names for people.

use super::{Failure, Terminal};
use crate::io::NamedTensor;
use serde_json::Value as Json;
use std::io::Write;

/// Control characters in a name must not reach the terminal.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Also what turns the direction of text around, which can make one name look like another.
        let hidden = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || hidden {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Bytes for people: `1.50 MiB`.
pub fn human(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut n, mut unit) = (bytes as f64, 0);
    while n >= 1024.0 && unit + 1 < units.len() {
        n /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{n:.2} {}", units[unit])
    }
}

/// An integer with its digits in groups of three.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|g| std::str::from_utf8(g).ok())
        .collect();
    groups.join(",")
}

/// `1 tensor`, `2 tensors`.
pub fn count(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// Bytes of a tensor's elements.
pub fn tensor_bytes(t: &NamedTensor<'_>) -> u64 {
    (t.tensor.numel() as u64).saturating_mul(t.tensor.dtype.size() as u64)
}

/// A name for people; the root of a file has none.
pub fn shown(name: &str) -> String {
    if name.is_empty() {
        "(the whole file)".into()
    } else {
        clean(name)
    }
}

/// Columns of text, as wide as they need to be.
pub struct Table<const N: usize> {
    heads: [&'static str; N],
    /// Columns of numbers end at one place.
    right: [bool; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// A table with these heads; those that begin with `>` are of columns of numbers.
    pub fn new(heads: [&'static str; N]) -> Self {
        Self {
            right: heads.map(|h| h.starts_with('>')),
            heads: heads.map(|h| h.trim_start_matches('>')),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    /// Prints the rows under their heads; nothing if there are none.
    pub fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut widths = self.heads.map(|h| h.chars().count());
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let heads = self.heads.map(str::to_owned);
        for row in std::iter::once(&heads).chain(&self.rows) {
            let mut line = String::new();
            for (i, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[i] - cell.chars().count());
                if i > 0 {
                    line.push_str("  ");
                }
                if self.right[i] {
                    line.push_str(&pad);
                    line.push_str(cell);
                } else {
                    line.push_str(cell);
                    line.push_str(&pad);
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Prints one JSON object.
pub fn print_json(terminal: &mut Terminal<'_>, json: &Json) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *terminal.out, json)?;
    writeln!(terminal.out)?;
    Ok(())
}
