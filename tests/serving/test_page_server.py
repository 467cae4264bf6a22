"""The page server on loopback: accepted and rejected requests, and slow pages that delay no others."""

import asyncio
import contextlib
import dataclasses
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lumion_hw.errors import ConfigError, InUseError
from lumion_hw.fabric import RecoveryStatus
from lumion_hw.serving.lease import Caller
from lumion_hw.serving.page import guard, stream
from lumion_hw.serving.page.server import PageServer
from lumion_hw.serving.reach import parse_networks
from lumion_hw.serving.state import MarginSample
from tests.serving.page_states import HOSTILE, NOW_S, Reader, StagedOwner, a_fabric, a_state
from tests.waiting import until

PAGE_BYTES = 300_000


@pytest.fixture
def owner(tmp_path) -> StagedOwner:
    return StagedOwner(tmp_path)


@pytest.fixture
def server(owner) -> Iterator[PageServer]:
    with PageServer(owner, writes=True) as opened:
        yield opened


@pytest.fixture
def client(server) -> Iterator[Any]:
    import httpx  # here, for it loads a terminal's colours in every process that collects this file

    with httpx.Client(base_url=server.address, timeout=30.0, trust_env=False) as opened:
        yield opened


def own_page(server: PageServer, **changes: str) -> dict[str, str]:
    """Return the headers that the server's own page sends."""
    origin = server.address.rstrip("/")
    return {"Origin": origin, "X-Lumion-Token": server.token, "Content-Type": "application/json"} | changes


def raw(server: PageServer, request: bytes) -> socket.socket:
    host, _, port = server.address.removeprefix("http://").strip("/").rpartition(":")
    connection = socket.create_connection((host, int(port)), 30.0)
    connection.sendall(request)
    return connection


def answer_of(connection: socket.socket) -> bytes:
    """Return the reply up to the end of the connection."""
    found = b""
    with connection:
        try:
            while chunk := connection.recv(65536):
                found += chunk
        except ConnectionError:
            pass
    return found


# -- reading -----------------------------------------------------------------------------------------------------------


def test_the_whole_page_is_small_has_nothing_inline_and_nothing_from_elsewhere(client, server) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    files = re.findall(r'(?:src|href)="(/[\w.-]+)"', page.text)
    assert {"/page.js", "/page.css", "/icon.svg"} <= set(files)
    modules = {name for name in files if name.endswith(".js")}
    unread = list(modules)
    while unread:
        imported = set(re.findall(r'from "(/[\w.-]+)"', client.get(unread.pop()).text)) - modules
        modules |= imported
        unread += imported
    assert modules == {f"/{path.name}" for path in Path(guard.__file__).parent.glob("static/*.js")}
    found = {name: client.get(name).text for name in {*files, *modules, "/mesh.svg", "/recovery.svg", "/margins"}}
    reader = Reader(server.address)
    first = json.dumps(reader.next_state())
    reader.close()
    assert sum(map(len, found.values())) + len(page.text) + len(first) < PAGE_BYTES
    assert "style=" not in page.text
    assert not re.search(r"<script(?![^>]*src=)", page.text)
    assert not re.search(r"\son\w+=", page.text)
    for name, text in found.items():
        assert not re.search(
            r"(?:https?:)?//(?!www\.w3\.org/)\w", text.replace("// ", "").replace("http://www.w3.org", "")
        ), name
        assert "innerHTML" not in text
        assert "eval(" not in text


def test_the_status_of_the_fabric_is_the_document_of_the_command(owner, client) -> None:
    document = client.get("/status").json()
    assert document == json.loads(json.dumps(a_fabric().document()))
    owner.publish(fabric=None)
    assert client.get("/status").json() == {}


def test_only_its_own_names_are_answered_to(client) -> None:
    for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", ""):
        assert client.get("/metrics", headers={"Host": name}).status_code == 400, name
    for name in ("localhost", "127.0.0.1:1"):
        assert client.get("/metrics", headers={"Host": name}).status_code == 200, name


def test_every_answer_forbids_what_is_not_its_own(client) -> None:
    for path in ("/", "/page.js", "/mesh.svg", "/metrics", "/nothing"):
        answer = client.get(path)
        assert answer.headers["content-security-policy"].startswith("default-src 'self'"), path
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers
    assert client.get("/../server.py").status_code == 404


def test_pages_of_other_sites_may_link_to_the_page_and_ask_nothing(client) -> None:
    foreign = {"Sec-Fetch-Site": "cross-site"}
    assert client.get("/what-if?circuits=a:b", headers=foreign | {"Sec-Fetch-Mode": "cors"}).status_code == 403
    assert client.get("/events", headers=foreign | {"Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert client.get("/", headers=foreign | {"Sec-Fetch-Mode": "navigate"}).status_code == 200


def test_names_from_files_are_text_in_every_picture(owner, client) -> None:
    state = a_state()
    path = state.mesh.paths[0].__class__(HOSTILE, 1, 8, (0, 2), (3.0, 2.5, None))
    trace = owner.bench.model.topology().trace(1, dict.fromkeys(range(15), "bar"))
    mesh = state.mesh.__class__(
        dict.fromkeys(range(15), "bar"),
        state.mesh.heat_mw,
        frozenset(),
        frozenset(),
        (path.__class__(HOSTILE, 1, trace.port, trace.pucs, (None,) * (len(trace.pucs) + 1)),),
    )
    recovery = RecoveryStatus(NOW_S, HOSTILE, HOSTILE, HOSTILE, state.recovery.spans)
    owner.publish(mesh=mesh, fabric=a_fabric(recovery=recovery))
    for picture in ("/mesh.svg", "/recovery.svg"):
        text = client.get(picture).text
        assert "&lt;img" in text
        assert "<img" not in text


def test_a_path_that_does_not_fit_the_states_is_left_out_and_that_is_said(client) -> None:
    assert "paths are being changed" in client.get("/mesh.svg").text


def test_margins_over_time_are_there_for_a_page_that_comes_late(owner, client) -> None:
    owner.history = tuple(MarginSample(NOW_S + each, {"a:b": 9.0 - each}) for each in range(3))
    assert client.get("/margins").json()["margin_db"] == {"a:b": [9.0, 8.0, 7.0]}
    late = client.get("/margins", params={"from": NOW_S + 1.5})
    assert late.json() == {"time_s": [NOW_S + 2], "margin_db": {"a:b": [7.0]}}
    refused = client.get("/margins?from=yesterday")
    assert refused.status_code == 422
    assert "from must be a number, not 'yesterday'" in refused.json()["message"]


def test_curves_of_readings_are_there_with_gaps_and_only_for_known_names(owner, client) -> None:
    dark = dataclasses.replace(owner.state.points["sfp-a.rx_power_dbm"], value=None)
    for step in range(3):
        changed = {"sfp-a.rx_power_dbm": dark} if step == 1 else {}
        owner.readings_history.add(NOW_S + 2.0 * step, {**owner.state.points, **changed})
    curves = client.get("/history", params={"name": ["sfp-a.rx_power_dbm", "no-such-name"]}).json()
    assert curves == {
        "time_s": [NOW_S, NOW_S + 2.0, NOW_S + 4.0],
        "low": {"sfp-a.rx_power_dbm": [-6.5, None, -6.5]},
        "high": {"sfp-a.rx_power_dbm": [-6.5, None, -6.5]},
    }
    assert client.get("/history").json()["low"] == {}


def test_the_data_of_an_event_are_given_on_request(client) -> None:
    assert client.get("/event?number=1").json()["data"] == {"what": HOSTILE, "by": "Ada"}
    refused = client.get("/event?number=99")
    assert refused.status_code == 422
    assert "events.jsonl" in refused.json()["message"]


# -- states ------------------------------------------------------------------------------------------------------------


def test_twenty_pages_are_told_of_the_same_state_at_once(owner, server) -> None:
    pages = [Reader(server.address) for _ in range(20)]
    assert {page.next_state()["number"] for page in pages} == {1}
    owner.publish(bench="renamed")
    for page in pages:
        document = page.next_state()
        assert (document["previous"], document["number"], document["missed"]) == (1, 2, 0)
        assert document["parts"] == {"about": document["parts"]["about"]}
        page.close()
    until(lambda: server.stream.n_pages == 0, 30.0)


def test_signs_of_life_come_while_nothing_changes(server) -> None:
    assert stream.HEARTBEAT_PERIOD_S <= 0.25
    page = Reader(server.address)
    page.next_state()
    events = page.events()
    assert [next(events)[0] for _ in range(4)] == ["beat"] * 4
    page.close()


def test_a_page_that_reads_nothing_slows_nobody_and_gets_the_newest_then(owner, server) -> None:
    slow, quick = Reader(server.address), Reader(server.address)
    slow.next_state()
    quick.next_state()
    padding = "x" * 20_000
    for each in range(400):  # 8 MB: more than all buffers of the system together hold for one connection
        owner.publish(bench=f"{each} {padding}")
    newest = owner.state.number
    while quick.next_state()["number"] < newest:
        pass
    documents = [slow.next_state()]
    while documents[-1]["number"] < newest:
        documents.append(slow.next_state())
    assert documents[-1]["missed"] > 0
    assert documents[-1]["missed"] == newest - 1 - len(documents)
    assert server.stream.missed >= documents[-1]["missed"]
    slow.close()
    quick.close()


def test_a_page_that_takes_nothing_for_long_is_given_up(owner, server, monkeypatch) -> None:
    monkeypatch.setattr(stream, "SEND_TIMEOUT_S", 0.2)
    page = Reader(server.address)
    page.next_state()
    padding = "x" * 50_000

    def gone() -> bool:
        owner.publish(bench=padding + str(owner.state.number))
        return server.stream.n_pages == 0

    until(gone, 60.0)
    page.close()


def test_a_state_that_cannot_be_sent_is_logged_with_its_error(owner, server, caplog) -> None:
    page = Reader(server.address)
    page.next_state()
    owner.publish(health=object())
    until(lambda: "AttributeError" in caplog.text, 60.0)
    assert "a page is not updated any longer" in caplog.text
    page.close()


def test_one_page_too_many_is_told_so(server, monkeypatch) -> None:
    monkeypatch.setattr(stream, "MAX_PAGES", 2)
    pages = [Reader(server.address) for _ in range(2)]
    for page in pages:
        page.next_state()
    refused = Reader(server.address)
    assert refused.status == 503
    for page in (*pages, refused):
        page.close()


def test_the_end_of_the_server_is_told_and_leaves_no_thread(owner) -> None:
    before = set(threading.enumerate())
    with PageServer(owner) as server:
        page = Reader(server.address)
        page.next_state()
    assert [kind for kind, _ in page.events()][-1] == "end"
    page.close()
    assert {each for each in threading.enumerate() if each.name.startswith("lumion")} <= before
    assert owner._subscriptions == []


# -- requests that do not end ------------------------------------------------------------------------------------------


def test_a_body_without_an_end_is_refused_and_the_next_request_answered(server, client) -> None:
    port = server.address.rstrip("/").rpartition(":")[2]
    headers = "".join(f"{name}: {value}\r\n" for name, value in own_page(server).items())
    head = f"POST /do/take HTTP/1.1\r\nHost: localhost:{port}\r\n{headers}".replace("127.0.0.1", "localhost")
    endless = raw(server, (head + "Transfer-Encoding: chunked\r\n\r\n").encode())
    try:
        for _ in range(200):
            endless.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
    except OSError:
        pass
    with endless:
        endless.settimeout(30.0)
        with contextlib.suppress(ConnectionError):  # it may be sent more than it reads before it closes
            assert b"413" in endless.recv(65536)[:20]
    assert client.get("/metrics").status_code == 200


def test_a_body_that_stops_half_way_is_waited_for_so_long_only(server, monkeypatch) -> None:
    monkeypatch.setattr(guard, "REQUEST_TIMEOUT_S", 0.2)
    port = server.address.rstrip("/").rpartition(":")[2]
    headers = "".join(f"{name}: {value}\r\n" for name, value in own_page(server).items()).replace(
        "127.0.0.1", "localhost"
    )
    request = f"POST /do/take HTTP/1.1\r\nHost: localhost:{port}\r\n{headers}Content-Length: 99\r\n\r\n{{"
    assert answer_of(raw(server, request.encode())).startswith(b"HTTP/1.1 408")


def test_a_head_without_an_end_is_refused(server) -> None:
    connection = raw(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n")
    try:
        for each in range(2000):
            connection.sendall(f"X-{each}: {'y' * 100}\r\n".encode())
    except OSError:
        pass
    assert not answer_of(connection).startswith(b"HTTP/1.1 200")


def test_connections_that_ask_for_nothing_are_closed_after_a_while(server, monkeypatch) -> None:
    monkeypatch.setattr(guard, "REQUEST_TIMEOUT_S", 0.2)
    assert answer_of(raw(server, b"")) == b""
    assert answer_of(raw(server, b"GET / HT")) == b""


def test_many_connections_that_ask_for_nothing_do_not_keep_a_page_out(server, client, monkeypatch) -> None:
    monkeypatch.setattr(guard, "MAX_CONNECTIONS", 8)
    page = Reader(server.address)
    page.next_state()
    idle = [raw(server, b"") for _ in range(40)]
    assert client.get("/metrics").status_code == 200
    assert next(page.events())[0] == "beat", "the page that was open was thrown out"
    for each in idle:
        each.close()
    page.close()


class _Transport(asyncio.Transport):
    """A connection that sends nothing."""

    is_aborted = False

    def get_extra_info(self, name, default=None):
        return default

    def abort(self) -> None:
        self.is_aborted = True


def test_of_many_connections_that_come_in_one_round_of_the_loop_only_as_many_are_kept_as_there_may_be(
    monkeypatch,
) -> None:
    """The event loop accepts a whole backlog at once and removes an aborted connection only in its next round."""
    import uvicorn
    from uvicorn.server import ServerState

    monkeypatch.setattr(guard, "MAX_CONNECTIONS", 8)
    config = uvicorn.Config(lambda: None, http=guard.PatientProtocol, ws="none", lifespan="off", log_config=None)
    config.load()
    loop, state = asyncio.new_event_loop(), ServerState()
    transports = [_Transport() for _ in range(40)]
    with contextlib.closing(loop):
        for transport in transports:
            guard.PatientProtocol(config, state, {}, loop).connection_made(transport)
    assert sum(not each.is_aborted for each in transports) == 8
    assert not any(each.is_aborted for each in transports[-8:]), "the oldest make room"


@pytest.mark.parametrize(("files", "most"), [(1024, 256), (200, 100), (4, 8)])
def test_a_process_that_may_have_few_files_takes_fewer_connections(monkeypatch, files: int, most: int) -> None:
    monkeypatch.setattr(guard.resource, "getrlimit", lambda _: (files, files))
    assert guard.max_connections() == most


def test_an_error_of_the_loop_that_comes_again_and_again_is_one_line_a_minute(caplog) -> None:
    class Loop:
        now_s = 0.0

        def time(self) -> float:
            return self.now_s

    loop, errors = Loop(), guard.LoopErrorLog()
    for _ in range(100):
        errors(loop, {"message": "out of system resource", "exception": OSError(24, "Too many open files")})
    assert len(caplog.records) == 1
    loop.now_s = 61.0
    errors(loop, {"message": "out of system resource"})
    assert caplog.records[1].getMessage().endswith("(99 more like it in the last minutes)")


def test_a_request_to_read_has_no_body(client) -> None:
    assert client.request("GET", "/metrics", content=b"x").status_code == 400
    assert client.request("DELETE", "/metrics").status_code == 405
    assert client.post("/metrics").status_code == 405


# -- writing -----------------------------------------------------------------------------------------------------------


def test_without_being_asked_for_nothing_can_be_written(owner) -> None:
    with PageServer(owner) as server:
        assert server.token == ""
        import httpx

        with httpx.Client(base_url=server.address, trust_env=False) as client:
            assert client.post("/do/stop", headers=own_page(server), json={}).status_code == 404
    assert owner.done == []


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"X-Lumion-Token": "guessed"}, 403),
        ({"X-Lumion-Token": ""}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 400),
    ],
)
def test_only_the_own_page_with_the_token_may_write(owner, server, client, changes, status) -> None:
    assert client.post("/do/stop", headers=own_page(server, **changes), content=b"{}").status_code == status
    assert owner.done == []


def test_a_write_needs_the_lease_and_says_who_has_it(owner, server, client) -> None:
    headers, asked = own_page(server), {"name": "mesh0.heater_ma.0", "value": 1.0}
    refused = client.post("/do/set", headers=headers, json=asked)
    assert refused.status_code == 409
    assert "no client holds the lease" in refused.json()["message"]
    owner.lease.take("bob", Caller("bob", account="bob@lab"), lasts_s=60.0, bound=False)
    assert "bob has held lease 1" in client.post("/do/set", headers=headers, json=asked).json()["message"]
    assert "take over by name: bob" in client.post("/do/take", headers=headers, json={"owner": "ada"}).json()["message"]
    number = client.post("/do/take", headers=headers, json={"owner": "ada", "instead_of": "bob"}).json()["done"]
    assert number == 2
    stale = client.post("/do/set", headers=headers, json=asked | {"lease": 1})
    assert stale.status_code == 409
    assert owner.done == []
    assert client.post("/do/set", headers=headers, json=asked | {"lease": number}).status_code == 200
    assert owner.done == [("set", "mesh0.heater_ma.0", 1.0)]
    assert client.post("/do/renew", headers=headers, json={"lease": number}).json() == {"done": 2}
    job = client.post(
        "/do/job", headers=headers, json={"what": "connect", "arguments": {"circuits": "a:b"}, "lease": 2}
    )
    assert job.json() == {"done": 7}
    assert client.post("/do/release", headers=headers, json={"lease": 2}).status_code == 200
    assert owner.lease.served().owner == ""


def test_stopping_needs_no_lease(owner, server, client) -> None:
    owner.lease.take("bob", Caller("bob", account="bob@lab"), lasts_s=60.0, bound=False)
    assert client.post("/do/stop", headers=own_page(server), json={}).status_code == 200
    assert owner.done == [("stop", "page@127.0.0.1")]


@pytest.mark.parametrize(
    ("action", "body", "words"),
    [
        ("set", b'{"name": "x", "value": NaN}', "not JSON"),
        ("set", b"[" * 20_000, "not JSON"),
        ("set", b"[]", "not a JSON object"),
        ("set", b'{"value": 1.0}', "'name' is missing"),
        ("take", b'{"owner": 7}', "'owner' is missing"),
        ("take", b'{"owner": " "}', "not a valid name"),
        ("take", b'{"owner": "ada", "lease": "1"}', "whole number"),
        ("job", b'{"what": "connect", "arguments": [1]}', "named values"),
        ("explode", b"{}", "there is no action 'explode'"),
    ],
)
def test_what_is_asked_wrongly_is_refused_in_words(owner, server, client, action, body, words) -> None:
    answer = client.post(f"/do/{action}", headers=own_page(server), content=body)
    assert answer.status_code == 422
    assert words in answer.json()["message"]
    assert owner.done == []
    assert owner.lease.served().owner == ""


@pytest.mark.parametrize(
    "limits",
    ["max_loss_db=inf", "max_loss_db=nan", "min_margin_db=inf", "min_margin_db=-1", "max_hops=0"],
)
def test_a_limit_that_no_plan_can_keep_is_refused(client, limits: str) -> None:
    answer = client.get(f"/what-if?circuits=sfp-a:sfp-b&{limits}")
    assert answer.status_code == 422
    assert limits.partition("=")[0] in answer.json()["message"]


# -- opening -----------------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_refused_before_anything_begins(owner, server) -> None:
    port = int(server.address.rstrip("/").rpartition(":")[2])
    with pytest.raises(InUseError, match=f"port {port}"):
        PageServer(owner, port=port)


def test_other_hosts_have_to_be_allowed_and_may_not_write(owner) -> None:
    with pytest.raises(ConfigError, match="other hosts can reach"):
        PageServer(owner, host="0.0.0.0")
    with pytest.raises(ConfigError, match="plain text"):
        PageServer(owner, allowed=["192.0.2.0/24"], writes=True)
    with pytest.raises(ConfigError, match="numeric addresses"):
        PageServer(owner, host="bench.example")
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1"):
        PageServer(owner, host="192.0.2.1", allowed=["192.0.2.0/24"])


def test_an_address_that_is_not_allowed_is_refused() -> None:
    async def status_for(host: str, allowed: tuple[str, ...]) -> int:
        sent = []

        async def app(scope, receive, send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def send(message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": (host, 1)}
        await guard.PageGuard(app, parse_networks("127.0.0.1", allowed, "the page"))(scope, None, send)
        return int(sent[0]["status"])

    assert asyncio.run(status_for("192.0.2.7", ())) == 403
    assert asyncio.run(status_for("192.0.2.7", ("192.0.2.0/24",))) == 200
    assert asyncio.run(status_for("198.51.100.1", ("192.0.2.0/24",))) == 403
    assert asyncio.run(status_for("127.0.0.1", ())) == 200


def test_what_is_not_installed_is_named_with_the_command_that_helps(owner, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "uvicorn" else object())
    with pytest.raises(ConfigError, match=r"not installed: uvicorn.*pip install 'lumion-hw\[page\]'"):
        PageServer(owner)


def test_every_file_of_the_page_is_served(client) -> None:
    from lumion_hw.serving.page.static_files import STATIC

    here = Path(guard.__file__).parent / "static"
    assert set(STATIC.values()) == {path.name for path in here.iterdir()}
    for path in STATIC:
        assert client.get(path).status_code == 200
