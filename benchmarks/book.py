"""Add pages to the book that are not in docs/: the reference of all public names, and files that pages link to.

This is a hook of mkdocs (mkdocs.yml), run by `make docs`. In a checkout, pages link to files outside docs/. The hook
adds these files to the book, so that no link leaves it.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES_BESIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
"""Files of the repository that become pages of the book."""
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]*)(#[^)\s]*)?(?=\))")
_WORDS_OF_TESTS = re.compile(r"^```python (?:no-run|long)$", re.MULTILINE)
_ROLE = re.compile(r":(?:class|meth|func|data|mod|attr|exc|obj):<code>[~!]?([\w.]+)</code>")
_LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//|<link\b[^>]*stylesheet[^>]*//")
"""HTML that makes a browser load something from another server."""


PLACES = (
    "lumion_hw",
    "lumion_hw.mesh",
    "lumion_hw.circuits",
    "lumion_hw.polarization",
    "lumion_hw.schedules",
    "lumion_hw.planning",
    "lumion_hw.fabric",
    "lumion_hw.joined",
    "lumion_hw.acquisition",
    "lumion_hw.serving",
    "calibration",
    "lumion_hw.testing",
    "lumion_hw.integrations",
    "lumion_hw.emulator",
    "lumion_hw.emulator.scpi",
    "lumion_hw.drivers",
    "lumion_hw.interfaces",
    "lumion_hw.sessions",
    "lumion_hw.links",
    "lumion_hw.bench",
    "firmware_protocol",
    "lumion_hw.standards.cmis",
)
"""Packages that users import from."""


def _parsed(place: str, suffix: str) -> ast.Module:
    return ast.parse(ROOT.joinpath(*place.split("."), f"__init__{suffix}").read_text(encoding="utf-8"))


def public_names(place: str) -> list[str]:
    """Return the public names of a package, sorted: those of its stub, or of its ``__all__``."""
    if ROOT.joinpath(*place.split("."), "__init__.pyi").exists():
        nodes = _parsed(place, ".pyi").body
        names = [
            alias.name for node in nodes if isinstance(node, ast.ImportFrom) and node.module for alias in node.names
        ]
        return sorted(names)
    for node in _parsed(place, ".py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value))
    raise ValueError(f"{place} has neither __init__.pyi nor __all__")


def reference(place: str) -> str:
    """Return the page of the public names of one package."""
    first_line = (ast.get_docstring(_parsed(place, ".py")) or "").partition("\n")[0].replace("``", "`")
    blocks = "\n\n".join(f"::: {place}.{name}" for name in public_names(place))
    return f"# {place}\n\n{first_line}\n\n{blocks}\n"


def in_book(path: str) -> str | None:
    """Return the path in the book of a file of the repository; ``None`` if the book does not have it."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in PAGES_BESIDE:
        return path
    return f"source/{path}" if (ROOT / path).is_file() else None


def rewritten(markdown: str, path: str) -> str:
    """Return a page with its links changed to paths in the book.

    Args:
        markdown: The page.
        path: Path of the page in the repository.
    """
    here, home = posixpath.dirname(path), posixpath.dirname(in_book(path) or "")

    def link(match: re.Match[str]) -> str:
        there = in_book(posixpath.normpath(posixpath.join(here, match[1])))
        return (posixpath.relpath(there, home or ".") if there else "index.md") + (match[2] or "")

    return _LINK.sub(link, _WORDS_OF_TESTS.sub("```python", markdown))


def pointed_at(markdown: str, path: str) -> set[str]:
    """Return the files outside the book to which a page links."""
    targets = {
        posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1])) for match in _LINK.finditer(markdown)
    }
    return {target for target in targets if (in_book(target) or "").startswith("source/")}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/, and the files to which pages link."""
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
    """Change the links of a page of docs/ to paths in the book."""
    name = f"docs/{page.file.src_uri}"
    return rewritten(markdown, name) if (ROOT / name).is_file() else markdown


def on_page_content(html: str, **_: Any) -> str:
    """Replace Sphinx roles in docstrings by plain names."""
    return _ROLE.sub(lambda match: f"<code>{match[1].rpartition('.')[2]}</code>", html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Raise an error if a page makes a browser load something from another server."""
    from mkdocs.exceptions import PluginError

    if match := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads from the network: {output[match.start() : match.end() + 80]}")
    return output
