"""``lumion transponder flags``: flags of a module and their masks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import click

from lumion_hw.cli.common.modules import NamedModule, module_command
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option
from lumion_hw.errors import ConfigError, NotSupportedError, name_hint

RELATCH_S = 0.2
"""Time until a flag whose cause persists is set again, in s (SFF-8679, ton_flag)."""


@click.command(short_help="Print the flags; change their masks.")
@module_command
@click.option("--clear", is_flag=True, help="Clear the flags; print those whose cause persists.")
@click.option("--mask", "to_mask", multiple=True, metavar="NAME[:LANE]", help="Mask a flag: it does not assert IntL.")
@click.option("--unmask", "to_unmask", multiple=True, metavar="NAME[:LANE]", help="Let a flag assert IntL.")
@json_option
def flags(
    target: NamedModule,
    clear: bool,
    to_mask: tuple[str, ...],
    to_unmask: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print the flags of DEVICE and change their masks. Without a lane, all lanes of the flag change.

    Reading a flag of CMIS and QSFP modules clears it in the module.
    """
    device = target.device
    both = sorted(set(to_mask) & set(to_unmask))
    if both:
        raise click.UsageError(f"{both[0]} is in both --mask and --unmask.")
    with target.open() as (opened, clock):
        module: Any = opened
        if not hasattr(module, "flags"):
            raise NotSupportedError(f"{device} has no flags", hint="Only drivers of CMIS, QSFP and SFP modules do.")
        masks = _change_masks(module, device, to_mask, to_unmask)
        if clear:
            module.flags()
            module.clear_flags()
            clock.sleep(RELATCH_S)
        listed = [asdict(flag) for flag in module.flags()]
    rows = [row | ({} if masks is None else {"masked": masks.get((row["name"], row.get("lane")))}) for row in listed]
    if as_json:
        masked = sorted(_flag_text(*key) for key, on in (masks or {}).items() if on)
        echo_json({"device": device, "flags": rows, "masked": masked})
    elif rows:
        echo_table(f"Flags of {device}", tuple(rows[0]), [tuple(map(_cell, row.values())) for row in rows])
    else:
        echo_text(f"{device}: no flags")
    for option, names in (("masked", to_mask), ("not masked", to_unmask)):
        if names and not as_json:
            echo_text(f"{device}: {option}: {', '.join(names)}")


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return round(value, 3) if isinstance(value, float) else value


def _change_masks(
    module: Any, device: str, to_mask: Collection[str], to_unmask: Collection[str]
) -> dict[tuple[str, int | None], bool] | None:
    """Change masks; return all masks, or ``None`` if the module has none.

    Raises:
        NotSupportedError: The module has no masks.
        ConfigError: The module does not have one of the flags; nothing was changed.
    """
    if not hasattr(module, "masks"):
        if to_mask or to_unmask:
            raise NotSupportedError(f"masks of {device} are not supported", hint="SFP modules have none.")
        return None
    masks: dict[tuple[str, int | None], bool] = module.masks()
    changes = [(key, True) for text in to_mask for key in _flag_keys(device, text, masks)]
    changes += [(key, False) for text in to_unmask for key in _flag_keys(device, text, masks)]
    for (name, lane), masked in changes:
        module.set_mask(name, lane, masked)
    return module.masks() if changes else masks


def _flag_keys(device: str, text: str, masks: Collection[tuple[str, int | None]]) -> list[tuple[str, int | None]]:
    """Return the flags that ``NAME`` or ``NAME:LANE`` selects. Raises ``ConfigError`` if there is none."""
    name, separator, lane = text.partition(":")
    keys = [key for key in masks if key[0] == name and (not separator or str(key[1]) == lane)]
    if not keys:
        lanes = [str(key[1]) for key in masks if key[0] == name and key[1] is not None]
        names = sorted({key[0] for key in masks})
        hint = (
            f"Its lanes are {', '.join(lanes) or 'none'}." if name in names else name_hint(name, names, "Its flags are")
        )
        raise ConfigError(f"{device} has no flag {text!r} that can be masked", hint=hint)
    return keys


def _flag_text(name: str, lane: int | None) -> str:
    return name if lane is None else f"{name}:{lane}"
