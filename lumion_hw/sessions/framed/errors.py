"""From a refusal of the mesh controller to an error of the package (protocol section 12), in the operator's words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from firmware_protocol import (
    Command,
    Feature,
    HelloReply,
    HelloRequest,
    Message,
    ProtocolError,
    Refusal,
    Request,
    Status,
    fault_source_name,
)
from lumion_hw.errors import (
    CLEAR_FAULTS,
    LIST_FAULTS,
    BadValueError,
    BusyError,
    ConfigError,
    DeviceAddress,
    DeviceError,
    DeviceTimeoutError,
    FrameError,
    LimitError,
    LinkLost,
    LumionError,
    NotSupportedError,
    SafetyError,
    VerifyError,
)

_HINTS = {
    Status.NOT_CONFIGURED: "Apply limits with configure() before anything is driven.",
    Status.STALE: "Another table or session came first; read back what is driven before programming again.",
    Status.TOO_OLD: "Update lumion-hw.",
    Status.TOO_NEW: "Update the controller's firmware.",
    Status.TOO_BIG: "The message should have been split: report this.",
    Status.BAD_LENGTH: "Host and firmware disagree on a layout: compare their versions.",
    Status.UNKNOWN_FAULT: f"Nothing was cleared. {LIST_FAULTS}, with the id that clears each.",
    Status.UNKNOWN_COMMAND: "The firmware does not know this command: compare versions.",
}


_CLASSES: dict[int, type[DeviceError]] = {
    Status.BAD_VALUE: BadValueError,
    Status.BAD_CHANNEL: BadValueError,
    Status.UNKNOWN_FAULT: BadValueError,
    Status.TIMEOUT: DeviceTimeoutError,
}


_ECHOED: dict[int, tuple[str, ...]] = {
    Command.PING: ("token",),
    Command.CONFIG: ("op",),
    Command.STAGE: ("bank_generation",),
    Command.STAGE_SPARSE: ("bank_generation",),
    Command.READBACK: ("bank",),
    Command.READ_ADC: ("start",),
    Command.SUBSCRIBE: ("stream",),
    Command.SWEEP_LOAD: ("sweep_id",),
    Command.SWEEP_START: ("generation",),
    Command.SWEEP_READ: ("generation", "first"),
    Command.SWEEP_ACK: ("generation",),
    Command.SWEEP_ABORT: ("generation",),
}
"""Fields that a reply repeats from its request (sections 6 to 10). The receipt of a table is proven elsewhere."""


def sources(mask: int) -> str:
    """Return the names of the fault sources in a mask, for a message."""
    names = [fault_source_name(bit) for bit in range(32) if mask >> bit & 1]
    return ", ".join(names) if names else "no source named"


def _number(value: int, unit: str) -> str:
    return f"{value} {unit}".rstrip()


def _device_error(refusal: Refusal, request: Request[Message], target: DeviceAddress) -> DeviceError:
    status = refusal.status
    means = Status(status) if status in Status.__members__.values() else None
    parts = [f"{_name(request)} refused with {refusal.name}"]
    if means is not None and means.channel_means and refusal.channel is not None:
        parts.append(f"{means.channel_means} {refusal.channel}{_field_at(refusal, request)}")
    if means is not None and means.value_means:
        # Generations and fault ids are unsigned; the field that carries them is not (section 12).
        shown = refusal.value_u32 if status in (Status.STALE, Status.UNKNOWN_FAULT) else refusal.value
        parts.append(f"{means.value_means} {shown}")
    if means is not None and means.limit_means:
        parts.append(f"{means.limit_means} {refusal.limit}")
    if refusal.index is not None:
        parts.append(f"point {refusal.index}")
    return _CLASSES.get(status, DeviceError)(
        ", ".join(parts) + _quoted(refusal) + ".",
        code=status,
        command=request.command.name,
        device=target.device,
        address=target.address,
        hint=_HINTS.get(means) if means is not None else None,
    )


def _name(request: Request[Message]) -> str:
    op = getattr(request, "op", None)
    return request.command.name if op is None else f"{request.command.name} {op.name}"


def _quoted(refusal: Refusal) -> str:
    return f" ({refusal.text})" if refusal.text else ""


def _field_at(refusal: Refusal, request: Request[Message]) -> str:
    if refusal.status != Status.BAD_VALUE or not isinstance(request, Message):
        return ""
    names = [field.name for field in request.layout.fields if field.offset == refusal.channel and field.name]
    return f" (`{names[0]}`)" if names else ""


def _busy(refusal: Refusal, request: Request[Message], target: DeviceAddress) -> LumionError:
    wait = f"; it said to wait {refusal.value} ms" if refusal.value > 0 else ""
    if request.command is Command.HELLO:
        holder = f"held by host {refusal.text!r}" if refusal.text else "held by another host"
        hint = "Try again later, or open it with take_over=True if that host is yours."
    else:
        holder, hint = f"busy{_quoted(refusal)}", "Try again later."
    return target.error(
        BusyError,
        f"{_name(request)} refused: the controller is {holder}{wait}.",
        code=refusal.status,
        command=request.command.name,
        hint=hint,
    )


def _limit(refusal: Refusal, request: Request[Message], target: DeviceAddress) -> LumionError:
    whole = refusal.channel is None
    place = "the computed power of the whole table" if whole else f"channel {refusal.channel}"
    if refusal.index is not None:
        place = f"point {refusal.index}, {place}"
    return target.error(
        LimitError,
        f"{_name(request)} refused, nothing was changed: {place} is above the controller's limit{_quoted(refusal)}",
        asked=refusal.value,
        limit=refusal.limit,
        unit="mW" if whole else "code",
    )


def _safe(refusal: Refusal, request: Request[Message], target: DeviceAddress) -> LumionError:
    return target.error(
        SafetyError,
        f"{_name(request)} refused: the controller is in its safe state, latched: {sources(refusal.value_u32)}"
        f"{_quoted(refusal)}.",
        hint=CLEAR_FAULTS,
    )


def _interlock(refusal: Refusal, request: Request[Message], target: DeviceAddress) -> LumionError:
    place = "" if refusal.channel is None else f" on channel {refusal.channel}"
    return target.error(
        SafetyError,
        f"{_name(request)} refused: the cause is still present{place}: measured {refusal.value}, "
        f"threshold {refusal.limit}, in the unit of the fault's source{_quoted(refusal)}.",
        hint=f"Remove the cause first. {LIST_FAULTS}.",
    )


def _session(refusal: Refusal, request: Request[Message], target: DeviceAddress) -> LumionError:
    current = refusal.value_u32
    reason = f"taken over by session 0x{current:04X}" if current else "board restarted"
    after = "its outputs are off and it has to be configured again" if not current else "another host drives it now"
    return target.error(
        LinkLost, f"{_name(request)} refused: {reason}; {after}.", hint="Open the device again to attach."
    )


def _unsupported(refusal: Refusal, request: Request[Message], target: DeviceAddress) -> LumionError:
    known = refusal.value in Feature.__members__.values()
    feature = Feature(refusal.value).name if known else f"bit {refusal.value}"
    return target.error(
        NotSupportedError,
        f"{_name(request)} refused: this controller lacks feature {feature}{_quoted(refusal)}.",
        code=refusal.status,
        command=request.command.name,
    )


def _unverified(refusal: Refusal, request: Request[Message], target: DeviceAddress) -> LumionError:
    if refusal.status == Status.CRC_MISMATCH:
        label, wrote, read = "checksum", f"CRC 0x{refusal.limit_u32:08X}", f"CRC 0x{refusal.value_u32:08X}"
    else:
        missing = "" if refusal.channel is None else f", first missing channel {refusal.channel}"
        label, wrote, read = f"completeness{missing}", _number(refusal.limit, "items"), _number(refusal.value, "items")
    return target.error(
        VerifyError,
        f"{_name(request)} refused again after everything was sent once more, nothing was changed: {label}",
        wrote=wrote,
        read=read,
        hint="The link or the controller's memory damages data: look at the session counters and GET_STATS.",
    )


_KINDS: dict[int, Callable[[Refusal, Request[Message], DeviceAddress], LumionError]] = {
    Status.BUSY: _busy,
    Status.LIMIT: _limit,
    Status.SAFE: _safe,
    Status.INTERLOCK: _interlock,
    Status.SESSION: _session,
    Status.NOT_SUPPORTED: _unsupported,
    Status.INCOMPLETE: _unverified,
    Status.CRC_MISMATCH: _unverified,
}


def error_from_refusal(refusal: Refusal, request: Request[Message], target: DeviceAddress) -> LumionError:
    """Return the error a refusal is raised as.

    The message names the command, the channel or field, what was asked and what is allowed. LIMIT becomes
    ``LimitError`` (unit ``code`` for a channel, ``mW`` for the whole table), SAFE and INTERLOCK ``SafetyError``,
    SESSION ``LinkLost``, BUSY ``BusyError``, NOT_SUPPORTED ``NotSupportedError``, INCOMPLETE and CRC_MISMATCH
    ``VerifyError``, BAD_VALUE, BAD_CHANNEL and UNKNOWN_FAULT ``BadValueError``, TIMEOUT ``DeviceTimeoutError``,
    everything else ``DeviceError`` with the status as ``code``.
    """
    return _KINDS.get(refusal.status, _device_error)(refusal, request, target)


def cannot_be_sent(error: ProtocolError, request: Request[Message], target: DeviceAddress) -> ConfigError:
    """Return the error for a request the codec refuses to put on the wire; it names the command."""
    return target.error(ConfigError, f"{_name(request)} cannot be sent: {error}.")


@contextmanager
def encoding(request: Request[Message], target: DeviceAddress) -> Iterator[None]:
    """Turn what the codec refuses to put on the wire into a ``ConfigError`` that names the command."""
    try:
        yield
    except ProtocolError as error:
        raise cannot_be_sent(error, request, target) from error


def check_echo(request: Request[Message], reply: Message, target: DeviceAddress) -> None:
    """Raise ``FrameError`` if a reply says that it answers something else than was asked."""
    for field in _ECHOED.get(request.command, ()):
        asked, answered = getattr(request, field), getattr(reply, field)
        if asked != answered:
            raise target.error(
                FrameError,
                f"{_name(request)}: the reply is about {field} {answered}, asked was {asked}.",
                hint="Compare the versions of firmware and lumion-hw.",
            )


def check_hello(hello: HelloReply, request: HelloRequest, target: DeviceAddress) -> None:
    """Raise ``FrameError`` if a HELLO reply describes a controller that cannot be, or not one for this host."""
    # Everything after HELLO is sized by it: a board that says 0 channels or
    # an MTU beyond ours is refused here and not met as odd errors later.
    wrong = hello.out_of_range()
    if wrong is None and hello.fw_tx_max > request.host_rx_max:
        wrong = hello.layout.offset_of("fw_tx_max"), hello.fw_tx_max
    if wrong is None and not request.proto_min <= hello.proto <= request.proto_max:
        wrong = hello.layout.offset_of("proto"), hello.proto
    if wrong is not None:
        names = [field.name for field in hello.layout.fields if field.offset == wrong[0]]
        raise target.error(
            FrameError,
            f"HELLO: the reply says {names[0]} = {wrong[1]}, which no controller answers to this host.",
            hint="Compare the versions of firmware and lumion-hw.",
        )
