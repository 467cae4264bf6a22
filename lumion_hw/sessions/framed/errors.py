"""Converts error replies of the mesh controller to exceptions (protocol section 12)."""

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
    Status.NOT_CONFIGURED: "Apply limits with configure() before programming currents.",
    Status.STALE: "Another table or session was active in between. Read back the currents and program again.",
    Status.TOO_OLD: "Update lumion-hw.",
    Status.TOO_NEW: "Update the controller's firmware.",
    Status.TOO_BIG: "The message should have been split. Please report this bug.",
    Status.BAD_LENGTH: "Host and firmware disagree on a message layout. Compare their versions.",
    Status.UNKNOWN_FAULT: f"Nothing was cleared. {LIST_FAULTS}, with the id that clears each.",
    Status.UNKNOWN_COMMAND: "The firmware does not know this command. Compare the versions.",
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
"""Fields that a reply repeats from its request (protocol sections 6 to 10)."""


def sources(mask: int) -> str:
    """Return the names of the fault sources in a bit mask, for a message."""
    names = [fault_source_name(bit) for bit in range(32) if mask >> bit & 1]
    return ", ".join(names) if names else "no named source"


def _number(value: int, unit: str) -> str:
    return f"{value} {unit}".rstrip()


def _device_error(refusal: Refusal, request: Request[Message], target: DeviceAddress) -> DeviceError:
    status = refusal.status
    means = Status(status) if status in Status.__members__.values() else None
    parts = [f"{_name(request)} refused with {refusal.name}"]
    if means is not None and means.channel_means and refusal.channel is not None:
        parts.append(f"{means.channel_means} {refusal.channel}{_field_at(refusal, request)}")
    if means is not None and means.value_means:
        # Generations and fault ids are unsigned, but their field is signed (section 12).
        number = refusal.value_u32 if status in (Status.STALE, Status.UNKNOWN_FAULT) else refusal.value
        parts.append(f"{means.value_means} {number}")
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
    wait = f"; it requests a wait of {refusal.value} ms" if refusal.value > 0 else ""
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
    is_general = refusal.channel is None
    subject = "the computed power of the whole table" if is_general else f"channel {refusal.channel}"
    if refusal.index is not None:
        subject = f"point {refusal.index}, {subject}"
    return target.error(
        LimitError,
        f"{_name(request)} refused, and nothing was changed: {subject} is above the controller's "
        f"limit{_quoted(refusal)}",
        requested=refusal.value,
        limit=refusal.limit,
        unit="mW" if is_general else "code",
    )


def _safe(refusal: Refusal, request: Request[Message], target: DeviceAddress) -> LumionError:
    return target.error(
        SafetyError,
        f"{_name(request)} refused: the controller is in its safe state with latched faults: "
        f"{sources(refusal.value_u32)}"
        f"{_quoted(refusal)}.",
        hint=CLEAR_FAULTS,
    )


def _interlock(refusal: Refusal, request: Request[Message], target: DeviceAddress) -> LumionError:
    channel_text = "" if refusal.channel is None else f" on channel {refusal.channel}"
    return target.error(
        SafetyError,
        f"{_name(request)} refused: the cause is still present{channel_text}: measured {refusal.value}, "
        f"threshold {refusal.limit}, both in the unit of the fault source{_quoted(refusal)}.",
        hint=f"Remove the cause first. {LIST_FAULTS}.",
    )


def _session(refusal: Refusal, request: Request[Message], target: DeviceAddress) -> LumionError:
    current = refusal.value_u32
    takeover = f"the controller was taken over by session 0x{current:04X} of another host"
    restarted = "the board restarted, so its outputs are off and its limits are lost"
    reason = takeover if current else restarted
    return target.error(LinkLost, f"{_name(request)} refused: {reason}.", hint="Open the device again.")


def _unsupported(refusal: Refusal, request: Request[Message], target: DeviceAddress) -> LumionError:
    is_known = refusal.value in Feature.__members__.values()
    feature = Feature(refusal.value).name if is_known else f"bit {refusal.value}"
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
        label, wrote, read = (
            f"item count{missing}",
            _number(refusal.limit, "items"),
            _number(refusal.value, "items"),
        )
    return target.error(
        VerifyError,
        f"{_name(request)} refused twice, and nothing was changed; wrong {label}",
        wrote=wrote,
        read=read,
        hint="The link or the controller's memory corrupts data. Check the session counters and board statistics.",
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
    """Return the exception for an error reply of the controller.

    The message names the command, the channel or field, the requested value and the limit. The class depends on the
    status:

    - LIMIT: ``LimitError`` (unit ``code`` for a channel, ``mW`` for all channels together).
    - SAFE, INTERLOCK: ``SafetyError``. SESSION: ``LinkLost``. BUSY: ``BusyError``. TIMEOUT: ``DeviceTimeoutError``.
    - BAD_VALUE, BAD_CHANNEL, UNKNOWN_FAULT: ``BadValueError``. NOT_SUPPORTED: ``NotSupportedError``.
    - INCOMPLETE, CRC_MISMATCH: ``VerifyError``. All others: ``DeviceError`` with the status as ``code``.
    """
    return _KINDS.get(refusal.status, _device_error)(refusal, request, target)


def cannot_be_sent(error: ProtocolError, request: Request[Message], target: DeviceAddress) -> ConfigError:
    """Return the error for a request that cannot be encoded; the message names the command."""
    return target.error(ConfigError, f"{_name(request)} cannot be sent: {error}.")


@contextmanager
def encoding(request: Request[Message], target: DeviceAddress) -> Iterator[None]:
    """Convert encoding errors to a ``ConfigError`` that names the command."""
    try:
        yield
    except ProtocolError as error:
        raise cannot_be_sent(error, request, target) from error


def check_echo(request: Request[Message], reply: Message, target: DeviceAddress) -> None:
    """Raise ``FrameError`` if the fields that a reply repeats differ from those of the request."""
    for field in _ECHOED.get(request.command, ()):
        requested, replied = getattr(request, field), getattr(reply, field)
        if requested != replied:
            raise target.error(
                FrameError,
                f"{_name(request)}: the reply has {field} {replied}, but the request had {requested}.",
                hint="Compare the versions of firmware and lumion-hw.",
            )


def check_hello(hello: HelloReply, request: HelloRequest, target: DeviceAddress) -> None:
    """Raise ``FrameError`` if a HELLO reply describes an impossible or unsuitable controller."""
    # All later messages are sized by HELLO, so 0 channels or an MTU above the
    # host's limit is refused here; otherwise confusing errors follow later.
    invalid = hello.out_of_range()
    if invalid is None and hello.fw_tx_max > request.host_rx_max:
        invalid = hello.layout.offset_of("fw_tx_max"), hello.fw_tx_max
    if invalid is None and not request.proto_min <= hello.proto <= request.proto_max:
        invalid = hello.layout.offset_of("proto"), hello.proto
    if invalid is not None:
        names = [field.name for field in hello.layout.fields if field.offset == invalid[0]]
        raise target.error(
            FrameError,
            f"HELLO: the reply has {names[0]} = {invalid[1]}, which is not possible.",
            hint="Compare the versions of firmware and lumion-hw.",
        )
