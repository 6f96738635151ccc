"""The server of the page: one process, one path, until Ctrl-C."""

import errno
import ipaddress
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from palpate.data.logs.options import LogOptions
from palpate.extras import demand
from palpate.viewer.session import Session

if TYPE_CHECKING:
    from palpate.data.stream import SteerableWorld

LOOPBACK = "127.0.0.1"
RECONNECT_SECONDS = 30.0  # for which the server keeps a page without a connection: the machine may be busy


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any free one."""
    if not 0 <= port <= 65535:
        raise ValueError(f"port is {port}; allowed is 0 (any free one) to 65535")
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise ValueError(f"host is {host!r}, which is not an address of this machine ({error.strerror})") from error
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise ValueError(f"port {port} is in use; choose another with --port, or leave it out") from error
        raise ValueError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --host or --port"
        ) from error
    return found


def view(
    path: Path,
    *,
    live: bool = False,
    host: str = LOOPBACK,
    port: int = 0,
    browser: bool = True,
    world: "SteerableWorld | None" = None,
    model: Path | None = None,
    reading: LogOptions | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the page of a run or of a log until Ctrl-C. `ready` is called with its address.

    `world` is a world of your own, to play in with the model of the run. `model` is the folder of a run or of a saved
    model, whose outputs are shown for a log. `reading` selects the columns of a log.
    """
    # Everything that can be refused is refused before anything listens. Videos are decoded later.
    demand("nicegui", library="nicegui", extra="view", needs="palpate view needs NiceGUI")
    session = Session(path, live=live, world=world, model=model, reading=reading)
    with listening(host, port) as sock:
        bound = sock.getsockname()[1]
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name if host not in ('0.0.0.0', '::') else LOOPBACK}:{bound}/"
        _run(session, sock, address, hosts(host, sock.getsockname()[0]), browser, ready)


def hosts(host: str, bound: str) -> list[str]:
    """Names in a request's Host header that are answered; all, if other machines may open the page.

    A foreign web site may let its own name point to this machine. Its scripts could then read the page.
    """
    if not ipaddress.ip_address(bound.partition("%")[0]).is_loopback:
        return ["*"]
    own = f"[{host}]" if ":" in host else host
    # Some versions of Starlette cut the header at its first colon, so that of [::1]:8080 only a bracket is left.
    return [LOOPBACK, "localhost", "[::1]", "[", own]


def _run(
    session: Session,
    sock: socket.socket,
    address: str,
    allowed: list[str],
    browser: bool,
    ready: Callable[[str], None] | None,
) -> None:
    import uvicorn
    from fastapi import FastAPI
    from nicegui import ui
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    from palpate.viewer.page import build

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    ui.run_with(
        app,
        root=lambda: build(session),
        title=f"{session.path.name} - palpate view",
        favicon=ICON,
        tailwind=False,
        reconnect_timeout=RECONNECT_SECONDS,
        show_welcome_message=False,
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=allowed)  # also for socket.io, which is mounted in it
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, lifespan="on"))

    def announce() -> None:
        while not server.started:
            if stopped.wait(0.01):
                return
        if ready is not None:
            ready(address)
        if browser:
            webbrowser.open(address)

    stopped = threading.Event()
    threading.Thread(target=announce, daemon=True).start()
    interrupted = False
    try:
        server.run(sockets=[sock])
    except KeyboardInterrupt:
        interrupted = True
    finally:
        stopped.set()
        session.close()
    if not (server.started or interrupted):
        raise RuntimeError(f"the server of the page did not start at {address}; another version of NiceGUI may help")


ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0072B2"/>'
    '<circle cx="19" cy="14" r="7" fill="none" stroke="#fff" stroke-width="2.5"/><circle cx="9" cy="23" r="3.5" '
    'fill="#F0E442"/></svg>'
)
