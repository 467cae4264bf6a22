"""OpenAPI description of the addresses of the optical circuit switch."""

from __future__ import annotations

from typing import Any

from lumion_hw.serving.ocs.change import OcsChange

_TEXT = {"type": "string"}


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of the addresses of the optical circuit switch."""
    change = OcsChange.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = change.pop("$defs", {})
    change["properties"]["lease"] = {"type": "integer", "description": "Number of the lease."}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lumion-hw optical circuit switch",
            "version": "1",
            "description": "A served bench as an optical circuit switch, in the tables of SONiC's OCS design.",
        },
        "paths": _paths(),
        "components": {
            "schemas": {**parts, "OcsChange": change, **_SCHEMAS},
            "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": "X-Lumion-Token"}},
        },
    }


def _paths() -> dict[str, Any]:
    names = {
        "name": "cross_connect_id",
        "in": "query",
        "description": "Cross-connect such as 12A-18B; may be repeated. Without it, all of them.",
        "schema": {"type": "array", "items": _TEXT},
        "explode": True,
    }
    return {
        "/ocs/config": {
            "get": _operation("readConfig", "Labels and states of ports, and cross-connects as configured.", "Config"),
            "post": _change(
                "changeConfig", "Change ports and cross-connects as one commit.", "OcsChange", "Difference"
            ),
        },
        "/ocs/state": {"get": _operation("readState", "Condition of ports and cross-connects.", "State")},
        "/ocs/factory-insertion-loss": {
            "get": {
                **_operation("readLosses", "Insertion losses in an otherwise unused mesh.", "Losses"),
                "parameters": [names],
            }
        },
        "/do/take": {"post": _change("takeLease", "Take the lease for 120 s.", "Take", "Number")},
        "/do/renew": {"post": _change("renewLease", "Keep the lease for another 120 s.", "Lease", "Number")},
        "/do/release": {"post": _change("releaseLease", "Return the lease.", "Lease", "Nothing")},
    }


def _operation(name: str, summary: str, reply: str) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "responses": {"200": _json_reply("The reply.", reply), "422": _json_reply("The request is refused.", "Error")},
    }


def _change(name: str, summary: str, body: str, reply: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{body}"}}}
    operation = _operation(name, summary, reply)
    texts = {
        "403": "The token is missing or wrong, or the server is read-only.",
        "413": "The request is longer than 65536 bytes.",
        "415": "The request is not application/json.",
    }
    operation["responses"] |= {
        "409": _json_reply("Another client holds the lease, or another job is running.", "Error"),
        **{code: {"description": text, "content": {"text/plain": {"schema": _TEXT}}} for code, text in texts.items()},
    }
    return {**operation, "security": [{"token": []}], "requestBody": {"required": True, "content": content}}


def _json_reply(description: str, schema: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": description, "content": content}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _table(**columns: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": _object(**columns)}


_SIDES = {"a_side": _TEXT, "b_side": _TEXT}
_STATUS = {"enum": ["blocked", "tuning", "tuned", "failed"]}
_NAMES = {"type": "array", "items": _TEXT}
_NUMBER = {"type": "number"}
_SCHEMAS: dict[str, Any] = {
    "Config": _object(
        OCS_PORT=_table(label=_TEXT, state={"enum": ["normal", "force_blocked"]}), OCS_CROSS_CONNECT=_table(**_SIDES)
    ),
    "State": _object(
        OCS_PORT=_table(connector_pin=_TEXT, target_simplex_port_id=_TEXT, status=_STATUS),
        OCS_CROSS_CONNECT=_table(**_SIDES, a_side_status=_STATUS, b_side_status=_STATUS),
        OCS_CROSS_CONNECT_PHYSICAL_PATH=_table(physical_path=_NAMES),
    ),
    "Losses": _object(
        OCS_FACTORY_INSERTION_LOSS=_table(loss_dB=_TEXT, accuracy_dB=_TEXT),
        unavailable={"type": "object", "additionalProperties": _TEXT},
    ),
    "Difference": _object(
        kept=_NAMES,
        staying={
            "type": "array",
            "items": _object(circuit=_TEXT, hops={"type": "integer"}, loss_db=_NUMBER, margin_db=_NUMBER),
        },
        removed=_NAMES,
        connected={
            "type": "array",
            "items": _object(
                circuit=_TEXT,
                before_removal={"type": "boolean"},
                hops={"type": "integer"},
                loss_db=_NUMBER,
                margin_db=_NUMBER,
            ),
        },
        refused={
            "type": "array",
            "items": _object(circuit=_TEXT, reason=_TEXT, nearest={"type": ["string", "null"]}),
        },
        measured={"type": "object", "additionalProperties": {"type": "object"}},
        dry_run={"type": "boolean"},
    ),
    "Error": _object(error=_TEXT, message=_TEXT),
    "Take": {
        "type": "object",
        "properties": {
            "owner": {**_TEXT, "minLength": 1, "maxLength": 64},
            "instead_of": {**_TEXT, "description": "Holder to replace."},
        },
        "required": ["owner"],
    },
    "Lease": _object(lease={"type": "integer"}),
    "Number": _object(done={"type": "integer"}),
    "Nothing": _object(done={"type": "null"}),
}
