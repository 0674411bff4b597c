"""Calls with tensors of unusual shapes and layouts beside PyTorch: `python benches/shapes.py --torch PYTHON`.

`survey.py` has square tensors without gaps; here operator, type, shape (many rows of three, one long row, sizes of one)
and layout (transposed, with gaps, expanded, channels last) are drawn for each case, the same in both libraries, and run
on one thread. Prints the cases whose ratio is below a limit (`--below 0.6`), the worst first, and the geometric mean.
Made for finding what is slow, not for measuring it. `--cases`: how many, `--from`: the number of the first.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import warnings
from typing import Any

from survey import best, compare, listed, words

SHAPES = [
    (1000003,),
    (333, 3001),
    (3001, 333),
    (100000, 3),
    (3, 100000),
    (100000, 7),
    (50000, 16),
    (7, 100000),
    (64, 3, 57, 57),
    (2, 64, 56, 56),
    (8, 128, 33, 17),
    (512, 16, 2, 64),
    (4, 3, 224, 224),
    (31, 1025, 33),
    (20000, 2, 5),
    (5, 2, 20000),
    (1, 500000),
    (500000, 1),
    (16, 4, 3, 5, 7, 11),
]
LAYOUTS = words("dense dense transposed strided sliced expanded moved channels_last")
FLOATS = words("float32 float64 bfloat16 float16")
NUMBERS = [*FLOATS, *words("int64 int32 uint8")]
OF_FLOATS = """
x.exp() x.sqrt() x.sigmoid() x.tanh() F.relu(x) F.gelu(x) F.silu(x) x.round() x.floor() x.log() x.sin() x.reciprocal()
x.lerp(y,.3) x.addcmul(y,y) x.pow(2) x.pow(3.) x.mean(d) x.std(d) x.var(d) x.norm(dim=d) x.logsumexp(d)
x.softmax(d) x.log_softmax(d) F.normalize(x,dim=d) F.layer_norm(x,x.shape[-1:]) F.rms_norm(x,x.shape[-1:])
F.mse_loss(x,y) F.dropout(x,.5) F.cosine_similarity(x,y,-1) x@row x@few F.linear(x,some) F.pad(x,(1,2)) x.allclose(y)
torch.where(m,x,0.)
"""
OF_NUMBERS = """
x.neg() x.abs() x.sign() x+y x*y x-row x*col x.maximum(y) x.eq(y) x<row x+3 x.clamp(0,1) x.sum(d) x.sum() x.amax(d)
x.amin(d) x.prod(d) x.max(d) x.min() x.argmax(d) x.argmin(d) x.any(d) x.all(d) x.count_nonzero() x.cumsum(d)
x.cumprod(d) x.cummax(d) x.sort(d) x.median(d) x.topk(min(5,x.shape[d]),d) x.kthvalue((x.shape[d]+1)//2,d)
x.flip((d,)) x.roll(2,d) x.diff(dim=d) x.permute(order).contiguous() x.clone() x.to(other) torch.where(m,x,y)
x.masked_fill(m,1) x.masked_select(m) x.nonzero() x.index_select(d,i) x[j] x[...,last] x.gather(d,all) x.unique()
x.clone().scatter_(d,all,y) x.clone().scatter_add_(d,all,y) x.clone().index_add_(d,i,y) torch.cat([x,x,x],d)
torch.stack([x,y],d) x.repeat(2,*[1]*x.ndim) x.repeat_interleave(2,d) x.equal(y)
"""


def drawn(torch: Any, r: random.Random, dtype: str, shape: tuple[int, ...], layout: str) -> Any:
    """A tensor of random numbers in a layout, where its dimensions allow that."""

    def dense(*sizes: int) -> Any:
        t = torch.rand(sizes)
        if dtype == "bool":
            return t > 0.5
        return (2 * t - 1 if dtype in FLOATS else 100 * t).to(getattr(torch, dtype))

    *outer, n = shape
    if layout == "strided":
        return dense(*outer, 2 * n)[..., ::2]
    if layout == "sliced":
        return dense(*outer, n + 3)[..., 1:-2]
    if layout == "transposed" and outer:
        return dense(*outer[:-1], n, outer[-1]).transpose(-1, -2)
    if layout == "moved":
        return dense(n, *outer).movedim(0, -1)
    if layout == "expanded" and outer:
        return dense(1, *shape[1:]).expand(shape)
    if layout == "channels_last" and len(shape) == 4:
        return dense(*shape).to(memory_format=torch.channels_last)
    return dense(*shape)


def case(torch: Any, number: int) -> tuple[str, Any]:
    """A case's name and call."""
    r = random.Random(number)
    torch.manual_seed(number)
    text = r.choice(words(OF_FLOATS) + words(OF_NUMBERS))
    dtype = r.choice(FLOATS if text in words(OF_FLOATS) else NUMBERS)
    shape, layout, second = r.choice(SHAPES), r.choice(LAYOUTS), r.choice(LAYOUTS)
    *outer, n = shape
    d = r.randrange(len(shape))
    order = r.sample(range(len(shape)), len(shape))
    other = getattr(torch, r.choice(NUMBERS))

    def of(sizes: tuple[int, ...], layout: str = "dense", kind: str = dtype) -> Any:
        return drawn(torch, r, kind, sizes, layout)

    places = {"torch": torch, "F": torch.nn.functional, "d": d, "order": order, "other": other}
    makers = {
        "x": lambda: of(shape, layout),
        "y": lambda: of(shape, second),
        "row": lambda: of((n,)),
        "col": lambda: of((*outer, 1)),
        "few": lambda: of((n, 5)),
        "some": lambda: of((17, n)),
        "m": lambda: of(shape, second, "bool"),
        "i": lambda: torch.randint(0, shape[d], (shape[d],)),
        "j": lambda: torch.randint(0, shape[0], (shape[0],)),
        "last": lambda: torch.randint(0, n, (n,)),
        "all": lambda: torch.randint(0, shape[d], shape),
    }
    code = compile(text, "case", "eval")
    places |= {name: make() for name, make in makers.items() if name in code.co_names}
    sizes = "x".join(map(str, shape))
    return f"{number} {text} {dtype} {sizes} {layout} {second} d={d}", eval(
        f"lambda: {text}", places
    )


def times(module: str, numbers: range) -> dict[str, float | str]:
    """The microseconds of every case in this process, or the kind of error."""
    warnings.filterwarnings("ignore")
    torch = importlib.import_module(module)
    torch.set_num_threads(1)
    found: dict[str, float | str] = {}
    for number in numbers:
        name, call = case(torch, number)
        try:
            found[name] = best(call)
        except Exception as e:
            found[name] = type(e).__name__
    return found


def main() -> None:
    """Both libraries, and what they say of each other."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--torch", metavar="PYTHON", help="a Python with PyTorch")
    parser.add_argument("--below", type=float, default=0.6, help="print cases below this ratio")
    parser.add_argument("--cases", type=int, default=500, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the number of the first")
    parser.add_argument("--module", help=argparse.SUPPRESS)
    a = parser.parse_args()
    numbers = range(a.first, a.first + a.cases)
    if a.module:
        print(json.dumps(times(a.module, numbers)))
        return
    ours = times("torchlike", numbers)
    if not a.torch:
        return listed(ours)
    command = [
        a.torch,
        __file__,
        "--module",
        "torch",
        "--cases",
        str(a.cases),
        "--from",
        str(a.first),
    ]
    compare("SHAPES", ours, command, a.below)


if __name__ == "__main__":
    main()
