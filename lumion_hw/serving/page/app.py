"""The routes of the page server: page, pictures, states, planning of circuits, metrics and actions."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from lumion_hw.circuits import CircuitRequest
from lumion_hw.circuits.plan.explanation import budget_lines, explain
from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.serving.metrics import BenchMetrics, dashboard_path
from lumion_hw.serving.ocs.openapi import openapi_document
from lumion_hw.serving.owner import BenchOwner
from lumion_hw.serving.page.actions import TOKEN_HEADER, PageActions, error_response
from lumion_hw.serving.page.drawing import MeshPicture, plan_svg, recovery_svg
from lumion_hw.serving.page.guard import PageGuard, read_body
from lumion_hw.serving.page.ocs_view import OcsView
from lumion_hw.serving.page.static_files import STATIC, static_files
from lumion_hw.serving.page.stream import EventResponse, UpdateStream
from lumion_hw.serving.page.updates import margin_curves, to_json
from lumion_hw.serving.reach import Networks

_MAX_CIRCUITS = 64
"""Maximum number of circuits in one planning request."""
_MAX_CURVES = 32
"""Maximum number of curves in one reply."""
_PLAN_WAIT_S = 30.0
"""Longest wait of a planning request for earlier ones."""

Answer = Callable[[Request], Awaitable[Response]]


class PageApp:
    """The routes of a page server. Pages are read-only if ``actions`` is ``None``."""

    def __init__(self, owner: BenchOwner, stream: UpdateStream, actions: PageActions | None) -> None:
        self._owner, self._stream, self._actions = owner, stream, actions
        self._metrics = BenchMetrics(owner, stream)
        section = owner.bench.model.mesh
        self._picture = None if section is None else MeshPicture(owner.bench.model.topology())
        self._planning = threading.Lock()
        self._ocs = OcsView(owner)

    def asgi(self, hosts: Collection[str], allowed: Networks) -> Starlette:
        """Return the ASGI application for the given host names and client networks."""
        routes = [Route(path, static_files(name)) for path, name in STATIC.items()]
        answers: dict[str, Answer] = {
            "/events": self._events,
            "/status": self._status,
            "/mesh.svg": self._mesh,
            "/recovery.svg": self._recovery,
            "/margins": self._margins,
            "/history": self._history,
            "/event": self._event,
            "/what-if": self._plan_preview,
            "/metrics": self._metrics_text,
            "/grafana.json": self._grafana,
            "/ocs/state": self._ocs_state,
            "/ocs/factory-insertion-loss": self._ocs_loss,
            "/ocs/openapi.json": self._openapi,
        }
        routes += [Route(path, answer) for path, answer in answers.items()]
        routes.append(Route("/ocs/config", self._ocs_config, methods=["GET", "POST"]))
        if self._actions is not None:
            routes.append(Route("/do/{action}", self._run_action, methods=["POST"]))
        middleware = [
            Middleware(PageGuard, allowed=allowed),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
            Middleware(GZipMiddleware, compresslevel=6),
        ]
        return Starlette(routes=routes, middleware=middleware)

    async def _events(self, _request: Request) -> Response:
        return EventResponse(self._stream)

    async def _status(self, _request: Request) -> Response:
        fabric = self._owner.state.fabric
        return _json(to_json({} if fabric is None else fabric.document()))

    async def _mesh(self, _request: Request) -> Response:
        mesh, picture = self._owner.state.mesh, self._picture
        if mesh is None or picture is None:
            return PlainTextResponse("this bench has no mesh\n", 404)
        return _svg(await run_in_threadpool(picture.svg, mesh))

    async def _recovery(self, _request: Request) -> Response:
        recovery = self._owner.state.recovery
        if recovery is None:
            return PlainTextResponse("no recovery has happened yet\n", 404)
        return _svg(recovery_svg(recovery))

    async def _margins(self, request: Request) -> Response:
        return await _answer_query(lambda: margin_curves(self._owner.history, *_time_range(request)))

    async def _history(self, request: Request) -> Response:
        names = request.query_params.getlist("name")[:_MAX_CURVES]
        return await _answer_query(lambda: self._owner.readings_history.curves(names, *_time_range(request)))

    async def _event(self, request: Request) -> Response:
        return await _answer_query(lambda: self._event_document(request.query_params.get("number", "")))

    def _event_document(self, number: str) -> dict[str, Any]:
        for event in self._owner.state.events:
            if str(event.number) == number:
                return {"number": event.number, "time_s": event.time_s, "event": event.event, "data": event.data}
        raise ConfigError(
            f"there is no event {number[:20]!r} among the last events",
            hint="Older events are in the file events.jsonl of the state directory.",
        )

    async def _metrics_text(self, _request: Request) -> Response:
        text, kind = await run_in_threadpool(self._metrics.text)
        return Response(text, media_type=kind)

    async def _grafana(self, _request: Request) -> Response:
        return FileResponse(dashboard_path(), media_type="application/json", filename="lumion-grafana.json")

    async def _ocs_state(self, _request: Request) -> Response:
        return await _answer_query(self._ocs.state)

    async def _ocs_loss(self, request: Request) -> Response:
        names = request.query_params.getlist("cross_connect_id")
        return await _answer_query(lambda: self._ocs.losses(names))

    async def _openapi(self, _request: Request) -> Response:
        return _json(to_json(openapi_document()))

    async def _plan_preview(self, request: Request) -> Response:
        return await _answer_query(lambda: self._plan_document(_circuit_requests(request)))

    def _plan_document(self, requests: list[CircuitRequest]) -> dict[str, Any]:
        if not self._planning.acquire(timeout=_PLAN_WAIT_S):
            raise ConfigError("the server is busy with other what-if requests", hint="Try again later.")
        try:
            plan = self._owner.plan_circuits(requests)
            circuits = [
                {
                    "name": circuit.request.name,
                    "hops": circuit.hops,
                    "margin_db": circuit.budget.margin_db,
                    "lines": [[line.name, line.value, line.unit, line.limit] for line in budget_lines(circuit)],
                    "reason": circuit.reason,
                }
                for circuit in plan.circuits
            ]
            picture = plan_svg(self._owner.bench.mesh.topology, plan)
            return {"circuits": circuits, "words": explain(plan), "heat_mw": plan.heat_mw, "svg": picture}
        finally:
            self._planning.release()

    async def _run_action(self, request: Request) -> Response:
        action = request.path_params["action"]
        return await self._change(request, lambda actions, body, client: actions.perform(action, body, client))

    async def _ocs_config(self, request: Request) -> Response:
        if request.method == "POST":
            return await self._change(request, PageActions.cross_connect)
        return await _answer_query(self._ocs.config)

    async def _change(
        self, request: Request, perform: Callable[[PageActions, bytes, str], tuple[int, str]]
    ) -> Response:
        """Check origin, token and type of a request that changes the bench, read its body, and carry it out."""
        actions = self._actions
        if actions is None:
            return PlainTextResponse("this server is read-only: start it with --page-writes\n", 403)
        refusal = _refusal(request, actions)
        if refusal is not None:
            return refusal
        try:
            body = await read_body(request.receive)
        except ValueError as error:
            return PlainTextResponse(f"the request is too long: {error}\n", 413, {"Connection": "close"})
        except TimeoutError:
            return PlainTextResponse("the request did not arrive completely in time\n", 408, {"Connection": "close"})
        client = "?" if request.client is None else request.client.host
        status, text = await run_in_threadpool(perform, actions, body, client)
        return _json(text, status)


def _refusal(request: Request, actions: PageActions) -> Response | None:
    own_origin = f"{request.url.scheme}://{request.headers.get('host', '')}"
    # Browsers always send the origin with POST; other programs do not.
    if request.headers.get("origin", own_origin) != own_origin:
        return PlainTextResponse("only this server's own page may change the bench\n", 403)
    if not actions.is_valid_token(request.headers.get(TOKEN_HEADER, "")):
        return PlainTextResponse("the token is wrong: enter the token from the server's terminal\n", 403)
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        return PlainTextResponse("the request must be application/json\n", 415)
    return None


async def _answer_query(query: Callable[[], Any]) -> Response:
    """Run a query in a thread and return its result as JSON, or the error that it raises."""
    try:
        return _json(to_json(await run_in_threadpool(query)))
    except LumionError as error:
        status, text = error_response(error)
        return _json(text, status)


def _time_range(request: Request) -> tuple[float, float]:
    """Return start and end of the time range of a query, in seconds since 1970; by default everything."""
    query = request.query_params
    return _number("from", query.get("from", "-inf")), _number("to", query.get("to", "inf"))


def _svg(text: str) -> Response:
    return Response(text, media_type="image/svg+xml")


def _json(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="application/json")


def _circuit_requests(request: Request) -> list[CircuitRequest]:
    """Return the circuit requests of a query ``circuits=a:b,b:a``.

    Raises:
        ConfigError: The query has no circuits or too many, or a value is invalid.
    """
    query = request.query_params
    names = query.get("circuits", "").replace(",", " ").split()
    if not 1 <= len(names) <= _MAX_CIRCUITS:
        raise ConfigError(
            f"the request has {len(names)} circuits",
            hint=f"Write circuits=a:b,b:a with 1 to {_MAX_CIRCUITS} circuits.",
        )
    limits: dict[str, Any] = {}
    for name in ("min_margin_db", "max_loss_db", "max_hops"):
        if text := query.get(name, ""):
            limits[name] = _number(name, text)
    if query.get("exclusive", "") in ("1", "true", "on"):
        limits["exclusive"] = True
    requests = []
    for name in names:
        source, colon, target = name.partition(":")
        if not (source and colon and target) or ":" in target:
            raise ConfigError(f"{name[:60]!r} is not a pair of modules", hint="Write sfp-a:sfp-b.")
        requests.append(CircuitRequest(source, target, **limits))
    return requests


def _number(name: str, text: str) -> float | int:
    try:
        return int(text) if name == "max_hops" else float(text)
    except ValueError:
        raise ConfigError(f"{name} must be a number, not {text[:40]!r}") from None
