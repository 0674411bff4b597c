//! The command line on checkpoints.

use crate::files::{Folder, content, flat, item, provider};
use serde_json::Value as Json;
use std::fs;
use std::path::Path;
use torchlike::DType;
use torchlike::io::write::flat::{Flat, Item};
use torchlike::io::write::{safetensors, sharded};
use torchlike::io::{Archive, Data, Format};

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

/// Writes a file in PyTorch's format.
fn save(path: &Path, flat: &Flat) {
    let kind = sharded::Kind::TorchZip;
    sharded::save(path, flat, kind, u64::MAX, &mut provider(flat)).unwrap();
}

#[test]
fn a_damaged_byte_is_named() {
    let folder = Folder::new("verify");
    let path = folder.path("a.pt");
    let flat = flat(vec![
        item("x", DType::U8, &[5000]),
        item("y", DType::U8, &[5000]),
    ]);
    save(&path, &flat);
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
    let (code, _, errors) = cli(&["scan", folder.path("none.pt").to_str().unwrap()]);
    assert!(code == 2 && errors.contains("none.pt"), "{errors}");
    assert_eq!(report["names"][0]["calls"][0], "posix.system(\"true\")");
    let flat = flat(vec![item("x", DType::U8, &[4])]);
    let pt = folder.path("a.pt");
    save(&pt, &flat);
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
    save(&path, &flat);
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
