"""Binds the server's address: before the model is loaded, so that a wrong one fails at once."""

from __future__ import annotations

import socket

from ferrum.core.errors import FerrumError

# Connections that may wait to be accepted; a burst of clients is no reason to refuse one.
BACKLOG = 2048


class AddressUnavailable(FerrumError):
    """``host:port`` cannot be listened on; ``problem`` is the system's reason."""

    def __init__(self, host: str, port: int, problem: str) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {problem}; choose another with --host and --port")
        self.host = host
        self.port = port
        self.problem = problem


def bind_socket(host: str, port: int) -> socket.socket:
    """A bound socket, not listening yet; port 0 takes a free one. Raises AddressUnavailable."""
    if not 0 <= port <= 65535:
        raise AddressUnavailable(host, port, "a port is a number from 0 to 65535")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise AddressUnavailable(host, port, f"unknown host ({error})") from None
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise AddressUnavailable(host, port, error.strerror or str(error)) from None
    return bound


def start_listening(bound: socket.socket) -> None:
    """Clients are refused before, and wait for an answer from now on. Raises AddressUnavailable.

    Two programs can bind one address (SO_REUSEADDR) as long as neither listens; the later one learns it here.
    """
    try:
        bound.listen(BACKLOG)
    except OSError as error:
        host, port = bound.getsockname()[:2]
        raise AddressUnavailable(host, port, error.strerror or str(error)) from None


def socket_url(bound: socket.socket) -> str:
    """The address as a URL, IPv6 in brackets."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
