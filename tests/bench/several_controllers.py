"""The small bench with its mesh on two controllers."""

from pathlib import Path

from tests.circuits.known_mesh import SMALL
from tests.edited_files import edited

ENTRY = (
    "  mesh0: {kind: lumion-mesh, serial: SMALL-0001, heater_max_ma: 2.5, heater_ohm: 1000.0, total_power_mw: 500.0}\n"
)


def split_bench(directory: Path, count: int = 2, *changes: tuple[str, str]) -> Path:
    """Return the small bench on so many controllers, with further texts replaced."""
    names = [f"mesh{number}" for number in range(count)]
    entries = "".join(ENTRY.replace("mesh0", name).replace("0001", f"000{name[-1]}") for name in names)
    split = (ENTRY, entries), ("controller: mesh0", f"controllers: [{', '.join(names)}]")
    return edited(SMALL, directory, *split, *changes)
