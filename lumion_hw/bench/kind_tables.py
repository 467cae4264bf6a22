"""Generates the tables of device kinds in the documentation.

To update the pages, run ``python -m lumion_hw.bench.kind_tables`` in a checkout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lumion_hw.bench.file.devices import DeviceModel
from lumion_hw.bench.file.kind import DeviceKind
from lumion_hw.bench.file.known_kinds import builtin_kinds

_CHECKOUT = Path(__file__).parents[2]


def device_table() -> str:
    """Return the table of device kinds in docs/bench-keys.md."""
    rows = ["| kind | is | found as | baud | emulated on | keys and defaults |", "|---|---|---|---|---|---|"]
    for kind in builtin_kinds():
        wires = {"tcp": "TCP", "pty": "pty"}[kind.wire] + (", HiSLIP" if kind.hislip else "")
        table_row = f"`bench.{kind.role.attribute}` | {kind.baud}"
        rows.append(f"| `{kind.name}` | {kind.title} | {table_row} | {wires} | {_keys(kind)} |")
    return "\n".join(rows)


def _keys(kind: DeviceKind) -> str:
    fields = {name: field for name, field in kind.model.model_fields.items() if name not in DeviceModel.model_fields}
    defaults = {name: field.default for name, field in fields.items()}
    return ", ".join(
        f"`{name}`" + ("" if value is None else f" {str(value).lower() if isinstance(value, bool) else value}")
        for name, value in defaults.items()
    )


SECTIONS = {
    "": "",
    "mesh": "MeshSection",
    "wiring.inputs": "InputModel",
    "wiring.outputs": "OutputModel",
    "wiring.outputs.tap": "TapModel",
    "wiring.outputs.taps": "FurtherTapModel",
    "wiring.inputs.through": "LightPartModel",
    "wiring.fibres": "FibreModel",
    "wiring.loops": "LoopModel",
    "wiring.reflectors": "ReflectorModel",
    "servers": "ServerModel",
    "fabric": "FabricModel",
    "emulation": "EmulationModel",
    "emulation.p_pi_mw": "HeaterEfficiencyModel",
}
"""Sections of a bench file and the name of the model of each; the empty name is the whole file."""


def key_table() -> str:
    """Return the table of all keys outside ``devices`` in docs/bench-keys.md."""
    from lumion_hw.bench.file.loader import bench_schema

    schema = bench_schema(builtin_kinds())
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for section, name in SECTIONS.items():
        rows.extend(_key_rows(section, schema["$defs"][name] if name else schema))
    return "\n".join(rows)


def _key_rows(place: str, section: Mapping[str, Any]) -> Iterator[str]:
    for key, described in section["properties"].items():
        default = described.get("default")
        if key in section.get("required", ()):
            default_text = "needed"
        elif default in (None, "", [], {}):
            default_text = "none"
        elif key == "detectors":
            default_text = ", ".join(entry["detector"] for entry in default)
        else:
            default_text = str(default).lower() if isinstance(default, bool) else f"{default}"
        yield f"| `{place}{'.' if place else ''}{key}` | {default_text} | {described.get('description', '')} |"


def fault_table() -> str:
    """Return the table of scripted faults in docs/faults.md."""
    from lumion_hw.emulator.faults.bench_faults import BENCH_FAULTS
    from lumion_hw.emulator.faults.device_faults import EVERY_DEVICE
    from lumion_hw.emulator.faults.fault_table import BENCH, markdown

    of_bench = [(BENCH, fault) for fault in BENCH_FAULTS]
    of_all = [("every device", fault) for fault in EVERY_DEVICE]
    return markdown([*of_bench, *of_all, *((kind.name, fault) for kind in builtin_kinds() for fault in kind.faults())])


def effect_table() -> str:
    """Return the table of chip effects for docs/emulated-chip.md."""
    from lumion_hw.emulator.chip.effects import CHIP_EFFECTS

    rows = ["| `emulation.effects` | `realistic` | `harsh` | what it does | sizes from |", "|---|---|---|---|---|"]
    for effect in CHIP_EFFECTS:
        sizes = f"{effect.realistic:g} | {effect.harsh:g}"
        rows.append(f"| `{effect.name}` | {sizes} | {effect.description} | {effect.source} |")
    return "\n".join(rows)


def cmis_page_table() -> str:
    """Return the table of the register map for docs/cmis-pages.md."""
    from lumion_hw.standards.cmis import PAGES as MEMORY_PAGES, Certainty, Page, fields_of
    from lumion_hw.standards.cmis.index import PAGE_CONTENTS

    def row(page: Page) -> str:
        n_unverified = sum(field.certainty is Certainty.CHECK for field in fields_of(page))
        name = "lower memory" if page is None else f"{page:02X}h"
        return f"| {name} | {PAGE_CONTENTS[page]} | {len(fields_of(page))} | {n_unverified} |"

    rows = ["| page | contents | fields | of these to confirm |", "|---|---|---|---|"]
    pages = sorted(MEMORY_PAGES, key=lambda page: -1 if page is None else page)
    return "\n".join([*rows, *(row(page) for page in pages)])


def module_table() -> str:
    """Return the table of emulated modules for docs/transponders.md."""
    from lumion_hw.emulator.transponders.cmis.profiles import PROFILES, ModuleProfile
    from lumion_hw.standards.cmis.codes import MediaType, describe_media_interface
    from lumion_hw.standards.cmis.interface_ids import HOST_INTERFACES

    def medium(profile: ModuleProfile, code: int) -> str:
        name = describe_media_interface(MediaType(int(profile.registers["media_type"])), code)
        return name if profile.registers["media_type"] == MediaType.ACTIVE_CABLE else name.partition(",")[0]

    rows = ["| profile | applications | power-up, data path, tuning in s |", "|---|---|---|"]
    for name, profile in PROFILES.items():
        offered = "; ".join(
            f"{application.host_options.bit_count()} × {HOST_INTERFACES[application.host_interface]} into "
            f"{medium(profile, application.media_interface)}"
            for application in profile.applications
        )
        times = profile.timing
        tuning = f"{times.tuning_s:g}" if profile.laser is not None else "–"
        rows.append(f"| `{name}` | {offered} | {times.power_up_s:g}, {times.dp_init_s:g}, {tuning} |")
    return "\n".join(rows)


PAGES: Mapping[str, Sequence[Callable[[], str]]] = {
    "docs/cmis-pages.md": (cmis_page_table,),
    "docs/transponders.md": (module_table,),
    "docs/bench-keys.md": (device_table, key_table, effect_table),
    "docs/faults.md": (fault_table,),
}
"""Pages with generated tables, by path in the checkout."""


def updated(page: str, tables: Sequence[Callable[[], str]]) -> str:
    """Return the text of a documentation page with its generated tables updated."""
    for table in tables:
        page = replace_table(page, table())
    return page


def replace_table(page: str, table: str) -> str:
    """Replace the table in a page by a new table with the same header line.

    Raises:
        ValueError: The page has no such table.
    """
    head = table.partition("\n")[0]
    before, match, after = page.partition(f"{head}\n")
    if not match:
        raise ValueError(f"the page has no table with the header {head}")
    lines = after.splitlines(keepends=True)
    n_rows = next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return before + table + "\n" + "".join(lines[n_rows:])


def main() -> None:
    """Write all generated tables into the documentation pages."""
    for name, tables in PAGES.items():
        page = _CHECKOUT / name
        page.write_text(updated(page.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
