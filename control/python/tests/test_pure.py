"""Tests without a server: event decoding, paths, pins, addresses, contexts, retry rules."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest

import lattice_client
from lattice_client import EndpointError, Retry, Unreachable, errors
from lattice_client import _request as requests
from lattice_client import context as contexts
from lattice_client._sse import MAX_EVENT_BYTES, Decoder, Frame, Oversize
from lattice_client._tls import digest_of
from lattice_client.endpoint import Endpoint, endpoint
from lattice_client.models import ProblemDocument

TEXT = (
    b': hello\n\nid: 7\nevent: changes\ndata: {"a":\r\ndata: 1}\r\n\r\n'
    b"event: keepalive\n\ndata:x\n\n"
)


@pytest.mark.parametrize("size", range(1, len(TEXT) + 1))
def test_frames_come_out_the_same_however_the_bytes_are_cut(size: int) -> None:
    decoder = Decoder()
    chunks = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
    frames = [frame for chunk in chunks for frame in decoder.push(chunk)]
    assert frames == [Frame("changes", '{"a":\n1}'), Frame("", "x")]


def test_an_endless_event_is_given_up() -> None:
    decoder = Decoder()
    for _ in range(MAX_EVENT_BYTES >> 20):
        list(decoder.push(b"x" * (1 << 20)))
    with pytest.raises(Oversize):
        list(decoder.push(b"x"))


def test_a_name_stays_one_segment_and_a_project_has_several() -> None:
    assert requests.fill("/nodes/{id}/claim", {"id": "gpu[1-2]/x"}) == (
        "/nodes/gpu%5B1-2%5D%2Fx/claim"
    )
    assert requests.fill("/projects/{path}/headroom", {"path": "a/b c"}) == (
        "/projects/a/b%20c/headroom"
    )
    for bad in ("", ".", ".."):
        with pytest.raises(ValueError, match="is not a valid name"):
            requests.fill("/nodes/{id}", {"id": bad})
    for bad in ("a//b", "a/../b", "/a"):
        with pytest.raises(ValueError, match="is not a valid name"):
            requests.fill("/projects/{path}", {"path": bad})


def test_a_query_says_what_was_said() -> None:
    query = {"a": None, "b": True, "c": False, "d": 0, "e": ["x", "y"], "f": [], "g": ""}
    wanted = [("b", "true"), ("c", "false"), ("d", "0"), ("e", "x,y"), ("g", "")]
    assert requests.params(query) == wanted


def test_a_pin_is_read_with_and_without_colons() -> None:
    hexed = "ab" * 32
    assert digest_of(f"sha256:{hexed}") == bytes.fromhex(hexed)
    assert digest_of("SHA256:" + ":".join(["AB"] * 32)) == bytes.fromhex(hexed)
    for bad in (hexed, f"sha1:{hexed}", "sha256:abcd", f"sha256:{hexed}:", f"sha256:{hexed}00"):
        with pytest.raises(EndpointError, match="is not sha256"):
            digest_of(bad)


@pytest.mark.parametrize(
    ("url", "token", "told"),
    [
        ("not a url", "t", "must be https://host:port"),
        ("http://127.0.0.1:1", "t", "must be https://host:port"),
        ("https://h:1/api", "t", "must be https://host:port"),
        ("https://user@h:1", "t", "must be https://host:port"),
        ("https://h:1", "a\nb", "characters that are not valid in an HTTP header"),
        ("https://h:1", "", "the token is empty"),
    ],
)
def test_an_endpoint_that_cannot_work_is_refused(url: str, token: str, told: str) -> None:
    with pytest.raises(EndpointError, match=told):
        Endpoint(url, token)


def test_an_authority_that_is_none_is_refused(tmp_path: Path) -> None:
    broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    for pem in ("", "nothing", broken):
        with pytest.raises(EndpointError, match="authority"):
            Endpoint("https://h:1", "t", pem).tls()
    with pytest.raises(EndpointError, match="ca_file"):
        endpoint("https://h:1", "t", None, tmp_path / "none.pem", None, None)


def test_half_an_endpoint_is_refused() -> None:
    with pytest.raises(EndpointError, match="url without token"):
        endpoint("https://h:1", None, None, None, None, None)
    with pytest.raises(EndpointError, match="token, pin without url"):
        endpoint(None, "t", None, None, "sha256:", None)
    with pytest.raises(EndpointError, match="not both"):
        endpoint("https://h:1", "t", None, None, None, "file")


def test_a_token_is_not_shown() -> None:
    assert "very-secret" not in repr(Endpoint("https://h:1", "very-secret"))
    assert "very-secret" not in repr(contexts.Context("s", "c", "very-secret"))


def plant(path: Path, pid: int | None = None, mode: int = 0o600) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True, mode=0o700)
    path.write_text(json.dumps({"server": "s", "ca_pem": "c", "token": "t", "demo_pid": pid}))
    path.chmod(mode)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(contexts.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def test_a_context_is_looked_for_where_the_command_looks(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EndpointError, match="no cluster is known"):
        contexts.find()
    demo = plant(home / "lattice" / "demo-1.json", os.getpid())
    assert contexts.find().demo_pid == os.getpid()
    other = plant(home / "lattice" / "demo-2.json", os.getpid())
    with pytest.raises(EndpointError, match="several demos are running") as error:
        contexts.find()
    assert str(demo) in str(error.value)
    assert str(other) in str(error.value)
    plant(home / "config" / "lattice" / "context.json", 1)
    assert contexts.find().demo_pid == 1
    monkeypatch.setenv(contexts.VARIABLE, str(plant(home / "named.json", 2)))
    assert contexts.find().demo_pid == 2
    assert contexts.find(plant(home / "explicit.json", 3)).demo_pid == 3
    monkeypatch.setenv(contexts.VARIABLE, str(home / "none.json"))
    with pytest.raises(EndpointError, match="LATTICE_CONTEXT names this file"):
        contexts.find()
    assert contexts.find(demo).server == "s"


def test_only_a_demo_that_runs_and_is_ours_counts(home: Path) -> None:
    folder = home / "lattice"
    child = subprocess.Popen(["true"])
    plant(folder / "demo-1.json", child.pid)
    # The child has ended, but is still a zombie.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(EndpointError, match="no cluster is known"):
        contexts.find()
    child.wait()
    plant(folder / "demo-2.json", os.getpid(), mode=0o644)
    (folder / "demo-3.json").symlink_to(plant(home / "elsewhere.json", os.getpid()))
    with pytest.raises(EndpointError, match="no cluster is known"):
        contexts.find()
    (home / "real").mkdir()
    plant(home / "real" / "demo.json", os.getpid())
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.symlink_to(home / "real")
    with pytest.raises(EndpointError, match="no cluster is known"):
        contexts.find()


def test_a_context_that_others_can_read_is_refused(home: Path) -> None:
    with pytest.raises(EndpointError, match="chmod 600"):
        contexts.read(plant(home / "open.json", mode=0o640))
    (home / "half.json").write_text('{"server": "s"}')
    (home / "half.json").chmod(0o600)
    with pytest.raises(EndpointError, match="ca_pem is missing"):
        contexts.read(home / "half.json")


def test_it_is_tried_again_a_bounded_number_of_times_and_for_a_bounded_time() -> None:
    retry = Retry(attempts=4, first_wait=1.0, longest_wait=3.0, within=20.0)
    waits = [retry.wait(sent, None, 0.0) for sent in (1, 2, 3, 4)]
    for wait, longest in zip(waits, (1.0, 2.0, 3.0)):
        assert wait is not None
        assert longest / 2 <= wait <= longest
    assert waits[3] is None
    assert retry.wait(1, 7.0, 0.0) == 7.0
    assert retry.wait(1, 7.0, 14.0) is None


def problem(status: int) -> errors.Problem:
    document = ProblemDocument(code="x", detail="why", status=status, title="t", type="urn:x")
    return errors.of_status(status)(document, 0.0)


def broken(cause: httpx.TransportError) -> Unreachable:
    return requests.unreachable("https://h:1", cause)


def test_what_may_have_been_done_is_repeated_only_under_a_key() -> None:
    keyed = requests.writing("POST", "/x", {}, {}, None, "k", True)
    once = requests.writing("POST", "/x", {}, {}, None, "k", False)
    both = [problem(429), broken(httpx.ConnectError("no")), broken(httpx.ConnectTimeout("no"))]
    only_keyed = [problem(503), broken(httpx.ReadError("broke")), broken(httpx.ReadTimeout("late"))]
    never = [problem(status) for status in (400, 401, 403, 404, 409, 410, 422, 500)]
    for call, may in ((keyed, [*both, *only_keyed]), (once, both)):
        for error in [*both, *only_keyed, *never]:
            attempts = requests.Attempts(Retry(), call)
            if error in may:
                assert attempts.wait(error) >= 0.0
            else:
                with pytest.raises(type(error)):
                    attempts.wait(error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.Invalid),
        (415, errors.Invalid),
        (401, errors.NotAllowed),
        (403, errors.NotAllowed),
        (404, errors.NotFound),
        (409, errors.Refused),
        (410, errors.Refused),
        (422, errors.Refused),
        (429, errors.Refused),
        (503, errors.Unavailable),
        (500, errors.ServerFault),
    ],
)
def test_every_status_has_its_class(status: int, kind: type[errors.Problem]) -> None:
    error = problem(status)
    assert type(error) is kind
    assert isinstance(error, errors.LatticeError)
    assert (str(error), error.status, error.code, error.violations) == ("why", status, "x", [])


def test_the_version_is_that_of_the_package() -> None:
    assert lattice_client.__version__ == version("lattice-client")
