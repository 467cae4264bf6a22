"""EPICS PV Access server for a bench: values with units, limits, alarms and time stamps, and calls.

By default the server listens on loopback only; other addresses need a list of allowed clients.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np

from lumion_hw.errors import ConfigError, InUseError, UnknownNameError
from lumion_hw.files.json_text import json_text
from lumion_hw.files.reading import parse_json
from lumion_hw.remote.pv_names import CALL, HEARTBEAT, LEASE, PROTOCOL, SERVED, pv_name, require_p4p
from lumion_hw.serving.calls import handle_request
from lumion_hw.serving.lease import Caller
from lumion_hw.serving.owner import MAX_PUBLISH_S, BenchOwner
from lumion_hw.serving.pva_tables import SCALARS, TABLES
from lumion_hw.serving.reach import LOOPBACK, Networks, may_connect, open_listener, parse_networks
from lumion_hw.serving.state import AlarmSeverity, Point, ServedCurve, ServedState

_WORKERS = 32
"""Maximum number of parallel calls."""
_PUT_LEASE_S = 600.0
"""Duration of a lease that was taken by writing a name."""
_REFRESH_S = 5.0
"""Period at which an unchanged value is sent again with a new time."""
_RPC_LEASE_S = 60.0
_MAX_TEXT = 300
"""Longest text of a progress report, in characters."""
_WAITS_FOR = f"{LEASE}:waits_for"
"""Process variable with the readings that a blocking put waits for; empty: everything that sees light."""


class PvaServer:
    """Serves a bench on PV Access until it is closed.

    Args:
        port: TCP port; 0 selects any free port.
        host: Address to listen on.
        allowed: Addresses of other hosts that may connect; required if ``host`` is not loopback.
        timeout_s: Silence in seconds after which a client counts as lost. Give at least 30, because clients may be
            silent for 20 s.

    Attributes:
        address: Address for clients, ``pva://host:port``.

    Raises:
        ConfigError: p4p is not installed, an address is invalid, or ``allowed`` is required and empty.
        InUseError: Another program uses the port.
    """

    def __init__(
        self,
        owner: BenchOwner,
        *,
        port: int = 0,
        host: str = LOOPBACK,
        allowed: Collection[str] = (),
        timeout_s: int = 30,
    ) -> None:
        self._p4p = require_p4p()
        import p4p.server

        self._owner, self._bench = owner, owner.bench.model.name
        self._allowed = check_listening(host, port, allowed)
        self._pvs: dict[str, Any] = {}
        self._last: dict[str, tuple[Any, ...]] = {}
        self._guard = threading.Lock()
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="lumion-pva")
        self._stop = threading.Event()
        state = owner.state
        self._began_s = state.time_s
        self._make_points(state)
        self._make_tables(state)
        self._make_calls()
        provider = p4p.server.DynamicProvider("lumion", self)
        self._provider = provider  # p4p's server keeps no reference
        self._server = p4p.server.Server(providers=[provider], conf=_server_conf(host, port, timeout_s), useenv=False)
        actual_port = int(self._server.conf()["EPICS_PVAS_SERVER_PORT"])
        if port not in (0, actual_port):  # another program took the port meanwhile
            self._server.stop()
            self._workers.shutdown()
            raise InUseError(f"port {port} is in use by another program", address=f"{host}:{port}")
        self.address = f"pva://{host}:{actual_port}"
        owner.ports.add(actual_port)
        self._thread = threading.Thread(target=self._post, name="lumion-pva", daemon=True)
        self._thread.start()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all process variables."""
        return tuple(self._pvs)

    def close(self) -> None:
        """Stop serving and abandon running calls. A second call has no effect."""
        self._stop.set()
        self._thread.join()
        self._owner.calls.drop()
        self._server.stop()
        self._workers.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- channels (called by p4p) -------------------------------------------------------------------------------------

    def testChannel(self, name: str) -> bool:  # noqa: N802 - p4p's name
        """Return whether a process variable of this name exists."""
        return name in self._pvs

    def makeChannel(self, name: str, peer: str) -> Any:  # noqa: N802 - p4p's name
        """Return a process variable for a client; ``None`` if the client may not connect."""
        host = peer.rpartition(":")[0].strip("[]")
        return self._pvs.get(name) if may_connect(host, self._allowed) else None

    # -- values -------------------------------------------------------------------------------------------------------

    def _add(self, name: str, nt: Any, value: Any, handler: Any = None) -> None:
        pv = self._pvs[name] = self._p4p.server.thread.SharedPV(handler=handler, nt=nt)
        first = nt.wrap(value)
        pv.open(
            first if first["timeStamp.secondsPastEpoch"] else _stamped(first, self._began_s, AlarmSeverity.NONE, "")
        )

    def _make_points(self, state: ServedState) -> None:
        for point in state.points.values():
            name = pv_name(self._bench, point.name)
            nt = _type_of(self._p4p, point)
            handler = _PutHandler(self, self._writer(point.name)) if point.writable else None
            self._add(name, nt, self._first(nt, point), handler)

    def _first(self, nt: Any, point: Point) -> Any:
        if point.choices:
            value = nt.wrap({"index": _index(point), "choices": list(point.choices)})
        else:
            value = nt.wrap(_value_or_nan(point))
        if point.kind in ("number", "array"):
            value["display.description"], value["display.units"] = point.name, point.unit
            if point.limits is not None:
                for group in ("display", "control")[: 2 if point.kind == "number" else 1]:
                    value[f"{group}.limitLow"], value[f"{group}.limitHigh"] = point.limits
        return _stamped(value, point.time_s, point.severity, point.alarm)

    def _make_tables(self, state: ServedState) -> None:
        nt = self._p4p.nt
        for name, (columns, rows) in TABLES.items():
            table = nt.NTTable(columns)
            self._add(pv_name(self._bench, name), table, _table(table, rows(state)))
        for name, (code, value) in SCALARS.items():
            handler = _PutHandler(self, self._put_owner) if name == f"{LEASE}:owner" else None
            self._add(pv_name(self._bench, name), nt.NTScalar(code), value(state)[0], handler)
        self._add(pv_name(self._bench, _WAITS_FOR), nt.NTScalar("s"), "", _PutHandler(self, self._put_waits_for))
        self._add(SERVED, nt.NTScalar("s"), json_text({"bench": self._bench, "protocol": PROTOCOL}))
        self._add(pv_name(self._bench, HEARTBEAT), nt.NTScalar("l"), state.number)

    def _post(self) -> None:
        with self._owner.subscribe() as states:
            while not self._stop.is_set() and not states.is_over:
                state = states.wait(2.0 * MAX_PUBLISH_S)
                if state is not None:
                    self._post_state(state)

    def _post_state(self, state: ServedState) -> None:
        for point in state.points.values():
            self._post_point(point)
        for name, (_columns, rows) in TABLES.items():
            table_rows = rows(state)
            if self._has_changed(name, (table_rows,)):
                pv = self._pvs[pv_name(self._bench, name)]
                pv.post(_stamped(_table(pv.nt, table_rows), state.time_s, AlarmSeverity.NONE, ""))
        for name, (_code, value) in SCALARS.items():
            self._post_scalar(name, *value(state), state.time_s)
        self._post_scalar(_WAITS_FOR, self._owner.awaited, AlarmSeverity.NONE, "", state.time_s)
        beat = self._pvs[pv_name(self._bench, HEARTBEAT)]
        beat.post(_stamped(beat.nt.wrap(state.number), state.time_s, AlarmSeverity.NONE, ""))

    def _has_changed(self, name: str, content: tuple[Any, ...]) -> bool:
        if self._last.get(name) == content:
            return False
        self._last[name] = content
        return True

    def _post_point(self, point: Point, *, dated: bool = False) -> None:
        """Send a point (reading or setting) if it has changed or was not sent for a while.

        Args:
            point: The point.
            dated: Whether to send the point even if only its time is new.
        """
        pv = self._pvs.get(pv_name(self._bench, point.name))
        if pv is None:
            return
        value_sent = _value_or_nan(point)
        key = value_sent.tobytes() if isinstance(value_sent, np.ndarray) else value_sent
        time_s = point.time_s or self._began_s  # a point that was never read is unknown since the start
        with self._guard:
            last = self._last.get(point.name)
            if last is not None:
                is_same = last[:3] == (key, point.severity, point.alarm)
                if time_s < last[3] or (is_same and time_s < last[3] + (0.0 if dated else _REFRESH_S)):
                    return
            self._last[point.name] = (key, point.severity, point.alarm, time_s)
            value = pv.nt.wrap({"index": _index(point)}) if point.choices else pv.nt.wrap(value_sent)
            pv.post(_stamped(value, time_s, point.severity, point.alarm))

    # -- puts ---------------------------------------------------------------------------------------------------------

    def answer(self, work: Callable[[], Any], operation: Any) -> None:
        """Run work in a worker thread and send its result or error to the client."""

        def action() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - sent to the client
                operation.done(error=f"{type(error).__name__}: {error}")
            else:
                operation.done(result) if result is not None else operation.done()

        try:
            self._workers.submit(action)
        except RuntimeError:
            operation.done(error="the server is stopping")

    def _writer(self, name: str) -> Callable[[Any, Caller, bool], None]:
        def write(sent: Any, caller: Caller, waits: bool) -> None:
            value = _sent_value(sent, self._owner.point(name))
            names = self._owner.write(name, value, caller, waits_for_light=waits)
            self._post_point(self._owner.point(name))
            for each in names:
                self._post_point(self._owner.point(each), dated=True)

        return write

    def _put_owner(self, sent: Any, caller: Caller, _waits: bool) -> None:
        """Take the lease for the connection that writes a name, or release it if the name is empty."""
        name = str(sent["value"]).strip()
        if name:
            self._owner.lease.take(name, caller, lasts_s=_PUT_LEASE_S)
        else:
            self._owner.lease.release(caller)
        self._post_lease()

    def _put_waits_for(self, sent: Any, caller: Caller, _waits: bool) -> None:
        self._owner.set_awaited(str(sent["value"]), caller)
        self._post_scalar(_WAITS_FOR, self._owner.awaited, AlarmSeverity.NONE, "", time.time())

    def _post_lease(self) -> None:
        self._post_scalar(f"{LEASE}:owner", self._owner.lease.served().owner, AlarmSeverity.NONE, "", time.time())

    def _post_scalar(self, name: str, value: Any, severity: AlarmSeverity, alarm: str, time_s: float) -> None:
        with self._guard:
            *content, last_s = self._last.get(name, (0.0,))
            if time_s >= last_s and content != [value, severity, alarm]:
                self._last[name] = (value, severity, alarm, time_s)
                pv = self._pvs[pv_name(self._bench, name)]
                pv.post(_stamped(pv.nt.wrap(value), time_s, severity, alarm))

    # -- calls --------------------------------------------------------------------------------------------------------

    def _make_calls(self) -> None:
        nt = self._p4p.nt.NTScalar("s")
        calls: dict[str, Callable[[Mapping[str, Any], Caller], Any]] = {CALL: self._call}
        calls |= {
            f"{LEASE}:take": self._take_lease,
            f"{LEASE}:release": self._release_lease,
            "stop": self._stop_outputs,
        }
        calls |= {"faults": self._faults, "clear": self._clear, "status": self._status}
        calls |= {f"fault:{action}": self._emulated_fault(action) for action in ("inject", "clear", "list", "active")}
        jobs = ("connect", "disconnect", "apply", "calibrate", "recover", "fail", "drain", "repaired")
        calls |= {job: self._job(job) for job in jobs}
        for name, function in calls.items():
            self._add(pv_name(self._bench, name), nt, "", _CallHandler(self, function))

    def _call(self, query: Mapping[str, Any], caller: Caller) -> Any:
        request: Any = parse_json(str(query["request"]).encode(), "a call of a served bench")
        own: dict[str, Callable[..., object]] = {
            "describe": self._describe,
            "emulated_fault": self._request_emulated_fault,
            "progress": self._report_progress,
            "plan_difference": lambda _caller, circuits: self._owner.plan_difference(circuits),
            "plan_joined": lambda _caller, *arguments: self._owner.plan_joined(*arguments),
            "joined_circuits": lambda _caller: self._owner.joined_circuits(),
            "job": lambda caller, kind, values: self._owner.wait(self._owner.start_job(kind, values, caller)).result,
        }
        document = handle_request(request, caller, self._owner.calls, self._owner.lease, own)
        return self._p4p.nt.NTScalar("s").wrap(json_text(document, compact=True))

    def _report_progress(
        self, caller: Caller, kind: str, stage: str, done: int, total: int, error: str, curve: object = None
    ) -> None:
        kind, stage, error = (str(text)[:_MAX_TEXT] for text in (kind, stage, error))
        checked = None if curve is None else ServedCurve.from_document(curve)
        self._owner.report_progress(kind, stage, int(done), int(total), error, caller, checked)

    def _describe(self, _caller: Caller) -> dict[str, Any]:
        bench = self._owner.bench
        return {
            "model": bench.model.model_dump_json(exclude_unset=True),
            "emulated": bench.is_emulated,
            "devices": self._owner.calls.describe(),
            "points": {point.name: point.writable for point in self._owner.points().values()},
        }

    def _job(self, kind: str) -> Callable[[Mapping[str, Any], Caller], Any]:
        def action(query: Mapping[str, Any], caller: Caller) -> Any:
            job = self._owner.wait(self._owner.start_job(kind, query, caller))
            return self._structure({"result": json_text(job.result)})

        return action

    def _take_lease(self, query: Mapping[str, Any], caller: Caller) -> Any:
        """Take the lease for the account of the client instead of its connection."""
        lasts_s = _number(query.get("for_s", _RPC_LEASE_S))
        instead_of = query.get("instead_of")
        lease = self._owner.lease.take(
            str(query.get("owner", "")),
            caller,
            lasts_s=lasts_s,
            instead_of=None if instead_of is None else str(instead_of),
            bound=False,
        )
        self._post_lease()
        return self._structure({"owner": lease.owner, "number": lease.number, "left_s": lease.left_s})

    def _release_lease(self, _query: Mapping[str, Any], caller: Caller) -> Any:
        self._owner.lease.release(caller)
        self._post_lease()
        return self._structure({"owner": ""})

    def _stop_outputs(self, _query: Mapping[str, Any], caller: Caller) -> Any:
        self._owner.stop_outputs(caller)
        text = "all heaters are off; the controller latched ESTOP. Light sources are unchanged."
        return self._structure({"result": f"{text} To continue, take the lease and call clear with fault=ESTOP."})

    def _faults(self, _query: Mapping[str, Any], _caller: Caller) -> Any:
        return self._structure({"result": json_text([str(fault) for fault in self._owner.faults()])})

    def _clear(self, query: Mapping[str, Any], caller: Caller) -> Any:
        if "fault" not in query:
            raise ConfigError(
                "the argument fault is missing", hint="Give fault=NAME, such as fault=ESTOP; `faults` lists all faults."
            )
        return self._structure({"result": json_text(self._owner.clear_faults(str(query["fault"]), caller))})

    def _status(self, _query: Mapping[str, Any], _caller: Caller) -> Any:
        fabric = self._owner.state.fabric
        return self._structure({"result": json_text({} if fabric is None else fabric.document())})

    def _request_emulated_fault(
        self, caller: Caller, action: str, target: str, fault: str, arguments: Mapping[str, Any]
    ) -> Any:
        return self._owner.request_emulated_fault(action, target, fault, arguments, caller)

    def _emulated_fault(self, action: str) -> Callable[[Mapping[str, Any], Caller], Any]:
        def call(query: Mapping[str, Any], caller: Caller) -> Any:
            target, fault = str(query.get("target", "bench")), str(query.get("fault", ""))
            arguments = {name: value for name, value in query.items() if name not in ("target", "fault")}
            result = self._owner.request_emulated_fault(action, target, fault, arguments, caller)
            return self._structure({"result": json_text(result)})

        return call

    def _structure(self, fields: Mapping[str, Any]) -> Any:
        codes = {str: "s", int: "l", float: "d"}
        spec = [(name, codes[type(value)]) for name, value in fields.items()]
        from p4p import Type, Value

        return Value(Type(spec, id="lumion:result:1.0"), dict(fields))


class _PutHandler:
    """PV Access handler that writes a value of the bench."""

    def __init__(self, server: PvaServer, write: Callable[[Any, Caller, bool], None]) -> None:
        self._server, self._write = server, write

    def put(self, _pv: Any, operation: Any) -> None:
        """Write the value of a put operation in a worker thread, and reply to the client."""
        sent, caller, waits = operation.value().raw, _caller(operation), _waits_for_completion(operation)
        self._server.answer(lambda: self._write(sent, caller, waits), operation)


class _CallHandler:
    """PV Access handler that calls a function of the bench."""

    def __init__(self, server: PvaServer, function: Callable[[Mapping[str, Any], Caller], Any]) -> None:
        self._server, self._function = server, function

    def rpc(self, _pv: Any, operation: Any) -> None:
        """Call the function with the arguments of a remote call in a worker thread, and reply to the client."""
        sent, caller = operation.value(), _caller(operation)
        self._server.answer(lambda: self._function(_query(sent), caller), operation)


def _query(sent: Any) -> dict[str, Any]:
    fields = sent.todict() if hasattr(sent, "todict") else {}
    query = fields.get("query", fields)
    if not isinstance(query, dict):
        raise ConfigError("the arguments of a call must be named values", hint="Send an NTURI.")
    return dict(query)


def _waits_for_completion(operation: Any) -> bool:
    """Return whether a put waits until all effects are complete (option ``record[block=true]``)."""
    request = operation.pvRequest().todict()
    options = request.get("record", {}).get("_options", {})
    return str(options.get("block", "")).lower() == "true"


def _caller(operation: Any) -> Caller:
    peer, account = str(operation.peer()), str(operation.account())
    return Caller(account, peer, f"{account}@{peer.rpartition(':')[0]}")


def check_listening(host: str, port: int, allowed: Collection[str]) -> Networks:
    """Return the networks that may connect, after a check that the port is free.

    Raises:
        ConfigError: An address is invalid, or other hosts can reach ``host`` and ``allowed`` is empty.
        InUseError: Another program uses the port.
    """
    networks = parse_networks(host, allowed, "PV Access")
    open_listener(host, port, "--pva-port").close()
    return networks


def _server_conf(host: str, port: int, timeout_s: int) -> dict[str, str]:
    """Return the server configuration: no beacons, replies to searches over TCP only."""
    return {
        "EPICS_PVAS_INTF_ADDR_LIST": host,
        "EPICS_PVAS_SERVER_PORT": str(port),
        "EPICS_PVAS_BROADCAST_PORT": "0",
        "EPICS_PVAS_BEACON_ADDR_LIST": LOOPBACK,
        "EPICS_PVAS_AUTO_BEACON_ADDR_LIST": "NO",
        "EPICS_PVA_CONN_TMO": str(timeout_s),
    }


def _type_of(p4p: Any, point: Point) -> Any:
    if point.choices:
        return p4p.nt.NTEnum()
    if point.kind == "flag":
        return p4p.nt.NTScalar("?")
    return p4p.nt.NTScalar("ad" if point.kind == "array" else "d", display=True, control=point.kind == "number")


def _index(point: Point) -> int:
    return point.choices.index(point.value) if point.value in point.choices else 0


def _value_or_nan(point: Point) -> Any:
    if point.value is not None:
        return point.value
    return {"flag": False, "array": np.zeros(0)}.get(point.kind, math.nan)


def _sent_value(sent: Any, point: Point) -> Any:
    value = sent["value"]
    if point.choices:
        index = int(value["index"])
        if not 0 <= index < len(point.choices):
            raise UnknownNameError(
                f"{point.name} has no choice {index}", hint=f"The choices are {', '.join(point.choices)}."
            )
        return point.choices[index]
    return np.array(value) if point.kind == "array" else value


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{value!r} is not a number of seconds") from None


def _table(nt: Any, rows: list[tuple[Any, ...]]) -> Any:
    columns: dict[str, list[Any]] = {label: [row[i] for row in rows] for i, label in enumerate(nt.labels)}
    return nt.Value(nt.type, {"labels": nt.labels, "value": columns})


def _stamped(value: Any, time_s: float, severity: AlarmSeverity, alarm: str) -> Any:
    seconds = math.floor(time_s)
    value["timeStamp.secondsPastEpoch"], value["timeStamp.nanoseconds"] = seconds, int((time_s - seconds) * 1e9)
    value["alarm.severity"], value["alarm.status"] = int(severity), int(severity != AlarmSeverity.NONE)
    value["alarm.message"] = alarm
    return value
