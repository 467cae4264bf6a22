"""Damaged memories and texts of every class of module: no exception, and no changed value passes as undamaged.

A value of quality ok may differ from that of the sound memory only if no checksum covers its own bytes, or if the bytes
that changed are under no checksum themselves.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.decoded import DecodedField, DecodedModule, FieldKey
from lumion_hw.drivers.transponders.dump_decoder import decode_file, decode_memory
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces import Quality
from lumion_hw.standards.cmis.image import Half, MemoryImage
from lumion_hw.standards.module_text import text_of_image
from lumion_hw.standards.sff8472.image import SfpImage
from tests.drivers.transponders.cmis_peer import Peer
from tests.drivers.transponders.qsfp_memories import cable, lr4
from tests.drivers.transponders.sfp_memories import A0H, A2H, CONSTANTS, IDENTITY, MONITORS, seal

Place = tuple[object, int]
"""Part of a memory (page or I2C address) and byte in it."""
Memory = Mapping[object, bytes]
Areas = Mapping[object, tuple[tuple[int, int], ...]]
"""Checksums by part: first byte and byte of the sum over those before it."""
CMIS_AREAS: Areas = {
    (0, 0x00): ((128, 222),),
    (0, 0x01): ((130, 255),),
    (0, 0x02): ((128, 255),),
    (0, 0x04): ((128, 255),),
}
QSFP_AREAS: Areas = {(0, 0x00): ((128, 191), (192, 223))}
SFP_AREAS: Areas = {"a0": ((0, 63), (64, 95)), "a2": ((0, 95),)}


@dataclass(frozen=True)
class Sample:
    """A sound memory: its parts, the checksums of the standard, and how to decode it."""

    parts: Memory
    areas: Areas
    decode: Callable[[Memory], DecodedModule]

    def first(self, part: object) -> int:
        """Return the number of the first byte of a part."""
        return 128 if isinstance(part, tuple) and part[1] is not None else 0

    def byte(self, parts: Memory, place: Place) -> int:
        return parts[place[0]][place[1] - self.first(place[0])]

    def is_wrong(self, parts: Memory, part: object, area: tuple[int, int]) -> bool:
        start, at = area[0] - self.first(part), area[1] - self.first(part)
        return sum(parts[part][start:at]) % 256 != parts[part][at]

    def areas_of(self, place: Place) -> list[tuple[object, tuple[int, int]]]:
        """Return the checksum that covers a byte, or that the byte is."""
        part, byte = place
        return [(part, area) for area in self.areas.get(part, ()) if area[0] <= byte <= area[1]]


def paged(pages: Mapping[Half, bytes | bytearray], areas: Areas) -> Sample:
    return Sample(
        {half: bytes(data) for half, data in pages.items()},
        {part: sums for part, sums in areas.items() if part in pages},
        lambda parts: decode_memory(MemoryImage(parts)),  # type: ignore[arg-type]
    )


def qsfp(pages: Mapping[int | None, bytearray]) -> Sample:
    return paged({(0, page): data for page, data in pages.items()}, QSFP_AREAS)


def cmis(*, flat: bool) -> Sample:
    peer = Peer(VirtualClock())
    if flat:
        peer.lower[2] = 0x80
    peer.checksum()
    pages = {page: data for page, data in peer.pages.items() if page == 0x00 or not flat}
    return paged({(0, None): peer.lower} | {(0, page): data for page, data in pages.items()}, CMIS_AREAS)


def under_checksums(sample: Sample) -> Sample:
    """Return the pages with a checksum and the lower memory only, which are decoded in a third of the time."""
    parts = {part: data for part, data in sample.parts.items() if part in sample.areas or part == (0, None)}
    return replace(sample, parts=parts)


def sfp() -> Sample:
    memory = {A0H: bytearray(IDENTITY + bytes(160)), A2H: bytearray(CONSTANTS + MONITORS + bytes(146))}
    seal(memory)
    return Sample(
        {"a0": bytes(memory[A0H]), "a2": bytes(memory[A2H])},
        SFP_AREAS,
        lambda parts: decode_memory(SfpImage(parts["a0"], parts["a2"])),
    )


CLASSES: dict[str, Callable[[], list[Sample]]] = {
    "sfp-8472": lambda: [sfp()],
    "qsfp-8636": lambda: [qsfp(lr4()), qsfp(cable())],
    "cmis-flat": lambda: [cmis(flat=True)],
    "cmis-paged": lambda: [cmis(flat=False), *[under_checksums(cmis(flat=False))] * 24],
}


def by_key(module: DecodedModule) -> dict[FieldKey, DecodedField]:
    return {(field.name, field.index): field for field in module.fields if field.bank == 0}


@cache
def samples(name: str) -> list[tuple[Sample, dict[FieldKey, DecodedField]]]:
    return [(sample, by_key(sample.decode(sample.parts))) for sample in CLASSES[name]()]


def places_of(field: DecodedField) -> list[Place]:
    """Return the bytes of a field from its address, such as ``01h:130`` or ``A2h:96``."""
    page, _, byte = field.address.partition(":")
    first = int(byte.partition(".")[0].partition("-")[0])
    span = range(first, first + max(len(field.raw) // 2, 1))
    if page in ("A0h", "A2h"):
        return [(page[:2].lower(), at) for at in span]
    number = int(page.removesuffix("h"), 16)
    return [((0, None if at < 128 else number), at) for at in span]


def undetected(
    sample: Sample,
    before: Mapping[FieldKey, DecodedField],
    module: DecodedModule,
    parts: Memory,
    changed: Iterable[Place],
) -> list[tuple[DecodedField, DecodedField]]:
    """Return the fields whose value changed, is ok, and should not be."""
    wrong = {
        (part, area) for part, areas in sample.areas.items() for area in areas if sample.is_wrong(parts, part, area)
    }
    all_under_wrong_sums = all(wrong.intersection(sample.areas_of(place)) for place in changed)
    found = []
    for key, field in by_key(module).items():
        old = before.get(key)
        if old is None or field.value == old.value or field.quality is not Quality.OK:
            continue
        if all_under_wrong_sums or any(wrong.intersection(sample.areas_of(place)) for place in places_of(field)):
            found.append((old, field))
    return found


N_LONG, N_PARTS = 750, 4
"""Mutations of each class in each long test, and the number of such tests; the others only repeat more of the same."""
MUTATIONS = pytest.mark.parametrize(
    ("seed", "n_mutations"),
    [
        (0, 25),
        *(
            pytest.param(part, N_LONG, marks=pytest.mark.long if part == 1 else pytest.mark.campaign)
            for part in range(1, 1 + N_PARTS)
        ),
    ],
)


def some_places(chance: random.Random, sample: Sample, *, only_covered: bool) -> list[Place]:
    """Return one to four bytes of a memory; the first byte, which says what the module is, is left alone."""
    if only_covered:
        spans = [(part, range(first, at + 1)) for part, areas in sample.areas.items() for first, at in areas]
    else:
        spans = [
            (part, range(sample.first(part), sample.first(part) + len(sample.parts[part]))) for part in sample.parts
        ]
    places = [(part, at) for part, span in spans for at in span if at > 0]
    return chance.sample(places, chance.choice((1, 1, 1, 2, 4)))


@MUTATIONS
@pytest.mark.parametrize("name", CLASSES)
def test_damage_of_a_memory_is_never_shown_as_a_value(name: str, seed: int, n_mutations: int) -> None:
    chance = random.Random(8636 + seed)
    n_detected = 0
    for number in range(n_mutations):
        sample, before = chance.choice(samples(name))
        changed = some_places(chance, sample, only_covered=number % 2 == 0)
        parts = {part: bytearray(data) for part, data in sample.parts.items()}
        for part, at in changed:
            parts[part][at - sample.first(part)] ^= chance.randrange(1, 256)
        damaged = {part: bytes(data) for part, data in parts.items()}
        module = sample.decode(damaged)
        assert undetected(sample, before, module, damaged, changed) == [], changed
        n_detected += bool(module.damage)
    assert n_detected > n_mutations / 3


@cache
def texts() -> list[tuple[str, Sample, dict[FieldKey, DecodedField]]]:
    """Return the text of each sound memory in the forms that people post, and its fields."""
    result = []
    for name in CLASSES:
        for sample, before in samples(name)[-2:]:
            if name == "sfp-8472":
                image: MemoryImage | SfpImage = SfpImage(sample.parts["a0"], sample.parts["a2"])
            else:
                image = MemoryImage(sample.parts)  # type: ignore[arg-type]
            result.append((text_of_image(image), sample, before))
    return result


@MUTATIONS
def test_damage_of_a_text_is_never_shown_as_a_value(seed: int, n_mutations: int) -> None:
    """One character or line changes: the text is refused, or no changed byte under a checksum passes as undamaged."""
    chance = random.Random(1861 + seed)
    n_refused = n_damaged = 0
    for _ in range(n_mutations):
        text, sample, before = chance.choice(texts())
        at, lines = chance.randrange(len(text)), text.splitlines(keepends=True)
        number = chance.randrange(len(lines))
        digit = chance.choice("0123456789abcdefX:|*\n xg\u00e9")
        changed = chance.choice(
            [
                text[:at] + digit + text[at + 1 :],
                text[:at] + digit + text[at:],
                text[:at] + text[at + 1 :],
                text[:at],
                "".join(lines[:number] + lines[number + 1 :]),
                "".join(lines[:number] + lines[number : number + 1] * 2 + lines[number + 1 :]),
            ]
        )
        try:
            module = decode_file(changed.encode())
        except ConfigError:
            n_refused += 1
            continue
        n_damaged += bool(module.damage)
        for key, field in by_key(module).items():
            if key in before and field.raw != before[key].raw and field.quality is Quality.OK:
                assert not any(sample.areas_of(place) for place in places_of(field)), (before[key], field, changed)
    assert n_refused > n_mutations / 10
    assert n_damaged > n_mutations / 10
