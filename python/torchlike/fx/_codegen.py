"""Python source for a graph: what a function of it is called and takes, and how it returns."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torchlike.fx._names import _Namespace

reflectable_magic_methods = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "floordiv": "{} // {}",
    "truediv": "{} / {}", "div": "{} / {}", "mod": "{} % {}", "pow": "{} ** {}",
    "lshift": "{} << {}", "rshift": "{} >> {}", "and_": "{} & {}", "or_": "{} | {}",
    "xor": "{} ^ {}", "getitem": "{}[{}]", "matmul": "{} @ {}",
}  # fmt: skip
magic_methods = {
    "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}",
    "ge": "{} >= {}", "pos": "+{}", "neg": "-{}", "invert": "~{}", **reflectable_magic_methods,
}  # fmt: skip
inplace_methods = {
    "iadd": "{} += {}", "iand": "{} &= {}", "ifloordiv": "{} //= {}", "ilshift": "{} <<= {}",
    "imod": "{} %= {}", "imul": "{} *= {}", "imatmul": "{} @= {}", "ior": "{} |= {}",
    "ipow": "{} **= {}", "irshift": "{} >>= {}", "isub": "{} -= {}", "itruediv": "{} /= {}",
    "ixor": "{} ^= {}", "setitem": "{}[{}] = {}",
}  # fmt: skip


@dataclasses.dataclass
class PythonCode:
    """Source of a function, the globals that it names, and which line comes from which node."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None
    _prologue_start: int = 0


class _PyTreeInfo(NamedTuple):
    """Names of a function's arguments, and how they and its results are nested."""

    orig_args: list[str]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec | None


@dataclasses.dataclass(frozen=True)
class _ParsedStackTrace:
    """One place in a program, from the text of a traceback."""

    file: str
    lineno: str
    name: str
    code: str

    def get_summary_str(self) -> str:
        """The place on one line."""
        return f"File: {self.file}:{self.lineno} in {self.name}, code: {self.code}"


_PLACE = re.compile(r'^File "(.+)", line (\d+), in (.+)$')


def _parse_stack_trace(
    stack_trace: str | None, filter_fn: Callable[[str, str, str], bool] | None = None
) -> _ParsedStackTrace | None:
    """The innermost place of a traceback that the filter lets through."""
    lines = (stack_trace or "").strip().split("\n")
    for at in range(len(lines) - 2, -1, -1):
        match = _PLACE.match(lines[at].strip())
        if match is None:
            continue
        file, lineno, name = match.groups()
        code = lines[at + 1].strip()
        if filter_fn is None or filter_fn(file, name, code):
            return _ParsedStackTrace(file, lineno, name, code)
    return None


@functools.lru_cache(maxsize=4096)
def _format_path(target: str) -> str:
    """What follows an object to reach an attribute of it, where that is a row of identifiers."""
    parts = target.split(".")
    return "." + target if all(p.isidentifier() for p in parts) else ""


def _format_target(base: str, target: str) -> str:
    """The expression for an attribute at a path; names that are no identifiers use `getattr`."""
    path = _format_path(target)
    if path:
        return base + path
    for part in target.split("."):
        base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
    return base


class CodeGen:
    """How the function of a graph takes its arguments and returns."""

    _func_name = "forward"

    @staticmethod
    def _sym_repr(x: Any) -> str:
        return repr(x)

    def __init__(self) -> None:
        self._body_transformer: Callable[[list[str]], list[str]] | None = None

    def gen_fn_def(
        self,
        free_vars: list[str],
        maybe_return_annotation: str,
        *,
        expanded_def: bool = False,
    ) -> str:
        """The lines before the body: the signature, and what has to happen first.

        Args:
            free_vars: the arguments with their annotations and defaults.
            maybe_return_annotation: ` -> type`, or nothing.
            expanded_def: an argument a line.
        """
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        if not expanded_def:
            return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"
        rows = "".join(f"    {_with_comma(v)}\n" for v in free_vars)
        return f"def {self._func_name}(\n{rows}){maybe_return_annotation}:"

    def generate_output(
        self,
        output_args: Any,
        *,
        descs: Sequence[str] | None = None,
        repr_fn: Callable[[Any], str] | None = None,
    ) -> str:
        """The statement that returns.

        Args:
            output_args: the argument of the output node.
            descs: comments, one a result; each result has its own line then.
            repr_fn: makes the text of an argument.
        """
        show = repr_fn or repr
        if descs is None or not isinstance(output_args, list | tuple):
            return f"return {show(output_args)}"
        return f"return {_rows(output_args, descs, show)}"

    def process_inputs(self, *args: Any) -> Any:
        """What the graph's placeholders receive, of what the function is called with."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What the function returns, of what stands in the output node."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Names that the lines of this class use, with what they mean."""
        return []

    def _gen_python_code(
        self, nodes: Any, root_module: str, namespace: _Namespace, **options: Any
    ) -> PythonCode:
        from torchlike.fx._writer import Writer

        return Writer(self, root_module, namespace, **options).write(nodes)


def call_fitting(method: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Calls a method of a user's class with those options that its signature knows."""
    if getattr(method, "__func__", None) in _KNOWN:
        return method(*args, **options)
    known = inspect.signature(method).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values()):
        return method(*args, **options)
    return method(*args, **{k: v for k, v in options.items() if k in known})


def _with_comma(text: str) -> str:
    """A comma behind an argument, before its comment."""
    before, hash_sign, comment = text.partition("#")
    return f"{before.rstrip()},  #{comment}" if hash_sign else f"{text},"


def _rows(items: Sequence[Any], descs: Sequence[str], show: Callable[[Any], str]) -> str:
    """A container with an item a line, and its comment behind it."""
    left, right = ("[", "]") if isinstance(items, list) else ("(", ")")
    texts = [f"    {show(a)},  # {d}\n" for a, d in zip(items, descs, strict=False)]
    texts += [f"    {show(a)},\n" for a in items[len(texts) :]]
    return f"{left}\n{''.join(texts)}{right}"


class _BoxedCodeGen(CodeGen):
    """Arguments come in one list, which is emptied so that they can be freed early."""

    def gen_fn_def(
        self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False
    ) -> str:
        """The signature, and the arguments taken out of the list."""
        lines = [f"def {self._func_name}(self, args_list){maybe_return_annotation}:"]
        names = [v.split(":")[0].split("=")[0].strip() for v in free_vars if v != "self"]
        if names:
            lines.append("    args_iter = iter(args_list)")
            lines += [f"    {name} = next(args_iter)" for name in names]
            lines.append("    args_list.clear()")
        return "\n".join(lines)


class _PyTreeCodeGen(CodeGen):
    """Arguments and results are trees; the placeholders are their leaves."""

    def __init__(self, pytree_info: _PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info: _PyTreeInfo = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        """The leaves of the arguments."""
        return pytree.arg_tree_leaves(*inputs)

    def process_outputs(self, out: Any) -> Any:
        """The tree of the results."""
        if self.pytree_info is None or self.pytree_info.out_spec is None:
            return out
        leaves = out if isinstance(out, list | tuple) else [out]
        return pytree.tree_unflatten(leaves, self.pytree_info.out_spec)

    def gen_var_bindings(self, fn_args: list[str], free_vars: list[str], expanded_def: bool) -> str:
        """The line that takes the arguments apart."""
        spec = self.pytree_info.in_spec
        children = spec.children_specs
        if (
            spec.type is tuple
            and [c.type for c in children] == [tuple, dict]
        ):  # fmt: skip
            count = children[0].num_children
            names = self.pytree_info.orig_args
            keys = zip(children[1].context, names[count:], strict=False)
            kwargs = ", ".join(f"'{k}':{v}" for k, v in keys)
            tree = f"([{', '.join(names[:count])}], {{{kwargs}}})"
        else:
            tree = f"[{', '.join(fn_args)}]"
        names = [v.split(":")[0].split("#")[0] for v in free_vars]
        annotated = [v for v in free_vars if ":" in v]
        text = ""
        if annotated and expanded_def:
            text = "\n    " + "\n    ".join(annotated)
        elif annotated:
            text = "\n    " + "".join(v + "; " for v in annotated) + "\n"
        targets = ", ".join(names)
        return f"{text}\n    {targets}, = fx_pytree.tree_flatten_spec({tree}, self._in_spec)"

    def gen_fn_def(
        self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False
    ) -> str:
        """The signature of the traced function, and the line that takes its arguments apart."""
        if self.pytree_info is None:
            return super().gen_fn_def(free_vars, maybe_return_annotation, expanded_def=expanded_def)
        fn_args = list(self.pytree_info.orig_args)
        has_self = bool(fn_args) and fn_args[0] == "self"
        if has_self:
            free_vars.insert(0, "self")
        head = super().gen_fn_def(fn_args[:], maybe_return_annotation, expanded_def=expanded_def)
        if free_vars and (not has_self or len(free_vars) > 1):
            bound = [v for v in free_vars if v != "self"] if has_self else free_vars
            plain_args = fn_args[1:] if has_self else fn_args
            head += self.gen_var_bindings(plain_args, bound, expanded_def)
        return head

    def generate_output(
        self,
        output_args: Any,
        *,
        descs: Sequence[str] | None = None,
        repr_fn: Callable[[Any], str] | None = None,
    ) -> str:
        """The statement that returns the tree of the results."""
        if self.pytree_info is None or self.pytree_info.out_spec is None:
            return super().generate_output(output_args, descs=descs, repr_fn=repr_fn)
        show = repr_fn or repr
        if descs is not None and isinstance(output_args, list | tuple):
            return (
                f"return pytree.tree_unflatten({_rows(output_args, descs, show)}, self._out_spec)"
            )
        return f"return pytree.tree_unflatten({show(output_args)}, self._out_spec)"


_KNOWN = {
    method
    for kind in (CodeGen, _BoxedCodeGen, _PyTreeCodeGen)
    for method in (kind.gen_fn_def, kind.generate_output)
}
