//! torchlike without Python: a checkpoint is written, opened and inspected, a small model is checked on meta, then run.
//!
//! `cargo run --example native`

use torchlike::io::{Archive, Data, Object, StorageRef, TensorRef, Tree, Value, write};
use torchlike::ops::Arg;
use torchlike::{DType, Device, Result, Tensor, run1};

/// Two linear layers with an activation between: the same code on every device.
fn model(x: &Tensor, w1: &Tensor, w2: &Tensor) -> Result<Tensor> {
    let hidden = run1!("relu", &run1!("matmul", x, w1)?)?;
    run1!("softmax", &run1!("matmul", &hidden, w2)?, -1i64)
}

/// Writes two matrices as a PyTorch checkpoint.
fn save(path: &std::path::Path, tensors: &[(&str, &Tensor)]) -> Result<()> {
    let mut tree = Tree::new();
    let mut pairs = Vec::new();
    for (name, t) in tensors {
        let storage = tree.push_storage(StorageRef {
            key: (*name).into(),
            dtype: Some(t.dtype()),
            location: "cpu".into(),
            nbytes: t.storage().nbytes() as u64,
            data: Data::Given,
            crc: None,
        });
        let key = tree.push_str(name);
        let value = tree.push_tensor(TensorRef::new(
            storage,
            t.dtype(),
            t.shape(),
            t.strides(),
            t.offset(),
        ));
        pairs.push((key, value));
    }
    let root: Value = tree.push_dict(Object::Dict, pairs);
    tree.root = root;
    write::save(path, &tree, &mut |n: u32, sink: &mut write::Sink<'_>| {
        tensors[n as usize].1.storage().with_bytes(|b| sink(b))
    })
}

fn main() -> Result<()> {
    let w1 = Tensor::from_slice(
        &(0..12).map(|i| i as f32 * 0.1).collect::<Vec<_>>(),
        &[3, 4],
    )?;
    let w2 = Tensor::from_slice(
        &(0..8).map(|i| 1.0 - i as f32 * 0.2).collect::<Vec<_>>(),
        &[4, 2],
    )?;
    let path = std::env::temp_dir().join(format!("torchlike-native-{}.pt", std::process::id()));
    save(&path, &[("w1", &w1), ("w2", &w2)])?;

    let archive = Archive::open(&path)?;
    for t in archive.tensors() {
        println!(
            "{:<4} {:<8} {:?}",
            t.name,
            t.tensor.dtype.name(),
            t.tensor.shape()
        );
    }

    // Shapes first: nothing is allocated, and a mistake is found before any data is read.
    let meta = |shape: &[i64]| Tensor::empty(shape, DType::F32, Device::META);
    let y = model(&meta(&[5, 3])?, &meta(&[3, 4])?, &meta(&[4, 2])?)?;
    println!("on meta: {} {} on {}", y.dtype(), y.shape(), y.device());
    let wrong = model(&meta(&[5, 7])?, &meta(&[3, 4])?, &meta(&[4, 2])?);
    println!(
        "a mistake: {}",
        wrong.err().map_or_else(String::new, |e| e.to_string())
    );

    // Then for real, on the bytes of the file.
    let mut loaded = Vec::new();
    for t in archive.tensors() {
        let bytes = archive.read_storage(t.storage)?;
        let storage = torchlike::Storage::from_bytes(&bytes)?;
        loaded.push(Tensor::checked(
            storage,
            t.tensor.shape().into(),
            t.tensor.stride().into(),
            t.tensor.offset,
            t.tensor.dtype,
        )?);
    }
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[1, 3])?;
    let y = model(&x, &loaded[0], &loaded[1])?;
    println!("on cpu: {:?}", y.to_vec::<f32>()?);
    let total = torchlike::ops::invoke("sum", &[Arg::Tensor(&y)])?
        .one()?
        .item()?
        .to_f64();
    std::fs::remove_file(&path)?;
    assert!((total - 1.0).abs() < 1e-6, "probabilities add up to one");
    Ok(())
}
