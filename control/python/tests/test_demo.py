"""Tests against a whole cluster."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
import subprocess
import threading
import uuid
from pathlib import Path

import pytest

from conftest import NODES, Demo, program
from lattice_client import (
    AsyncClient,
    Changes,
    Client,
    EndpointError,
    Invalid,
    NotAllowed,
    NotFound,
    Refused,
    TimedOut,
    Unreachable,
    Untrusted,
)
from lattice_client.models import AllocationChange, TenantView
from lattice_client.requests import TenantUpdate

WEB = "atlas/operations/web"


def name(word: str) -> str:
    return f"{word}-{uuid.uuid4().hex[:8]}"


# Server verification.


def test_a_server_is_trusted_by_its_authority_or_by_its_certificate(demo: Demo) -> None:
    context = demo.context
    url, token, ca_pem = context["server"], context["token"], context["ca_pem"]
    host, port = url[len("https://") :].rsplit(":", 1)
    shown = ssl.get_server_certificate((host, int(port)))
    pin = "sha256:" + hashlib.sha256(ssl.PEM_cert_to_DER_cert(shown)).hexdigest()
    for trust in ({"ca_pem": ca_pem}, {"pin": pin}, {"ca_pem": ca_pem, "pin": pin}):
        with Client(url, token, **trust) as client:
            assert client.status().cluster == "demo"
    wrong = "sha256:" + "0" * 64
    for trust in ({}, {"pin": wrong}, {"ca_pem": ca_pem, "pin": wrong}):
        with (
            Client(url, token, **trust) as client,
            pytest.raises(
                Untrusted, match=r"is not trusted: (certificate verify|unable|self|its cert)"
            ),
        ):
            client.status()
    with Client(url, token, ca_pem=ca_pem) as client:
        assert client.view_age is None
        client.list_nodes().page(1)
        assert client.view_age is not None


async def test_the_same_without_blocking(demo: Demo) -> None:
    context = demo.context
    url, token = context["server"], context["token"]
    async with AsyncClient(url, token, pin="sha256:" + "0" * 64) as client:
        with pytest.raises(
            Untrusted,
            match=r"is not trusted: its certificate is sha256:\w+, and sha256:0{64} is pinned$",
        ):
            await client.status()
    async with AsyncClient(url, token, ca_pem=context["ca_pem"]) as client:
        assert (await client.status()).principal == "demo"


@pytest.mark.parametrize("blocking", [True, False])
async def test_who_is_not_trusted_is_sent_nothing(tmp_path: Path, blocking: bool) -> None:
    command = [program(), "admin", "https", "--host", "127.0.0.1", "--out", tmp_path / "https"]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "https" / "https.pem", tmp_path / "https" / "https.key")
    received: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        raw, _ = listener.accept()
        try:
            with raw, context.wrap_socket(raw, server_side=True) as connection:
                connection.settimeout(10)
                received.append(connection.recv(1 << 16))
        except OSError:
            received.append(b"")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        pin = "sha256:" + "0" * 64
        if blocking:
            with Client(url, "secret", pin=pin) as client, pytest.raises(Untrusted):
                await asyncio.to_thread(client.status)
        else:
            async with AsyncClient(url, "secret", pin=pin) as aclient:
                with pytest.raises(Untrusted):
                    await aclient.status()
        await asyncio.to_thread(thread.join)
    assert received == [b""]


def test_nobody_there_is_unreachable(demo: Demo) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with Client(f"https://127.0.0.1:{port}", "t", ca_pem=demo.context["ca_pem"]) as client:
        with pytest.raises(Unreachable, match="cannot be reached") as error:
            client.status()
        assert not isinstance(error.value, Untrusted)


def test_a_token_that_is_not_known_is_not_allowed(demo: Demo) -> None:
    context = demo.context
    with Client(context["server"], "x" * 32, ca_pem=context["ca_pem"]) as client:
        with pytest.raises(NotAllowed) as error:
            client.status()
        assert error.value.status == 401


def test_a_demo_is_found(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LATTICE_CONTEXT", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(demo.context_file.parent.parent))
    with Client() as client:
        assert client.endpoint.url == demo.context["server"]
        client.healthz()
        client.readyz()
    monkeypatch.setenv("LATTICE_CONTEXT", "/nonexistent")
    with pytest.raises(EndpointError, match="nonexistent"):
        Client()


# Tenants, projects, limits.


async def test_a_tenant_from_its_creation_to_its_end(aclient: AsyncClient) -> None:
    id = name("physics")
    made = await aclient.create_tenant({"id": id, "max_nodes": 8, "admins": ["ada"]})
    assert (made.id, made.max_nodes, made.admins) == (id, 8, ["ada"])
    seen = await aclient.update_tenant(id, {"max_nodes": 250, "max_concurrent_allocations": 50})
    assert (seen.max_nodes, seen.max_concurrent_allocations) == (250, 50)
    seen = await aclient.update_tenant(id, {"max_concurrent_allocations": None})
    assert (seen.max_nodes, seen.max_concurrent_allocations) == (250, None)
    assert await aclient.get_tenant(id) == seen
    assert id in [tenant.id async for tenant in aclient.list_tenants()]
    with pytest.raises(Refused) as error:
        await aclient.create_tenant({"id": id})
    assert error.value.code == "project_exists"

    sub = await aclient.create_project({"path": f"{id}/sub", "limits": {"max_nodes": 3}})
    assert sub.limits.max_nodes == 3
    deep = await aclient.create_project({"path": f"{id}/sub/deep", "limits": {"max_nodes": 1}})
    assert (await aclient.get_project(deep.path)).path == f"{id}/sub/deep"
    await aclient.update_project(deep.path, {"max_nodes": 2})
    await aclient.set_limits([{"path": sub.path, "max_nodes": 4}])
    headroom = await aclient.get_headroom(deep.path)
    assert (headroom.nodes, [level.path for level in headroom.levels]) == (
        2,
        [f"{id}/sub/deep", f"{id}/sub", id],
    )
    tree = [project.path for project in await aclient.list_projects(below=id).all()]
    assert tree == [id, f"{id}/sub", f"{id}/sub/deep"]
    with pytest.raises(Refused) as conflict:
        await aclient.update_tenant(id, {"max_nodes": 1})
    assert conflict.value.violations[0].path == id
    for path in reversed(tree[1:]):
        await aclient.delete_project(path)
    await aclient.delete_tenant(id)
    with pytest.raises(NotFound, match="unknown tenant"):
        await aclient.get_tenant(id)


def test_a_second_call_with_the_same_key_does_nothing_more(client: Client) -> None:
    id, key = name("keyed"), name("key")
    first = client.create_tenant({"id": id}, key=key)
    assert client.create_tenant({"id": id}, key=key) == first
    client.delete_tenant(id)


def test_a_field_that_is_not_known_is_named(client: Client) -> None:
    with pytest.raises(Invalid) as error:
        client.update_tenant("atlas", {"max_node": 1})  # type: ignore[typeddict-unknown-key]
    assert error.value.field == "max_node"
    assert "did you mean `max_nodes`?" in str(error.value)


def test_what_holds_for_the_whole_cluster(client: Client) -> None:
    before = client.get_system_limits()
    changed = client.update_system_limits({"sensitive_pool_size": 3})
    assert changed.sensitive_pool_size == 3
    client.update_system_limits({"sensitive_pool_size": before.sensitive_pool_size})
    assert client.set_limit_policy("flat").limit_policy == "flat"
    assert client.set_limit_policy("strict") == before


async def test_budgets_are_set_in_the_form_that_accounting_sends(aclient: AsyncClient) -> None:
    id = name("physics")
    await aclient.create_tenant({"id": id, "max_nodes": 1, "gpu_hours_budget": 10})
    seen = await aclient.update_tenant(
        id,
        {
            "max_nodes": 250,
            "max_concurrent_allocations": 50,
            "gpu_hours_budget": 150000,
            "node_hours_budget": 500000,
        },
    )
    assert budgets_of(seen) == (150000, 500000, None, None)
    shares: TenantUpdate = {"fair_share_target": 0.25, "burst_allowance": 1.5}
    seen = await aclient.update_tenant(id, {**shares, "gpu_hours_budget": None})
    assert budgets_of(seen) == (None, 500000, 0.25, 1.5)
    assert (await aclient.get_tenant(id)) == seen
    await aclient.delete_tenant(id)


def budgets_of(tenant: TenantView) -> tuple[float | None, ...]:
    return (
        tenant.gpu_hours_budget,
        tenant.node_hours_budget,
        tenant.fair_share_target,
        tenant.burst_allowance,
    )


def test_what_was_used_is_told_by_tenant_and_by_user(client: Client, idle: Demo) -> None:
    tenant = client.tenant_usage("atlas", days=90)
    assert (tenant.tenant, tenant.days) == ("atlas", 90)
    assert tenant.node_hours_used > 0
    for usage in (client.user_usage("demo", days=90), client.user_usage()):
        assert usage.user == "demo"
        assert usage.node_hours_used > 0
        assert "atlas" in [part.tenant for part in usage.tenants]
    with pytest.raises(NotFound):
        client.tenant_usage(name("nobody"))


# Nodes and conformance.


def test_nodes_and_what_they_are(client: Client) -> None:
    nodes = client.list_nodes().all()
    assert len(nodes) == NODES
    captured = next(node for node in nodes if node.name == "gpu001")
    assert captured.resources.gpu_count == 8
    assert client.get_node("gpu001").name == "gpu001"
    inventory = client.get_inventory("gpu001")
    assert inventory.resources.gpu_count.value == 8
    assert inventory.identity.gpus[0].uuid.state == "present"
    assert inventory.records["nic"].entries["nic.0.firmware"].state == "present"
    assert client.get_node_health("gpu001").node == "gpu001"
    assert client.list_node_history("gpu001", kind=["boot", "agent"]).page(5).items
    assert client.diff_nodes("gpu001", "gpu002").left == "gpu001"
    assert client.reprobe_node("gpu001").node == "gpu001"
    with pytest.raises(NotFound):
        client.get_node("gpu999")


def test_a_node_is_drained_and_comes_back(client: Client, idle: Demo) -> None:
    client.drain_node("gpu002", "looking at it")
    assert [drain.reason for drain in client.get_node("gpu002").drain] == ["looking at it"]
    assert client.undrain_node("gpu002", skip_gate=True).cleared
    assert client.get_node("gpu002").drain == []


def test_conformance(client: Client) -> None:
    groups = client.conformance_groups(["nic", "gpu"])
    assert {group.class_ for group in groups.groups} == {"gpu,nic"}
    assert client.conformance_drift().unknown is not None
    assert client.conformance_changes(since="1h").changes is not None
    baseline = client.set_baseline(
        "h100", {"from_node": "gpu001", "nodes": "gpu[001-002]"}, dry_run=True
    )
    assert (baseline.dry_run, baseline.comparison.compared_count) == (True, 2)
    made = client.set_baseline("h100", {"from_node": "gpu001", "nodes": "gpu[001-002]"})
    assert [b.name for b in client.list_baselines()] == ["h100"]
    assert client.get_baseline("h100").version == made.version
    compared = client.diff_baseline("h100", "gpu002")
    assert (compared.left, compared.right) == ("baseline h100 v1", "gpu002")
    client.delete_baseline("h100", expected_version=made.version)
    assert client.get_brake().held is None


# Allocations and DAGs.


async def test_work_is_submitted_followed_and_explained(aclient: AsyncClient, idle: Demo) -> None:
    judged = await aclient.submit({"project": WEB, "nodes": 1, "argv": ["true"]}, dry_run=True)
    assert judged.id is None
    assert judged.outlook is not None
    assert judged.outlook.starts_now
    script = "#!/bin/sh\necho begun\nsleep 1\necho ended; echo wrong >&2; exit 3\n"
    async with aclient.watch() as events:
        made = await aclient.submit({"project": WEB, "nodes": 1, "script": script})
        assert made.id is not None
        assert await aclient.logs(made.id, follow=True).read() == b"begun\nended\n"
        assert await aclient.logs(made.id, stream="stderr").read() == b"wrong\n"
        words: list[str] = []
        while "ended" not in words:
            event = await asyncio.wait_for(events.__anext__(), 30)
            if isinstance(event, Changes):
                assert events.revision == event.revision
                for change in event.changes:
                    if isinstance(change, AllocationChange) and change.record.id == made.id:
                        words.append(change.change)
    assert words[0] == "submitted"
    ended = await aclient.wait(made.id, timeout=30)
    assert ended.state == "failed"
    assert ended.ranks[0].exit == "exit code 3"
    assert (await aclient.explain(made.id)).state == "failed"
    # A watch with `since` returns earlier revisions again.
    async with aclient.watch(since=made.revision - 1) as again:
        async for event in again:
            if isinstance(event, Changes):
                assert event.revision == made.revision
                break


def test_work_is_waited_for(client: Client, idle: Demo) -> None:
    ended = client.submit_and_wait({"project": WEB, "nodes": 2, "argv": ["true"]}, timeout=60)
    assert (ended.state, len(ended.ranks)) == ("completed", 2)
    with pytest.raises(TimedOut, match=r"after 0\.") as error:
        client.submit_and_wait({"project": WEB, "nodes": 1, "argv": ["sleep", "60"]}, timeout=0.5)
    late = error.value.last
    assert isinstance(error.value, TimeoutError)
    assert client.cancel(late.id).state in ("stopping", "cancelled")
    assert client.wait(late.id, timeout=60).state == "cancelled"
    seen = client.list_allocations(state=["completed"], project=WEB, user="demo").all()
    assert ended.id in [allocation.id for allocation in seen]
    assert late.id not in [allocation.id for allocation in seen]


def test_a_limit_that_would_be_exceeded_names_every_level(client: Client) -> None:
    with pytest.raises(Refused, match="would exceed max_nodes quota") as error:
        client.submit({"project": "atlas/physics/simulation", "nodes": 100, "argv": ["true"]})
    if error.value.code == "limit_exceeded":
        assert [v.limit_name for v in error.value.violations] == ["max_nodes"] * 2


def test_held_work_is_changed(client: Client) -> None:
    made = client.submit({"project": WEB, "nodes": 1, "argv": ["true"], "hold": True})
    assert made.id is not None
    assert client.get_allocation(made.id).state == "held"
    assert client.release(made.id).state in ("pending", "starting", "running")
    made = client.submit({"project": WEB, "nodes": 1, "argv": ["true"], "hold": True, "class": 1})
    assert made.id is not None
    assert client.extend(made.id, "2m").walltime == "2m"
    assert client.cancel(made.id).state == "cancelled"
    with pytest.raises(Refused):
        client.cancel(made.id)


def test_a_graph_runs_in_its_order(client: Client, idle: Demo) -> None:
    member = {"project": WEB, "nodes": 1}
    graph = {
        "name": "nightly",
        "members": [
            {**member, "name": "prepare", "argv": ["true"]},
            {**member, "name": "train", "argv": ["false"], "after": ["prepare"]},
            {**member, "name": "clean", "argv": ["true"], "after": {"any": ["train"]}},
        ],
    }
    judged = client.dry_run_dag(graph)  # type: ignore[arg-type]
    assert [m.name for m in judged.members] == ["prepare", "train", "clean"]
    made = client.submit_dag(graph)  # type: ignore[arg-type]
    ended = client.wait_dag(made.id, timeout=90)
    states = {m.name: m.state for m in ended.members}
    assert states == {"prepare": "completed", "train": "failed", "clean": "completed"}
    assert {(e.from_, e.to) for e in client.dag_graph(made.id).edges} == {
        ("prepare", "train"),
        ("train", "clean"),
    }
    assert client.dag_dot(made.id).startswith("digraph")
    assert made.id in [dag.id for dag in client.list_dags(tenant="atlas")]
    text = f"members:\n- {{name: a, project: {WEB}, nodes: 1, argv: [sleep, '60']}}\n"
    other = client.submit_dag(text)
    client.cancel_dag(other.id)
    assert client.wait_dag(other.id, timeout=60).unfinished == 0


# Other calls.


def test_vclusters_and_reservations(client: Client, idle: Demo) -> None:
    assert "default" in [v.name for v in client.list_vclusters()]
    made = client.set_vcluster("ml", {"description": "training", "tenants": ["atlas"]})
    assert (made.name, made.tenants) == ("ml", ["atlas"])
    changed = client.set_vcluster("ml", {"scheduler": {"reservations": "all"}})
    assert changed.scheduler.reservations == "all"
    assert client.assign_nodes("ml", "gpu003").nodes == "gpu003"
    assert client.get_vcluster("ml").nodes == "gpu003"
    client.set_vcluster("default", {"description": "all the rest"})
    client.assign_nodes("default", "gpu003", from_="ml")
    client.delete_vcluster("ml")
    kept = client.set_reservation(
        "firmware", {"nodes": "gpu001", "from": "tomorrow", "duration": "4h", "reason": "BIOS"}
    )
    assert (kept.nodes, kept.active) == ("gpu001", False)
    assert client.get_reservation("firmware").revision == kept.revision
    assert [r.name for r in client.list_reservations()] == ["firmware"]
    client.delete_reservation("firmware")


def test_nodes_are_claimed_and_given_back(client: Client, idle: Demo) -> None:
    baseline = "own"
    client.set_baseline(baseline, {"from_node": "gpu001", "nodes": "gpu001"})
    try:
        claimed = client.claim_nodes("gpu001", WEB, purpose="genomes")
        assert claimed.nodes == "gpu001"
        claim = client.get_node("gpu001").claim
        assert claim is not None
        assert (claim.user, claim.purpose) == ("demo", "genomes")
        assert client.release_nodes("gpu001", {"wipe": "once"}).nodes == "gpu001"
    finally:
        client.delete_baseline(baseline)


def test_who_did_what_is_written_down(client: Client) -> None:
    id = name("audited")
    client.create_tenant({"id": id})
    client.delete_tenant(id)
    entries = client.list_audit(project=id).all()
    assert len(entries) >= 2
    assert {entry.by for entry in entries} == {"demo"}
    newest = client.list_audit(newest_first=True).page(3)
    assert newest.items[0].number > newest.items[-1].number
    assert newest.next_cursor is not None
    following = client.list_audit(newest_first=True).page(3, cursor=newest.next_cursor)
    assert following.items[0].number < newest.items[-1].number
    head = client.sign_audit()
    assert head.number >= newest.items[0].number


def test_the_quorum_its_certificates_and_tokens(client: Client) -> None:
    quorum = client.get_quorum()
    assert (len(quorum.members), quorum.reachable) == (3, 3)
    assert len(client.list_authorities().all()) == 1
    assert len(client.list_certificates().all()) >= NODES
    made = client.create_token({"role": "agent", "ttl": "1h", "uses": 2})
    assert made.id in [token.id for token in client.list_tokens()]
    assert made.id is not None
    client.revoke_token(made.id)
    assert len(client.backup().read()) > 1000
    assert "lattice_" in client.metrics()
    assert next(iter(client.decisions())) != b""


async def test_many_calls_share_one_client(aclient: AsyncClient) -> None:
    many = await asyncio.gather(*(aclient.get_node("gpu001") for _ in range(50)))
    assert {node.name for node in many} == {"gpu001"}
