"""Masks of the flags. A masked flag does not assert the interrupt IntL.

Registers: CMIS 00h:31-34, 10h:213-232, 12h:239-246 and 13h:206-213.
"""

from __future__ import annotations

from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.diagnostics import RESULT_PAGE
from lumion_hw.drivers.transponders.cmis.memory import FlagKey, in_bank, is_by_lane
from lumion_hw.standards.cmis import FIELDS, Field, NumberFormat, Page, decode_from
from lumion_hw.standards.cmis.fields import LANES

_SUFFIX = "_mask"
_LANE_PAGES = frozenset({0x10, 0x12})
"""Pages with masks of lanes in every bank that a module has."""
_DIAGNOSTICS_PAGE = 0x13
_VDM = "vdm_"  # their masks are numbered by instance, not by quantity and lane


def read(module: ModuleContext) -> dict[FlagKey, bool]:
    """Read whether each flag of the module is masked, by name and lane."""
    fields = _fields(module)
    memory = module.memory
    with memory.pages.transaction():
        halves = {
            (page, bank): memory.half(page, bank)[0]
            for page in dict.fromkeys(item.page for item in fields.values())
            for bank in range(_n_banks(module, page))
        }
    return {
        (name, lane): bool(decode_from(field, halves[field.page, bank], local))
        for name, field in fields.items()
        for lane in _lanes(module, field)
        for bank, local in (in_bank(field, lane),)
    }


def _lanes(module: ModuleContext, field: Field) -> tuple[int | None, ...]:
    """Return the lanes of a mask; ``None`` for a flag of the module."""
    if field.array is None:
        return (None,)
    if not is_by_lane(field):
        return tuple(field.array.indices)
    return tuple(range(1, LANES * _n_banks(module, field.page) + 1))


def _n_banks(module: ModuleContext, page: Page) -> int:
    """Return the number of banks with masks on a page."""
    if page == _DIAGNOSTICS_PAGE:
        return module.flags.n_banks.get(RESULT_PAGE, 1)
    return module.memory.n_banks if page in _LANE_PAGES else 1


def write(module: ModuleContext, name: str, lane: int | None, masked: bool) -> None:
    """Mask a flag, or let it assert IntL.

    Raises:
        NotSupportedError: The module does not have this flag.
        VerifyError: The module ignores the register.
    """
    field = _fields(module).get(name)
    lanes = () if field is None else _lanes(module, field)
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
