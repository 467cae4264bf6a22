"""Run the notebooks of examples/ and store their outputs: python benchmarks/notebooks.py [--out DIR] [NAME ...].

Execution times and the Python version are removed, because they differ between machines. Needs nbclient and ipykernel
(extra ``test``).
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

    parser = argparse.ArgumentParser(description="Run the notebooks of examples/ and store their outputs.")
    parser.add_argument(
        "--out",
        type=Path,
        default=EXAMPLES,
        help="output folder; by default the notebooks of examples/ are overwritten",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="notebooks to run; by default all")
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
