"""Headers: optional nodes, numeric suffixes, spellings, aliases, and contradictory declarations."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.scpi import Form, ScpiCommand, ScpiError, SuffixRange, Tree, query
from lumion_hw.errors import ConfigError
from tests.emulator.scpi.scpi_testbench import Host, Meter

RANGES = {"n": SuffixRange(1, 4), "m": SuffixRange(0, 2, default=0)}


def tree(*patterns: str, aliases=None) -> Tree:
    return Tree([query(pattern, lambda call: "") for pattern in patterns], RANGES, aliases)


def find(built: Tree, header: str):
    return built.find(header.split(":"), query=True)[1]


def refusal(built: Tree, header: str) -> int:
    with pytest.raises(ScpiError) as error:
        find(built, header)
    return error.value.code


@pytest.mark.parametrize("header", ["CORR", "CORR:LOSS", "SENS:CORR:LOSS:INP", "sense:correction:loss:input:magnitude"])
def test_nested_optional_nodes_may_be_left_out(header):
    built = tree("[:SENSe[n]]:CORRection[:LOSS[:INPut[:MAGNitude]]]")
    assert find(built, header) == {"n": 1}


def test_inner_optional_node_needs_its_outer_one():
    assert refusal(tree("[:SENSe[n]]:CORRection[:LOSS[:INPut[:MAGNitude]]]"), "CORR:INP") == -113


def test_suffixes_are_read_and_default():
    built = tree(":SENSe[n][:CHANnel[m]]:POWer")
    assert find(built, "SENS3:CHAN2:POW") == {"n": 3, "m": 2}
    assert find(built, "SENS:POW") == {"n": 1, "m": 0}
    assert find(built, "SENSE004:CHANNEL0:POWER") == {"n": 4, "m": 0}


@pytest.mark.parametrize("header", ["SENS0:POW", "SENS5:POW", "SENS1:CHAN3:POW", "SENS" + "9" * 5000 + ":POW"])
def test_suffix_out_of_range(header):
    assert refusal(tree(":SENSe[n][:CHANnel[m]]:POWer"), header) == -114


def test_digits_on_a_mnemonic_that_takes_none_are_an_undefined_header():
    assert refusal(tree(":SENSe[n]:POWer"), "SENS1:POW1") == -113


def test_suffix_may_belong_to_one_of_two_commands_below_the_same_word():
    built = tree(":TRIGger[n]:INPut", ":TRIGger:CONFiguration")
    assert find(built, "TRIG2:INP") == {"n": 2}
    assert refusal(built, "TRIG2:CONF") == -113


@pytest.mark.parametrize("header", ["WAVE", "WAVEL", "WAVELENGT", "WA", "WAVELENGTHS", "WAV_"])
def test_nothing_between_short_and_long_form(header):
    assert refusal(tree(":WAVelength"), header) == -113


def test_vendor_short_forms_are_taken_from_the_spelling_not_computed():
    built = tree(":MODe", ":SWStart")
    assert find(built, "MOD") == find(built, "SWS") == {}
    assert refusal(built, "SWST") == -113


def test_unknown_word_beyond_twelve_characters_has_its_own_error_but_long_known_words_are_fine():
    built = tree(":PARTRANSITION")
    assert find(built, "partransition") == {}
    assert refusal(built, "ABCDEFGHIJKLM") == -112
    assert refusal(built, "ABCDEFGHIJKL") == -113


def test_query_form_and_set_form_are_different_entries():
    built = Tree([query(":A", lambda call: "")], {})
    with pytest.raises(ScpiError) as error:
        built.find(("A",), query=False)
    assert error.value.code == -113


@pytest.mark.parametrize(
    "patterns",
    [
        (":POWer", ":POW"),
        ("[:POWer",),
        (":POWer]",),
        (":POWer::X",),
        ("[:POWer]",),
        (":POWer[k]",),
        (":A", ":A"),
        ("[:A]:B", ":B"),
    ],
)
def test_contradicting_or_unreadable_declarations_are_refused(patterns):
    with pytest.raises(ConfigError):
        tree(*patterns)


def test_alias_is_off_by_default_and_opens_the_documented_command_when_on():
    strict = Host(Meter(VirtualClock()).instrument)
    strict.ask("CORR:WAVE 1310")
    assert strict.errors() == [-113]
    pattern = "[:SENSe[n]]:CORRection:WAVelength"
    lenient = Host(Meter(VirtualClock(), aliases={"[:SENSe[n]]:CORRection:WAVE": pattern}).instrument)
    lenient.ask("CORR:WAVE 1310")
    assert lenient.ask("CORR:WAV?") == "1.31000000E+03"
    assert lenient.errors() == []


def test_alias_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="not declared"):
        tree(":A", aliases={":B": ":C"})


def test_set_and_query_of_one_header_may_be_declared_apart():
    built = Tree([ScpiCommand(":A", set=Form(lambda call: None)), query(":A", lambda call: "")], {})
    assert built.find(("A",), query=False)[0] is not built.find(("A",), query=True)[0]


def test_instruments_of_one_type_answer_with_their_own_handlers():
    first, second = Host(Meter(VirtualClock()).instrument), Host(Meter(VirtualClock()).instrument)
    first.ask("CORR:WAV 1310")
    assert (first.ask("CORR:WAV?"), second.ask("CORR:WAV?")) == ("1.31000000E+03", "1.55000000E+03")


def test_the_same_header_may_have_another_range_set_form_or_alias_in_another_instrument():
    pattern = ":POWer[n]"
    wide = Tree([query(pattern, lambda call: "")], {"n": SuffixRange(1, 4)})
    narrow = Tree([query(pattern, lambda call: "")], {"n": SuffixRange(1, 2, default=2)}, {":LEVel[n]": pattern})
    settable = Tree([ScpiCommand(pattern, set=Form(lambda call: None))], {"n": SuffixRange(1, 4)})
    assert (find(wide, "POW3"), find(narrow, "POW"), find(narrow, "LEV1")) == ({"n": 3}, {"n": 2}, {"n": 1})
    assert (refusal(narrow, "POW3"), refusal(wide, "LEV1"), refusal(settable, "POW")) == (-114, -113, -113)
