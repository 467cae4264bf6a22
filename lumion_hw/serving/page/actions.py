"""What may be done from the page where writing was asked for: with the token, from the own page, by the lease."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.serving.lease import Caller
from lumion_hw.serving.owner import BenchOwner
from lumion_hw.serving.page.updates import to_json

TOKEN_HEADER = "X-Lumion-Token"
LEASE_S = 120.0
"""How long a lease of a page lasts without a sign of life; browsers let pages that nobody sees speak once a minute."""


class PageActions:
    """Does what a page asks for.

    Args:
        owner: The owner of the bench.

    Attributes:
        token: What a page has to show; printed on the server's terminal.
    """

    def __init__(self, owner: BenchOwner) -> None:
        self._owner = owner
        self.token = secrets.token_urlsafe(18)
        self._actions: Mapping[str, Callable[[Mapping[str, Any], Caller], Any]] = {
            "take": self._take,
            "renew": lambda asked, caller: owner.lease.check(caller).number,
            "release": lambda asked, caller: owner.lease.release(caller),
            "set": lambda asked, caller: owner.write(_text(asked, "name"), asked.get("value"), caller),
            "job": self._job,
            "stop": lambda asked, caller: owner.stop_outputs(caller),
            "clear": lambda asked, caller: [str(fault) for fault in owner.clear_faults(_text(asked, "name"), caller)],
        }

    def is_valid_token(self, token: str) -> bool:
        """Return whether a token is the server's."""
        return secrets.compare_digest(token.encode(), self.token.encode())

    def do(self, action: str, body: bytes, client: str) -> tuple[int, str]:
        """Do something; return a status of HTTP and the answer as JSON.

        Args:
            action: ``take``, ``renew``, ``release``, ``set``, ``job``, ``stop`` or ``clear``.
            body: What is asked, as a JSON object; ``lease`` is the number of the lease that the page holds.
            client: Address of the page's browser.
        """
        try:
            asked = _object(body)
            number = asked.get("lease")
            if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
                raise ConfigError("the number of a lease is a whole one")
            known = self._actions.get(action)
            if known is None:
                raise ConfigError(f"a page cannot {action!r}", hint=f"There are {', '.join(self._actions)}.")
            # Without an account: a lease is held by its number alone, not by whoever opens a page on the same host.
            caller = Caller(f"page@{client}", number=number)
            return 200, to_json({"done": known(asked, caller)})
        except LumionError as error:
            return error_response(error)

    def _take(self, asked: Mapping[str, Any], caller: Caller) -> int:
        instead_of = asked.get("instead_of")
        lease = self._owner.lease.take(
            _text(asked, "owner"),
            caller,
            lasts_s=LEASE_S,
            instead_of=None if instead_of is None else str(instead_of),
            bound=False,
        )
        return lease.number

    def _job(self, asked: Mapping[str, Any], caller: Caller) -> int:
        arguments = asked.get("arguments", {})
        if not isinstance(arguments, dict):
            raise ConfigError("the arguments of a job are named values")
        return self._owner.start_job(_text(asked, "what"), arguments, caller).number


def error_response(error: LumionError) -> tuple[int, str]:
    """Return status and answer for what was refused or has failed: 409 if somebody else has it, 422 otherwise."""
    document = {"error": type(error).__name__, "message": str(error)}
    return 409 if error.exit_code == 6 else 422, to_json(document)


def _object(body: bytes) -> Mapping[str, Any]:
    """Return the JSON object of a request.

    Raises:
        ConfigError: It is none.
    """
    try:
        document = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ConfigError("the request is no JSON", hint="Send an object with what the action needs.") from error
    if not isinstance(document, dict):
        raise ConfigError("the request is no object", hint='Send {"name": value}.')
    return document


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _text(asked: Mapping[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str):
        raise ConfigError(f"{name!r} is missing, or no text")
    return value
