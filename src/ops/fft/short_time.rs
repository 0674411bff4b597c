//! Fourier transforms of windows that slide over a signal, and back.

use crate::ops::core::helpers::at_hand;
use crate::ops::core::op::{Cast, FM, OpDef, compose};
use crate::ops::core::typed;
use crate::ops::f;
use crate::ops::view::shape::type_name;
use crate::{DeviceKind, Dims, Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "stft",
        "(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool center=True, str pad_mode='reflect', bool normalized=False, bool? onesided=None, bool? return_complex=None, bool? align_to_window=None)",
        FM,
        forward,
        "The Fourier transforms of windows that slide over signals.",
    )
    .samples("f32[20], 8, window=f32[8], return_complex=True; f64[2, 20], 8, 3, 6, window=f64[6], center=False, normalized=True, return_complex=True; c64[20], 4, return_complex=True")
    .amp(Cast::Single, Cast::Kept),
    compose(
        "istft",
        "(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool center=True, bool normalized=False, bool? onesided=None, int? length=None, bool return_complex=False)",
        FM,
        inverse,
        "The signals that `stft` gives such transforms of, by least squares.",
    )
    .samples("c64[5, 6], 8; c128[2, 5, 6], 8, length=9, window=f64[8].pos"),
];

/// An option as PyTorch's messages show it.
fn shown<T: ToString>(x: Option<T>) -> String {
    x.map_or_else(|| "None".to_owned(), |x| x.to_string())
}

fn shown_window(window: Option<&Tensor>) -> String {
    let text = |w: &Tensor| format!("{}{{{}}}", type_name(w), w.shape());
    window.map_or_else(|| "None".to_owned(), text)
}

/// A window padded with zeros to the size of a transform.
fn widened(window: &Tensor, size: i64) -> Result<Tensor> {
    let have = window.shape()[0];
    if have == size {
        return Ok(window.clone());
    }
    let left = (size - have) / 2;
    f::constant_pad_nd(window, &[left, size - have - left])
}

/// The sizes of windows: of a transform, from one to the next, and of the window itself.
#[derive(Clone, Copy)]
struct Sizes {
    n: i64,
    hop: i64,
    win: i64,
}

impl Sizes {
    fn of(n: i64, hop: Option<i64>, win: Option<i64>) -> Self {
        Self {
            n,
            hop: hop.unwrap_or(n / 4),
            win: win.unwrap_or(n),
        }
    }
}

/// Signals with as much around them as half a window, by the padding's name.
fn centered(t: &Tensor, n: i64, mode: &str) -> Result<Tensor> {
    let ones = Dims::filled(3usize.saturating_sub(t.ndim()), 1);
    let wide = f::view(t, &ones.concat(t.shape()))?;
    let wide = f::NnFunctionalPad::new(&wide, &[n / 2, n / 2])
        .mode(mode)
        .call()?;
    let from = wide.ndim() - t.ndim();
    f::view(&wide, &wide.shape()[from..])
}

/// Refuses signals and sizes, with the call in the message.
fn check_signal(a: &calls::Stft, t: &Tensor, sizes: Sizes) -> Result<()> {
    let Sizes { n, hop, win } = sizes;
    let call = || {
        format!(
            "stft({}{}, n_fft={n}, hop_length={hop}, win_length={win}, window={}, normalized={}, onesided={}, return_complex={}, \
             align_to_window={}) ",
            type_name(t),
            t.shape(),
            shown_window(a.window),
            u8::from(a.normalized),
            shown(a.onesided.map(u8::from)),
            shown(a.return_complex.map(u8::from)),
            shown(a.align_to_window.map(u8::from)),
        )
    };
    ensure!(
        t.dtype().is_float() || t.dtype().is_complex(),
        Runtime,
        "{}: expected a tensor of floating point or complex values",
        call()
    );
    ensure!(
        t.ndim() == 1 || t.ndim() == 2,
        Runtime,
        "{}: expected a 1D or 2D tensor",
        call()
    );
    let len = t.size(-1)?;
    ensure!(
        n > 0 && n <= len,
        Runtime,
        "{}: expected 0 < n_fft < {len}, but got n_fft={n}",
        call()
    );
    ensure!(
        hop > 0,
        Runtime,
        "{}: expected hop_length > 0, but got hop_length={hop}",
        call()
    );
    ensure!(
        win > 0 && win <= n,
        Runtime,
        "{}: expected 0 < win_length <= n_fft, but got win_length={win}",
        call()
    );
    if let Some(w) = a.window {
        ensure!(
            w.ndim() == 1 && w.shape()[0] == win,
            Runtime,
            "{}: expected a 1D window tensor of size equal to win_length={win}, but got window with size {}",
            call(),
            w.shape()
        );
    }
    Ok(())
}

/// The windows of signals, one after the other, times a window.
fn windows(lines: &Tensor, window: Option<&Tensor>, sizes: Sizes) -> Result<Tensor> {
    let Sizes { n, hop, win } = sizes;
    let (batch, len) = (lines.shape()[0], lines.shape()[1]);
    let (one, s) = (1 + (len - n) / hop, lines.strides());
    let framed = f::AsStrided::new(lines, &[batch, one, n], &[s[0], hop * s[1], s[1]])
        .storage_offset(lines.offset())
        .call()?;
    match window {
        Some(w) => f::mul(&framed, &widened(w, n)?),
        None if win < n => {
            let ones = f::NewOnes::new(lines, &[win]).call()?;
            f::mul(&framed, &widened(&ones, n)?)
        }
        None => Ok(framed),
    }
}

fn forward(a: &calls::Stft) -> Result<Tensor> {
    ensure!(
        !a.center || a.align_to_window.is_none(),
        Runtime,
        "stft align_to_window should only be set when center = false"
    );
    if a.window.is_none() {
        crate::warn_once!(
            "A window was not provided. A rectangular window will be applied,which is known to cause spectral leakage. Other \
             windows such as torch.hann_window or torch.hamming_window are recommended to reduce spectral leakage.To suppress \
             this warning and use a rectangular window, explicitly set `window=torch.ones(n_fft, device=<device>)`."
        );
    }
    let t = if a.center {
        centered(a.input, a.n_fft, a.pad_mode)?
    } else {
        a.input.clone()
    };
    let complex = t.dtype().is_complex() || a.window.is_some_and(|w| w.dtype().is_complex());
    ensure!(
        a.return_complex.is_some() || complex,
        Runtime,
        "stft requires the return_complex parameter be given for real inputs, and will further require that return_complex=True \
         in a future PyTorch release."
    );
    if a.return_complex == Some(false) {
        crate::warn_once!(
            "stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex tensors for \
             all inputs, and return_complex=False will raise an error.\n\
             Note: you can still call torch.view_as_real on the complex output to recover the old return format."
        );
    }
    let sizes = Sizes::of(a.n_fft, a.hop_length, a.win_length);
    check_signal(a, &t, sizes)?;
    let lines = if t.ndim() == 1 {
        f::unsqueeze(&t, 0)?
    } else {
        t.clone()
    };
    let framed = windows(&lines, a.window, sizes)?;
    let onesided = a.onesided.unwrap_or(!complex);
    ensure!(
        !(onesided && complex),
        Runtime,
        "Cannot have onesided output if window or input is complex"
    );
    let norm = i64::from(a.normalized);
    let made = if complex {
        f::_fft_c2c(&framed, &[2], norm, true)?
    } else {
        f::_fft_r2c(&framed, &[2], norm, onesided)?
    };
    // Views in place are calls that the graph has too.
    let turned = typed::changed(&f::Transpose::new(&made, 1, 2).args()?)?;
    let made = match t.ndim() {
        1 => typed::changed(&f::SqueezeDim::new(&turned, 0).args()?)?,
        _ => turned,
    };
    if a.return_complex.unwrap_or(true) {
        Ok(made)
    } else {
        f::view_as_real(&made)
    }
}

/// Refuses spectra and sizes, with the call in the message; gives whether they are the half that says all.
fn check_spectrum(a: &calls::Istft, sizes: Sizes) -> Result<bool> {
    let (t, Sizes { n, hop, win }) = (a.input, sizes);
    let call = || istft_call(a, sizes);
    ensure!(
        t.numel() != 0,
        Runtime,
        "{}: input tensor cannot be empty.",
        call()
    );
    ensure!(
        t.ndim() == 2 || t.ndim() == 3,
        Runtime,
        "{}: expected a tensor with 3 or 4 dimensions, but got {}",
        call(),
        t.ndim() + 1
    );
    let frequencies = t.size(-2)?;
    let onesided = a.onesided.unwrap_or(frequencies != n);
    let (expected, rule) = if onesided {
        (n / 2 + 1, "n_fft / 2 + 1 when onesided=True")
    } else {
        (n, "n_fft when onesided=False")
    };
    ensure!(
        frequencies == expected,
        Runtime,
        "{}: expected the frequency dimension (3rd to the last) of the input tensor to match {rule}, but got {frequencies}",
        call()
    );
    ensure!(
        hop > 0 && hop <= win,
        Runtime,
        "{}: expected 0 < hop_length <= win_length",
        call()
    );
    ensure!(
        win > 0 && win <= n,
        Runtime,
        "{}: expected 0 < win_length <= n_fft",
        call()
    );
    if let Some(w) = a.window {
        ensure!(
            w.ndim() == 1 && w.shape()[0] == win,
            Runtime,
            "{}: Invalid window shape. window has to be 1D and length of `win_length`",
            call()
        );
    }
    Ok(onesided)
}

/// A call of `istft` as PyTorch's messages tell it.
fn istft_call(a: &calls::Istft, Sizes { n, hop, win }: Sizes) -> String {
    let place = match a.input.device().kind {
        DeviceKind::Cpu => "CPU",
        DeviceKind::Cuda => "CUDA",
        DeviceKind::Meta => "Meta",
    };
    format!(
        "istft({place}{}Type{}, n_fft={n}, hop_length={hop}, win_length={win}, window={}, center={}, normalized={}, onesided={}, \
         length={}, return_complex={}) ",
        a.input.dtype().scalar_type(),
        a.input.shape(),
        shown_window(a.window),
        u8::from(a.center),
        u8::from(a.normalized),
        shown(a.onesided.map(u8::from)),
        shown(a.length),
        u8::from(a.return_complex),
    )
}

/// The part of summed windows that a signal is.
fn part(a: &calls::Istft, x: &Tensor) -> Result<Tensor> {
    let length = x.shape()[1];
    let around = if a.center { a.n_fft / 2 } else { 0 };
    let start = around.min(length);
    let end = match a.length {
        Some(wanted) => start + wanted.max(0),
        None => length - around,
    };
    f::narrow(x, 1, start, end.clamp(start, length) - start)
}

fn inverse(a: &calls::Istft) -> Result<Tensor> {
    let t = a.input;
    if a.window.is_none() {
        crate::warn_once!(
            "A window was not provided. A rectangular window will be applied.Please provide the same window used by stft to \
             make the inversion lossless.To suppress this warning and use a rectangular window, explicitly set \
             `window=torch.ones(n_fft, device=<device>)`."
        );
    }
    ensure!(
        t.dtype().is_complex(),
        Runtime,
        "istft requires a complex-valued input tensor matching the output from stft with return_complex=True."
    );
    let sizes = Sizes::of(a.n_fft, a.hop_length, a.win_length);
    let Sizes { n, hop, win } = sizes;
    let onesided = check_spectrum(a, sizes)?;
    let complex = a.return_complex || a.window.is_some_and(|w| w.dtype().is_complex());
    ensure!(
        !(complex && onesided),
        Runtime,
        "Cannot have onesided output if window or input is complex"
    );
    let window = match a.window {
        Some(w) => w.clone(),
        None => f::NewOnes::new(t, &[win])
            .dtype(t.dtype().to_real())
            .call()?,
    };
    let window = widened(&window, n)?;
    let whole = if t.ndim() == 2 {
        f::unsqueeze(t, 0)?
    } else {
        t.clone()
    };
    let lines = f::transpose(&whole, 1, 2)?;
    let frames = lines.shape()[1];
    let norm = if a.normalized { 1 } else { 2 };
    let lines = if complex {
        f::_fft_c2c(&lines, &[2], norm, false)?
    } else {
        let half = if onesided {
            lines
        } else {
            f::narrow(&lines, 2, 0, n / 2 + 1)?
        };
        f::_fft_c2r(&half, &[2], norm, n)?
    };
    let lines = f::mul(&lines, &f::view(&window, &[1, 1, n])?)?;
    let length = n + hop * (frames - 1);
    let sum = |x: &Tensor| f::_grad_unfold_backward(x, &[x.shape()[0], length], 1, n, hop);
    let signal = sum(&lines)?;
    let weights = sum(&f::expand(&f::pow(&window, 2)?, &[1, frames, n])?)?;
    let (signal, weights) = (part(a, &signal)?, part(a, &weights)?);
    // Those of examples cannot be read; a window that is the same for all has the same for all.
    if weights.batch().is_empty() && weights.numel() > 0 {
        let least = f::min(&f::abs(&weights)?)?;
        ensure!(
            !at_hand(&weights) || least.item()?.to_f64() > 1e-11,
            Runtime,
            "{}window overlap add min: 1",
            istft_call(a, sizes)
        );
    }
    let mut made = f::div(&signal, &weights)?;
    if t.ndim() == 2 {
        made = f::squeeze_dim(&made, 0)?;
    }
    let missing = a.length.unwrap_or(0) - made.size(-1)?;
    if missing > 0 {
        crate::warn_once!(
            "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. Please \
             check your center and hop_length settings."
        );
        return f::constant_pad_nd(&made, &[0, missing]);
    }
    Ok(made)
}
