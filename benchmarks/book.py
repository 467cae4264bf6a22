"""What the book has beyond docs/: the public names from their docstrings, and the files that pages point at.

A hook of mkdocs (mkdocs.yml), run by `make docs`. Pages are written for a checkout, where links go to files beside
docs/; here those become pages and files of the book, so that nothing in it points out of it.
"""

from __future__ import annotations

import importlib.util
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES_BESIDE = ("CONTRIBUTING.md", "CHANGELOG.md")
"""Pages of the repository that are pages of the book."""
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]*)(#[^)\s]*)?(?=\))")
_WORDS_OF_TESTS = re.compile(r"^```python (?:no-run|long)$", re.MULTILINE)
_ROLE = re.compile(r":(?:class|meth|func|data|mod|attr|exc|obj):<code>[~!]?([\w.]+)</code>")
_LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//|<link\b[^>]*stylesheet[^>]*//")
"""What a browser fetches by itself, from elsewhere."""


def load(path: Path) -> Any:
    """Return a file of Python as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


API = load(ROOT / "benchmarks" / "api_page.py")
PLACES = [place for places in API.PLACES.values() for place in places]


def reference(place: str) -> str:
    """Return the page of the public names of one package."""
    names = [name for name in API.public(place) if name != "__version__"]
    blocks = "\n\n".join(f"::: {place}.{name}" for name in names)
    return f"# {place}\n\n{API.in_markdown(API.head(place))}\n\n{blocks}\n"


def in_book(path: str) -> str | None:
    """Return where the book has a file of the repository; ``None`` for what it has not, such as a directory."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in PAGES_BESIDE:
        return path
    return f"source/{path}" if (ROOT / path).is_file() else None


def rewritten(markdown: str, path: str) -> str:
    """Return a page with links as they are in the book.

    Args:
        markdown: The page.
        path: Where the repository has it.
    """
    here, home = posixpath.dirname(path), posixpath.dirname(in_book(path) or "")

    def link(found: re.Match[str]) -> str:
        there = in_book(posixpath.normpath(posixpath.join(here, found[1])))
        return (posixpath.relpath(there, home or ".") if there else "index.md") + (found[2] or "")

    return _LINK.sub(link, _WORDS_OF_TESTS.sub("```python", markdown))


def pointed_at(markdown: str, path: str) -> set[str]:
    """Return the files outside the book that a page points at."""
    whole = {
        posixpath.normpath(posixpath.join(posixpath.dirname(path), found[1])) for found in _LINK.finditer(markdown)
    }
    return {each for each in whole if (in_book(each) or "").startswith("source/")}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/, and the files that pages point at."""
    from mkdocs.structure.files import File

    for place in PLACES:
        files.append(File.generated(config, f"reference/{place}.md", content=reference(place)))
    sources: set[str] = set()
    for name in PAGES_BESIDE:
        files.append(File.generated(config, name, content=rewritten((ROOT / name).read_text(encoding="utf-8"), name)))
        sources |= pointed_at((ROOT / name).read_text(encoding="utf-8"), name)
    for path in (ROOT / "docs").rglob("*.md"):
        sources |= pointed_at(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
    for name in sorted(sources):
        files.append(File.generated(config, f"source/{name}", abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of a page of docs/ to the book."""
    name = f"docs/{page.file.src_uri}"
    return rewritten(markdown, name) if (ROOT / name).is_file() else markdown


def on_page_content(html: str, **_: Any) -> str:
    """Show roles of docstrings as names."""
    return _ROLE.sub(lambda found: f"<code>{found[1].rpartition('.')[2]}</code>", html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that makes a browser fetch something from elsewhere."""
    from mkdocs.exceptions import PluginError

    if found := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads from the network: {output[found.start() : found.end() + 80]}")
    return output
