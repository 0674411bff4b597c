//! The parts of a pickle that are text: names, numbers and strings of the old protocols.

use crate::{Result, bail, ensure, err};

/// Digits of an integer written in decimal; converting takes quadratic time, and Python stops here too.
const MAX_DIGITS: usize = 4300;

pub(super) fn name(line: &[u8]) -> Result<&str> {
    std::str::from_utf8(line).map_err(|_| err!(Unpickling, "a name that is not UTF-8"))
}

/// What Python 3 calls what Python 2 called `module.name`.
pub(super) fn modern_name<'a>(module: &'a str, name: &'a str) -> (&'a str, &'a str) {
    match (module, name) {
        ("__builtin__", "xrange") => ("builtins", "range"),
        ("__builtin__", "unicode") => ("builtins", "str"),
        ("__builtin__", "long") => ("builtins", "int"),
        ("__builtin__" | "exceptions", name) => ("builtins", name),
        ("copy_reg", name) => ("copyreg", name),
        ("UserDict", "IterableUserDict") => ("collections", "UserDict"),
        ("UserList", "UserList") => ("collections", "UserList"),
        ("UserString", "UserString") => ("collections", "UserString"),
        other => other,
    }
}

pub(super) fn index(line: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(line)
        .ok()
        .and_then(|s| s.trim().parse().ok());
    text.ok_or_else(|| err!(Unpickling, "a memo index that is no number of 64 bits"))
}

/// Little-endian two's complement of at most 64 bits.
pub(super) fn small_integer(bytes: &[u8]) -> Option<i64> {
    let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
    let fill = if negative { 0xff } else { 0 };
    let (low, high) = bytes.split_at(bytes.len().min(8));
    let mut wide = [fill; 8];
    wide[..low.len()].copy_from_slice(low);
    let n = i64::from_le_bytes(wide);
    (high.iter().all(|&b| b == fill) && (n < 0) == negative).then_some(n)
}

/// A decimal integer as little-endian two's complement.
pub(super) fn decimal(line: &[u8]) -> Result<Vec<u8>> {
    let line = line.trim_ascii();
    let (negative, digits) = match line.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, line),
    };
    ensure!(
        !digits.is_empty() && digits.iter().all(u8::is_ascii_digit),
        Unpickling,
        "an integer that is no number"
    );
    ensure!(
        digits.len() <= MAX_DIGITS,
        Unpickling,
        "an integer of more than {MAX_DIGITS} digits"
    );
    let mut words: Vec<u32> = Vec::new();
    for chunk in digits.rchunks(9).rev() {
        let factor = 10u64.pow(chunk.len() as u32);
        let mut carry = chunk.iter().fold(0u64, |n, d| n * 10 + u64::from(d - b'0'));
        for word in &mut words {
            carry += u64::from(*word) * factor;
            *word = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            words.push(carry as u32);
        }
    }
    words.push(0);
    if negative {
        let mut carry = true;
        for word in &mut words {
            (*word, carry) = (!*word).overflowing_add(u32::from(carry));
        }
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let fill = if bytes.last().is_some_and(|b| b & 0x80 != 0) {
        0xff
    } else {
        0
    };
    while bytes.len() > 1
        && bytes[bytes.len() - 1] == fill
        && (bytes[bytes.len() - 2] ^ fill) & 0x80 == 0
    {
        bytes.pop();
    }
    Ok(bytes)
}

/// True for UTF-8 that also encodes lone surrogates, as Python's `surrogatepass` writes it.
pub(super) fn is_surrogate_utf8(mut bytes: &[u8]) -> bool {
    loop {
        match std::str::from_utf8(bytes) {
            Ok(_) => return true,
            Err(e) => {
                let rest = &bytes[e.valid_up_to()..];
                match rest {
                    [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => bytes = &rest[3..],
                    _ => return false,
                }
            }
        }
    }
}

/// Text whose characters beyond 255 are `\uXXXX` or `\UXXXXXXXX`, as UTF-8 (with surrogates, if it has them).
pub(super) fn raw_unicode_escape(line: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(line.len());
    let mut i = 0;
    while let Some(&b) = line.get(i) {
        let digits = match (b, line.get(i + 1)) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => {
                push_code(&mut out, u32::from(b))?;
                i += 1;
                continue;
            }
        };
        let hex = line
            .get(i + 2..i + 2 + digits)
            .filter(|h| h.iter().all(u8::is_ascii_hexdigit));
        let hex = hex
            .and_then(|h| std::str::from_utf8(h).ok())
            .and_then(|h| u32::from_str_radix(h, 16).ok());
        push_code(
            &mut out,
            hex.ok_or_else(|| err!(Unpickling, "a string with a broken escape"))?,
        )?;
        i += 2 + digits;
    }
    Ok(out)
}

fn push_code(out: &mut Vec<u8>, code: u32) -> Result<()> {
    match (char::from_u32(code), code) {
        (Some(c), _) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        (None, 0xd800..=0xdfff) => {
            out.extend_from_slice(&[
                0xed,
                0x80 | (code >> 6) as u8 & 0x3f,
                0x80 | code as u8 & 0x3f,
            ]);
        }
        _ => bail!(Unpickling, "a string with a character beyond Unicode"),
    }
    Ok(())
}

/// The bytes of a quoted Python 2 string with its escapes.
pub(super) fn quoted(line: &[u8]) -> Result<Vec<u8>> {
    let line = line.trim_ascii_end();
    let bad = || err!(Unpickling, "a string without proper quotes or escapes");
    let (body, quote) = match line {
        [q @ (b'\'' | b'"'), body @ .., end] if q == end => (body, *q),
        _ => return Err(bad()),
    };
    let mut out = Vec::with_capacity(body.len());
    let mut bytes = body.iter().copied();
    while let Some(b) = bytes.next() {
        if b == quote {
            return Err(bad());
        }
        if b != b'\\' {
            out.push(b);
            continue;
        }
        let code = match bytes.next().ok_or_else(bad)? {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'v' => 11,
            b'x' => {
                let pair = [bytes.next().ok_or_else(bad)?, bytes.next().ok_or_else(bad)?];
                let hex = std::str::from_utf8(&pair)
                    .ok()
                    .filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit()));
                hex.and_then(|h| u8::from_str_radix(h, 16).ok())
                    .ok_or_else(bad)?
            }
            first @ b'0'..=b'7' => {
                let mut code = u32::from(first - b'0');
                for _ in 0..2 {
                    let mut ahead = bytes.clone();
                    let Some(d @ b'0'..=b'7') = ahead.next() else {
                        break;
                    };
                    code = code * 8 + u32::from(d - b'0');
                    bytes = ahead;
                }
                u8::try_from(code).map_err(|_| bad())?
            }
            same @ (b'\\' | b'\'' | b'"') => same,
            other => {
                out.push(b'\\');
                other
            }
        };
        out.push(code);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_become_twos_complement() {
        for n in [
            0i64,
            1,
            -1,
            127,
            128,
            -128,
            -129,
            255,
            256,
            i64::MAX,
            i64::MIN,
            10_000_000_000,
            -10_000_000_000,
        ] {
            assert_eq!(
                small_integer(&decimal(n.to_string().as_bytes()).unwrap()),
                Some(n),
                "{n}"
            );
        }
        // 2^64: nine bytes, beyond the small ones.
        let big = decimal(b"18446744073709551616").unwrap();
        assert_eq!(big, [0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(small_integer(&big), None);
        assert!(decimal(b"").is_err() && decimal(b"-").is_err() && decimal(b"1x").is_err());
        assert!(decimal(&vec![b'1'; MAX_DIGITS + 1]).is_err());
    }

    #[test]
    fn strings_of_the_text_protocol() {
        assert_eq!(quoted(br"'a\n\x41\101\q\\'").unwrap(), b"a\nAA\\q\\");
        assert!(
            quoted(b"'a").is_err()
                && quoted(b"a").is_err()
                && quoted(br"'\x4'").is_err()
                && quoted(b"'").is_err()
        );
        assert_eq!(
            raw_unicode_escape(b"\\u00e9\xe9").unwrap(),
            "\u{e9}\u{e9}".as_bytes()
        );
        let lone = raw_unicode_escape(b"\\ud800").unwrap();
        assert!(is_surrogate_utf8(&lone) && std::str::from_utf8(&lone).is_err());
        assert!(
            raw_unicode_escape(b"\\u12").is_err() && raw_unicode_escape(b"\\Uffffffff").is_err()
        );
        assert!(!is_surrogate_utf8(b"\xff"));
    }
}
