"""Compiling the reference codec for tests: the compiler, its flags, and the sources."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from firmware_protocol import generate

SOURCES = generate.CHECKOUT / "firmware_protocol/c"
COMPILER = shutil.which("gcc") or shutil.which("cc")
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
CODEC = ("lumion_codec.c", "lumion_image.c")

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler: neither gcc nor cc is on the PATH")


def compile_c(output: Path, *sources: Path, flags: tuple[str, ...] = ()) -> Path:
    """Compile C files into ``output`` and return it; warnings are errors, and the compiler's messages are shown."""
    command = [str(COMPILER), *FLAGS, *flags, f"-I{SOURCES}", *map(str, sources), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return output
