"""NumPy's arrays, scalars, dtypes and random states, made from plain data."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchlike._rebuild_builders import Builder, Refused, need

# NumPy 1 called its inner package `core`.
_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
_NUMERIC = ("numpy.core.numeric", "numpy._core.numeric")
_KINDS = "biufcSUVmMOT?"
_STREAMS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def _dtype(args: tuple[Any, ...], kwargs: Any) -> Any:
    need(not kwargs and 1 <= len(args) <= 3, "arguments for a dtype")
    code = args[0]
    if isinstance(code, type):
        need(issubclass(code, np.generic), "a dtype of a type that is none of NumPy's")
    else:
        need(isinstance(code, str) and 0 < len(code) <= 32, "a dtype that is no text")
        need(code.lstrip("<>|=")[:1] in _KINDS and "," not in code, "an unknown dtype")
    return np.dtype(code)


def _dtype_state(dtype: Any, state: Any) -> Any:
    need(isinstance(state, tuple) and len(state) in (8, 9), "the state of a dtype")
    order, sub, names, fields, size, align = state[1:7]
    need(order in ("<", ">", "|", "="), "the byte order of a dtype")
    need(state[0] in (3, 4), "the version of a dtype")
    if sub is not None:
        need(
            isinstance(sub, tuple) and len(sub) == 2 and isinstance(sub[0], np.dtype), "a subarray"
        )
        need(
            isinstance(sub[1], tuple) and all(type(n) is int and n >= 0 for n in sub[1]),
            "its shape",
        )
        made = np.dtype((sub[0], sub[1]))
        need(made.itemsize <= 1 << 20, "the size of a dtype")
        return made
    if names is not None:
        need(isinstance(names, tuple) and isinstance(fields, dict), "the fields of a dtype")
        need(set(names) == set(fields) and len(names) <= 10_000, "the fields of a dtype")
        need(type(size) is int and 0 < size <= 1 << 20, "the size of a dtype")
        formats, offsets, titles = [], [], []
        for name in names:
            field = fields[name]
            need(isinstance(field, tuple) and len(field) in (2, 3), "a field of a dtype")
            need(isinstance(field[0], np.dtype) and type(field[1]) is int, "a field of a dtype")
            need(0 <= field[1] <= size - field[0].itemsize, "a field outside its dtype")
            need(not field[0].hasobject, "a field that holds objects")
            formats.append(field[0])
            offsets.append(field[1])
            titles.append(field[2] if len(field) == 3 else None)
        spec: dict[str, Any] = {
            **{"names": list(names), "formats": formats, "offsets": offsets},
            **{"itemsize": size},
        }
        if any(titles):
            spec["titles"] = titles
        described: Any = spec
        return np.dtype(described, align=bool(state[7] & 0x80) if type(state[7]) is int else False)
    if dtype.kind in "mM" and len(state) == 9 and state[8]:
        unit = state[8]
        need(isinstance(unit, tuple) and len(unit) == 2 and isinstance(unit[1], tuple), "a unit")
        text, count = unit[1][0], unit[1][1]
        text = text.decode("ascii") if isinstance(text, bytes) else text
        need(isinstance(text, str) and len(text) <= 16 and type(count) is int, "a unit of time")
        base = f"{dtype.kind}8"
        # A dtype without a unit says so by this word.
        dtype = np.dtype(base if text == "generic" else f"{base}[{count}{text}]")
    elif dtype.kind in "SUV" and type(size) is int and size >= 0:
        need(size <= 1 << 24, "the size of a dtype")
        count = size // 4 if dtype.kind == "U" else size
        dtype = np.dtype(f"{dtype.kind}{count}")
    need(align is None or type(align) is int, "the alignment of a dtype")
    return dtype if order in ("|", "=") else dtype.newbyteorder(order)


def _shape(shape: Any) -> tuple[int, ...]:
    need(isinstance(shape, tuple) and len(shape) <= 64, "the shape of an array")
    need(all(type(n) is int and 0 <= n < 1 << 62 for n in shape), "the shape of an array")
    return shape


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _from_bytes(data: Any, dtype: Any, shape: Any, fortran: bool) -> Any:
    shape = _shape(shape)
    need(isinstance(dtype, np.dtype) and not dtype.hasobject, "the dtype of an array")
    if isinstance(data, str):  # Python 2
        data = data.encode("latin1")
    need(isinstance(data, bytes | bytearray), "the bytes of an array")
    need(_count(shape) * dtype.itemsize == len(data), "the number of bytes of an array")
    need(dtype.itemsize > 0 or _count(shape) <= 1 << 20, "an array of nothing")
    if dtype.itemsize == 0:
        return np.zeros(shape, dtype)
    flat = np.frombuffer(bytearray(data), dtype)
    if (
        not dtype.isnative and dtype.fields is None
    ):  # NumPy too has them in its own order afterwards
        flat = flat.astype(dtype.newbyteorder("="))
    return flat.reshape(shape, order="F" if fortran else "C")


def _reconstruct(args: tuple[Any, ...], kwargs: Any) -> Any:
    need(not kwargs and len(args) == 3 and args[0] is np.ndarray, "an array that is none")
    need(args[1] == (0,), "an array that is not made empty")
    return np.empty(0)


def _array_state(_: Any, state: Any) -> Any:
    need(isinstance(state, tuple) and len(state) in (4, 5), "the state of an array")
    shape, dtype, fortran, data = state[-4:]
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        shape = _shape(shape)
        need(isinstance(data, list) and len(data) == _count(shape), "the items of an array")
        made = np.empty(len(data), dtype=object)
        for i, item in enumerate(data):
            made[i] = item
        return made.reshape(shape, order="F" if fortran else "C")
    return _from_bytes(data, dtype, shape, bool(fortran))


def _scalar(args: tuple[Any, ...], kwargs: Any) -> Any:
    need(not kwargs and len(args) == 2, "arguments for a number")
    return _from_bytes(args[1], args[0], (), False)[()]


def _from_buffer(args: tuple[Any, ...], kwargs: Any) -> Any:
    need(not kwargs and len(args) in (4, 5), "arguments for an array")
    need(args[3] in ("C", "F", None), "the order of an array")
    return _from_bytes(args[0], args[1], args[2], args[3] == "F")


def _stream(args: tuple[Any, ...], kwargs: Any) -> Any:
    need(not kwargs and len(args) <= 1, "arguments for a bit generator")
    name = args[0] if args else "MT19937"
    if isinstance(name, type):
        name = name.__name__
    need(name in _STREAMS, "an unknown bit generator")
    return getattr(np.random, name)(0)


def _stream_state(stream: Any, state: Any) -> None:
    if (
        isinstance(state, tuple) and len(state) == 2
    ):  # state and seed sequence, of NumPy 1.24 and later
        state = state[0]
    need(isinstance(state, dict), "the state of a bit generator")
    stream.state = state


def _seeds(args: tuple[Any, ...], kwargs: Any) -> Any:
    need(not kwargs and len(args) == 3 and args[0] is np.random.SeedSequence, "a seed sequence")
    need(args[2] is None or isinstance(args[2], tuple), "the state of a seed sequence")
    made = np.random.SeedSequence(0)
    return made if args[2] is None else _seeds_state(made, args[2])


def _seeds_state(_: Any, state: Any) -> Any:
    need(isinstance(state, tuple) and len(state) in (5, 6), "the state of a seed sequence")
    entropy, spawned, _pool, size, key = state[:5]
    need(type(spawned) is int and type(size) is int and 4 <= size <= 1024, "a seed sequence")
    need(
        isinstance(entropy, int | list | tuple | np.ndarray | None),
        "the entropy of a seed sequence",
    )
    need(isinstance(key, tuple) and all(type(n) is int for n in key), "a seed sequence")
    return np.random.SeedSequence(
        entropy, spawn_key=key, pool_size=size, n_children_spawned=spawned
    )


def _random(cls: Any) -> Builder:
    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not kwargs and len(args) in (1, 2), "arguments for a random state")
        stream = args[0]
        if isinstance(stream, str):
            stream = _stream((stream,), None)
        need(isinstance(stream, np.random.BitGenerator), "a random state without its stream")
        return cls(stream)

    def give(obj: Any, state: Any) -> None:
        need(isinstance(state, dict), "the state of a random state")
        if cls is np.random.RandomState:
            obj.set_state(state)
        else:
            obj.bit_generator.state = state

    return Builder(make, give)


def builder(module: str, name: str) -> Any:
    """How objects of this name are made, or None."""
    if (module, name) == ("numpy", "dtype") or module == "numpy.dtypes":
        return Builder(_dtype, _dtype_state) if name == "dtype" else None
    if module in _MULTIARRAY and name == "_reconstruct":
        return Builder(_reconstruct, _array_state)
    if module in _MULTIARRAY and name == "scalar":
        return Builder(_scalar)
    if module in _NUMERIC and name == "_frombuffer":
        return Builder(_from_buffer)
    if module == "numpy.random.bit_generator" and name == "__pyx_unpickle_SeedSequence":
        return Builder(_seeds, _seeds_state)
    if module == "numpy.random._pickle":
        if name == "__bit_generator_ctor":
            return Builder(_stream, _stream_state)
        if name == "__randomstate_ctor":
            return _random(np.random.RandomState)
        if name == "__generator_ctor":
            return _random(np.random.Generator)
    return None


def value(module: str, name: str) -> Any:
    """The class that a name stands for where nothing calls it, or `Refused`."""
    if module == "numpy":
        found = getattr(np, name, None)
        if found is np.ndarray or (isinstance(found, type) and issubclass(found, np.generic)):
            return found
    if module.startswith("numpy.random.") and name in (*_STREAMS, "SeedSequence"):
        return getattr(np.random, name)
    return Refused
