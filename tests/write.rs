//! Writing and converting checkpoints, and the command line on them.

use serde_json::Value as Json;
use std::fs;
use std::path::{Path, PathBuf};
use torchlike::io::convert::{Options, Target, convert};
use torchlike::io::fingerprint::hex;
use torchlike::io::write::flat::{Flat, Item};
use torchlike::io::write::{self, Sink, npz, safetensors, sharded};
use torchlike::io::{Archive, Data, Format};
use torchlike::{DType, Result};

/// A folder of this test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("torchlike-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.0)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn good(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/ckpt/good")
        .join(name)
}

fn item(name: &str, dtype: DType, shape: &[i64]) -> Item {
    Item {
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
        tied: None,
    }
}

fn flat(items: Vec<Item>) -> Flat {
    Flat {
        items,
        metadata: Vec::new(),
    }
}

/// Bytes that tell items and places apart.
fn content(n: u32, nbytes: u64) -> Vec<u8> {
    (0..nbytes)
        .map(|i| (i * 31 + u64::from(n) * 17) as u8)
        .collect()
}

fn provider(flat: &Flat) -> impl FnMut(u32, &mut Sink<'_>) -> Result<()> + '_ {
    |n, sink| {
        let bytes = content(n, flat.items[n as usize].nbytes()?);
        bytes.chunks(7).try_for_each(sink)
    }
}

fn bytes_of(archive: &Archive, name: &str) -> Vec<u8> {
    let tensors = archive.tensors();
    let t = tensors.iter().find(|t| t.name == name).unwrap();
    let bytes = archive.read_storage(t.storage).unwrap();
    let mut out = Vec::new();
    write::flat::elements(&bytes, t.tensor, &mut |b| {
        out.extend_from_slice(b);
        Ok(())
    })
    .unwrap();
    out
}

fn cli(args: &[&str]) -> (i32, String, String) {
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let code = torchlike::cli::main(args, &mut out, &mut errors);
    (
        code,
        String::from_utf8(out).unwrap(),
        String::from_utf8(errors).unwrap(),
    )
}

fn json(args: &[&str]) -> (i32, Json) {
    let (code, out, errors) = cli(args);
    (
        code,
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{args:?}: {e}: {out}{errors}")),
    )
}

fn fingerprint(path: &Path) -> String {
    hex(&Archive::open(path)
        .unwrap()
        .fingerprint(&|_| ())
        .unwrap()
        .whole)
}

#[test]
fn safetensors_is_what_its_own_library_writes() {
    // What safetensors 0.8 writes for {"b": int8 [1, 2], "a": float32 [[1.0]]}.
    let mut want = Vec::new();
    let header = br#"{"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},"b":{"dtype":"I8","shape":[2],"data_offsets":[4,6]}}"#;
    let padded = header.len().next_multiple_of(8);
    want.extend_from_slice(&(padded as u64).to_le_bytes());
    want.extend_from_slice(header);
    want.resize(8 + padded, b' ');
    want.extend_from_slice(&1f32.to_le_bytes());
    want.extend_from_slice(&[1, 2]);
    let flat = flat(vec![
        item("b", DType::I8, &[2]),
        item("a", DType::F32, &[1, 1]),
    ]);
    let mut out = Vec::new();
    safetensors::write(&mut out, &flat, &mut |n, sink| match n {
        0 => sink(&[1, 2]),
        _ => sink(&1f32.to_le_bytes()),
    })
    .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&out),
        String::from_utf8_lossy(&want)
    );
}

#[test]
fn every_dtype_that_a_format_has_comes_back() {
    let folder = Folder::new("dtypes");
    for &dtype in DType::ALL {
        let flat = flat(vec![
            item("x", dtype, &[3, 2]),
            item("empty", dtype, &[0, 2]),
        ]);
        let want = content(0, flat.items[0].nbytes().unwrap());
        for (name, target) in [
            ("a.safetensors", Target::Safetensors),
            ("a.pt", Target::TorchZip),
            ("a.npz", Target::Npz),
        ] {
            let path = folder.path(name);
            let mut from = provider(&flat);
            let done = match target {
                Target::Safetensors => safetensors::save(&path, &flat, &mut from),
                Target::Npz => npz::save(&path, &flat, &mut from),
                _ => sharded::save(&path, &flat, sharded::Kind::TorchZip, u64::MAX, &mut from)
                    .map(|_| ()),
            };
            if let Err(e) = done {
                let text = e.message();
                assert!(
                    text.contains("'x'") && text.contains(dtype.name()),
                    "{text}"
                );
                assert!(target != Target::TorchZip, "{text}");
                continue;
            }
            if target == Target::Npz {
                continue;
            }
            let archive = Archive::open(&path).unwrap();
            assert_eq!(bytes_of(&archive, "x"), want, "{dtype} {name}");
            let tensors = archive.tensors();
            let t = tensors.iter().find(|t| t.name == "x").unwrap();
            assert_eq!((t.tensor.dtype, t.tensor.shape()), (dtype, &[3, 2][..]));
        }
    }
}

#[test]
fn wrong_sizes_and_names_are_refused_and_leave_the_old_file() {
    let folder = Folder::new("refused");
    let path = folder.path("a.safetensors");
    fs::write(&path, b"old").unwrap();
    let two = flat(vec![item("x", DType::U8, &[4]), item("x", DType::U8, &[4])]);
    assert!(safetensors::save(&path, &two, &mut provider(&two)).is_err());
    let one = flat(vec![item("x", DType::U8, &[4])]);
    for n in [0, 3, 5, 1000] {
        let bytes = vec![1u8; n];
        assert!(safetensors::save(&path, &one, &mut |_, sink| sink(&bytes)).is_err());
        assert!(npz::save(&path, &one, &mut |_, sink| sink(&bytes)).is_err());
    }
    let meta = flat(vec![item("__metadata__", DType::U8, &[4])]);
    assert!(safetensors::save(&path, &meta, &mut provider(&meta)).is_err());
    let huge = flat(vec![item("x", DType::F64, &[i64::MAX, i64::MAX])]);
    assert!(safetensors::save(&path, &huge, &mut provider(&huge)).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(folder.names(), ["a.safetensors"]);
}

#[test]
fn tied_names_are_kept_once() {
    let folder = Folder::new("ties");
    let mut items = vec![item("a", DType::F32, &[2]), item("b", DType::F32, &[2])];
    items[1].tied = Some(0);
    let flat = flat(items);
    let path = folder.path("a.safetensors");
    safetensors::save(&path, &flat, &mut provider(&flat)).unwrap();
    let archive = Archive::open(&path).unwrap();
    assert_eq!(archive.tree().storages.len(), 1);
    assert_eq!(archive.ties(), [["a", "b"]]);
    // Converted to PyTorch's format and back they are still one.
    let pt = folder.path("a.pt");
    convert(&archive, &pt, &Options::default(), &|_| ()).unwrap();
    let archive = Archive::open(&pt).unwrap();
    assert_eq!(archive.ties(), [["a", "b"]]);
    let options = Options {
        duplicate: true,
        ..Options::default()
    };
    convert(&archive, &path, &options, &|_| ()).unwrap();
    let archive = Archive::open(&path).unwrap();
    assert_eq!(
        (archive.tree().storages.len(), archive.ties().len()),
        (2, 0)
    );
    assert_eq!(bytes_of(&archive, "a"), bytes_of(&archive, "b"));
    // A tie to nothing is an error and not a missing tensor.
    let bad = br#"{"__metadata__":{"torchlike.ties":"{\"b\":\"c\"}"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let mut file = (bad.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(bad);
    file.push(1);
    let e = Archive::from_bytes(file).err().unwrap();
    assert!(e.message().contains("'c'"), "{e}");
}

#[test]
fn shards_have_an_index_and_replace_one_another() {
    let folder = Folder::new("shards");
    let path = folder.path("model.safetensors");
    let mut items: Vec<Item> = (0..5)
        .map(|i| item(&format!("t{i}"), DType::U8, &[40]))
        .collect();
    items.push(Item {
        tied: Some(0),
        ..item("tied", DType::U8, &[40])
    });
    let flat = flat(items);
    for kind in [sharded::Kind::Safetensors, sharded::Kind::TorchZip] {
        let one = sharded::save(&path, &flat, kind, 200, &mut provider(&flat)).unwrap();
        assert_eq!(one, std::slice::from_ref(&path));
        fs::remove_file(&path).unwrap();
        for round in 0..3 {
            let files = sharded::save(&path, &flat, kind, 100, &mut provider(&flat)).unwrap();
            assert_eq!(files.len(), 4, "{files:?}");
            assert_eq!(
                folder.names().len(),
                4,
                "round {round}: {:?}",
                folder.names()
            );
            let index: Json = serde_json::from_slice(&fs::read(&files[3]).unwrap()).unwrap();
            assert_eq!(index["metadata"]["total_size"], 200);
            for i in 0..5u32 {
                let name = format!("t{i}");
                let file = index["weight_map"][&name].as_str().unwrap();
                let archive = Archive::open(folder.path(file)).unwrap();
                assert_eq!(bytes_of(&archive, &name), content(i, 40));
            }
            let first = Archive::open(&files[0]).unwrap();
            assert_eq!(first.ties(), [["t0", "tied"]]);
        }
        for name in folder.names() {
            fs::remove_file(folder.path(&name)).unwrap();
        }
    }
}

#[test]
fn conversions_keep_the_fingerprint() {
    let folder = Folder::new("convert");
    let mut converted = 0;
    for entry in fs::read_dir(good("")).unwrap() {
        let from = entry.unwrap().path();
        let Ok(archive) = Archive::open(&from) else {
            continue;
        };
        let want = fingerprint(&from);
        for to in ["a.pt", "a.safetensors", "a.npz"] {
            let to = folder.path(to);
            match convert(&archive, &to, &Options::default(), &|_| ()) {
                Ok(done) => {
                    assert_eq!(done.tensors, archive.totals().names);
                    if to.extension().unwrap() != "npz" {
                        assert_eq!(
                            fingerprint(&to),
                            want,
                            "{} to {}",
                            from.display(),
                            to.display()
                        );
                        converted += 1;
                    }
                }
                Err(e) => {
                    let text = e.message();
                    let meta = archive
                        .tensors()
                        .iter()
                        .any(|t| t.storage.data == Data::Meta);
                    assert!(
                        text.contains("cannot hold")
                            || text.contains("NumPy has no")
                            || meta
                            || text.contains("two tensors"),
                        "{}: {text}",
                        from.display()
                    );
                }
            }
        }
    }
    assert!(converted > 40, "only {converted}");
}

#[test]
fn a_damaged_byte_is_named() {
    let folder = Folder::new("verify");
    let path = folder.path("a.pt");
    let flat = flat(vec![
        item("x", DType::U8, &[5000]),
        item("y", DType::U8, &[5000]),
    ]);
    sharded::save(
        &path,
        &flat,
        sharded::Kind::TorchZip,
        u64::MAX,
        &mut provider(&flat),
    )
    .unwrap();
    let name = path.to_str().unwrap();
    let (code, report) = json(&["verify", "--json", name]);
    assert_eq!(
        (code, &report["ok"], &report["checked"]),
        (0, &true.into(), &2.into())
    );
    let archive = Archive::open(&path).unwrap();
    let offsets: Vec<u64> = archive
        .tensors()
        .iter()
        .map(|t| match t.storage.data {
            Data::Stored { offset } => offset,
            _ => panic!("not stored"),
        })
        .collect();
    let mut bytes = fs::read(&path).unwrap();
    bytes[offsets[1] as usize + 77] ^= 4;
    fs::write(&path, &bytes).unwrap();
    let (code, out, _) = cli(&["verify", name]);
    assert!(code == 1 && out.contains("'y'"), "{out}");
    // Of two the first in the file.
    bytes[offsets[0] as usize + 4999] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (code, report) = json(&["verify", "--json", name]);
    assert!(
        code == 1 && report["error"].as_str().unwrap().contains("'x'"),
        "{report}"
    );
    let (code, _, errors) = cli(&["verify", folder.path("none.pt").to_str().unwrap()]);
    assert!(code == 2 && errors.contains("No such file"), "{errors}");
}

#[test]
fn diff_finds_what_differs() {
    let folder = Folder::new("diff");
    let write = |name: &str, items: Vec<Item>, bytes: &dyn Fn(u32, u64) -> Vec<u8>| {
        let path = folder.path(name);
        let flat = flat(items);
        safetensors::save(&path, &flat, &mut |n, sink| {
            sink(&bytes(n, flat.items[n as usize].nbytes()?))
        })
        .unwrap();
        path.to_str().unwrap().to_owned()
    };
    let floats = |x: f32| move |_: u32, n: u64| x.to_le_bytes().repeat((n / 4) as usize);
    let shape = |n| item("w", DType::F32, &[n]);
    let a = write("a", vec![shape(3)], &floats(1.0));
    let b = write("b", vec![shape(3)], &floats(1.25));
    let c = write("c", vec![shape(4)], &floats(1.0));
    let d = write(
        "d",
        vec![shape(3), item("v", DType::F32, &[1])],
        &floats(1.0),
    );
    let e = write("e", vec![item("w", DType::I32, &[3])], &floats(1.0));
    assert_eq!(cli(&["diff", &a, &a]).0, 0);
    assert_eq!(cli(&["diff", &a, &b]).0, 0);
    let (code, report) = json(&["diff", "--json", "--values", &a, &b]);
    let change = &report["changes"][0];
    assert_eq!(
        (code, &change["change"], &change["different"]),
        (1, &"values".into(), &3.into())
    );
    assert_eq!(change["largest"], 0.25);
    assert_eq!(cli(&["diff", "--tolerance", "0.25", &a, &b]).0, 0);
    assert_eq!(cli(&["diff", "--tolerance", "0.2", &a, &b]).0, 1);
    for (other, what) in [(&c, "shape"), (&d, "only in b"), (&e, "dtype")] {
        let (code, report) = json(&["diff", "--json", &a, other]);
        assert_eq!(
            (code, &report["changes"][0]["change"]),
            (1, &what.into()),
            "{report}"
        );
    }
    assert_eq!(cli(&["diff", &d, &a]).0, 1);
    assert_eq!(cli(&["diff", &a]).0, 2);
    assert_eq!(cli(&["diff", &a, "/nowhere"]).0, 2);
}

#[test]
fn extract_takes_what_is_asked_for() {
    let folder = Folder::new("extract");
    let path = folder.path("a.safetensors");
    let flat = flat(
        ["layer.0.weight", "layer.0.bias", "layer.1.weight"]
            .map(|n| item(n, DType::F32, &[2, 2]))
            .to_vec(),
    );
    safetensors::save(&path, &flat, &mut provider(&flat)).unwrap();
    let (from, to) = (path.to_str().unwrap(), folder.path("b.pt"));
    let to = to.to_str().unwrap();
    let names = |path: &str| -> Vec<String> {
        Archive::open(path)
            .unwrap()
            .tensors()
            .iter()
            .map(|t| t.name.clone())
            .collect()
    };
    assert_eq!(cli(&["extract", from, "*.weight", "-o", to]).0, 0);
    assert_eq!(names(to), ["layer.0.weight", "layer.1.weight"]);
    assert_eq!(
        cli(&["extract", from, "--prefix", "layer.0.", "-o", to]).0,
        0
    );
    let mut found = names(to);
    found.sort();
    assert_eq!(found, ["bias", "weight"]);
    let (code, _, errors) = cli(&["extract", from, "nothing*", "-o", to]);
    assert!(code == 2 && errors.contains("nothing*"), "{errors}");
    assert_eq!(cli(&["extract", from, "-o", to]).0, 2);
    let npy = folder.path("a.npy");
    assert_eq!(
        cli(&[
            "extract",
            from,
            "layer.1.weight",
            "-o",
            npy.to_str().unwrap()
        ])
        .0,
        0
    );
    let bytes = fs::read(&npy).unwrap();
    assert!(bytes.starts_with(b"\x93NUMPY\x01\0"));
    assert_eq!(bytes[128..], content(2, 16));
    let (code, report) = json(&["convert", "--json", "--exclude", "*.bias", from, to]);
    assert_eq!((code, &report["tensors"]), (0, &2.into()));
    assert_eq!(cli(&["convert", from, "/nowhere/a.pt"]).0, 2);
    assert_eq!(cli(&["convert", from, "a.xyz"]).0, 2);
}

#[test]
fn scan_tells_what_would_run() {
    let folder = Folder::new("scan");
    let path = folder.path("a.pkl");
    fs::write(&path, b"\x80\x02cposix\nsystem\nX\x04\0\0\0true\x85R.").unwrap();
    let (code, report) = json(&["scan", "--json", path.to_str().unwrap()]);
    assert_eq!((code, &report["format"]), (1, &"pickle".into()));
    assert_eq!(report["names"][0]["name"], "posix.system");
    assert_eq!(report["names"][0]["calls"][0], "posix.system(\"true\")");
    let flat = flat(vec![item("x", DType::U8, &[4])]);
    let pt = folder.path("a.pt");
    sharded::save(
        &pt,
        &flat,
        sharded::Kind::TorchZip,
        u64::MAX,
        &mut provider(&flat),
    )
    .unwrap();
    let (code, out, _) = cli(&["scan", pt.to_str().unwrap()]);
    assert!(code == 0 && out.contains("nothing but"), "{out}");
    let (code, out, _) = cli(&["scan", "--all", pt.to_str().unwrap()]);
    assert!(
        code == 0 && out.contains("torch._utils._rebuild_tensor_v2"),
        "{out}"
    );
}

#[test]
fn tree_and_help() {
    let folder = Folder::new("tree");
    let path = folder.path("a.pt");
    let flat = flat(vec![
        item("net.0.weight", DType::F32, &[2, 2]),
        item("net.0.bias", DType::F32, &[2]),
        item("head.weight", DType::F32, &[1]),
    ]);
    sharded::save(
        &path,
        &flat,
        sharded::Kind::TorchZip,
        u64::MAX,
        &mut provider(&flat),
    )
    .unwrap();
    assert_eq!(Archive::open(&path).unwrap().format(), Format::TorchZip);
    let (code, report) = json(&["tree", "--json", path.to_str().unwrap()]);
    assert_eq!(
        (code, &report["bytes"], &report["tensors"]),
        (0, &28.into(), &3.into())
    );
    assert_eq!(
        report["children"][0]["children"][0]["children"][1]["name"],
        "bias"
    );
    let (code, out, _) = cli(&["tree", path.to_str().unwrap()]);
    assert!(
        code == 0 && out.contains("├─ net.0: 2 tensors, 24 B"),
        "{out}"
    );
    assert!(out.contains("└─ head.weight: float32 [1], 4 B"), "{out}");
    for args in [
        &["--help"][..],
        &["diff", "--help"],
        &["-V"],
        &["extract", "-h"],
    ] {
        let (code, out, errors) = cli(args);
        assert!(
            code == 0 && !out.is_empty() && errors.is_empty(),
            "{args:?}"
        );
    }
    for args in [
        &[][..],
        &["nonsense"],
        &["tree"],
        &["inspect", "--nonsense", "a"],
    ] {
        let (code, out, errors) = cli(args);
        assert!(
            code == 2 && out.is_empty() && errors.contains("--help"),
            "{args:?}"
        );
    }
}
