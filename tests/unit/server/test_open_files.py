import resource

from ferrum.server.open_files import allow_many_connections


def test_as_many_connections_as_the_system_allows_may_be_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        allow_many_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        allow_many_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
