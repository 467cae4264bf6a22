"""Records by hand are those of the tests of the mesh."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "mesh"))
