from collections.abc import Iterator

import pytest
from constraint_tools import byte_compiler

from ferrum.constraints.constraint_compiler import ConstraintCompiler


@pytest.fixture(scope="session")
def compiler() -> Iterator[ConstraintCompiler]:
    made = byte_compiler()
    yield made
    made.close()
