//! Writing and converting checkpoints.

use crate::files::{Folder, bytes_of, content, fingerprint, flat, good, item, provider};
use serde_json::Value as Json;
use std::fs;
use torchlike::DType;
use torchlike::io::convert::{Options, Target, convert};
use torchlike::io::write::flat::Item;
use torchlike::io::write::{npz, safetensors, sharded};
use torchlike::io::{Archive, Data};

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
