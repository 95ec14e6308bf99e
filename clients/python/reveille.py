"""Client of Reveille's HTTP API. It needs Python 3.9 and nothing else.

Every call is repeated with the same key after 429, 502, 503, 504, any answer with `Retry-After` and a broken
connection, until `total` seconds have passed. So a call that returned has happened once, and a call that raised says
whether it may have happened.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import random
import re
import socket
import ssl
import time
import uuid
from datetime import datetime
from typing import Any, Iterable, Mapping, Sequence, Tuple, TypedDict, Union
from urllib.parse import quote, urlencode, urlsplit

__all__ = ["Attachment", "Client", "ReveilleError", "literal"]

# An address, or a mapping with `address` and a value for each variable of the templates.
Recipient = Union[str, Mapping[str, str]]
# File name, bytes, and media type; with a fourth text the HTML shows it as `cid:TEXT`, and the email does not list it.
Attachment = Union[Tuple[str, bytes, str], Tuple[str, bytes, str, str]]

# Calls that concern no tenant. Any other call gets the tenant of the client: the node refuses it where it is no field.
_WITHOUT_TENANT = re.compile(
    r"/v1/(audience-parts|audit-records|backups|clock|cluster|openapi|pools|relays|tenants|tokens)\b"
)
# Writes whose tenant is that of the schedule in their body.
_WITH_SCHEDULE = re.compile(r"(POST|PUT|PATCH) /v1/(schedules(/[^/]+)?|campaigns|test-emails)(\?|$)")


class Run(TypedDict, total=False):
    run: str
    tenant: str
    schedule: str
    state: str
    audience: int
    counts: dict[str, int]


class Message(TypedDict, total=False):
    tenant: str
    key: str
    run: Run
    sendTime: str
    recipients: list[dict[str, Any]]


class Sent(TypedDict):
    message: Message
    # An earlier call with this key had sent it.
    replayed: bool
    # What keeps it from being sent as things are: each has a `reason`, such as `WARNING_REASON_NO_RELAY`.
    warnings: list[dict[str, Any]]


class Triggered(TypedDict, total=False):
    run: Run
    # An earlier call with this key had opened it.
    replayed: bool
    warnings: list[dict[str, Any]]


class Events(TypedDict, total=False):
    # Each has `type`, `time`, `run`, `count` and more (`Event` in openapi.json).
    events: list[dict[str, Any]]
    # `after` of the next call, also where there are no events.
    cursor: str
    more: bool


class WrongField(TypedDict):
    field: str
    detail: str


class ReveilleError(Exception):
    """A call that failed, after all retries.

    status: of HTTP; 0 if there was no answer.
    reason: such as `REQUEST_ID_REUSED`; empty if a proxy answered, or nothing did.
    fields: of a request that is wrong, each with its path and what is wrong.
    index: with `CURSOR_TOO_OLD`, the oldest cursor of events that are kept.
    may_have_taken_effect: the outcome is unknown. Repeat the call later with the same key.
    retry_after: seconds that the node asked to wait.
    """

    index = ""
    is_retried = False
    may_have_taken_effect = False
    retry_after = 0.0

    def __init__(self, detail: str, status: int = 0, reason: str = "", fields: Sequence[WrongField] = ()) -> None:
        super().__init__(": ".join(filter(None, [f"{status or ''} {reason}".strip(), detail])))
        self.detail = detail
        self.status = status
        self.reason = reason
        self.fields = list(fields)


def literal(text: str) -> str:
    """Returns a template that renders as this text: `{{`, `{%` and `{#` in it have no meaning."""
    return re.sub(r"\{(?=[{%#])", '{{ "{" }}', text)


class Client:
    """Calls one cluster. It holds no connection, so threads and forked processes may share it.

    url: of a node, or of several, with commas between them: any node answers, and if one does not, the next is asked.
    tenant: of all calls, unless the query of `request` names another.
    timeout: seconds for one attempt. It is above the node's own 15 s, so that the node's answer comes first.
    total: seconds for a call with all its retries. The last one has at least a second.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, ca_file: str | None = None, tenant: str | None = None,
        timeout: float = 20.0, total: float = 60.0,
    ) -> None:
        urls = url or os.environ.get("REVEILLE_URL") or "http://127.0.0.1:7600"
        self._nodes, self._node = [urlsplit(one.strip()) for one in urls.split(",")], 0
        for node in self._nodes:
            if node.scheme not in ("http", "https") or not node.hostname:
                raise ValueError(f"the URL {node.geturl()!r} is not http://HOST:PORT or https://HOST:PORT")
        self._token = os.environ.get("REVEILLE_TOKEN") if token is None else token
        ca_file = ca_file or os.environ.get("REVEILLE_CA_FILE")
        is_tls = any(node.scheme == "https" for node in self._nodes)
        self._tls = ssl.create_default_context(cafile=ca_file) if is_tls else None
        self._tenant, self._timeout, self._total = tenant, timeout, total

    def send(
        self, key: str, *, to: Recipient | Iterable[Recipient], sender: str | None = None, subject: str | None = None,
        text: str | None = None, html: str | None = None, reply_to: str | None = None, cc: Sequence[str] = (),
        headers: Mapping[str, str] | None = None, variables: Mapping[str, str] | None = None, bulk: bool = False,
        attachments: Iterable[Attachment] = (),
        template: str | None = None, at: datetime | None = None, first_wins: bool = False, pool: str | None = None,
        priority: int | None = None, policies: Mapping[str, Any] | None = None, validate_only: bool = False,
    ) -> Sent:
        """Sends one email to each recipient, once for this key: the same call again sends nothing.

        Subject, texts and headers are templates; `literal` makes one of a text that is not. Another content under the
        same key is refused (`REQUEST_ID_REUSED`), unless the first call is to win. The addresses in `cc` are shown, and
        nothing is sent to them.
        """
        content = {
            "sender": sender, "replyTo": reply_to, "cc": list(cc) or None, "subject": subject, "text": text,
            "html": html, "headers": _pairs(headers), "variables": _pairs(variables), "bulk": bulk or None,
            "attachments": [_attachment(*one) for one in attachments] or None,
        }
        body = {
            "key": _given(key), "keyRule": _rule(first_wins), "content": _present(content) or None,
            "template": template, "audience": _audience(to), "sendTime": _instant(at), "pool": pool,
            "priority": priority, "policies": policies, "validateOnly": validate_only or None,
        }
        return self.request("POST", "/v1/messages", _present(body), key="")

    def message(self, key: str) -> Message:
        """Returns a message with the state of each recipient."""
        return self.request("GET", f"/v1/messages/{quote(_given(key), safe='')}")["message"]

    def cancel(self, key: str) -> dict[str, Any]:
        """Cancels what of a message has not been sent. After the answer nothing of it is handed to a relay."""
        return self.request("POST", f"/v1/messages/{quote(_given(key), safe='')}/cancel", {})

    def put_schedule(self, name: str, schedule: Mapping[str, Any]) -> dict[str, Any]:
        """Creates a schedule, or makes the existing one equal to this. Its form is `ScheduleBody` in openapi.json."""
        body = {**schedule, "name": name}
        return self.request("PUT", f"/v1/schedules/{quote(name, safe='')}", body)["schedule"]

    def trigger(
        self, name: str, key: str, recipients: Iterable[Recipient] | None = None, first_wins: bool = False
    ) -> Triggered:
        """Opens a run of a schedule now, once for this key, to its own recipients or to these."""
        body = {
            "requestId": _given(key),
            "keyRule": _rule(first_wins),
            "audience": None if recipients is None else _audience(recipients),
        }
        return self.request("POST", f"/v1/schedules/{quote(name, safe='')}/trigger", _present(body), key="")

    def events(self, after: str = "", types: Sequence[str] = (), wait: float = 30, single: bool = False) -> Events:
        """Returns the events after a cursor, and waits up to `wait` seconds for the first one.

        after: the `cursor` of an earlier answer, `latest`, or empty for the oldest event that is kept.
        """
        if after == "latest" and wait:
            # A retry would begin later than the attempt that was lost.
            after = self.events(after, types, 0, single)["cursor"]
        query = {"after": after, "types": list(types), "wait": f"{wait:g}s", "single": single}
        return self.request("GET", "/v1/events", query=query, wait=wait)

    def request(
        self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None, key: str | None = None,
        wait: float = 0.0,
    ) -> Any:
        """Makes any call of the API, with retries, and returns its JSON; a list, if the answer is JSON lines.

        key: idempotency key of a write. None: one is drawn and kept over the retries. Empty: the body has it, or the
        call takes none; then it is not repeated if it may have happened.
        wait: seconds that the node may wait before it answers.
        """
        query = {_tenant_field(method, path): self._tenant, **(query or {})}
        query = {name: value for name, value in query.items() if name and value not in (None, "", [])}
        query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
        target = path + (("&" if "?" in path else "?") + urlencode(query, doseq=True) if query else "")
        # http.client refuses these after it has connected, as if the node had not answered.
        if not re.fullmatch("[!-~]+", path) or not re.fullmatch("[ -~]*", key or ""):
            raise ValueError(f"not an ASCII text, or a path with a blank: {path!r}, with key {key!r}")
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if key is None and method != "GET":
            key = str(uuid.uuid4())
        if key:
            headers["Idempotency-Key"] = key
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        is_once = method == "POST" and not key and not {"key", "requestId"} & set(body or ())
        deadline = time.monotonic() + self._total + wait
        unknown, attempt = False, 0
        while True:
            try:
                # A last attempt that is cut would leave open what an earlier one has told.
                limit = min(self._timeout + wait, max(deadline - time.monotonic(), 1.0))
                return self._attempt(method, target, data, headers, limit)
            except ReveilleError as error:
                if unknown and method == "DELETE" and error.status == 404:
                    # An earlier attempt has deleted it.
                    return {}
                unknown |= error.may_have_taken_effect and method != "GET"
                error.may_have_taken_effect = unknown
                attempt += 1
                # A node says when to ask it again. Another one may answer at once.
                asked = error.retry_after if attempt % len(self._nodes) == 0 else 0.0
                pause = max(asked, random.uniform(0.5, 1.0) * min(2.0, 0.05 * 2 ** min(attempt, 6)))
                if not error.is_retried or (unknown and is_once) or time.monotonic() + pause >= deadline:
                    raise
            self._node = (self._node + 1) % len(self._nodes)
            time.sleep(pause)

    def _attempt(self, method: str, target: str, data: bytes | None, headers: dict[str, str], limit: float) -> Any:
        node = self._nodes[self._node]
        connection = http.client.HTTPConnection(node.hostname, node.port, timeout=limit)
        if node.scheme == "https":
            connection = http.client.HTTPSConnection(node.hostname, node.port, timeout=limit, context=self._tls)
        is_connected, ends = False, time.monotonic() + limit
        try:
            connection.connect()
            is_connected = True
            connection.request(method, node.path.rstrip("/") + target, data, headers)
            answer = http.client.HTTPResponse(_Timed(connection.sock, ends), method=method)
            answer.begin()
            content = answer.read()
            if answer.status == 200:
                is_lines = answer.getheader("Content-Type", "").startswith("application/jsonl")
                return _lines(content) if is_lines else json.loads(content)
        except (OSError, http.client.HTTPException, json.JSONDecodeError, UnicodeDecodeError) as cause:
            error = ReveilleError(f"no answer from {node.hostname}: {cause or type(cause).__name__}")
            error.may_have_taken_effect = is_connected
            error.is_retried = not isinstance(cause, ssl.SSLCertVerificationError)
            raise error from cause
        finally:
            connection.close()
        raise _refusal(answer.status, content, answer.getheader("Retry-After", ""))


class _Timed(io.RawIOBase):
    """Reads a socket until a time: the timeout of the socket itself is for each read."""

    def __init__(self, connected: socket.socket, ends: float) -> None:
        self._socket, self._ends = connected, ends

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer did not end in time")
        self._socket.settimeout(left)
        return self._socket.recv_into(buffer)


def _tenant_field(method: str, path: str) -> str:
    if _WITHOUT_TENANT.match(path):
        return ""
    return "schedule.tenant" if _WITH_SCHEDULE.match(f"{method} {path}") else "tenant"


def _refusal(status: int, content: bytes, retry_after: str) -> ReveilleError:
    try:
        problem = dict(json.loads(content))
    except (ValueError, TypeError):
        problem = {}
    detail = problem.get("detail") or http.client.responses.get(status, "")
    error = ReveilleError(detail, status, problem.get("reason", ""), problem.get("fields", ()))
    error.index = problem.get("index", "")
    error.retry_after = float(retry_after) if retry_after.isdigit() else 0.0
    error.is_retried = status in (429, 502, 503, 504) or error.retry_after > 0
    # Of a node, only 504 leaves the outcome open; a proxy may answer with others.
    error.may_have_taken_effect = status >= 500 and status not in (501, 503)
    return error


def _lines(content: bytes) -> list[Any]:
    lines = [json.loads(line) for line in content.splitlines() if line.strip()]
    failed = lines[-1].get("error") if lines else None
    if failed:
        raise _refusal(failed.get("status", 500), json.dumps(failed).encode(), "")
    return lines


def _given(key: str) -> str:
    if not key:
        raise ValueError("the key is empty: give each message and each trigger a key of its own")
    return key


def _rule(first_wins: bool) -> str | None:
    return "KEY_RULE_FIRST_WINS" if first_wins else None


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _pairs(values: Mapping[str, str] | None) -> list[dict[str, str]] | None:
    missing = [name for name, value in (values or {}).items() if value is None]
    if missing:
        raise ValueError(f"{', '.join(missing)} has no value: give a text, which may be empty")
    return [{"name": name, "value": str(value)} for name, value in (values or {}).items()] or None


def _attachment(name: str, data: bytes, kind: str, content_id: str | None = None) -> dict[str, Any]:
    encoded = base64.b64encode(data).decode()
    return _present({"name": name, "contentType": kind, "data": encoded, "contentId": content_id})


def _instant(at: datetime | None) -> str | None:
    if at is not None and at.tzinfo is None:
        raise ValueError("the time has no time zone: give an aware datetime")
    return None if at is None else at.isoformat()


def _audience(to: Recipient | Iterable[Recipient]) -> dict[str, Any]:
    # Columns in order of their names: the same recipients are always the same request.
    given = [to] if isinstance(to, (str, Mapping)) else list(to)
    people = [{"address": one} if isinstance(one, str) else dict(one) for one in given]
    columns = sorted({name for one in people for name in one} - {"address"})
    for one in people:
        missing = [name for name in ("address", *columns) if one.get(name) is None]
        if missing:
            raise ValueError(f"the recipient {one} has no {', '.join(missing)}: give each a text, which may be empty")
    rows = [{"address": one["address"], "values": [str(one[column]) for column in columns]} for one in people]
    return {"columns": columns, "recipients": rows}
