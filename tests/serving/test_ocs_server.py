"""The optical circuit switch over HTTP: refused requests, and replies as its OpenAPI description says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from lumion_hw.serving.ocs.openapi import openapi_document
from lumion_hw.serving.page.server import PageServer
from tests.serving.serving_bench import serving
from tests.serving.test_ocs import A_TO_B, B_TO_A, entries
from tests.waiting import PATIENCE_S, until

DOCUMENT = openapi_document()


class Switch:
    """A client of the switch, which has the token and checks every JSON reply against the OpenAPI description."""

    def __init__(self, server: PageServer, http: Any) -> None:
        self.http, self.headers = http, {"X-Lumion-Token": server.token, "Content-Type": "application/json"}

    def get(self, path: str, status: int = 200, **query: Any) -> Any:
        return self._checked(self.http.get(path, params=query), "get", path, status)

    def post(self, path: str, body: object, status: int = 200, **headers: str) -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = self.http.post(path, content=content, headers=self.headers | headers)
        return self._checked(reply, "post", path, status)

    @staticmethod
    def _checked(reply: Any, method: str, path: str, status: int) -> Any:
        assert reply.status_code == status, reply.text
        described = DOCUMENT["paths"][path][method]["responses"].get(str(status))
        if described is None or "text/plain" in described["content"]:
            return reply.text
        schema = described["content"]["application/json"]["schema"]
        jsonschema.validate(reply.json(), {**schema, "components": DOCUMENT["components"]})
        return reply.json()


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Switch]:
    import httpx

    with (
        serving(tmp_path_factory.mktemp("switch"), aligned=True) as served,
        PageServer(served.owner, writes=True) as server,
        httpx.Client(base_url=server.address, timeout=PATIENCE_S, trust_env=False) as http,
    ):
        yield Switch(server, http)


@pytest.fixture
def lease(switch: Switch) -> Iterator[int]:
    number = switch.post("/do/take", {"owner": "ada"})["done"]
    yield number
    switch.post("/do/release", {"lease": number})


def test_the_description_is_served_and_every_schema_in_it_is_one(switch: Switch) -> None:
    assert switch.http.get("/ocs/openapi.json").json() == json.loads(json.dumps(DOCUMENT))
    for name, schema in DOCUMENT["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert f'"#/components/schemas/{name}"' in json.dumps(DOCUMENT), f"{name} is used nowhere"
    for path, operations in DOCUMENT["paths"].items():
        for method in ("get", "post"):
            status = switch.http.request(method, path, headers=switch.headers).status_code
            assert (status not in (404, 405)) is (method in operations), f"{method} {path}: {status}"


def test_ports_and_cross_connects_are_read_without_a_token(switch: Switch) -> None:
    config = switch.get("/ocs/config")
    assert list(config["OCS_PORT"]) == ["1A", "3B", "6A", "8B", "11A", "13B"]
    assert config["OCS_PORT"]["1A"] == {"label": "sfp-a", "state": "normal"}
    assert switch.get("/ocs/state")["OCS_PORT"]["1A"]["status"] == "blocked"
    losses = switch.get("/ocs/factory-insertion-loss")
    assert len(losses["OCS_FACTORY_INSERTION_LOSS"]) + len(losses["unavailable"]) == 9
    one = switch.get("/ocs/factory-insertion-loss", cross_connect_id=A_TO_B)
    assert [key.partition("|")[0] for key in one["OCS_FACTORY_INSERTION_LOSS"]] == [A_TO_B]
    assert "no port '99B'" in switch.get("/ocs/factory-insertion-loss", 422, cross_connect_id="1A-99B")["message"]


MANY = {"OCS_CROSS_CONNECT": entries(*(f"{n}A-{n}B" for n in range(10_000)))}


@pytest.mark.parametrize(
    ("body", "status", "words", "headers"),
    [
        ({}, 403, "the token is wrong", {"X-Lumion-Token": ""}),
        ({}, 403, "the token is wrong", {"X-Lumion-Token": "guessed"}),
        ({}, 403, "only this server's own page", {"Origin": "http://evil.example"}),
        ({}, 400, "Invalid host header", {"Host": "evil.example"}),
        ({}, 415, "must be application/json", {"Content-Type": "text/plain"}),
        (MANY, 413, "more than 65536 bytes", {}),
        ({"OCS_CROSS_CONNECT": {f"{n}A-1B": {} for n in range(1000)}}, 422, "1000 cross-connects, but", {}),
        ({"OCS_CROSS_CONNECT": {A_TO_B: {}, "1A-3B": {}}}, 422, "port 1A is in two cross-connects", {}),
        (b'{"OCS_PORT": {"1A": {}, "1A": {}}}', 422, "the request names '1A' twice", {}),
        ({"OCS_CROSS_CONNECT": {"1A-99B": {}}}, 422, "there is no port '99B'", {}),
        ({"OCS_PORT": {"1A": {"label": 7}}}, 422, "OCS_PORT.1A.label: Input should be a valid string", {}),
        (b"[1]", 422, "not a JSON object", {}),
        ({"lease": "1"}, 422, "lease number must be a whole number", {}),
    ],
)
def test_a_wrong_request_is_refused_by_name_and_changes_nothing(
    switch: Switch, lease: int, body: Any, status: int, words: str, headers: dict[str, str]
) -> None:
    before = switch.get("/ocs/config")
    if isinstance(body, dict):
        body = {"lease": lease, **body}
    reply = switch.post("/ocs/config", body, status, **headers)
    assert words in (reply if isinstance(reply, str) else reply["message"])
    assert switch.get("/ocs/config") == before


def test_of_two_operators_the_one_without_the_lease_is_refused(switch: Switch, lease: int) -> None:
    change = {"OCS_CROSS_CONNECT": entries(A_TO_B)}
    assert "ada has held lease" in switch.post("/ocs/config", change, 409)["message"]
    assert "ada has held lease" in switch.post("/ocs/config", {**change, "lease": lease - 1}, 409)["message"]
    assert switch.get("/ocs/config")["OCS_CROSS_CONNECT"] == {}


def test_a_bulk_change_is_made_and_shown(switch: Switch, lease: int) -> None:
    change = {"OCS_CROSS_CONNECT": entries(A_TO_B, B_TO_A), "OCS_PORT": {"1A": {"label": "rack 4"}}, "lease": lease}
    difference = switch.post("/ocs/config", change)
    assert [each["circuit"] for each in difference["connected"]] == ["sfp-a:sfp-b", "sfp-b:sfp-a"]
    config = switch.get("/ocs/config")
    assert config["OCS_CROSS_CONNECT"] == entries(A_TO_B, B_TO_A)
    assert config["OCS_PORT"]["1A"]["label"] == "rack 4"
    state = switch.get("/ocs/state")
    assert state["OCS_PORT"]["1A"]["target_simplex_port_id"] == "8B", "the next request did not find the change"
    until(lambda: switch.get("/ocs/state")["OCS_CROSS_CONNECT"][A_TO_B]["a_side_status"] == "tuned", 60.0)
    again = switch.post("/ocs/config", change)
    assert (again["connected"], again["removed"]) == ([], []), "the same change was made twice"
    assert switch.post("/ocs/config", {"mode": "overwrite", "lease": lease})["removed"]


def test_a_server_that_only_reads_says_how_to_write(tmp_path: Path) -> None:
    import httpx

    with (
        serving(tmp_path, record=None) as served,
        PageServer(served.owner) as server,
        httpx.Client(base_url=server.address, trust_env=False) as http,
    ):
        reply = Switch(server, http).post("/ocs/config", {}, 403)
        assert "start it with --page-writes" in reply
        message = Switch(server, http).get("/ocs/factory-insertion-loss", 422)["message"]
        assert "without a calibration record" in message
