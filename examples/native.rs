//! torchlike without Python: a checkpoint is opened on meta, a model's shapes are checked, one tensor is made real, and the
//! model runs.
//!
//! `cargo run --example native`

use torchlike::{DType, Device, Loaded, Result, Tensor, f};

/// Two linear layers with an activation between: the same code on every device.
fn model(x: &Tensor, state: &Loaded) -> Result<Tensor> {
    let hidden = x.matmul(state.get("w1")?)?.relu()?;
    f::softmax(&hidden.matmul(state.get("w2")?)?, -1)
}

fn main() -> Result<()> {
    let path = std::env::temp_dir().join(format!("torchlike-native-{}.pt", std::process::id()));
    let w1 = f::Arange::new(12.0).dtype(DType::F32).call()?.mul(0.1)?;
    let w2 = f::Arange::new(8.0).dtype(DType::F32).call()?.mul(-0.2)?;
    let (w1, w2) = (w1.view(&[3, 4])?, w2.view(&[4, 2])?.add(1.0)?);
    torchlike::save(&path, &[("w1", &w1), ("w2", &w2)])?;

    // Nothing but the header of the file is read.
    let state = torchlike::load(&path, Device::META)?;
    for (name, t) in state.iter() {
        println!("{name:<4} {} {} on {}", t.dtype(), t.shape(), t.device());
    }

    // Shapes first: a mistake is found before any data is there.
    let on_meta = |shape: &[i64]| Tensor::empty(shape, DType::F32, Device::META);
    let y = model(&on_meta(&[5, 3])?, &state)?;
    println!("on meta: {} {} on {}", y.dtype(), y.shape(), y.device());
    if let Err(mistake) = model(&on_meta(&[5, 7])?, &state) {
        println!("a mistake: {mistake}");
    }

    // One tensor becomes real, and only its bytes are read.
    torchlike::materialize(state.get("w1")?)?;
    println!("w1: {:?}", state.get("w1")?.to_vec::<f32>()?);
    println!("w2 is still on {}", state.get("w2")?.device());

    // What is made in meta_init is a recipe, and becomes what it would have been.
    torchlike::random::default_generator().manual_seed(0);
    let x = torchlike::meta_init(|| f::randn(&[1, 3]))?;
    torchlike::materialize(&x)?;
    torchlike::materialize(state.get("w2")?)?;
    let y = model(&x, &state)?;
    println!("on cpu: {:?}", y.to_vec::<f32>()?);
    let total = y.sum()?.item()?.to_f64();
    std::fs::remove_file(&path)?;
    assert!((total - 1.0).abs() < 1e-6, "probabilities add up to one");
    Ok(())
}
