"""Bench files that many tests open are read once: their YAML takes a fifth of the time to open an emulated bench.

What is remembered is what a text says, under the whole text; the model is made of it anew each time, and checked. Tests
of the reading itself call it directly, which nothing here touches.
"""

from __future__ import annotations

import copy
from functools import lru_cache

import pytest

from lumion_hw.bench.file import yaml_marks
from lumion_hw.bench.file.yaml_marks import Document

_MOST = 200
"""Texts kept."""


def remember_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loader of this process remember, until the patch is undone."""
    read = lru_cache(_MOST)(yaml_marks.read_yaml)

    def remembered(text: str) -> Document:
        found = read(text)
        return Document(copy.deepcopy(found.data), dict(found.marks), list(found.faults))

    monkeypatch.setattr(yaml_marks, "read_yaml", remembered)
