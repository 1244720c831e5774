"""Tests of requests and retries, against a server made of one function."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from lattice_client import (
    AsyncClient,
    Client,
    CompactedEvents,
    LatticeError,
    NotFound,
    ProtocolError,
    Refused,
    Retry,
    Unavailable,
    Unreachable,
)
from lattice_client import _request as requests
from lattice_client.models import Changes

Answer = Callable[[httpx.Request], httpx.Response]
QUICK = Retry(attempts=4, first_wait=0.001, longest_wait=0.002)
TENANT: dict[str, Any] = {
    "id": "physics",
    "usage": {"nodes": 0, "allocations": 0},
    "admins": [],
    "description": "",
    "created_at": "now",
    "revision": 7,
}


def problem(status: int, code: str = "x", **headers: str) -> httpx.Response:
    document = {
        "type": f"urn:lattice:problem:{code}",
        "title": "Title",
        "status": status,
        "detail": "what is wrong, and what to do",
        "code": code,
    }
    media = {"content-type": "application/problem+json", **headers}
    return httpx.Response(status, content=json.dumps(document), headers=media)


class Server:
    """Server that returns each answer in turn, repeats the last one, and records the requests."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            answer = answer(request)
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    def client(self, retry: Retry = QUICK) -> Client:
        transport = httpx.MockTransport(self)
        return Client("https://h:1", "secret", retry=retry, transport=transport)

    def keys(self) -> list[str]:
        return [request.headers["idempotency-key"] for request in self.asked]


async def test_both_clients_send_the_same() -> None:
    server = Server(TENANT)
    with server.client() as client:
        client.update_tenant("physics", {"max_nodes": 250, "max_concurrent_allocations": None})
    transport = httpx.MockTransport(server)
    async with AsyncClient("https://h:1/", "secret", transport=transport) as other:
        await other.update_tenant("physics", {"max_nodes": 250, "max_concurrent_allocations": None})
    first, second = server.asked
    for request in (first, second):
        assert str(request.url) == "https://h:1/api/v1/tenants/physics"
        assert request.method == "PUT"
        assert request.headers["authorization"] == "Bearer secret"
        assert request.headers["content-type"] == "application/json"
        wanted = {"max_nodes": 250, "max_concurrent_allocations": None}
        assert json.loads(request.content) == wanted
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ReadError("broke"),
        httpx.ReadTimeout("late"),
        httpx.ConnectError("refused"),
        httpx.RemoteProtocolError("half an answer"),
        problem(429, "too_many"),
        problem(503, "outcome_unknown"),
    ],
)
def test_a_write_is_repeated_with_the_same_key(failure: object) -> None:
    server = Server(failure, failure, TENANT)
    with server.client() as client:
        assert client.create_tenant({"id": "physics"}).id == "physics"
    assert len(server.asked) == 3
    assert len(set(server.keys())) == 1
    bodies = {request.content for request in server.asked}
    assert bodies == {b'{"id": "physics"}'}


def test_a_key_of_the_callers_own_is_sent() -> None:
    server = Server(TENANT)
    with server.client() as client:
        client.create_tenant({"id": "physics"}, key="mine")
    assert server.keys() == ["mine"]


def test_a_token_is_not_asked_for_twice() -> None:
    request: Any = {"role": "agent", "ttl": "1h"}
    server = Server(httpx.ReadError("broke"))
    with server.client() as client, pytest.raises(Unreachable):
        client.create_token(request)
    assert len(server.asked) == 1


def test_it_ends_with_what_came_last() -> None:
    server = Server(problem(503, "no_majority"))
    with server.client() as client, pytest.raises(Unavailable) as error:
        client.get_tenant("physics")
    assert len(server.asked) == QUICK.attempts
    assert error.value.code == "no_majority"
    refused = Server(problem(409))
    with refused.client() as client, pytest.raises(Refused, match="what is wrong, and what to do"):
        client.create_tenant({"id": "physics"})
    assert len(refused.asked) == 1


def test_as_long_is_waited_as_the_server_asks() -> None:
    limited = problem(429, "too_many", **{"retry-after": "9"})
    server = Server(limited)
    with server.client(Retry(within=5.0)) as client, pytest.raises(Refused) as error:
        client.get_tenant("physics")
    # The server requests a wait longer than `within`.
    assert (len(server.asked), error.value.retry_after) == (1, 9.0)


def test_what_is_no_server_of_ours_is_told() -> None:
    for answer, told in (
        (httpx.Response(502, text="<html>"), "502 without a problem document"),
        (httpx.Response(301, headers={"location": "https://elsewhere"}), "301 without"),
        (httpx.Response(200, text="<html>"), "unexpected response"),
        (httpx.Response(200, json={"id": "physics"}), "usage is missing|is missing"),
    ):
        server = Server(answer)
        with server.client() as client, pytest.raises(ProtocolError, match=told):
            client.get_tenant("physics")
        assert len(server.asked) == 1


def test_whether_it_is_up_is_asked_once() -> None:
    server = Server(problem(503))
    with server.client() as client, pytest.raises(Unavailable):
        client.readyz()
    assert len(server.asked) == 1


def pages(request: httpx.Request) -> httpx.Response:
    at = int(request.url.params.get("cursor", "0"))
    limit = int(request.url.params.get("limit", "200"))
    items = [{**TENANT, "revision": n} for n in range(at, min(at + limit, 2500))]
    more = {"next_cursor": str(at + limit)} if at + limit < 2500 else {}
    return httpx.Response(200, json={"items": items, **more})


async def test_a_list_comes_page_by_page() -> None:
    server = Server(pages)
    with server.client() as client:
        tenants = client.list_tenants()
        assert server.asked == []
        assert [tenant.revision for tenant in tenants] == list(range(2500))
        assert len(server.asked) == 3
        first = next(iter(tenants))
        assert (first.revision, len(server.asked)) == (0, 4)
        page = tenants.page(limit=10, cursor="20")
        assert ([t.revision for t in page.items], page.next_cursor) == ([*range(20, 30)], "30")
    async with AsyncClient("https://h:1", "s", transport=httpx.MockTransport(server)) as other:
        assert len(await other.list_tenants().all()) == 2500
        assert [t.revision async for t in other.list_tenants()] == list(range(2500))


def changes(revision: int) -> bytes:
    data = json.dumps({"revision": revision, "at": "now", "changes": []})
    return f"id: {revision}\nevent: changes\ndata: {data}\n\n".encode()


async def test_what_was_used_is_asked_for_and_read() -> None:
    period = {
        "days": 90,
        "since": "2026-08-28T00:00:00Z",
        "until": "2026-11-26T00:00:00Z",
        "node_hours_used": 12,
        "gpu_hours_used": 96.5,
        "idle_claimed_node_hours": 0,
        "revision": 7,
    }
    tenant = {
        "tenant": "physics",
        **period,
        "budget_period_days": 90,
        "gpu_hours_budget": 150000,
        "budget_used": 0.01,
        "budget_factor": 1.0,
        "source": "ledger",
        "share": 0.1,
        "exceeds_share": False,
        "downscaled": False,
        "paused": [],
    }
    part = {
        "tenant": "physics",
        "node_hours_used": 12,
        "gpu_hours_used": 96.5,
        "idle_claimed_node_hours": 0,
    }
    user = {"user": "alice", **period, "tenants": [part], "colour": "blue"}
    server = Server({**tenant, "node_hours_budget": None, "news": 1}, user, user)
    with server.client() as client:
        used = client.tenant_usage("physics", days=90)
        assert (used.node_hours_used, used.gpu_hours_budget) == (12.0, 150000.0)
        assert (used.node_hours_budget, used.budget_factor, used.extra) == (None, 1.0, {"news": 1})
        assert client.user_usage("alice", days=90).tenants[0].gpu_hours_used == 96.5
        assert client.user_usage().extra == {"colour": "blue"}
    asked = [request.url.raw_path.decode() for request in server.asked]
    assert asked == [
        "/api/v1/tenants/physics/usage?days=90",
        "/api/v1/usage?user=alice&days=90",
        "/api/v1/usage",
    ]


class Broken(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Response body that ends with a read error."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        yield from self.chunks
        raise httpx.ReadError("broke")


def test_events_go_on_where_a_connection_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
    compacted = b'event: compacted\ndata: {"oldest": 20}\n\nevent: news\ndata: {}\n\n'
    server = Server(
        httpx.Response(
            200, headers={"lattice-revision": "5"}, stream=Broken(changes(6), changes(7)[:-3])
        ),
        httpx.ConnectError("refused"),
        problem(503),
        httpx.Response(200, stream=Broken(changes(7), b": keep\n\n", compacted)),
        httpx.Response(200, content=changes(21)),
        problem(404),
    )
    with server.client() as client, client.watch() as events:
        assert events.revision == 5
        seen = [next(events) for _ in range(4)]
        assert [e.revision for e in seen if isinstance(e, Changes)] == [6, 7, 21]
        assert isinstance(seen[2], CompactedEvents)
        with pytest.raises(NotFound):
            next(events)
        assert list(events) == []
    since = [request.url.params.get("since") for request in server.asked]
    assert since == [None, "6", "6", "6", "20", "21"]


def test_a_stream_that_cannot_be_resumed_ends_with_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shorten(monkeypatch)
    server = Server(httpx.ConnectError("refused"))
    with server.client() as client, pytest.raises(Unreachable, match="refused"):
        next(client.watch(since=1))
    assert len(server.asked) == len(requests.RESUMES) + 1
    garbage = Server(httpx.Response(200, content=b"event: changes\ndata: {}\n\n"))
    with garbage.client() as client, pytest.raises(ProtocolError, match="'changes'"):
        next(client.watch(since=1))


async def test_output_goes_on_at_the_byte_where_a_connection_broke(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shorten(monkeypatch)
    server = Server(
        httpx.Response(200, stream=Broken(b"01", b"234")),
        problem(503),
        httpx.Response(200, content=b"567"),
    )
    with server.client() as client:
        assert client.logs(3, rank=1, follow=True, offset=10).read() == b"01234567"
    offsets = [request.url.params["offset"] for request in server.asked]
    assert offsets == ["10", "15", "15"]
    asked = dict(server.asked[0].url.params)
    assert asked == {"rank": "1", "stream": "stdout", "follow": "true", "offset": "10"}
    refused = Server(problem(404))
    with refused.client() as client, pytest.raises(NotFound):
        client.logs(3).read()
    transport = httpx.MockTransport(Server(httpx.Response(200, content=b"abc")))
    async with AsyncClient("https://h:1", "s", transport=transport) as other:
        assert await other.logs("12_7").read() == b"abc"


def test_a_backup_that_broke_is_no_backup() -> None:
    server = Server(httpx.Response(200, stream=Broken(b"half")))
    with server.client() as client, pytest.raises(LatticeError):
        client.backup().read()
    assert len(server.asked) == 1


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    short = (0.001,) * len(requests.RESUMES)
    for name in ("watch", "bytestream"):
        for kind in ("_async", "_sync"):
            monkeypatch.setattr(f"lattice_client.{kind}.{name}.RESUMES", short)
