//! Gradients without Python.

use torchlike::{DType, Device, Result, Tensor, autograd, f};

fn leaf(values: &[f64]) -> Result<Tensor> {
    Ok(Tensor::from_slice(values, &[values.len() as i64])?.with_requires_grad(true))
}

fn values(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f64>().expect("doubles on the host")
}

#[test]
fn a_line_is_learnt() -> Result<()> {
    let (slope, offset) = (leaf(&[0.0])?, leaf(&[0.0])?);
    let x = Tensor::from_slice(&[-1.0, 0.0, 1.0, 2.0], &[4])?;
    let y = x.mul(3.0)?.add(-1.0)?;
    for _ in 0..300 {
        let wrong = x.mul(&slope)?.add(&offset)?.sub(&y)?;
        wrong.mul(&wrong)?.mean()?.backward()?;
        for p in [&slope, &offset] {
            let step = p.grad().expect("the loss depends on it").mul(0.1)?;
            autograd::no_grad(|| p.sub_(&step))?;
            p.clear_grad();
            assert!(p.grad().is_none());
        }
    }
    assert!((values(&slope)[0] - 3.0).abs() < 1e-6);
    assert!((values(&offset)[0] + 1.0).abs() < 1e-6);
    Ok(())
}

#[test]
fn gradients_of_gradients() -> Result<()> {
    let x = leaf(&[2.0, 3.0])?;
    let y = x.mul(&x)?.mul(&x)?.sum()?;
    let first = autograd::grad(&y, &[&x], true)?
        .remove(0)
        .expect("y depends on x");
    assert_eq!(values(&first), [12.0, 27.0]);
    let second = autograd::grad(&first.sum()?, &[&x], false)?.remove(0);
    assert_eq!(values(&second.expect("so does its gradient")), [12.0, 18.0]);
    Ok(())
}

#[test]
fn forward_mode_nests() -> Result<()> {
    let x = Tensor::from_slice(&[2.0, 3.0], &[2])?;
    let one = f::ones_like(&x)?;
    let cube = |x: &Tensor| x.mul(x)?.mul(x);
    let (y, along) = autograd::jvp(cube, &x, &one)?;
    assert_eq!(values(&y), [8.0, 27.0]);
    assert_eq!(values(&along), [12.0, 27.0]);
    let slope = |x: &Tensor| Ok(autograd::jvp(cube, x, &one)?.1);
    let (_, second) = autograd::jvp(slope, &x, &one)?;
    assert_eq!(values(&second), [12.0, 18.0]);
    // Forward over reverse.
    let gradient = |x: &Tensor| {
        let x = x.clone().with_requires_grad(true);
        let grads = autograd::grad(&cube(&x)?.sum()?, &[&x], false)?;
        Ok(grads.into_iter().flatten().next().expect("it depends on x"))
    };
    let (_, second) = autograd::jvp(gradient, &x, &one)?;
    assert_eq!(values(&second), [12.0, 18.0]);
    Ok(())
}

#[test]
fn on_meta_gradients_have_their_shapes() -> Result<()> {
    let w = Tensor::empty(&[3, 4], DType::BF16, Device::META)?.with_requires_grad(true);
    let x = Tensor::empty(&[5, 3], DType::BF16, Device::META)?;
    x.matmul(&w)?.sum()?.backward()?;
    let grad = w.grad().expect("the sum depends on it");
    assert_eq!(&grad.shape()[..], [3, 4]);
    assert!(grad.device().is_meta());
    Ok(())
}

#[test]
fn mistakes_are_errors() -> Result<()> {
    let x = leaf(&[1.0, 2.0])?;
    let text = |r: Result<()>| r.expect_err("a mistake").to_string();
    assert!(text(x.mul(2.0)?.backward()).contains("only for scalar outputs"));
    let constant = f::ones_like(&x.bare())?.sum()?;
    assert!(text(constant.backward()).contains("does not require grad"));
    assert!(text(x.add_(1.0).map(|_| ())).contains("a leaf Variable that requires grad"));
    let y = x.exp()?.sum()?;
    y.backward()?;
    assert!(text(y.backward()).contains("second time"));
    let short = f::ones(&[1])?;
    assert!(text(autograd::jvp(f::exp, &x, &short).map(|_| ())).contains("of size [1]"));
    Ok(())
}
