"""Emulated Keysight N776xA variable attenuators, and the attenuators of a N7751A or N7752A.

Source: N77xx Series Programming Guide, "Signal Conditioning - The INPut, OUTPut and CONFiguration:CHANnel subtrees",
"The FETCh subtree", "The READ subtree" and "The Status Model - Variable Optical Attenuators". Limits and averaging
follow the class KeysightN776XX of a public test library. Each attenuator occupies two slots, and commands accept the
number of either slot. ``*OPC?`` replies 0 while a filter moves.

Unverified choices: ``INP:ATT?`` replies the target of a moving filter. The insertion loss is 2.2 dB, the shutter
isolation 100 dB, and the speed after ``*RST`` 1000 dB/s. The guide says that multimode models treat speeds above 80
dB/s as full speed; here all models do. Not implemented: the power meters of a N7751A and N7752A in slots 5 and 6, other
reference power meters (``TOREF`` is refused), and saved settings (``CONFigure:MEASurement:SETTing``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lumion_hw.clock import Clock
from lumion_hw.emulator.attenuators.n77xx_channel import (
    CONTROLLED_DB_PER_S,
    MAX_OFFSETS,
    SHUTTER_DB,
    SPEED_DB_PER_S,
    AttenuatorChannel,
    N77xxAttenuation,
    OffsetTable,
)
from lumion_hw.emulator.scpi import (
    Boolean,
    Call,
    Form,
    LimitName,
    Numeric,
    PendingReply,
    Profile,
    RegisterGroup,
    Reply,
    ScpiCommand,
    ScpiDevice,
    ScpiError,
    ScpiInstrument,
    SuffixRange,
    Value,
    action,
    errors as scpi_errors,
    event,
    flag_setting,
    group_commands,
    number_setting,
    query,
    word_setting,
)
from lumion_hw.emulator.scpi.formats import (
    definite_block,
    float32_block,
    keysight_float,
    keysight_float32,
    keysight_int,
    quoted,
    uint16_block,
)
from lumion_hw.emulator.scpi.keysight_slots import POWER_UNIT, self_as_modules, slot_commands
from lumion_hw.emulator.scpi.lexer import Token, TokenKind
from lumion_hw.emulator.scpi.units import LENGTH_M, POWER_W, RATIO_DB, TIME_S
from lumion_hw.quantities import dbm_from_w, w_from_dbm

INSERTION_LOSS_DB = 2.2
MAX_ATTENUATION_DB: Mapping[str, float] = {"N7766A": 35.0, "N7768A": 35.0}
"""Largest attenuation of the multimode models in dB (unverified); other models reach 45 dB."""
_MIN_MOVE_DB = 0.003
_ZERO_S = 1.0
_INPUT, _OUTPUT = ":INPut[n][:CHANnel[m]]", ":OUTPut[n][:CHANnel[m]]"
_TABLE = ":CONFigure[n][:CHANnel[m]]:OFFSet:WAVelength"
_LIMITS_DBM = (-60.0, 20.0)
_POWER = Numeric(w_from_dbm(_LIMITS_DBM[0]), w_from_dbm(_LIMITS_DBM[1]), 1e-3)
_METER_ADDRESS = (Numeric(1, 8, integer=True), Numeric(1, 1, integer=True))
_TO_REFERENCE = "TOREF"
_SUMMARY = 0
"""Key of the summary registers of all slots (``STATus`` without a slot number)."""


@dataclass(frozen=True)
class _PowerLevel:
    """Power in the unit of the channel, or in the unit that the host sends; parsed to watts."""

    in_watts: Callable[[Call], bool]
    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the received power in watts."""
        if token.kind is TokenKind.WORD:
            return _POWER.parse(token, call)
        value = Numeric(suffixes=POWER_W).parse(token, call)
        if not token.suffix and isinstance(value, float) and not self.in_watts(call):
            value = w_from_dbm(min(value, 100.0))
        if not w_from_dbm(_LIMITS_DBM[0]) <= float(value) <= w_from_dbm(_LIMITS_DBM[1]):
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        return value


@dataclass(frozen=True)
class _OffsetOrReference:
    """Offset in dB, or the word ``TOREF`` (offset to the reference power meter)."""

    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the offset in dB, or the word ``TOREF``."""
        if token.kind is TokenKind.WORD and token.text.upper() == _TO_REFERENCE:
            return _TO_REFERENCE
        return Numeric(-200.0, 200.0, None, RATIO_DB).parse(token, call)


class EmulatedN776xA(ScpiDevice):
    """Emulated Keysight N77xx attenuator.

    Args:
        n_channels: Number of attenuators, numbered from 1; their slots are 1, 3, 5, 7.
        passing_w: Returns the power before and after a channel in watts; no light by default.
        insertion_loss_db: Loss of every channel at zero attenuation.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        model: str = "N7764A",
        serial: str = "MY00000001",
        n_channels: int = 4,
        passing_w: Callable[[int], tuple[float, float]] = lambda _: (0.0, 0.0),
        changed: Callable[[], None] = lambda: None,
        insertion_loss_db: float = INSERTION_LOSS_DB,
        firmware: str = "1.50",
    ) -> None:
        super().__init__(name, clock)
        self._passing_w, self._changed = passing_w, changed
        self._zeroed_s = -math.inf
        largest_db = MAX_ATTENUATION_DB.get(model, 45.0)
        self._channels = {2 * k + 1: AttenuatorChannel(clock, largest_db, insertion_loss_db) for k in range(n_channels)}
        profile = Profile(f"Agilent Technologies,{model},{serial},{firmware}", reports_busy=True, slot_status=True)
        self._scpi = ScpiInstrument(name, clock, profile, self._reset, self._follow)
        slots = {
            "n": SuffixRange(1, 2 * n_channels),
            "m": SuffixRange(1, 1),
            "s": SuffixRange(1, 2 * n_channels, _SUMMARY),
        }
        self._modules = self_as_modules(profile.identity, self._channels)
        self._scpi.declare(self._commands(), slots)

    def transmission(self, channel: int) -> float:
        """Return the transmitted fraction of the light. Channels count from 1."""
        return self._channels[2 * channel - 1].transmission if self.powered else float(10.0 ** (-SHUTTER_DB / 10.0))

    def _lose_power(self) -> None:
        super()._lose_power()
        self._changed()

    def _regain_power(self) -> None:
        saved_states = {slot: channel.settings.open_at_power_on for slot, channel in self._channels.items()}
        super()._regain_power()
        for slot, opens in saved_states.items():
            self._channels[slot].settings.open_at_power_on = self._channels[slot].settings.open = opens
        self._changed()

    def _reset(self) -> None:
        for channel in self._channels.values():
            channel.settings = N77xxAttenuation(open_at_power_on=channel.settings.open_at_power_on)
            channel.zeroing = False
            channel.move(0.0)
        self._changed()

    def _addressed(self, call: Call) -> AttenuatorChannel:
        return self._channels[_first_slot(call.suffix["n"])]

    # -- commands

    def _commands(self) -> Iterable[ScpiCommand]:
        yield action(":SYSTem:PRESet", self._reset)
        yield from slot_commands(self._modules, self._channels)
        yield from self._input_commands()
        yield from self._output_commands()
        yield from self._power_commands()
        yield from self._zero_commands()
        yield from self._monitor_commands()
        yield from self._offset_commands()
        yield from self._status_commands()

    def _attribute(self, pattern: str, limits: Numeric, name: str) -> ScpiCommand:
        def write(call: Call, value: float) -> None:
            setattr(self._addressed(call).settings, name, value)

        return number_setting(
            pattern, limits, lambda call: float(getattr(self._addressed(call).settings, name)), write, keysight_float32
        )

    def _flag(self, pattern: str, name: str) -> ScpiCommand:
        def write(call: Call, on: bool) -> None:
            setattr(self._addressed(call).settings, name, on)
            self._changed()

        return flag_setting(
            pattern, Boolean(), lambda call: bool(getattr(self._addressed(call).settings, name)), write, str
        )

    def _input_commands(self) -> Iterable[ScpiCommand]:
        min_db = lambda call: self._addressed(call).settings.offset_db  # noqa: E731 - two limits that follow the offset
        max_db = lambda call: self._addressed(call).settings.offset_db + self._addressed(call).largest_db  # noqa: E731
        yield number_setting(
            f"{_INPUT}:ATTenuation",
            Numeric(min_db, max_db, min_db, RATIO_DB),
            lambda call: self._addressed(call).target_db + self._addressed(call).settings.offset_db,
            lambda call, value: self._attenuate(self._addressed(call), value),
            keysight_float32,
        )
        yield event(f"{_INPUT}:ATTenuation:ALL", self._attenuate_all, Numeric(suffixes=RATIO_DB))
        yield number_setting(
            f"{_INPUT}:ATTenuation:SPEed",
            Numeric(0.1, SPEED_DB_PER_S, SPEED_DB_PER_S),
            lambda call: self._addressed(call).settings.speed_db_per_s,
            self._set_speed,
            keysight_float32,
        )
        yield self._attribute(f"{_INPUT}:OFFSet", Numeric(-200.0, 200.0, 0.0, RATIO_DB), "offset_db")
        yield event(f"{_INPUT}:OFFSet:DISPlay", self._offset_from_display)
        wavelength = Numeric(1.26e-6, 1.64e-6, 1.55e-6, LENGTH_M)
        yield self._attribute(f"{_INPUT}:WAVelength", wavelength, "wavelength_m")
        yield event(f"{_INPUT}:WAVelength:ALL", self._all("wavelength_m"), wavelength)
        for pattern in (f"{_INPUT}:OFFSet:POWermeter", f"{_OUTPUT}:POWer:OFFSet:POWermeter"):
            yield event(pattern, _refuse_power_meter, *_METER_ADDRESS)

    def _output_commands(self) -> Iterable[ScpiCommand]:
        yield self._flag(f"{_OUTPUT}[:STATe]", "open")
        yield event(f"{_OUTPUT}[:STATe]:ALL", self._all("open"), Boolean())
        yield self._flag(f"{_OUTPUT}[:STATe]:APOWeron", "open_at_power_on")
        # Setting it has no effect; the query replies the last setting.
        yield ScpiCommand(
            f"{_OUTPUT}:APMode",
            Form(lambda _: None, (Boolean(),)),
            Form(lambda call: str(int(self._addressed(call).settings.by_power))),
        )

    def _power_commands(self) -> Iterable[ScpiCommand]:
        level = _PowerLevel(lambda call: self._addressed(call).settings.in_watts)
        yield ScpiCommand(
            f"{_OUTPUT}:POWer",
            Form(lambda call: self._hold_power((self._addressed(call),), call), (level,)),
            Form(self._set_power, (LimitName(_POWER),)),
        )
        all_channels = tuple(self._channels.values())
        yield event(f"{_OUTPUT}:POWer:ALL", lambda call: self._hold_power(all_channels, call), level)
        yield word_setting(
            f"{_OUTPUT}:POWer:UNit", POWER_UNIT, self._unit, self._set_unit, lambda word: f"+{int(word == 'W')}"
        )
        yield self._attribute(f"{_OUTPUT}:POWer:OFFSet", Numeric(-60.0, 60.0, 0.0, RATIO_DB), "power_offset_db")
        yield self._flag(f"{_OUTPUT}:POWer:CONTRol", "control")
        yield self._attribute(f"{_OUTPUT}:ATIMe", Numeric(0.002, 1.0, 0.1, TIME_S), "averaging_s")

    def _zero_commands(self) -> Iterable[ScpiCommand]:
        zero, result = Form(self._zero), Form(lambda _: self._after_zeroing("0"))
        # The guide has both spellings: COLLect in its table, COLLection in the descriptions.
        for root in (
            f"{_OUTPUT}:CORRection:COLLect",
            f"{_OUTPUT}:CORRection:COLLection",
            ":SENSe[n][:CHANnel[m]]:CORRection:COLLect",
        ):
            yield ScpiCommand(f"{root}:ZERO", zero, result)
            yield ScpiCommand(f"{root}:ZERO:ALL", zero, result)

    def _monitor_commands(self) -> Iterable[ScpiCommand]:
        for verb in ("READ", "FETCh"):
            root = f":{verb}[n][:CHANnel[m]][:SCALar]:POWer[:DC]"
            yield query(root, self._read_power)
            yield query(f"{root}:ALL", lambda _: float32_block(self._monitored_w()))
            yield query(f"{root}:ALL:CONFig", lambda _: uint16_block(n for slot in self._channels for n in (slot, 1)))
        yield query(
            ":FETCh[n][:CHANnel[m]][:SCALar]:POWer[:DC]:ALL:CSV",
            lambda _: quoted(",".join(f"{power_w:+.8E}" for power_w in self._monitored_w())),
        )

    def _offset_commands(self) -> Iterable[ScpiCommand]:
        table = self._table
        yield flag_setting(
            f"{_TABLE}:STATe",
            Boolean(),
            lambda call: table(call).enabled,
            lambda call, on: setattr(table(call), "enabled", on),
            str,
        )
        yield event(f"{_TABLE}:VALue", self._set_offset_entry, Numeric(suffixes=LENGTH_M), _OffsetOrReference())
        yield event(f"{_TABLE}:VALue:DELete", self._delete_offset, Numeric(suffixes=LENGTH_M))
        yield event(f"{_TABLE}:VALue:DELete:ALL", self._delete_offsets)
        yield ScpiCommand(
            f"{_TABLE}:REFerence",
            Form(self._set_reference, _METER_ADDRESS),
            Form(lambda call: ",".join(map(keysight_int, table(call).reference))),
        )
        yield query(f"{_TABLE}:TABle", lambda call: definite_block(table(call).to_bytes()))
        yield query(
            f"{_TABLE}:TABle:SIZE",
            lambda call: str(call.integer() if call.values else len(table(call).entries)),
            LimitName(Numeric(0, MAX_OFFSETS)),
        )
        for word, express in (
            ("WAVelength", lambda entry: keysight_float(entry[0])),
            ("OFFSet", lambda entry: keysight_float(entry[1])),
            ("PAIR", lambda entry: ",".join(map(keysight_float, entry))),
        ):
            yield query(
                f"{_TABLE}:VALue:{word}",
                lambda call, express=express: express(self._entry(call)),  # type: ignore[misc]
                Numeric(suffixes=LENGTH_M),
            )

    def _status_commands(self) -> Iterable[ScpiCommand]:
        state = self._scpi.state
        yield action(":STATus:PRESet", state.clear)  # "performs the same as *CLS"
        for name in ("OPERation", "QUEStionable"):
            attribute = name.lower()

            def group(call: Call, attribute: str = attribute) -> RegisterGroup:
                self._refresh()
                slot = call.suffix["s"]
                holder = state.status if slot == _SUMMARY else self._channels[_first_slot(slot)]
                matches: RegisterGroup = getattr(holder, attribute)
                return matches

            yield from group_commands(f":STATus[s]:{name}", group, state.profile.integer)

    # -- actions of commands

    def _table(self, call: Call) -> OffsetTable:
        return self._addressed(call).offsets

    def _all(self, name: str) -> Callable[[Call], Reply]:
        def run(call: Call) -> Reply:
            for channel in self._channels.values():
                setattr(channel.settings, name, call.values[0])
            self._changed()
            return None

        return run

    def _attenuate_all(self, call: Call) -> Reply:
        target_db = call.number()
        for channel in self._channels.values():
            if not 0.0 <= target_db - channel.settings.offset_db <= channel.largest_db:
                raise ScpiError(scpi_errors.ILLEGAL_PARAMETER_VALUE)
        for channel in self._channels.values():
            self._attenuate(channel, target_db)
        return None

    def _attenuate(self, channel: AttenuatorChannel, value_db: float) -> None:
        channel.settings.control = channel.settings.by_power = False  # the filter follows only one of the two
        self._move(channel, value_db - channel.settings.offset_db)

    def _move(self, channel: AttenuatorChannel, filter_db: float) -> None:
        self._changed()
        self._scpi.state.begin(channel.move(filter_db), lambda: None)

    def _set_speed(self, call: Call, db_per_s: float) -> None:
        full = db_per_s > CONTROLLED_DB_PER_S
        self._addressed(call).settings.speed_db_per_s = SPEED_DB_PER_S if full else db_per_s

    def _offset_from_display(self, call: Call) -> Reply:
        channel = self._addressed(call)
        channel.settings.offset_db = -channel.target_db
        return None

    # -- power

    def _unit(self, call: Call) -> str:
        return "W" if self._addressed(call).settings.in_watts else "DBM"

    def _set_unit(self, call: Call, word: str) -> None:
        self._addressed(call).settings.in_watts = word == "W"

    def _set_power(self, call: Call) -> Reply:
        settings = self._addressed(call).settings
        power_w = call.number() if call.values else settings.power_w
        return keysight_float32(power_w if settings.in_watts else dbm_from_w(power_w))

    def _hold_power(self, channels: Iterable[AttenuatorChannel], call: Call) -> Reply:
        for channel in channels:
            channel.settings.power_w = call.number()
            channel.settings.control = channel.settings.by_power = True
        self._follow()
        return None

    def _measured_w(self, slot: int) -> float:
        channel = self._channels[slot]
        after_w = self._passing_w((slot + 1) // 2)[1]
        return float(channel.monitored_w(after_w) * 10.0 ** (-channel.display_db / 10.0))

    def _monitored_w(self) -> list[float]:
        return [self._measured_w(slot) for slot in self._channels]

    def _read_power(self, call: Call) -> Reply:
        power_w = self._measured_w(_first_slot(call.suffix["n"]))
        return keysight_float32(power_w if self._addressed(call).settings.in_watts else dbm_from_w(power_w))

    def _zero(self, call: Call) -> Reply:
        del call

        def set_zeroing(zeroing: bool) -> None:
            for channel in self._channels.values():
                channel.zeroing = zeroing
            self._changed()

        for channel in self._channels.values():
            channel.move(channel.filter_db)
        set_zeroing(True)
        self._zeroed_s = self._clock.now() + _ZERO_S
        self._scpi.state.begin(_ZERO_S, lambda: set_zeroing(False))
        return None

    def _after_zeroing(self, reply: str) -> PendingReply:
        return PendingReply(lambda: max(self._zeroed_s, self._clock.now()), lambda: reply)

    def _follow(self) -> None:
        self._refresh()
        for slot, channel in self._channels.items():
            settings = channel.settings
            if not settings.control or channel.zeroing:
                continue
            before_w, _ = self._passing_w((slot + 1) // 2)
            if before_w <= 0.0:
                continue
            wanted_w = settings.power_w * 10.0 ** (channel.display_db / 10.0)
            target_db = 10.0 * math.log10(before_w / wanted_w) - channel.insertion_loss_db
            target_db = min(max(target_db, 0.0), channel.largest_db)
            if abs(target_db - channel.target_db) > _MIN_MOVE_DB:
                self._move(channel, target_db)

    # -- offsets by wavelength, and status

    def _editable(self, call: Call) -> OffsetTable:
        """Return the offset table of a channel. Raises ``ScpiError`` while the table is in use."""
        table = self._addressed(call).offsets
        if table.enabled:
            raise ScpiError(scpi_errors.SETTINGS_CONFLICT)
        return table

    def _set_offset_entry(self, call: Call) -> Reply:
        table = self._editable(call)
        if call.values[1] == _TO_REFERENCE:
            return _refuse_power_meter(call)
        if len(table.entries) >= MAX_OFFSETS:
            raise ScpiError(scpi_errors.EXECUTION_ERROR)
        table.set_entry(call.number(0), call.number(1))
        return None

    def _entry(self, call: Call) -> tuple[float, float]:
        entries, value = self._addressed(call).offsets.entries, call.number()
        matches = [entry for index, entry in enumerate(entries, 1) if value in (index, entry[0])]
        if not matches:
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        return matches[0]

    def _delete_offset(self, call: Call) -> Reply:
        table = self._editable(call)
        table.entries.remove(self._entry(call))
        return None

    def _delete_offsets(self, call: Call) -> Reply:
        self._editable(call).entries = []
        return None

    def _set_reference(self, call: Call) -> Reply:
        self._addressed(call).offsets.reference = call.integer(0), call.integer(1)
        return None

    def _refresh(self) -> None:
        status = self._scpi.state.status
        for slot, channel in self._channels.items():
            channel.refresh()
            status.operation.set_bit(slot, channel.operation.summary)
            status.questionable.set_bit(slot, channel.questionable.summary)


def _first_slot(slot: int) -> int:
    return slot - 1 + slot % 2


def _refuse_power_meter(call: Call) -> Reply:
    del call
    raise ScpiError(scpi_errors.SETTINGS_CONFLICT)
