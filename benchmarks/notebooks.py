"""Run the notebooks of examples/ again and keep their outputs: python benchmarks/notebooks.py [--out DIR] [NAME ...].

What differs from one machine to the next is left out: times of execution, and which Python ran them. Needs nbclient and
ipykernel, of the extra ``test``.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
TIMEOUT_S = 900


def executed(notebook, folder):
    """Run a notebook in a folder and return it with its outputs."""
    from nbclient import NotebookClient
    from traitlets.config import Config

    config, where = Config(), {"metadata": {"path": str(folder)}}
    with tempfile.TemporaryDirectory() as sockets:
        config.KernelManager.transport, config.KernelManager.ip = "ipc", f"{sockets}/kernel"  # no port is opened
        NotebookClient(notebook, timeout=TIMEOUT_S, startup_timeout=TIMEOUT_S, resources=where, config=config).execute()
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    return notebook


def main():
    import nbformat

    parser = argparse.ArgumentParser(description="Run the notebooks of examples/ again and keep their outputs.")
    parser.add_argument(
        "--out", type=Path, default=EXAMPLES, help="where they go; over those of examples/ if not given"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="notebooks to run; all if none is given")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        if given.names and path.stem not in given.names:
            continue
        notebook = executed(nbformat.read(path, as_version=4), given.out)
        nbformat.write(notebook, given.out / path.name)
        print(f"{path.name}: {(given.out / path.name).stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
