"""The bench file and what it opens: YAML to a checked model, to connected devices and their wiring.

Scripts open benches with :class:`lumion_hw.Bench`. From here they import what reads, checks and drafts bench files, and
packages of others what a kind of device is declared with (CONTRIBUTING.md). The modules inside are private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lumion_hw.public_names import public_names

if TYPE_CHECKING:
    from lumion_hw.bench.checks import BenchData, Check
    from lumion_hw.bench.devices import DeviceModel, HeaterDriverModel, MeterModel, PartModel
    from lumion_hw.bench.discovery import FoundInstrument, discover, draft
    from lumion_hw.bench.events import EventLog
    from lumion_hw.bench.fields import Address, Flag, Name, Number, Port, Serial, StrictModel, Whole
    from lumion_hw.bench.identity import DeviceIdentity, device_identities
    from lumion_hw.bench.kind import DeviceKind, Question, ScpiIdentity
    from lumion_hw.bench.loader import Problem, bench_schema, builtin_names, builtin_path, check_bench, load_bench
    from lumion_hw.bench.mesh_access import MeshAccess
    from lumion_hw.bench.model import BenchModel
    from lumion_hw.bench.module_connection import PluggableModel
    from lumion_hw.bench.module_optics import ModuleFormat, ModuleOptics
    from lumion_hw.bench.roles import Role

__all__ = [
    "Address",
    "BenchData",
    "BenchModel",
    "Check",
    "DeviceIdentity",
    "DeviceKind",
    "DeviceModel",
    "EventLog",
    "Flag",
    "FoundInstrument",
    "HeaterDriverModel",
    "MeshAccess",
    "MeterModel",
    "ModuleFormat",
    "ModuleOptics",
    "Name",
    "Number",
    "PartModel",
    "PluggableModel",
    "Port",
    "Problem",
    "Question",
    "Role",
    "ScpiIdentity",
    "Serial",
    "StrictModel",
    "Whole",
    "bench_schema",
    "builtin_names",
    "builtin_path",
    "check_bench",
    "device_identities",
    "discover",
    "draft",
    "load_bench",
]
if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names(
        __name__,
        {
            "checks": ("BenchData", "Check"),
            "devices": ("DeviceModel", "HeaterDriverModel", "MeterModel", "PartModel"),
            "discovery": ("FoundInstrument", "discover", "draft"),
            "events": ("EventLog",),
            "fields": ("Address", "Flag", "Name", "Number", "Port", "Serial", "StrictModel", "Whole"),
            "identity": ("DeviceIdentity", "device_identities"),
            "kind": ("DeviceKind", "Question", "ScpiIdentity"),
            "loader": ("Problem", "bench_schema", "builtin_names", "builtin_path", "check_bench", "load_bench"),
            "mesh_access": ("MeshAccess",),
            "model": ("BenchModel",),
            "module_connection": ("PluggableModel",),
            "module_optics": ("ModuleFormat", "ModuleOptics"),
            "roles": ("Role",),
        },
    )
