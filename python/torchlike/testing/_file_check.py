"""Checks of a text: what stands in it, in which order, and what does not."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, NoReturn

__all__ = ["FileCheck"]

_LINES = 3
_WRITTEN = re.compile(
    r"^\s*#\s*CHECK(-NOT|-SAME|-NEXT|-DAG|-REGEX|-SOURCE-HIGHLIGHTED|-COUNT-EXACTLY-\d+|-COUNT-\d+)?:\s*(.*?)\s*$"
)


class _Check(NamedTuple):
    """One check: its kind as it is written, and what is looked for."""

    kind: str
    text: str
    times: int = 1

    @property
    def name(self) -> str:
        """The check as it is written in a file."""
        kind = f"COUNT-{self.times}" if self.kind == "COUNT" else self.kind
        return f"CHECK-{kind}: {self.text}" if kind else f"CHECK: {self.text}"


def _around(text: str, start: int, end: int) -> str:
    """The lines around a place, with a mark below it."""
    lines = text.split("\n")
    row = text.count("\n", 0, start)
    column = start - (text.rfind("\n", 0, start) + 1)
    shown = lines[max(row - _LINES, 0) : row + 1]
    if end > start and "\n" not in text[start:end]:
        shown.append(" " * column + "~" * (end - start) + " <--- HERE")
    return "\n".join([*shown, *lines[row + 1 : row + 1 + _LINES]])


class FileCheck:
    """Checks that are made one after the other, each behind what the one before has found.

    `FileCheck().check("first").check_not("never").check("last").run(text)`.
    """

    def __init__(self) -> None:
        self._checks: list[_Check] = []
        self._ran = False

    def __str__(self) -> str:
        rows = [] if self._ran else ["You have not run this instance of FileCheck!"]
        return "\n".join([*rows, "FileCheck checks:", *(f"\t{c.name}" for c in self._checks), ""])

    def __del__(self) -> None:
        # a forgotten `run()` would make a test that cannot fail
        if not getattr(self, "_ran", True):
            print(self, end="")

    def _add(self, kind: str, text: str, count: int = 1) -> FileCheck:
        self._checks.append(_Check(kind, text, count))
        return self

    def check(self, test: str) -> FileCheck:
        """It comes next."""
        return self._add("", test)

    def check_not(self, test: str) -> FileCheck:
        """It is not between what the checks around this one find."""
        return self._add("NOT", test)

    def check_same(self, test: str) -> FileCheck:
        """It comes next, in the same line."""
        return self._add("SAME", test)

    def check_next(self, test: str) -> FileCheck:
        """It comes next, in the next line."""
        return self._add("NEXT", test)

    def check_count(self, str: str, count: int, exactly: bool = False) -> FileCheck:
        """It comes so many times; with `exactly` no further time before what the next check finds."""
        if count == 0 and not exactly:
            raise RuntimeError("check_count: a count of 0 says nothing without exactly=True")
        if count:
            self._add("COUNT", str, count)
        return self._add("NOT", str) if exactly else self

    def check_dag(self, test: str) -> FileCheck:
        """It comes next, in any order among neighbours of this kind."""
        return self._add("DAG", test)

    def check_regex(self, test: str) -> FileCheck:
        """What matches this expression comes next."""
        return self._add("REGEX", test)

    def check_source_highlighted(self, test: str) -> FileCheck:
        """It comes next, and the line below marks it with `~`."""
        return self._add("SOURCE-HIGHLIGHTED", test)

    def run(self, *texts: Any) -> None:
        """Makes the checks.

        Args:
            texts: what is checked: a text or a graph; in front of it, as the first of two, a text with lines of
                checks like `# CHECK: first`.

        Raises:
            RuntimeError: for the first check that does not hold.
        """
        self._ran = True
        if len(texts) == 2:
            for line in str(texts[0]).split("\n"):
                self._read(line)
        if not self._checks:
            raise RuntimeError(
                "No checks have been added to this instance ofFilecheck! Check for bad input."
            )
        _Run(str(texts[-1])).run(self._checks)

    def _read(self, line: str) -> None:
        found = _WRITTEN.match(line)
        if not found:
            return
        kind, text = (found[1] or "").removeprefix("-"), found[2]
        if kind.startswith("COUNT"):
            self.check_count(text, int(kind.rpartition("-")[2]), "EXACTLY" in kind)
        else:
            self._add(kind, text)


class _Run:
    """The state of a run: how far the text was read, and what must not stand before the next find."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.never: list[_Check] = []

    def run(self, checks: list[_Check]) -> None:
        """Makes all checks."""
        i = 0
        while i < len(checks):
            group = [checks[i]]
            while checks[i].kind == "DAG" and i + len(group) < len(checks):
                if checks[i + len(group)].kind != "DAG":
                    break
                group.append(checks[i + len(group)])
            i += len(group)
            if group[0].kind == "NOT":
                self.never.append(group[0])
                continue
            found = [self._find(check) for check in group]
            self._absent(min(start for start, _ in found))
            self.at = max(end for _, end in found)
        self._absent(len(self.text))

    def _absent(self, before: int) -> None:
        """Checks that nothing of what must not be stands before a place."""
        for check in self.never:
            place = self.text.find(check.text, self.at, before)
            if place >= 0:
                self._refuse(check, check.text, place, place + len(check.text))
        self.never.clear()

    def _find(self, check: _Check) -> tuple[int, int]:
        """Where a check is fulfilled."""
        if check.kind == "REGEX":
            match = re.compile(check.text).search(self.text, self.at)
            if match is None:
                self._miss(check, f'regex "{check.text}"', self.at)
            return match.span()
        start = self._next(check, self.at)
        end = start + len(check.text)
        for _ in range(1, check.times):
            end = self._next(check, end) + len(check.text)
        if check.kind in ("SAME", "NEXT"):
            self._lines(check, self.text.count("\n", self.at, start), start)
        if check.kind == "SOURCE-HIGHLIGHTED":
            return start, self._highlighted(check, start)
        return start, end

    def _lines(self, check: _Check, found: int, start: int) -> None:
        if check.kind == "NEXT" and found == 0:
            self._miss(check, '"\\n"', self.at)
        if found > (check.kind == "NEXT"):
            self._refuse(check, "\\n", start, start)

    def _next(self, check: _Check, at: int) -> int:
        place = self.text.find(check.text, at)
        if place < 0:
            self._miss(check, f'"{check.text}"', at)
        return place

    def _highlighted(self, check: _Check, start: int) -> int:
        """The end of the marks below a place; other places are looked at if that one has none."""
        while True:
            line_end = self.text.find("\n", start)
            column = start - (self.text.rfind("\n", 0, start) + 1)
            below = self.text[line_end + 1 :].split("\n", 1)[0] if line_end >= 0 else ""
            marks = below[column : column + len(check.text)]
            if marks and set(marks) == {"~"} and len(marks) == len(check.text):
                break
            start = self.text.find(check.text, start + 1)
            if start < 0:
                raise RuntimeError(
                    f'Expected to find "{check.text}"highlighted but it is not.\n{self.text}'
                )
        # the marks of more than the text mark something else
        for place in (column - 1, column + len(check.text)):
            if 0 <= place < len(below) and below[place] == "~":
                first = line_end + 1 + place
                self._refuse(check, "~", first, first + 1)
        return line_end + 1 + column + len(check.text)

    def _miss(self, check: _Check, what: str, at: int) -> NoReturn:
        raise RuntimeError(
            f"Expected to find {what} but did not find it\nSearched string:\n"
            f"{_around(self.text, at, at)}\nFrom {check.name}\n"
        )

    def _refuse(self, check: _Check, what: str, start: int, end: int) -> NoReturn:
        raise RuntimeError(
            f'Expected to not find "{what}" but found it\n{_around(self.text, start, end)}\n'
            f"From {check.name}\n"
        )
