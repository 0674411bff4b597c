"""A call of nearly every operator beside PyTorch: `python benches/survey.py --torch PYTHON [--filter REGEX]`.

Middle-sized tensors (512 x 512) of each type, one thread; each library runs in a process of its own, one after the
other, and the best of several calls counts. Prints the cases whose ratio is below a limit (`--below 0.6`), the worst
first, those that only one of the two computes, and the geometric mean. Made for finding what is slow, not for
measuring it: `kernels.py` takes turns. `--backward` is of gradients: the walk back from results to `x` and `y`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import re
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator
from typing import Any


def words(text: str) -> list[str]:
    """What stands between spaces."""
    return text.split()


DTYPES = words("float32 float64 bfloat16 float16 int64 int32 uint8 bool complex64")
FLOATS = DTYPES[:3]
UNARY = words(
    """
abs acos acosh angle asin asinh atan atanh bitwise_not ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2
expm1 floor frac i0 isfinite isinf isnan lgamma log log10 log1p log2 logical_not logit nan_to_num neg reciprocal
relu round rsqrt sigmoid sgn sign signbit sin sinc sinh sqrt square tan tanh trunc
"""
)
BINARY = words(
    """
add sub mul div atan2 bitwise_and bitwise_or bitwise_xor copysign eq fmax fmin fmod gcd ge gt heaviside hypot
lcm le logaddexp logaddexp2 logical_and logical_or logical_xor lt maximum minimum ne nextafter pow remainder
floor_divide xlogy ldexp
"""
)
SPECIAL = words(
    """
airy_ai bessel_j0 bessel_j1 bessel_y0 entr erfcx i0e i1 i1e log_ndtr ndtr ndtri modified_bessel_i0
modified_bessel_k0 spherical_bessel_j0
"""
)
REDUCTIONS = words(
    """
sum mean prod std var amax amin max min argmax argmin all any logsumexp norm nansum nanmean median nanmedian
mode cumsum cumprod cummax cummin logcumsumexp count_nonzero aminmax std_mean softmax log_softmax sort
"""
)
ACTIVATIONS = words(
    """
celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu softplus
softshrink softsign tanhshrink glu normalize softmin
"""
)
ANY = words(
    """
x+x[0] x+x[:,:1] x+x.t() x*3 x**2 torch.where(k,x,y) x.clone().relu_() x.clone().abs_()
x.clone().clamp_min_(0.1) x.clone().mul_(1.5) x.view(-1).roll(5) x.view(-1).flip(0)
F.leaky_relu(x.clone(),0.1,True) F.threshold(x.clone(),0.1,1,True) x.masked_fill(k,1) x.clamp(0,1) torch.lerp(x,y,0.3)
torch.addcmul(x,x,y) x.index_select(0,i) x.index_select(1,i) x.gather(0,j) x.gather(1,j) x.take(j) x[i] x[:,i]
x[i,i] x[x>0] x.scatter(1,j,x) x.scatter_add(1,j,x) x.index_add(0,i,x) x.index_copy(0,i,x)
x.index_put((i,),x,accumulate=True) x.index_fill(0,i,1) x.masked_select(k) x.masked_scatter(k,x) x.roll(5,1)
x.flip(0) x.flip(1) x.rot90() x.tril() x.diag() torch.cat([x,x],1) torch.stack([x,x],-1) x.repeat(2,2)
x.repeat_interleave(2,1) x.t().contiguous() x.clone() x.view(64,64,64).permute(2,0,1).contiguous()
F.pad(x,(1,1,1,1)) x.unfold(1,4,2).contiguous() x.diff() x.topk(10) x.kthvalue(10) x.unique()
x.unique_consecutive() x.nonzero() x.view(-1).bincount() torch.bucketize(x,x[0].sort()[0]) torch.isin(x,x[0])
torch.allclose(x,x) torch.outer(x[0],x[0]) torch.kron(x[:32,:32],x[:16,:16]) x@x x@x.t() x@x[0]
torch.bmm(x.view(64,64,64),x.view(64,64,64)) x.view(-1).dot(x.view(-1)) x.renorm(2,0,1) x.to(torch.float32)
x.to(torch.float64) x.to(torch.bfloat16) x.to(torch.int64) x.to(torch.bool) x.quantile(0.3)
torch.meshgrid(x[0],x[0])[0] torch.linspace(0,1,1<<18,dtype=x.dtype) torch.arange(0,1<<18,dtype=x.dtype)
torch.eye(512,dtype=x.dtype) torch.tril_indices(512,512) x[:64].tolist() x.view(64,64,64).sum(1)
x.view(64,64,64).max(1) x.view(64,64,64).cumsum(1) x.view(64,64,64).log_softmax(1)
"""
)
LAYERS = words(
    """
F.cross_entropy(x,t) F.nll_loss(x,t) F.mse_loss(x,y) F.l1_loss(x,y) F.huber_loss(x,y) F.kl_div(x,y.abs())
F.binary_cross_entropy_with_logits(x,y.abs()) F.cosine_similarity(x,y) F.triplet_margin_loss(x,y,x)
F.layer_norm(x,(512,)) F.rms_norm(x,(512,)) F.group_norm(im,4) F.batch_norm(im,None,None,training=True)
F.instance_norm(im) F.max_pool2d(im,2) F.avg_pool2d(im,3,1,1) F.adaptive_avg_pool2d(im,7)
F.interpolate(im,scale_factor=2) F.interpolate(im,scale_factor=2,mode="bilinear")
F.interpolate(im,scale_factor=2,mode="bicubic") F.conv2d(im,w,padding=1) F.conv2d(im,w,stride=2)
F.conv2d(im,w,padding=2,dilation=2) F.conv2d(im,w[:,:4],groups=4) F.conv2d(im,w[:,:1],groups=16)
F.conv2d(im,w[:,:1],stride=2,groups=16) F.conv2d(im,w[:,:,:1,:1]) F.conv2d(im,w[:,:,:1,:1],stride=2)
F.conv3d(im.view(1,16,4,64,64),w[...,None]) F.conv_transpose2d(im,w) F.conv_transpose2d(im,w,stride=2)
F.conv1d(x.view(16,64,256),w1) F.conv1d(x.view(16,64,256),w1[:,:1],groups=64)
F.conv_transpose1d(x.view(16,64,256),w1,stride=2) F.unfold(im,3) F.unfold(im,3,stride=3) F.grid_sample(im,g)
F.max_pool2d(im,3,2,1) F.max_pool1d(x,2) F.max_pool3d(im,2) F.avg_pool1d(x,3,1) F.avg_pool3d(im,2)
F.adaptive_max_pool2d(im,7) F.lp_pool2d(im,2,2) F.fractional_max_pool2d(im,2,7)
F.interpolate(x.view(16,64,256),scale_factor=2,mode="linear") F.interpolate(im,scale_factor=0.5,mode="area")
F.interpolate(im,size=(50,50),mode="bilinear",antialias=True) F.local_response_norm(im,3)
F.embedding_bag(j[:,:64],x) F.embedding_bag(j[:,:64],x,mode="max") F.bilinear(x[:,:32],y[:,:32],im.view(256,32,32)[:16])
F.pad(im,(1,1,1,1),"reflect") F.pad(im,(1,1,1,1),"replicate") F.pad(im,(1,1,1,1),"circular")
F.cross_entropy(im,j.view(-1)[:16384].view(4,64,64)%16) F.nll_loss(im,j.view(-1)[:16384].view(4,64,64)%16)
F.smooth_l1_loss(x,y) F.soft_margin_loss(x,y.sign()) F.hinge_embedding_loss(x,y.sign()) F.multi_margin_loss(x,t)
F.gaussian_nll_loss(x,y,x.abs()) F.poisson_nll_loss(x,y) F.pairwise_distance(x,y) F.channel_shuffle(im,4)
F.pixel_unshuffle(im,2) F.rrelu(x) F.prelu(im,w1[0,:16,0]) F.gumbel_softmax(x) F.cosine_embedding_loss(x,y,t.sign())
F.scaled_dot_product_attention(q,q,q,attn_mask=x[:256,:256]) F.feature_alpha_dropout(im,0.5,True)
torch.lstm_cell(x,(y,y),w4,w4) torch.gru_cell(x,y,w4[:1536],w4[:1536]) torch.einsum("bhid,bhjd->bhij",q,q)
torch.cumulative_trapezoid(x) torch.trapezoid(x) torch.cov(x) torch.corrcoef(x)
torch.cross(x[:,:510].view(-1,3),y[:,:510].view(-1,3))
torch.nn.utils.rnn.pad_sequence(list(x)) torch.block_diag(a,a) torch.cartesian_prod(x[0],x[0])
torch.tensordot(q[:,:,:8],q[:,:,:8],dims=([0,1],[0,1])) torch.einsum("bi,bi->b",x,y)
torch.einsum("zui,zvj->zuvij",x.view(4096,64)[:,:9].view(4096,3,3),y.view(4096,64)[:,9:18].view(4096,3,3))
torch.einsum("bij,bj->bi",x.view(1024,16,16),y.view(-1)[:16384].view(1024,16))
torch.bmm(x.view(16384,4,4),y.view(16384,4,4)) x.view(16384,16,1)*y.view(16384,1,16)
torch.fft.rfft(x) torch.fft.fft2(x) torch.stft(x.view(-1),256,window=x[0,:256],return_complex=True)
F.grid_sample(im,g,mode="nearest") F.pixel_shuffle(im,2) F.embedding(t,x) F.linear(x,x,x[0])
F.scaled_dot_product_attention(q,q,q) F.scaled_dot_product_attention(q,q,q,is_causal=True) F.dropout(x)
torch.cdist(x,x)
F.ctc_loss(x.view(64,8,512).log_softmax(2),t[:80].view(8,10)%511+1,torch.full((8,),64),torch.full((8,),10))
torch.rand(512,512,dtype=x.dtype) torch.randn(512,512,dtype=x.dtype) torch.bernoulli(x.abs())
"""
)
ALGEBRA = words(
    """
inv(s) det(s) cholesky(s) qr(a) svd(a) svdvals(a) eigh(s) eig(a) solve(s,a) lstsq(a,a) lu(a) pinv(a)
matrix_exp(a) solve_triangular(s,a,upper=True) matrix_norm(a) vector_norm(a,3)
"""
)


def values(torch: Any, name: str, tracked: bool) -> dict[str, Any]:
    """What the expressions of a type speak of; if `tracked`, gradients of `x` and `y` are wanted."""
    torch.manual_seed(0)
    u, v = torch.rand(512, 512), torch.rand(512, 512)
    dtype = getattr(torch, name)
    if dtype.is_complex:
        x, y = torch.complex(u, v), torch.complex(v, u)
    elif dtype.is_floating_point:
        x, y = (2 * u - 1).to(dtype), (2 * v - 1).to(dtype)
    else:
        x, y = (u > 0.5, v > 0.5) if name == "bool" else ((100 * u).to(dtype), (100 * v).to(dtype))
    if tracked:
        x.requires_grad_(), y.requires_grad_()
    i, j = (512 * u[0]).long(), (512 * v).long()
    found = {
        "torch": torch,
        "F": torch.nn.functional,
        "x": x,
        "y": y,
        "k": u > 0.5,
        "i": i,
        "j": j,
        "t": i,
    }
    if name in FLOATS:
        im = x.view(4, 16, 64, 64)
        found |= {
            "im": im,
            "g": im.view(4, 64, 64, 16)[..., :2].contiguous(),
            "w": x.view(-1)[:2304].view(16, 16, 3, 3),
            "w1": x.view(-1)[:12288].view(64, 64, 3),
            "q": x.view(2, 8, 256, 64),
            "w4": x.repeat(4, 1).detach(),
        }
    a = x[:128, :128].contiguous()
    if dtype.is_complex or name in FLOATS[:2]:
        found |= {"a": a, "s": a @ a.mH + 128 * torch.eye(128, dtype=dtype)}
    return found


def cases(name: str) -> Iterator[str]:
    """The expressions for a type; those that a library has no code for are left out of the comparison."""
    yield from (f"torch.{f}(x)" for f in UNARY)
    yield from (f"torch.{f}(x,y)" for f in BINARY)
    for f in REDUCTIONS:
        yield from (f"torch.{f}(x,dim={dim})" for dim in (0, 1))
    yield from ANY
    if name in FLOATS[:2]:
        yield from (f"torch.special.{f}(x)" for f in SPECIAL)
    if name in FLOATS:
        yield from (f"F.{f}(x)" for f in ACTIVATIONS)
        yield from LAYERS
    if name in (*FLOATS[:2], "complex64"):
        yield from (f"torch.linalg.{f}" for f in ALGEBRA)


def give_up(*_: object) -> None:
    """The alarm's handler."""
    raise TimeoutError


def best(call: Any) -> float:
    """Microseconds of the best of several calls."""
    call()
    found, end = math.inf, time.perf_counter() + 0.012
    for turn in range(40):
        if turn > 2 and time.perf_counter() > end:
            break
        start = time.perf_counter()
        call()
        found = min(found, time.perf_counter() - start)
    return 1e6 * found


def backward(torch: Any, call: Any, known: dict[str, Any]) -> Any:
    """The walk back from what a call gives; None if it gives nothing that has a gradient."""
    made = call()
    made = list(made) if isinstance(made, tuple | list) else [made]
    made = [t for t in made if isinstance(t, torch.Tensor) and t.requires_grad]
    seeds = [torch.rand_like(t) for t in made]
    to = [known["x"], known["y"]]
    kept = {"retain_graph": True, "allow_unused": True}
    return (lambda: torch.autograd.grad(made, to, seeds, **kept)) if made else None


def survey(module: str, pattern: str, tracked: bool) -> dict[str, float | str]:
    """The time of every case in this process, or the kind of error."""
    warnings.filterwarnings("ignore")
    torch = importlib.import_module(module)
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, give_up)
    found: dict[str, float | str] = {}
    for name in (*FLOATS, "complex64") if tracked else DTYPES:
        known = values(torch, name, tracked)
        for text in cases(name):
            if not re.search(pattern, f"{text} {name}"):
                continue
            call = eval(f"lambda: {text}", known)
            signal.alarm(8)
            try:
                if tracked:
                    call = backward(torch, call, known)
                if call is not None:
                    found[f"{text} {name}"] = best(call)
            except Exception as e:
                found[f"{text} {name}"] = type(e).__name__
            finally:
                signal.alarm(0)
    return found


def listed(ours: dict[str, float | str]) -> None:
    """Prints the times of all cases."""
    for case, spent in ours.items():
        print(f"{case:80} {spent if isinstance(spent, str) else f'{spent:12.1f} us'}")


def compare(title: str, ours: dict[str, float | str], command: list[str], below: float) -> None:
    """Prints what the times say beside those that a command prints: the cases below a ratio, and the mean."""
    theirs = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    ratios = []
    for case, spent in ours.items():
        other = theirs.get(case, "nothing")
        if isinstance(spent, str) != isinstance(other, str):
            print(f"{case:80} torchlike {spent}, torch {other}")
        elif not isinstance(spent, str):
            ratios.append((other / spent, case, spent, other))
    for ratio, case, spent, other in sorted(ratios):
        if ratio < below:
            print(f"{case:80} {spent:12.1f} us  torch {other:12.1f} us  x{ratio:.2f}")
    mean = math.exp(sum(math.log(r[0]) for r in ratios) / max(len(ratios), 1))
    few = sum(r[0] < 0.95 for r in ratios)
    print(f"{title} geomean x{mean:.2f} over {len(ratios)} cases, {few} below 0.95")


def main() -> None:
    """Both surveys, and what they say of each other."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--torch", metavar="PYTHON", help="a Python with PyTorch")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only these cases")
    parser.add_argument("--below", type=float, default=0.6, help="print cases below this ratio")
    parser.add_argument("--backward", action="store_true", help="of gradients")
    parser.add_argument("--survey", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.survey:
        print(json.dumps(survey(a.survey, a.filter, a.backward)))
        return
    ours = survey("torchlike", a.filter, a.backward)
    if not a.torch:
        return listed(ours)
    command = [a.torch, __file__, "--survey", "torch", "--filter", a.filter]
    command += ["--backward"] if a.backward else []
    compare("SURVEY", ours, command, a.below)


if __name__ == "__main__":
    main()
