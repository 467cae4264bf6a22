"""Masks of the flags. A masked flag does not assert the interrupt IntL.

Registers: CMIS 00h:31-34, 10h:213-232, 12h:239-246 and 13h:206-213.
"""

from __future__ import annotations

from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.memory import FlagKey
from lumion_hw.standards.cmis import FIELDS, Field, NumberFormat, decode_from

_SUFFIX = "_mask"
_VDM = "vdm_"  # their masks are numbered by instance, not by quantity and lane


def read(module: ModuleContext) -> dict[FlagKey, bool]:
    """Read whether each flag of the module is masked, by name and lane."""
    fields = _fields(module)
    with module.memory.pages.transaction():
        halves = {page: module.memory.half(page)[0] for page in dict.fromkeys(item.page for item in fields.values())}
    return {
        (name, lane): bool(decode_from(field, halves[field.page], lane))
        for name, field in fields.items()
        for lane in (field.array.indices if field.array else (None,))
    }


def write(module: ModuleContext, name: str, lane: int | None, masked: bool) -> None:
    """Mask a flag, or let it assert IntL.

    Raises:
        NotSupportedError: The module does not have this flag.
        VerifyError: The module ignores the register.
    """
    field = _fields(module).get(name)
    lanes = () if field is None else field.array.indices if field.array else (None,)
    module.needs(field is not None and lane in lanes, f"masking {name}{'' if lane is None else f' of lane {lane}'}")
    module.guard()
    if field is not None:
        module.memory.write(field.name, masked, lane)


def _fields(module: ModuleContext) -> dict[str, Field]:
    if module.advertised.flat:
        return {}
    return {
        name.removesuffix(_SUFFIX): field
        for name, field in FIELDS.items()
        if name.endswith(_SUFFIX)
        and not name.startswith(_VDM)
        and field.kind is NumberFormat.BOOL
        and module.advertised.supported(name) is not False
    }
