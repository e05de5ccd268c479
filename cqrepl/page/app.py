"""Answers requests for pages, metrics and health: an ASGI application, read only.

Without a token only names of this machine are taken as `Host`: a page of another site, whose name
an attacker has pointed here, reads nothing. With one it goes with each request, in a header or in
the cookie that the form sets; it never stands in an address or a log.
"""

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qs, unquote

import trio

from cqrepl.net.threads import in_thread
from cqrepl.page import metrics, views
from cqrepl.page.monitor import Monitor

COOKIE: Final = "cqrepl-token"
BODY_MAX: Final = 4096
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HTML: Final = "text/html; charset=utf-8"
_TEXT: Final = "text/plain; charset=utf-8"
_POLICY: Final = b"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'"
_SAFE: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Answer = tuple[int, str, bytes]


class PageApp:
    """The application.

    Args:
        is_ready: true once the host listens.
        token: that readers have to show; empty for none.
        names: as which it may be addressed; None for any, which takes a token.
    """

    def __init__(
        self,
        monitor: Monitor,
        is_ready: Callable[[], bool],
        *,
        token: str = "",
        names: frozenset[str] | None = _LOCAL,
    ) -> None:
        assert names is not None or token
        self._monitor = monitor
        self._is_ready = is_ready
        self._token = token.encode()
        self._names = names
        self._turns = trio.CapacityLimiter(2)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["type"] != "http":
            return
        status, kind, body, *more = await self._answer(scope, receive)
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, *_SAFE, *more],
            }
        )
        body = b"" if scope["method"] == "HEAD" else body
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[Any, ...]:
        headers = {name.lower(): value for name, value in scope["headers"]}
        host = headers.get(b"host", b"").decode("latin-1")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self._names is not None and name.lower() not in self._names:
            return _said(421, f"expected a name of this machine as Host, got {name[:80]!r}")
        path, method = scope["path"], scope["method"]
        if self._token and path == "/login" and method == "POST":
            return await self._login(receive)
        if method not in ("GET", "HEAD"):
            return _said(405, "expected GET or HEAD")
        if path == "/healthz":
            is_well = self._monitor.is_turning
            return _said(200, "ok") if is_well else _said(503, "the event loop does not turn")
        if path == "/readyz":
            return self._readiness()
        if not self._is_known(headers):
            page = views.login_page(is_wrong=False)
            is_person = b"text/html" in headers.get(b"accept", b"")
            return (401, _HTML, page.encode()) if is_person else _said(401, "expected the token")
        return await self._shown(path, is_still=scope.get("query_string") == b"still")

    async def _shown(self, path: str, *, is_still: bool) -> tuple[Any, ...]:
        monitor = self._monitor
        sample, alarms = monitor.sample(), [*monitor.alarms.values()]
        renewed = () if is_still else ((b"refresh", b"%d" % views.RENEWED_S),)
        if path == "/metrics":
            body = await self._made(partial(metrics.exposition, sample, alarms))
            return 200, metrics.CONTENT_TYPE, body
        if path == "/status.json":
            body = await self._made(lambda: json.dumps(sample.host).encode())
            return 200, "application/json", body
        if path == "/":
            kept = {name: [*each] for name, each in monitor.kept.items()}
            make = partial(views.host_page, sample, alarms, kept, is_still=is_still)
            return 200, _HTML, (await self._made(make)).encode(), *renewed
        if path.startswith("/queue/"):
            name = unquote(path.removeprefix("/queue/"))
            page = await self._made(partial(views.queue_page, sample, name, is_still=is_still))
            if page is not None:
                return 200, _HTML, page.encode(), *renewed
        return _said(404, "expected /, /queue/NAME, /metrics, /status.json, /healthz or /readyz")

    async def _made(self, make: Callable[[], Any]) -> Any:
        return await in_thread(make, limiter=self._turns)

    def _readiness(self) -> Answer:
        if not self._is_ready():
            return _said(503, "the host does not listen yet")
        lacks = [e["name"] for e in self._monitor.sample().host["queues"] if not e["state"]]
        return _said(503, f"no state yet: {', '.join(lacks)}") if lacks else _said(200, "ok")

    def _is_known(self, headers: Mapping[bytes, bytes]) -> bool:
        if not self._token:
            return True
        kind, _, shown = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() == b"bearer" and hmac.compare_digest(shown.strip(), self._token):
            return True
        try:
            cookies = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1"))
        except CookieError:
            return False
        found = cookies.get(COOKIE)
        return found is not None and hmac.compare_digest(found.value.encode(), self._token)

    async def _login(self, receive: Receive) -> tuple[Any, ...]:
        data, more = b"", True
        while more and len(data) <= BODY_MAX:
            message = await receive()
            if message["type"] != "http.request":
                return _said(400, "expected a form")
            data, more = data + message.get("body", b""), message.get("more_body", False)
        shown = parse_qs(data[:BODY_MAX].decode("latin-1")).get("token", [""])[0]
        if not hmac.compare_digest(shown.encode(), self._token):
            return 401, _HTML, views.login_page(is_wrong=True).encode()
        cookie = f"{COOKIE}={shown}; HttpOnly; Secure; SameSite=Strict; Path=/"
        return 303, _TEXT, b"", (b"location", b"/"), (b"set-cookie", cookie.encode())


def _said(status: int, text: str) -> Answer:
    return status, _TEXT, f"{text}\n".encode()
