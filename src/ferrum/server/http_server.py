"""HttpServer: uvicorn over one bound socket, with an orderly end.

First SIGTERM or SIGINT: not ready, new work refused, running requests end (at most ``drain_s``). Second: now.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto

import uvicorn
import uvloop

from ferrum.server.app import create_app
from ferrum.server.http_connection import HttpConnection
from ferrum.server.listening_socket import BACKLOG, start_listening
from ferrum.server.server_context import ServerContext

# Longer than the usual keep-alive of clients and proxies: whoever closes first must not be us, or a request
# sent at that moment is lost.
KEEP_ALIVE_S = 75

# After the engine has ended every request, its last bytes still have to reach slow clients.
FLUSH_S = 5

# What is left of a connection that was cut off: nothing that takes time.
CLEAN_UP_S = 5


class _Ending(Enum):
    NOT_YET = auto()
    DRAINING = auto()
    AT_ONCE = auto()


class HttpServer:
    """Serves ``context`` until told to end. ``serve`` is called once; signals mutate it on the event loop."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._ending = _Ending.NOT_YET
        self._end_changed = asyncio.Event()
        config = uvicorn.Config(
            create_app(context),
            log_config=None,
            access_log=False,
            lifespan="off",
            http=HttpConnection,
            ws="none",
            server_header=False,
            # Nobody here asks who the client is.
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=FLUSH_S + CLEAN_UP_S,
        )
        self._uvicorn = _SignalFreeServer(config)

    def run(self, bound: socket.socket, on_ready: Callable[[], None] = lambda: None) -> None:
        """``serve`` on an event loop of its own; called from the main thread, which gets the signals."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self.serve(bound, on_ready))

    async def serve(self, bound: socket.socket, on_ready: Callable[[], None] = lambda: None) -> None:
        """Answers on ``bound`` until a signal or ``end``; returns when every request has ended.

        The process is then expected to exit, and ignores further signals. Raises AddressUnavailable.
        """
        start_listening(bound)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end)
        serving = asyncio.create_task(self._uvicorn.serve(sockets=[bound]))
        ending = asyncio.create_task(self._end_in_order())
        on_ready()
        try:
            await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
            self._uvicorn.should_exit = True
            loop.call_later(FLUSH_S, self._cut_off)
            await serving
        finally:
            ending.cancel()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
                # An impatient signal more must not turn an orderly end into a traceback.
                signal.signal(number, signal.SIG_IGN)

    def end(self) -> None:
        """Starts draining; called again, ends at once."""
        self._ending = _Ending.AT_ONCE if self._ending is _Ending.DRAINING else _Ending.DRAINING
        self._context.lifecycle.start_draining()
        self._end_changed.set()

    def _cut_off(self) -> None:
        """Clients that still have not read their last bytes do not hold the process up."""
        for connection in list(self._uvicorn.server_state.connections):
            connection.transport.abort()

    async def _end_in_order(self) -> None:
        await self._wait_for_end()
        draining = asyncio.create_task(self._context.engine.shutdown(self._context.options.drain_s))
        impatient = asyncio.create_task(self._wait_for_end())
        await asyncio.wait({draining, impatient}, return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            # Cuts the first call short: running requests are cancelled and their streams end in order.
            await self._context.engine.shutdown(0.0)
        impatient.cancel()

    async def _wait_for_end(self) -> None:
        await self._end_changed.wait()
        self._end_changed.clear()


class _SignalFreeServer(uvicorn.Server):
    """uvicorn stops listening at the first signal and raises it again at the end; here signals are ours."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
