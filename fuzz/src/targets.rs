//! The readers that are fuzzed: which files are seeds, how inputs are changed, and what is run.

use crate::drive;
use crate::mutate::{Mutator, Rng, text_number, zip_field};
use std::fs;
use std::path::{Path, PathBuf};

pub struct Target {
    pub name: &'static str,
    /// The input in a file of this content and name, if it is a seed.
    pub seed: fn(&[u8], &Path) -> Option<Vec<u8>>,
    /// Changes that know the format.
    pub shape: fn(&mut Rng, &mut Vec<u8>),
    pub words: &'static [&'static [u8]],
    pub run: fn(&[u8], &Path),
}

pub const TARGETS: &[Target] = &[
    Target {
        name: "pickle",
        seed: |b, _| {
            zip_record(b, "data.pkl").or_else(|| b.starts_with(b"\x80").then(|| b.to_vec()))
        },
        shape: |_, _| {},
        words: PICKLE,
        run: |b, _| drive::pickle(b),
    },
    Target {
        name: "zip",
        seed: |b, _| (b.starts_with(b"PK") && !is_npz(b)).then(|| b.to_vec()),
        shape: zip_field,
        words: ZIP,
        run: |b, _| drive::archive(b),
    },
    Target {
        name: "legacy",
        seed: |b, _| {
            let magic = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20];
            let head = &b[..b.len().min(64)];
            head.windows(6).any(|w| w == magic).then(|| b.to_vec())
        },
        shape: |_, _| {},
        words: PICKLE,
        run: |b, _| drive::archive(b),
    },
    Target {
        name: "tar",
        seed: |b, _| (b.get(257..262) == Some(b"ustar")).then(|| b.to_vec()),
        shape: tar_sum,
        words: PICKLE,
        run: |b, _| drive::archive(b),
    },
    Target {
        name: "safetensors",
        seed: |b, _| (b.get(8) == Some(&b'{')).then(|| b.to_vec()),
        shape: safetensors_header,
        words: JSON,
        run: |b, _| drive::archive(b),
    },
    Target {
        name: "gguf",
        seed: |b, _| b.starts_with(b"GGUF").then(|| b.to_vec()),
        shape: |_, _| {},
        words: GGUF,
        run: |b, _| drive::archive(b),
    },
    Target {
        name: "npz",
        seed: |b, _| (b.starts_with(b"\x93NUMPY") || is_npz(b)).then(|| b.to_vec()),
        shape: |rng, data| {
            if rng.chance(2) {
                zip_field(rng, data);
            } else {
                text_number(rng, data);
            }
        },
        words: NPY,
        run: |b, _| drive::archive(b),
    },
    Target {
        name: "index",
        seed: |b, path| {
            let name = path.file_name()?.to_str()?;
            (name.contains(".index.json") || b.windows(12).any(|w| w == b"\"weight_map\""))
                .then(|| b.to_vec())
        },
        shape: text_number,
        words: JSON,
        run: |b, scratch| {
            let path = scratch.join("model.safetensors.index.json");
            if fs::write(&path, b).is_ok() {
                drive::path(&path);
            }
        },
    },
];

const PICKLE: &[&[u8]] = &[
    b"\x80\x02",
    b"\x80\x04\x95",
    b".",
    b"(",
    b")",
    b"t",
    b"l",
    b"d",
    b"s",
    b"u",
    b"a",
    b"e",
    b"R",
    b"b",
    b"o",
    b"\x81",
    b"\x92",
    b"\x93",
    b"Q",
    b"q\x00",
    b"h\x00",
    b"r\x00\x00\x00\x00",
    b"j\x00\x00\x00\x00",
    b"\x94",
    b"]",
    b"}",
    b"0",
    b"1",
    b"2",
    b"K\x00",
    b"M\xff\xff",
    b"J\xff\xff\xff\x7f",
    b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"G\x7f\xf0\0\0\0\0\0\0",
    b"X\x01\0\0\0a",
    b"\x85",
    b"\x86",
    b"\x87",
    b"\x88",
    b"\x89",
    b"N",
    b"\x8f",
    b"\x90",
    b"\x91",
    b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x96\0\0\0\0\0\0\0\x10",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch._utils\n_rebuild_tensor_v3\n",
    b"ctorch._utils\n_rebuild_parameter\n",
    b"ctorch._utils\n_rebuild_parameter_with_state\n",
    b"ctorch._utils\n_rebuild_sparse_tensor\n",
    b"ctorch._utils\n_rebuild_qtensor\n",
    b"ctorch._utils\n_rebuild_nested_tensor\n",
    b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n",
    b"ctorch._utils\n_rebuild_wrapper_subclass\n",
    b"ctorch._tensor\n_rebuild_from_type_v2\n",
    b"ctorch\nFloatStorage\n",
    b"ctorch\nHalfStorage\n",
    b"ctorch.storage\nUntypedStorage\n",
    b"ctorch.storage\nTypedStorage\n",
    b"ctorch\nSize\n",
    b"ctorch\nTensor\n",
    b"ctorch\ndevice\n",
    b"ctorch\nfloat32\n",
    b"ctorch\nper_tensor_affine\n",
    b"ctorch\nper_channel_affine\n",
    b"ctorch.serialization\n_get_layout\n",
    b"X\x10\0\0\0torch.sparse_coo",
    b"X\x10\0\0\0torch.sparse_csr",
    b"ccollections\nOrderedDict\n",
    b"ccollections\nCounter\n",
    b"ccollections\ndefaultdict\n",
    b"cbuiltins\nset\n",
    b"cbuiltins\nfrozenset\n",
    b"cbuiltins\ncomplex\n",
    b"cbuiltins\nbytearray\n",
    b"c_codecs\nencode\n",
    b"cnumpy.core.multiarray\n_reconstruct\n",
    b"cnumpy.core.multiarray\nscalar\n",
    b"cnumpy\nndarray\n",
    b"cnumpy\ndtype\n",
    b"cdatetime\ndatetime\n",
    b"cpathlib\nPosixPath\n",
    b"cargparse\nNamespace\n",
    b"ctorch.nn.modules.linear\nLinear\n",
    b"X\x07\0\0\0storage",
    b"X\x03\0\0\0cpu",
    b"X\x01\0\0\x000",
    b"X\x04\0\0\0conj",
    b"cposix\nsystem\n",
];
const ZIP: &[&[u8]] = &[
    b"PK\x03\x04",
    b"PK\x01\x02",
    b"PK\x05\x06",
    b"PK\x06\x06",
    b"PK\x06\x07",
    b"PK\x07\x08",
    b"\x01\0\x10\0",
    b"FB",
    b"data.pkl",
    b"byteorder",
    b"/data/0",
    b".data/",
    b"version",
    b"constants.pkl",
    b"big",
    b"little",
    b"../",
];
const JSON: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\"",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"18446744073709551615",
    b"18446744073709551616",
    b"\"dtype\"",
    b"\"shape\"",
    b"\"data_offsets\"",
    b"\"__metadata__\"",
    b"\"F32\"",
    b"\"BF16\"",
    b"\"F4\"",
    b"\"F6_E2M3\"",
    b"\"BOOL\"",
    b"\"C64\"",
    b"\"I64\"",
    b"\"torchlike.ties\"",
    b"\"weight_map\"",
    b"\"metadata\"",
    b"\"total_size\"",
    b"\"../a\"",
    b"\"/etc/passwd\"",
    b"\\u0000",
    b"\\ud800",
    b"a.safetensors",
    b"b.pt",
];
const GGUF: &[&[u8]] = &[
    b"GGUF",
    b"general.alignment",
    b"general.architecture",
    b"\x03\0\0\0",
    b"\x02\0\0\0",
    b"\x08\0\0\0",
    b"\x09\0\0\0",
    b"\x0c\0\0\0",
    b"\x0e\0\0\0",
    b"\x20\0\0\0\0\0\0\0",
];
const NPY: &[&[u8]] = &[
    b"\x93NUMPY\x01\0",
    b"\x93NUMPY\x02\0",
    b"\x93NUMPY\x03\0",
    b"'descr'",
    b"'fortran_order'",
    b"'shape'",
    b"True",
    b"False",
    b"(",
    b")",
    b",",
    b"'<f4'",
    b"'>f8'",
    b"'|b1'",
    b"'|V2'",
    b"'|O'",
    b"'<U5'",
    b"'<c16'",
    b"[('a', '<i4')]",
    b".npy",
    b"PK\x01\x02",
    b"PK\x05\x06",
];

/// The record of a zip archive whose name ends so, if it is stored.
fn zip_record(b: &[u8], ending: &str) -> Option<Vec<u8>> {
    let bytes = torchlike::io::Bytes::from(b.to_vec());
    let zip = torchlike::io::zip::Zip::open(bytes.clone()).ok()?;
    let i = (0..zip.entries().len()).find(|&i| zip.name(i).ends_with(ending))?;
    let e = &zip.entries()[i];
    let record = bytes
        .slice(e.data..e.data.checked_add(e.compressed)?)
        .ok()?;
    Some(record.to_vec())
}

fn is_npz(b: &[u8]) -> bool {
    b.starts_with(b"PK") && b.windows(10).any(|w| w == b"\x93NUMPY\x01\0\x76\0")
        || b.starts_with(b"PK") && b.windows(4).any(|w| w == b".npy")
}

/// Makes the length at the front right again, or the header's numbers wrong.
fn safetensors_header(rng: &mut Rng, data: &mut Vec<u8>) {
    if rng.chance(2) {
        text_number(rng, data);
    }
    if data.len() < 9 {
        return;
    }
    let end = data
        .iter()
        .rposition(|&b| b == b'}')
        .map_or(data.len(), |i| i + 1);
    if end > 8 {
        let length = (end - 8) as u64;
        data[..8].copy_from_slice(&length.to_le_bytes());
    }
}

/// Makes the checksums of a tar archive's headers right again.
fn tar_sum(_: &mut Rng, data: &mut Vec<u8>) {
    for header in data.chunks_exact_mut(512) {
        if &header[257..262] == b"ustar" {
            header[148..156].fill(b' ');
            let sum: u32 = header.iter().map(|&b| u32::from(b)).sum();
            header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
}

impl Target {
    /// Changes an input.
    pub fn mutate(
        &self,
        rng: &mut Rng,
        data: &mut Vec<u8>,
        others: &[Vec<u8>],
        pairs: Vec<(u64, u64, u8)>,
    ) {
        let mutator = Mutator {
            words: self.words,
            pairs,
        };
        if !rng.chance(3) {
            mutator.mutate(rng, data, others);
        }
        if rng.chance(2) {
            (self.shape)(rng, data);
        }
    }
}

/// What is in the files below some folders.
pub fn seeds(target: &Target, folders: &[PathBuf]) -> Vec<Vec<u8>> {
    let mut todo: Vec<PathBuf> = folders.to_vec();
    let mut seeds = Vec::new();
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(
                fs::read_dir(&path)
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|e| e.path()),
            );
        } else if fs::metadata(&path).is_ok_and(|m| m.len() <= 1 << 16)
            && let Ok(bytes) = fs::read(&path)
            && let Some(seed) = (target.seed)(&bytes, &path)
        {
            seeds.push(seed);
        }
    }
    seeds.sort();
    seeds.dedup();
    seeds
}
