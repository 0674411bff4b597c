//! Training without Python: a small network learns a function, on any device; then the same step on meta, without data.
//!
//! `cargo run --example train`

use torchlike::{DType, Device, Result, Tensor, autograd, f};

/// The parameters of a network with one hidden layer.
struct Network {
    parameters: [Tensor; 4],
}

impl Network {
    fn new(hidden: i64, device: Device) -> Result<Self> {
        let leaf = |shape: &[i64]| -> Result<Tensor> {
            let t = f::Randn::new(shape).device(device).call()?.mul(0.5)?;
            Ok(t.with_requires_grad(true))
        };
        let parameters = [
            leaf(&[2, hidden])?,
            leaf(&[hidden])?,
            leaf(&[hidden, 1])?,
            leaf(&[1])?,
        ];
        Ok(Self { parameters })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [w1, b1, w2, b2] = &self.parameters;
        x.matmul(w1)?.add(b1)?.tanh()?.matmul(w2)?.add(b2)
    }

    /// One step of gradient descent; gives the loss.
    fn step(&self, x: &Tensor, y: &Tensor, rate: f64) -> Result<Tensor> {
        let wrong = self.forward(x)?.sub(y)?;
        let loss = wrong.mul(&wrong)?.mean()?;
        loss.backward()?;
        for p in &self.parameters {
            if let Some(grad) = p.grad() {
                autograd::no_grad(|| p.sub_(&grad.mul(rate)?))?;
                p.clear_grad();
            }
        }
        Ok(loss)
    }
}

fn main() -> Result<()> {
    torchlike::random::default_generator().manual_seed(0);
    let x = f::randn(&[64, 2])?;
    let y = f::SumDim::new(&x.mul(&x)?, &[1][..]).keepdim(true).call()?;
    let network = Network::new(16, Device::CPU)?;
    let first = network.step(&x, &y, 0.05)?.item()?.to_f64();
    let mut last = first;
    for step in 1..=200 {
        last = network.step(&x, &y, 0.05)?.item()?.to_f64();
        if step % 50 == 0 {
            println!("step {step:>3}: loss {last:.4}");
        }
    }
    assert!(last < first / 5.0, "{first} became only {last}");

    // How fast the output moves along a direction of the input, without a graph.
    let along = f::ones_like(&x)?;
    let (_, slope) = autograd::no_grad(|| autograd::jvp(|x| network.forward(x), &x, &along))?;
    println!("slope: {} {}", slope.dtype(), slope.shape());

    // The same step on meta: sizes of everything, and no data anywhere.
    let large = Network::new(1 << 20, Device::META)?;
    let on_meta = |shape: &[i64]| Tensor::empty(shape, DType::F32, Device::META);
    let loss = large.step(&on_meta(&[4096, 2])?, &on_meta(&[4096, 1])?, 0.05)?;
    println!("on meta: loss {} {}", loss.dtype(), loss.device());
    Ok(())
}
