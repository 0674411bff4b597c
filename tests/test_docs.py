"""The examples in docs/tutorial print what the pages say."""

import contextlib
import io
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parent.parent / "docs" / "tutorial").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=[p.stem for p in PAGES])
def test_examples_print_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    blocks = re.findall(r"```(python|output) ?(\w*)\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    names, printed = {}, ""
    for kind, needs, text in blocks:
        if kind == "output":
            assert printed in (text, None)
            continue
        if needs and find_spec(needs) is None:  # an example that needs a package which is not there
            printed = None
            continue
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            exec(compile(text, str(page), "exec"), names)
        printed = stream.getvalue()
