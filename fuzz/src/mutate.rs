//! Changing inputs: bytes, numbers, pieces, words of the format, and fields of its structures.

/// A small fast generator (xorshift64*).
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`, which must not be zero.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 33) as usize) % n
    }

    /// A length from 1 on, short ones more often than long ones.
    pub fn length(&mut self, bits: usize, most: usize) -> usize {
        let bits = self.below(bits);
        (1 + self.below(1 << bits)).min(most)
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// Numbers at which readers go wrong.
const EDGES: &[u64] = &[
    0,
    1,
    2,
    7,
    8,
    16,
    32,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    1000,
    1024,
    4096,
    32767,
    32768,
    65535,
    65536,
    1 << 24,
    i32::MAX as u64,
    1 << 31,
    u32::MAX as u64 - 1,
    u32::MAX as u64,
    1 << 32,
    1 << 40,
    1 << 53,
    1 << 61,
    1 << 62,
    i64::MAX as u64 - 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// The longest input that is made.
const MAX_LEN: usize = 1 << 16;

pub struct Mutator<'a> {
    pub words: &'a [&'a [u8]],
    pub pairs: Vec<(u64, u64, u8)>,
}

impl Mutator<'_> {
    /// Changes `data` in one to eight ways.
    pub fn mutate(&self, rng: &mut Rng, data: &mut Vec<u8>, others: &[Vec<u8>]) {
        let times = 1
            + rng.below(4) * usize::from(rng.chance(2))
            + rng.below(5) * usize::from(rng.chance(6));
        for _ in 0..times {
            self.once(rng, data, others);
        }
        data.truncate(MAX_LEN);
    }

    fn once(&self, rng: &mut Rng, data: &mut Vec<u8>, others: &[Vec<u8>]) {
        if data.is_empty() {
            data.push(rng.next() as u8);
            return;
        }
        let n = data.len();
        let at = rng.below(n);
        match rng.below(14) {
            0 => data[at] ^= 1 << rng.below(8),
            1 => data[at] = rng.next() as u8,
            2 => data[at] = data[at].wrapping_add((rng.below(33) as u8).wrapping_sub(16)),
            3 | 4 => {
                let size = *rng.pick(&[1usize, 2, 4, 4, 8, 8]);
                let value = rng.pick(EDGES).to_le_bytes();
                put(data, at, &value[..size], rng.chance(4));
            }
            5 => {
                // A number near what is there.
                let size = *rng.pick(&[2usize, 4, 8]);
                if let Some(old) = data.get(at..at + size) {
                    let mut bytes = [0; 8];
                    bytes[..size].copy_from_slice(old);
                    let delta = (rng.below(65) as i64 - 32) * if rng.chance(3) { 64 } else { 1 };
                    let new = u64::from_le_bytes(bytes)
                        .wrapping_add_signed(delta)
                        .to_le_bytes();
                    put(data, at, &new[..size], false);
                }
            }
            6 => {
                let len = rng.length(10, n);
                data.drain(at..(at + len).min(n));
            }
            7 => {
                // A piece of itself elsewhere.
                let len = rng.length(9, n - at);
                let piece = data[at..at + len].to_vec();
                let to = rng.below(n + 1);
                if rng.chance(2) {
                    data.splice(to..to, piece);
                } else {
                    put(data, to, &piece, false);
                }
            }
            8 => {
                let other = rng.pick(others);
                if !other.is_empty() {
                    let from = rng.below(other.len());
                    let len = rng.length(11, other.len() - from);
                    let piece = other[from..from + len].to_vec();
                    if rng.chance(2) {
                        data.splice(at..at, piece);
                    } else {
                        put(data, at, &piece, false);
                    }
                }
            }
            9 | 10 if !self.words.is_empty() => {
                let word = rng.pick(self.words).to_vec();
                if rng.chance(2) {
                    data.splice(at..at, word);
                } else {
                    put(data, at, &word, false);
                }
            }
            11 | 12 if !self.pairs.is_empty() => {
                let (a, b, size) = *rng.pick(&self.pairs);
                let (a, b) = if rng.chance(2) { (a, b) } else { (b, a) };
                let size = size as usize;
                let (from, to) = (&a.to_le_bytes()[..size], &b.to_le_bytes()[..size]);
                let places: Vec<usize> = data
                    .windows(size)
                    .enumerate()
                    .filter(|w| w.1 == from)
                    .map(|w| w.0)
                    .take(64)
                    .collect();
                if !places.is_empty() {
                    let to = to.to_vec();
                    put(data, *rng.pick(&places), &to, false);
                }
            }
            13 => data.truncate(at),
            _ => data.insert(at, *rng.pick(&[0, 1, b'0', b'9', b'.', 0x80, 0xff])),
        }
    }
}

fn put(data: &mut Vec<u8>, at: usize, bytes: &[u8], reversed: bool) {
    for (i, &b) in bytes.iter().enumerate() {
        let i = if reversed { bytes.len() - 1 - i } else { i };
        if let Some(slot) = data.get_mut(at + i) {
            *slot = b;
        }
    }
}

/// Changes one field of a zip archive's structures: the end, a directory entry, a local header.
pub fn zip_field(rng: &mut Rng, data: &mut Vec<u8>) {
    let signatures: [(&[u8], &[(usize, usize)]); 5] = [
        (
            b"PK\x05\x06",
            &[(4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)],
        ),
        (
            b"PK\x01\x02",
            &[
                (8, 2),
                (10, 2),
                (16, 4),
                (20, 4),
                (24, 4),
                (28, 2),
                (30, 2),
                (32, 2),
                (42, 4),
            ],
        ),
        (
            b"PK\x03\x04",
            &[(6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)],
        ),
        (b"PK\x06\x06", &[(4, 8), (24, 8), (32, 8), (40, 8), (48, 8)]),
        (b"PK\x06\x07", &[(4, 4), (8, 8), (16, 4)]),
    ];
    let (signature, fields) = rng.pick(&signatures);
    let places: Vec<usize> = data
        .windows(4)
        .enumerate()
        .filter(|w| w.1 == *signature)
        .map(|w| w.0)
        .take(64)
        .collect();
    if places.is_empty() {
        return;
    }
    let (field, size) = *rng.pick(fields);
    let at = *rng.pick(&places) + field;
    let value = if rng.chance(2) {
        *rng.pick(EDGES)
    } else {
        rng.below(data.len() + 2) as u64
    };
    put(data, at, &value.to_le_bytes()[..size], false);
}

/// Changes one number in text.
pub fn text_number(rng: &mut Rng, data: &mut Vec<u8>) {
    let starts: Vec<usize> = (0..data.len())
        .filter(|&i| data[i].is_ascii_digit() && (i == 0 || !data[i - 1].is_ascii_digit()))
        .take(500)
        .collect();
    if starts.is_empty() {
        return;
    }
    let at = *rng.pick(&starts);
    let len = data[at..].iter().take_while(|c| c.is_ascii_digit()).count();
    let text = match rng.below(6) {
        0 => "-1".into(),
        1 => "1e3".into(),
        2 => "0.5".into(),
        3 => rng.below(100).to_string(),
        _ => rng.pick(EDGES).to_string(),
    };
    data.splice(at..at + len, text.into_bytes());
}
