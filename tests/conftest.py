"""Fixtures for everyone: the two real models."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    return _model_path("SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    return _model_path("gemma-3-270m-q4_k_m.gguf")


def _model_path(file_name: str) -> Path:
    folder = os.environ.get("FERRUM_TEST_MODELS")
    if folder is None:
        pytest.skip("FERRUM_TEST_MODELS names no folder of models")
    return next(Path(folder).rglob(file_name))
