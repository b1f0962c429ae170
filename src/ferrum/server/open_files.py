"""How many files this process may have open: every connection is one."""

from __future__ import annotations

import resource


def allow_many_connections() -> None:
    """Raises the soft limit to the hard one; systems set it to 1024 for the sake of programs that use select.

    A lower limit than the clients there are would end connections before anybody can be told to wait.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
