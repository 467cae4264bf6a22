"""Commands that every SCPI instrument has: IEEE 488.2 common commands, ``SYSTem:ERRor`` and ``STATus``."""

from __future__ import annotations

from collections.abc import Callable

from lumion_hw.emulator.scpi.commands import (
    Call,
    Form,
    PendingReply,
    Reply,
    ScpiCommand,
    action,
    event,
    ignoring_call,
    query,
)
from lumion_hw.emulator.scpi.formats import plain_int
from lumion_hw.emulator.scpi.parameters import Numeric
from lumion_hw.emulator.scpi.state import FIFTEEN_BITS, SERVICE_BITS, InstrumentState, RegisterGroup

_BYTE = Numeric(0, 255, integer=True)
_WORD = Numeric(0, 65535, integer=True)


def common_commands(state: InstrumentState) -> tuple[ScpiCommand, ...]:
    """Return the commands ``*IDN? *RST *CLS *TST? *OPC *OPC? *WAI *ESE *ESR? *SRE *STB?``, ``SYSTem``, ``STATus``."""
    status = state.status
    version = state.profile.scpi_version

    def completion(call: Call) -> Reply | PendingReply:
        del call
        return state.poll_completion() if state.profile.reports_busy else state.when_complete("1")

    def status_byte(call: Call) -> Reply:
        return plain_int(status.status_byte(errors=state.has_errors, message_available=call.message_available))

    return (
        query("*IDN", lambda _: state.profile.identity),
        query("*TST", lambda _: state.profile.self_test),
        action("*RST", state.reset),
        action("*CLS", state.clear),
        event("*WAI", lambda _: state.when_complete(None)),
        ScpiCommand("*OPC", Form(ignoring_call(state.announce_completion)), Form(completion)),
        _mask(
            "*ESE", _BYTE, lambda: status.event_enable, lambda bits: setattr(status, "event_enable", bits), plain_int
        ),
        _mask(
            "*SRE",
            _BYTE,
            lambda: status.service_enable,
            lambda bits: setattr(status, "service_enable", bits & SERVICE_BITS),
            plain_int,
        ),
        query("*ESR", lambda _: plain_int(status.pop_events())),
        query("*STB", status_byte),
        query(":SYSTem:ERRor[:NEXT]", lambda _: state.pop_error()),
        *(() if version is None else (query(":SYSTem:VERSion", lambda _: version),)),
        *(() if state.profile.slot_status else _status_commands(state)),
    )


def _status_commands(state: InstrumentState) -> tuple[ScpiCommand, ...]:
    status = state.status
    return (
        action(":STATus:PRESet", status.preset),
        *group_commands(":STATus:OPERation", lambda _: status.operation, state.profile.integer),
        *group_commands(":STATus:QUEStionable", lambda _: status.questionable, state.profile.integer),
    )


def group_commands(
    pattern: str, group: Callable[[Call], RegisterGroup], reply: Callable[[int], str]
) -> tuple[ScpiCommand, ...]:
    """Return the commands of the status registers under the header ``pattern``; ``group`` returns the registers."""

    def mask(leaf: str, name: str) -> ScpiCommand:
        def run_set(call: Call) -> Reply:
            setattr(group(call), name, call.integer() & FIFTEEN_BITS)
            return None

        return ScpiCommand(
            f"{pattern}:{leaf}", Form(run_set, (_WORD,)), Form(lambda call: reply(getattr(group(call), name)))
        )

    return (
        query(f"{pattern}[:EVENt]", lambda call: reply(group(call).pop_event())),
        query(f"{pattern}:CONDition", lambda call: reply(group(call).condition)),
        mask("ENABle", "enable"),
        mask("PTRansition", "positive"),
        mask("NTRansition", "negative"),
    )


def _mask(
    pattern: str,
    parameter: Numeric,
    read: Callable[[], int],
    write: Callable[[int], None],
    reply: Callable[[int], str],
) -> ScpiCommand:
    def run_set(call: Call) -> Reply:
        write(call.integer())
        return None

    return ScpiCommand(pattern, Form(run_set, (parameter,)), Form(lambda _: reply(read())))
