//! The inputs that fuzzing kept (`fuzz/corpus`), under the same oracles but for time and memory.

#[path = "../../fuzz/src/drive.rs"]
mod drive;

use std::fs;
use std::path::Path;

fn run(target: &str, what: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let inputs = drive::unpack(&fs::read(folder.join(format!("{target}.gz"))).unwrap());
    assert!(!inputs.is_empty(), "no inputs for {target}");
    for (i, bytes) in inputs.iter().enumerate() {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| what(bytes)));
        assert!(done.is_ok(), "input {i} of {target}");
    }
}

#[test]
fn pickles() {
    run("pickle", drive::pickle);
}

#[test]
fn archives() {
    for target in ["zip", "legacy", "tar", "safetensors", "gguf", "npz"] {
        run(target, drive::archive);
    }
}

#[test]
fn indexes() {
    let folder = std::env::temp_dir().join(format!("torchlike-corpus-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let header = br#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let mut shard = (header.len() as u64).to_le_bytes().to_vec();
    shard.extend_from_slice(header);
    shard.extend_from_slice(&[0; 8]);
    for name in ["a", "model-00001-of-00002", "model-00002-of-00002"] {
        fs::write(folder.join(format!("{name}.safetensors")), &shard).unwrap();
    }
    let path = folder.join("model.safetensors.index.json");
    run("index", |bytes| {
        fs::write(&path, bytes).unwrap();
        drive::path(&path);
    });
    fs::remove_dir_all(&folder).unwrap();
}
