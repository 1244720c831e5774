"""Tests of the decoding of JSON into models."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from lattice_client import Page, Reading
from lattice_client._decode import DecodeError, decode, decode_page
from lattice_client.models import (
    Changes,
    ClassView,
    InventoryResources,
    ProjectChange,
    ReservationView,
    TenantView,
    UnknownChange,
    UsageView,
)

TENANT: dict[str, Any] = {
    "id": "physics",
    "max_nodes": 250,
    "max_concurrent_allocations": None,
    "usage": {"nodes": 4, "allocations": 1},
    "admins": ["ada"],
    "description": "",
    "created_at": "2026-11-26T11:10:39.505Z",
    "revision": 7,
}


def test_what_is_not_known_is_kept_aside() -> None:
    tenant = decode(TenantView, {**TENANT, "colour": "blue"})
    assert tenant.usage == UsageView(allocations=1, nodes=4)
    assert (tenant.max_nodes, tenant.max_concurrent_allocations) == (250, None)
    assert tenant.extra == {"colour": "blue"}
    assert tenant.usage.extra == {}
    assert tenant.to_dict()["colour"] == "blue"
    assert decode(TenantView, tenant.to_dict()) == tenant
    copy = pickle.loads(pickle.dumps(tenant))
    assert (copy, copy.extra) == (tenant, tenant.extra)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"usage": {"nodes": 4}}, "usage.allocations is missing"),
        ({"revision": "7"}, "revision: int expected, str found"),
        ({"revision": True}, "revision: int expected, bool found"),
        ({"admins": ["a", 1]}, "admins[1]: str expected, int found"),
        ({"usage": None}, "usage: object expected, null found"),
        ({"max_nodes": "many"}, "max_nodes: int expected, str found"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(change: dict[str, Any], told: str) -> None:
    with pytest.raises(DecodeError) as error:
        decode(TenantView, {**TENANT, **change})
    assert str(error.value) == told


def test_a_change_is_what_its_kind_says_and_a_new_kind_is_no_error() -> None:
    usage = {"nodes": 0, "allocations": 0}
    project = {
        "path": "a/b",
        "limits": {"max_nodes": 1},
        "own": usage,
        "subtree": usage,
        "total": usage,
        "admins": [],
        "description": "",
        "created_at": "now",
        "revision": 1,
    }
    sent = [{"kind": "project", "record": project}, {"kind": "weather", "rain": True}]
    changes = decode(Changes, {"revision": 3, "at": "now", "changes": sent}).changes
    assert isinstance(changes[0], ProjectChange)
    assert changes[0].record.limits.max_nodes == 1
    assert isinstance(changes[1], UnknownChange)
    assert (changes[1].kind, changes[1].extra) == ("weather", {"rain": True})
    broken = {"kind": "project", "record": {**project, "admins": None}}
    with pytest.raises(DecodeError, match=r"changes\[0\].record.admins: array expected"):
        decode(Changes, {"revision": 3, "at": "now", "changes": [broken]})


def test_what_python_keeps_for_itself_has_an_underscore() -> None:
    sent = {"active": True, "by": "a", "from": "now", "name": "r", "node_count": 1, "nodes": "n"}
    sent.update({"projects": [], "reason": "", "revision": 1, "usable": True, "users": []})
    view = decode(ReservationView, sent)
    assert (view.from_, view.conflicts) == ("now", [])
    assert view.to_dict()["from"] == "now"
    assert decode(ClassView, {"state": "complete"}).to_dict() == {"state": "complete"}


def test_a_reading_says_what_was_read_or_why_not() -> None:
    facts: dict[str, Any] = {
        "cores": {"present": 64},
        "features": [],
        "gpu_count": "absent",
        "gpu_memory_bytes": {"denied": {"why": "permission"}},
        "gpu_model": {"timeout": {"after_ms": 50}},
        "memory_bytes": {"failed": {"why": "io"}},
    }
    others = ("numa_nodes", "rdma_count", "sockets", "threads")
    facts.update(dict.fromkeys(others, "unsupported"))
    read = decode(InventoryResources, facts)
    assert read.cores == Reading("present", 64)
    assert read.gpu_count == Reading("absent")
    assert read.gpu_memory_bytes == Reading("denied", why="permission")
    assert read.gpu_model == Reading("timeout", after_ms=50)
    assert repr(read.cores) == "Reading('present', value=64)"
    assert read.to_dict() == facts
    with pytest.raises(DecodeError, match=r"cores.present: int expected, str found"):
        decode(InventoryResources, {**facts, "cores": {"present": "64"}})


def test_a_page_has_its_items_and_where_the_next_begins() -> None:
    page = decode_page(TenantView, {"items": [TENANT], "next_cursor": "physics"})
    assert isinstance(page, Page)
    assert (page.items[0].id, page.next_cursor) == ("physics", "physics")
    assert decode_page(TenantView, {"items": []}).next_cursor is None
