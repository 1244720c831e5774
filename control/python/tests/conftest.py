"""Fixtures: one demo cluster for all tests, and clients of it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from running import NODES, ROOT, Demo, plays_out, program, started

from lattice_client import AsyncClient, Client

__all__ = ["FOLDER", "NODES", "ROOT", "Demo", "program"]

FOLDER = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(FOLDER / "generate"))


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Demo cluster with ready nodes. Its recorded jobs may still run."""
    folder = tmp_path_factory.mktemp("demo")
    with started(folder) as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def idle(demo: Demo) -> Demo:
    """Demo cluster after the end of its recorded jobs."""
    plays_out(demo)
    return demo


@pytest.fixture
def client(demo: Demo) -> Iterator[Client]:
    with Client(context=demo.context_file) as made:
        yield made


@pytest.fixture
async def aclient(demo: Demo) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(context=demo.context_file) as made:
        yield made


@pytest.fixture(scope="session")
def document(demo: Demo) -> str:
    """OpenAPI document that the demo cluster serves."""
    with Client(context=demo.context_file) as made:
        return made.openapi()
