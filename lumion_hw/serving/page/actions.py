"""Actions of the web page that change the bench; they need the token and the lease."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.serving.lease import Caller
from lumion_hw.serving.owner import MAX_PUBLISH_S, BenchOwner
from lumion_hw.serving.page.updates import to_json

TOKEN_HEADER = "X-Lumion-Token"
LEASE_S = 120.0
"""Time that the lease of a page lasts without a request."""


class PageActions:
    """Executes the actions that a page requests."""

    def __init__(self, owner: BenchOwner) -> None:
        self._owner = owner
        self.token = secrets.token_urlsafe(18)
        self._actions: Mapping[str, Callable[[Mapping[str, Any], Caller], Any]] = {
            "take": self._take,
            "renew": lambda arguments, caller: owner.lease.check(caller).number,
            "release": lambda arguments, caller: owner.lease.release(caller),
            "set": lambda arguments, caller: owner.write(_text(arguments, "name"), arguments.get("value"), caller),
            "job": self._job,
            "stop": lambda arguments, caller: owner.stop_outputs(caller),
            "clear": lambda arguments, caller: owner.clear_faults(_text(arguments, "name"), caller),
        }

    def is_valid_token(self, token: str) -> bool:
        """Return whether a token is the token of the server."""
        return secrets.compare_digest(token.encode(), self.token.encode())

    def perform(self, action: str, body: bytes, client: str) -> tuple[int, str]:
        """Execute an action and return the HTTP status and the reply as JSON.

        Args:
            action: ``take``, ``renew``, ``release``, ``set``, ``job``, ``stop`` or ``clear``.
            body: Arguments as a JSON object; ``lease`` is the lease number of the page.
            client: Address of the browser.
        """
        try:
            function = self._actions.get(action)
            if function is None:
                raise ConfigError(f"there is no action {action!r}", hint=f"The actions are {', '.join(self._actions)}.")
            return 200, to_json({"done": _call(function, body, client)})
        except LumionError as error:
            return error_response(error)

    def cross_connect(self, body: bytes, client: str) -> tuple[int, str]:
        """Change the bench as an optical circuit switch; return the HTTP status and what was changed, as JSON.

        Args:
            body: The change as a JSON object (:class:`~lumion_hw.serving.ocs.change.OcsChange`), and ``lease``.
            client: Address of the client.
        """

        def change(arguments: Mapping[str, Any], caller: Caller) -> Any:
            document = {name: value for name, value in arguments.items() if name != "lease"}
            job = self._owner.wait(self._owner.start_job("cross_connect", {"change": document}, caller))
            self._await_published()
            return job.result

        try:
            return 200, to_json(_call(change, body, client))
        except LumionError as error:
            return error_response(error)

    def _await_published(self) -> None:
        """Wait for a state that was read after this call, because the client's next request must find its change."""
        number = self._owner.state.number + 2  # the next one may have been read before
        with self._owner.subscribe() as states:
            while (state := states.wait(4.0 * MAX_PUBLISH_S)) is not None and state.number < number:
                pass

    def _take(self, arguments: Mapping[str, Any], caller: Caller) -> int:
        instead_of = arguments.get("instead_of")
        lease = self._owner.lease.take(
            _text(arguments, "owner"),
            caller,
            lasts_s=LEASE_S,
            instead_of=None if instead_of is None else str(instead_of),
            bound=False,
        )
        return lease.number

    def _job(self, arguments: Mapping[str, Any], caller: Caller) -> int:
        job_arguments = arguments.get("arguments", {})
        if not isinstance(job_arguments, dict):
            raise ConfigError("the arguments of a job must be named values")
        return self._owner.start_job(_text(arguments, "what"), job_arguments, caller).number


def error_response(error: LumionError) -> tuple[int, str]:
    """Return HTTP status and reply for an error: 409 if another client or program has the bench, otherwise 422."""
    document = {"error": type(error).__name__, "message": str(error)}
    return 409 if error.exit_code == 6 else 422, to_json(document)


def _call(function: Callable[[Mapping[str, Any], Caller], Any], body: bytes, client: str) -> Any:
    arguments = _object(body)
    number = arguments.get("lease")
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        raise ConfigError("the lease number must be a whole number")
    # No account: only the lease number identifies the holder, not any page opened on the same host.
    return function(arguments, Caller(f"page@{client}", number=number))


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body, parse_constant=_reject_constant, object_pairs_hook=_reject_duplicates)
    except ConfigError:  # it is a ValueError, too
        raise
    except (ValueError, RecursionError) as error:
        raise ConfigError("the request is not JSON", hint="Send an object with the arguments of the action.") from error
    if not isinstance(document, dict):
        raise ConfigError("the request is not a JSON object", hint='Send {"name": value}.')
    return document


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"the request names {twice[:40]!r} twice", hint="Nothing was changed.")
    return document


def _reject_constant(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise ConfigError(f"the argument {name!r} is missing or not text")
    return value
