"""Gives pages and metrics at an address, for as long as a host runs."""

import logging
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import trio

from cqrepl.net.errors import Refused
from cqrepl.page.monitor import Monitor
from cqrepl.page.settings import PageSettings

NEEDS: Final = "page: expected the libraries of the extra, got none: pip install 'cqrepl[page]'"
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{16,256}")
_BACKLOG: Final = 32
_logger: Final = logging.getLogger(__name__)


class PageRefused(Refused):
    """Pages cannot be given as the settings say."""


@asynccontextmanager
async def page_of(
    monitor: Monitor, settings: PageSettings, is_ready: Callable[[], bool]
) -> AsyncIterator[int | None]:
    """For the length of a block; the port, or None where there is none. A port that is in use is
    said, and keeps nothing else from running.

    Raises:
        PageRefused: the libraries of the extra are not there, or the token is none.
    """
    if settings.listen is None:
        yield None
        return
    try:
        from hypercorn.config import Config, Sockets
        from hypercorn.trio.run import worker_serve
        from hypercorn.utils import wrap_app

        from cqrepl.page.app import PageApp
    except ImportError as error:
        raise PageRefused(NEEDS) from error
    token = _token_of(settings)
    try:
        listening = _listening(settings)
    except OSError as error:
        why = error.strerror or str(error)
        _logger.error("page: cannot listen on %s: %s: this host runs without", settings.listen, why)
        yield None
        return
    if token:
        app = PageApp(monitor, is_ready, token=token, names=None)
    else:
        app = PageApp(monitor, is_ready)
    config = Config()
    config.errorlog = config.accesslog = None
    config.include_server_header = False
    config.keep_alive_timeout, config.read_timeout = 15, 10
    config.h11_max_incomplete_size = 16 * 1024
    config.alpn_protocols = ["http/1.1"]
    config.graceful_timeout = 1.0
    if settings.is_encrypted:
        config.certfile, config.keyfile = str(settings.tls.cert), str(settings.tls.key)
    secure = [listening] if settings.is_encrypted else []
    plain = [] if settings.is_encrypted else [listening]
    port = int(listening.getsockname()[1])
    _logger.info("page: at %s://%s", "https" if secure else "http", settings.listen)
    wrapped = wrap_app(cast("Any", app), config.wsgi_max_body_size, "asgi")
    async with trio.open_nursery() as nursery:
        sockets = Sockets(secure, plain, [])
        nursery.start_soon(lambda: worker_serve(wrapped, config, sockets=sockets))
        yield port
        nursery.cancel_scope.cancel()


def _token_of(settings: PageSettings) -> str:
    if settings.token is None:
        return ""
    try:
        token = settings.token.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "expected a text"
        raise PageRefused(f"{settings.token}: cannot be read: {why}") from None
    if not _TOKEN.fullmatch(token):
        raise PageRefused(
            f"{settings.token}: expected a token of 16 to 256 letters, digits and .~+/=_-, got"
            f" {len(token)} characters"
        )
    return token


def _listening(settings: PageSettings) -> socket.socket:
    assert settings.listen is not None
    found = socket.getaddrinfo(settings.listen.host, settings.listen.port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, where = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setblocking(False)
        listening.bind(where)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening
