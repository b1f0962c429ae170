"""Fixtures for everyone: the two real models, fetched once if they are not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ferrum import environment
from ferrum.cli.download_progress import DownloadProgress
from ferrum.weights.model_store import ModelStore
from ferrum.weights.open_model import open_model


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    return _model_path("smollm2:135m", "SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    return _model_path("gemma3:270m", "gemma-3-270m-q4_k_m.gguf")


def _model_path(alias: str, file_name: str) -> Path:
    """From the folder FERRUM_TEST_MODELS if it is set, else as any user gets it."""
    folder = os.environ.get("FERRUM_TEST_MODELS")
    if folder:
        return next(Path(folder).rglob(file_name))
    return open_model(alias, ModelStore(environment.model_directory()), DownloadProgress()).path
