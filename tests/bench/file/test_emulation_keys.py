"""Every key of the section ``emulation`` is declared once and reaches the hidden truth."""

from dataclasses import fields

import pytest

from lumion_hw.bench.file.emulation import EmulationModel
from lumion_hw.emulator.chip.effects import CHIP_EFFECTS
from lumion_hw.emulator.optics.physics_parameters import EMULATION_KEYS, PhysicsParameters

FROM_OTHER_SECTIONS = {"puc_loss_db": 0.5, "access_loss_db": 6.85, "heater_ohm": 1000.0, "p_pi_range_mw": (1.2, 2.0)}
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


def test_heaters_of_an_emulated_chip_are_those_that_the_mesh_section_expects() -> None:
    """A foundry chip: 15 to 35 mW per π, and a resistance that rises as much at a phase of π."""
    physics = EmulationModel().physics_parameters(**FROM_OTHER_SECTIONS | {"p_pi_range_mw": (15.0, 35.0)})
    assert (physics.p_pi_min_mw, physics.p_pi_max_mw) == (15.0, 35.0)
    assert 15.0 < physics.p_pi_typical_mw < 35.0
    assert physics.thermal_nonlinearity_per_mw * physics.p_pi_typical_mw == pytest.approx(0.02 * 1.34)
    given = EmulationModel(p_pi_mw={"min": 3.0, "typical": 4.0, "max": 5.0}, thermal_nonlinearity_per_mw=-0.01)
    physics = given.physics_parameters(**FROM_OTHER_SECTIONS | {"p_pi_range_mw": (15.0, 35.0)})
    assert (physics.p_pi_min_mw, physics.p_pi_typical_mw, physics.p_pi_max_mw) == (3.0, 4.0, 5.0)
    assert physics.thermal_nonlinearity_per_mw == -0.01
