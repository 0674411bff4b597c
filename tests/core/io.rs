//! Checkpoints that PyTorch wrote, and hostile ones, read without PyTorch. What to expect of the good ones was
//! recorded from PyTorch 2.13 (`tests/data/ckpt/good.json`).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use torchlike::ErrorKind;
use torchlike::io::{Archive, Data, Tree, Value, write};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/ckpt")
        .join(name)
}

fn files(folder: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(data(folder))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.sort();
    paths
}

/// Compares an archive with what PyTorch made of the file; gives the number of tensors.
fn compare(what: &str, archive: &Archive, want: &serde_json::Value) -> usize {
    let mut tensors = archive.tensors();
    let want = want.as_array().unwrap();
    if archive.format() == torchlike::io::Format::Safetensors {
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let names: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
    let expected: Vec<&str> = want.iter().map(|w| w["name"].as_str().unwrap()).collect();
    assert_eq!(names, expected, "{what}");
    let (mut ours, mut theirs) = (HashMap::new(), HashMap::new());
    for (t, w) in tensors.iter().zip(want) {
        let what = format!("{what}: {}", t.name);
        assert_eq!(
            t.tensor.dtype.name(),
            w["dtype"].as_str().unwrap(),
            "{what}"
        );
        assert_eq!(serde_json::json!(t.tensor.shape()), w["shape"], "{what}");
        assert_eq!(serde_json::json!(t.tensor.stride()), w["stride"], "{what}");
        assert_eq!(t.tensor.offset, w["offset"].as_i64().unwrap(), "{what}");
        assert_eq!(t.tensor.requires_grad, w["grad"], "{what}");
        assert_eq!(t.tensor.conj, w["conj"], "{what}");
        assert_eq!(
            t.tensor.class == torchlike::io::TensorClass::Parameter,
            w["parameter"],
            "{what}"
        );
        assert_eq!(
            t.storage.data == Data::Meta,
            w["nbytes"].is_null(),
            "{what}"
        );
        if let Some(nbytes) = w["nbytes"].as_u64() {
            assert_eq!(t.storage.nbytes, nbytes, "{what}");
            let bytes = archive.read_storage(t.storage).unwrap();
            assert_eq!(
                u64::from(crc32fast::hash(&bytes)),
                w["crc"].as_u64().unwrap(),
                "{what}"
            );
        }
        // Two tensors share a storage exactly where they do in PyTorch.
        if let Some(storage) = w["storage"].as_u64() {
            assert_eq!(
                *ours.entry(t.tensor.storage).or_insert(storage),
                storage,
                "{what}"
            );
            assert_eq!(
                *theirs.entry(storage).or_insert(t.tensor.storage),
                t.tensor.storage,
                "{what}"
            );
        }
    }
    tensors.len()
}

fn recorded() -> serde_json::Map<String, serde_json::Value> {
    let text = std::fs::read_to_string(data("good.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&text)
        .unwrap()
        .as_object()
        .unwrap()
        .clone()
}

#[test]
fn good_files_mean_what_they_mean_to_pytorch() {
    let mut tensors = 0;
    let recorded = recorded();
    assert!(recorded.len() > 90, "{} files", recorded.len());
    for (name, want) in &recorded {
        let archive = Archive::open(data("good").join(name)).unwrap();
        tensors += compare(name, &archive, want);
        archive.verify().unwrap();
        assert_eq!(
            archive.tree().unresolved(),
            Vec::<&torchlike::io::tree::Global>::new(),
            "{name}"
        );
    }
    assert!(tensors > 150, "{tensors} tensors");
}

#[test]
fn a_file_in_memory_is_the_same() {
    let want = &recorded()["sharing_two_views.pt"];
    let bytes = std::fs::read(data("good/sharing_two_views.pt")).unwrap();
    let archive = Archive::from_bytes(bytes).unwrap();
    compare("in memory", &archive, want);
}

#[test]
fn what_is_written_again_reads_the_same() {
    for (name, want) in &recorded() {
        let archive = Archive::open(data("good").join(name)).unwrap();
        let bytes = write::to_vec(
            archive.tree(),
            &mut write::from_archive(&archive, archive.tree()),
        )
        .unwrap();
        let again = Archive::from_bytes(bytes).unwrap();
        if archive.format() != torchlike::io::Format::Safetensors {
            compare(name, &again, want);
        }
        again.verify().unwrap();
        assert!(!again.is_big_endian());
        for storage in &again.tree().storages {
            if let Data::Stored { offset } = storage.data {
                assert_eq!(offset % 64, 0, "{name}: storage '{}'", storage.key);
            }
        }
    }
}

#[test]
fn hostile_files_are_refused_or_harmless() {
    let list = std::fs::read_to_string(data("hostile.txt")).unwrap();
    let mut refused = 0;
    for line in list.lines() {
        let (name, expect) = line.split_once(' ').unwrap();
        match Archive::open(data("hostile").join(name)) {
            Err(e) => {
                let known = [
                    ErrorKind::Checkpoint,
                    ErrorKind::Unpickling,
                    ErrorKind::Eof,
                    ErrorKind::Io,
                ];
                assert!(known.contains(&e.kind()), "{name}: {e:?}");
                assert!(
                    e.message().contains(name),
                    "{name}: the message does not name the file: {e}"
                );
                refused += 1;
            }
            Ok(archive) => {
                // A recorded call that nobody knows is refused by whoever makes live objects of the tree.
                let damaged = archive.verify().is_err() || !archive.tree().unresolved().is_empty();
                assert!(expect == "may-load" || damaged, "{name} was accepted");
                let _ = archive.tensors();
            }
        }
    }
    assert!(refused > 150, "{refused} refused");
}

#[test]
fn every_truncation_is_an_error() {
    for name in [
        "sharing_two_views.pt",
        "zip_zip64.pt",
        "zip_descriptors.pt",
        "legacy_views.pt",
        "safetensors_unsorted.safetensors",
    ] {
        let whole = std::fs::read(data("good").join(name)).unwrap();
        for n in 0..whole.len() {
            let e = Archive::from_bytes(whole[..n].to_vec())
                .err()
                .unwrap_or_else(|| panic!("{name} cut to {n} opened"));
            assert!(!e.message().is_empty());
        }
    }
}

#[test]
fn no_changed_byte_escapes_the_proofs() {
    for name in [
        "zip_deflated.pt",
        "protocol_protocol_4.pt",
        "zip_zip64.pt",
        "legacy_params.pt",
        "safetensors_names.safetensors",
        "param_with_attributes.pt",
    ] {
        let whole = std::fs::read(data("good").join(name)).unwrap();
        for at in 0..whole.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= change;
                let Ok(archive) = Archive::from_bytes(bytes) else {
                    continue;
                };
                for t in archive.tensors() {
                    let t_end = torchlike::io::extent(
                        t.tensor.shape(),
                        t.tensor.stride(),
                        t.tensor.offset,
                        t.tensor.dtype,
                    )
                    .unwrap();
                    assert!(t_end <= t.storage.nbytes, "{name} changed at {at}");
                    let _ = archive.read_storage(t.storage);
                }
                let _ = archive.verify();
            }
        }
    }
}

/// Every file of `more`, folders included.
fn more() -> Vec<PathBuf> {
    let paths = files("more");
    assert!(paths.len() > 40, "{} files", paths.len());
    paths
}

#[test]
fn every_format_opens_and_gives_its_bytes() {
    use torchlike::io::Format;
    let mut formats = std::collections::HashSet::new();
    let (mut tensors, mut composites) = (0, 0);
    for path in more() {
        let archive = Archive::open(&path).unwrap();
        formats.insert(archive.format().name());
        composites += archive.tree().composites.len();
        for t in archive.tensors() {
            let bytes = archive.read_storage(t.storage).unwrap();
            assert_eq!(bytes.len() as u64, t.storage.nbytes, "{}", path.display());
            let mut copied = vec![0; bytes.len()];
            archive.copy_storage(t.storage, 0, &mut copied).unwrap();
            assert_eq!(&*bytes, copied, "{}: {}", path.display(), t.name);
            tensors += 1;
        }
    }
    for format in [
        Format::TorchTar,
        Format::TorchScript,
        Format::Gguf,
        Format::Sharded,
        Format::Distributed,
        Format::TorchLegacy,
    ] {
        assert!(formats.contains(format.name()), "no {format:?}");
    }
    assert!(tensors > 60, "{tensors} tensors");
    assert!(composites > 6, "{composites} sparse and nested tensors");
}

#[test]
fn whatever_is_done_to_a_byte_of_any_format_is_survived() {
    for name in [
        "gguf_plain.gguf",
        "tar_views.pt",
        "torchscript_module.pt",
        "dcp/.metadata",
    ] {
        let whole = std::fs::read(data("more").join(name)).unwrap();
        let step = whole.len() / 400 + 1;
        for at in (0..whole.len()).step_by(step) {
            for change in [0x01, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= change;
                if let Ok(archive) = Archive::from_bytes(bytes) {
                    for t in archive.tensors() {
                        let _ = archive.read_storage(t.storage);
                    }
                }
            }
            // What is cut short is an error, unless only padding was lost.
            if let Ok(cut) = Archive::from_bytes(whole[..at].to_vec()) {
                let count = Archive::from_bytes(whole.clone()).unwrap().tensors().len();
                assert_eq!(cut.tensors().len(), count, "{name} cut to {at}");
                for t in cut.tensors() {
                    cut.read_storage(t.storage).unwrap();
                }
            }
        }
    }
}

#[test]
fn messages_name_the_fix() {
    for (name, words) in [
        ("mistake_git_lfs_pointer", "git lfs pull"),
        ("mistake_html", "web page"),
        ("mistake_empty", "empty (0 bytes)"),
        ("mistake_half_download", "fetch it again"),
        ("mistake_gzip", "gunzip"),
    ] {
        let e = Archive::open(data("hostile").join(name)).err().unwrap();
        assert!(e.message().contains(words), "{name}: {e}");
    }
    let e = Archive::open(data("nowhere.pt")).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::NotFound);
    let e = Archive::open(data("")).err().unwrap();
    assert!(e.message().contains("directory"), "{e}");
}

#[test]
fn names_that_pytorch_refuses_are_listed() {
    let refused = |name: &str| {
        let archive = Archive::open(data(name)).unwrap();
        archive
            .tree()
            .disallowed(&|_| false)
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(refused("hostile/exec_builtins_eval"), ["builtins.eval"]);
    for path in files("good")
        .iter()
        .filter(|p| p.extension().is_some_and(|e| e == "pt"))
    {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(refused(&format!("good/{name}")), [""; 0], "{name}");
    }
    let archive = Archive::open(data("hostile/exec_posix_system")).unwrap();
    let global = archive.tree().disallowed(&|_| false).next().unwrap();
    let e = torchlike::io::unsupported_global(global);
    assert_eq!(e.kind(), ErrorKind::Unpickling);
    assert!(
        e.message()
            .starts_with("Weights only load failed. This file can still be loaded"),
        "{e}"
    );
    assert!(
        e.message().contains(
            "Unsupported global: GLOBAL posix.system was not an allowed global by default."
        ),
        "{e}"
    );
    assert_eq!(
        archive
            .tree()
            .disallowed(&|g| &*g.module == "posix")
            .count(),
        0
    );
}

#[test]
fn a_failed_save_leaves_the_old_file() {
    let folder = std::env::temp_dir().join(format!("torchlike-io-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("model.pt");
    let archive = Archive::open(data("good/sharing_two_views.pt")).unwrap();
    write::save(
        &path,
        archive.tree(),
        &mut write::from_archive(&archive, archive.tree()),
    )
    .unwrap();
    let before = std::fs::read(&path).unwrap();
    assert!(
        before.windows(14).any(|w| w == b"model/data.pkl"),
        "the root is the file's stem"
    );
    let e = write::save(&path, archive.tree(), &mut |_, sink| sink(b"short")).unwrap_err();
    assert!(e.message().contains("5 of its"), "{e}");
    let e = write::save(&path, archive.tree(), &mut |_, sink| sink(&[0; 10_000])).unwrap_err();
    assert!(e.message().contains("more than"), "{e}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(
        std::fs::read_dir(&folder).unwrap().count(),
        1,
        "no temporary file is left"
    );
    // Over a file that is open: the reader keeps what it mapped.
    let open = Archive::open(&path).unwrap();
    let mut empty = Tree::new();
    empty.root = Value::Int(7);
    write::save(&path, &empty, &mut |_, _| Ok(())).unwrap();
    open.verify().unwrap();
    assert_eq!(Archive::open(&path).unwrap().tree().root, Value::Int(7));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[cfg(feature = "cli")]
#[test]
fn the_command_line() {
    let run = |args: &[&str]| {
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        let code = torchlike::cli::main(args, &mut out, &mut errors);
        (
            code,
            String::from_utf8(out).unwrap(),
            String::from_utf8(errors).unwrap(),
        )
    };
    let path = |name: &str| data(name).to_str().unwrap().to_owned();
    let (code, out, _) = run(&["inspect", &path("good/sharing_tied_weights.pt")]);
    assert_eq!(code, 0);
    assert!(
        out.contains("emb.weight = dec.weight") && out.contains("float32  [7, 4]"),
        "{out}"
    );
    let (code, out, _) = run(&["inspect", "--json", &path("good/sharing_tied_weights.pt")]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (
            code,
            &json["totals"]["storages"],
            &json["tensors"][0]["name"]
        ),
        (0, &1.into(), &"emb.weight".into())
    );
    assert_eq!(
        run(&["--version"]).1,
        format!("torchlike {}\n", env!("CARGO_PKG_VERSION"))
    );
    assert!(run(&["--help"]).1.contains("Exit codes"));
    let (code, out, errors) = run(&["inspect", &path("hostile/mistake_html")]);
    assert!(
        code == 2 && out.is_empty() && errors.contains("web page"),
        "{errors}"
    );
    for wrong in [
        &[][..],
        &["inspect"],
        &["look", "x"],
        &["inspect", "--yaml", "a"],
    ] {
        assert_eq!(run(wrong).0, 2, "{wrong:?}");
    }
}
