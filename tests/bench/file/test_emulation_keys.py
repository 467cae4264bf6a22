"""Every key of the section ``emulation`` is declared once and reaches the hidden truth."""

from dataclasses import fields

import pytest

from lumion_hw.bench.file.emulation import EmulationModel
from lumion_hw.emulator.chip.effects import CHIP_EFFECTS
from lumion_hw.emulator.optics.physics_parameters import EMULATION_KEYS, PhysicsParameters

FROM_OTHER_SECTIONS = {"puc_loss_db": 0.5, "access_loss_db": 6.85, "heater_ohm": 1000.0}
DEFAULT = PhysicsParameters()


@pytest.mark.parametrize("name", EMULATION_KEYS)
def test_a_key_of_the_file_sets_the_parameter_of_the_same_name(name: str) -> None:
    key = EMULATION_KEYS[name]
    value = not key.default if isinstance(key.default, bool) else 0.5 * (key.default + key.high)
    physics = EmulationModel(**{name: value}).physics_parameters(**FROM_OTHER_SECTIONS)
    changed = {item.name for item in fields(physics) if getattr(physics, item.name) != getattr(DEFAULT, item.name)}
    assert getattr(physics, name) == value
    assert changed == {name}


def test_an_empty_section_gives_the_default_parameters() -> None:
    assert EmulationModel().physics_parameters(**FROM_OTHER_SECTIONS) == DEFAULT


@pytest.mark.parametrize("effect", CHIP_EFFECTS, ids=lambda effect: effect.name)
def test_an_effect_of_the_file_replaces_that_of_the_kind_of_chip(effect) -> None:
    section = EmulationModel(physics="harsh", effects={effect.name: 0.0})
    sizes = section.physics_parameters(**FROM_OTHER_SECTIONS).effects
    assert {other.name: getattr(sizes, other.name) for other in CHIP_EFFECTS} == {
        other.name: 0.0 if other is effect else other.harsh for other in CHIP_EFFECTS
    }
