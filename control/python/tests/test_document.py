"""Tests of the client against the server's OpenAPI document: models, operations, parameters."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import document as documents
from conftest import FOLDER

SOURCES = sorted((FOLDER / "src" / "lattice_client" / "_async").glob("*.py"))
AGAIN = "what is generated is out of date; run `python control/python/generate`"
API = "/api/v1"


def generator() -> object:
    import importlib.util

    spec = importlib.util.spec_from_file_location("generator", FOLDER / "generate" / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_blocking_client_is_the_other_one_word_by_word() -> None:
    module = generator()
    stale: list[Path] = module.stale(module.blocking_files())  # type: ignore[attr-defined]
    assert not stale, AGAIN
    sources = {path.name for path in SOURCES}
    assert {path.name for path in (SOURCES[0].parent.parent / "_sync").glob("*.py")} == sources


def test_models_and_requests_are_what_the_server_says(document: str) -> None:
    module = generator()
    stale: list[Path] = module.stale(module.model_files(document))  # type: ignore[attr-defined]
    assert not stale, f"{AGAIN} while this server runs"


class Operation:
    """One request in the source of a client method."""

    def __init__(self, method: str, path: str, node: ast.Call, function: ast.AST) -> None:
        self.method, self.path = method, path
        keys = {"limit", "cursor"} if node.func.attr == "_list" else set()  # type: ignore[attr-defined]
        for inner in ast.walk(function):
            if isinstance(inner, ast.Dict):
                keys |= {str(key.value) for key in inner.keys if isinstance(key, ast.Constant)}
            if isinstance(inner, ast.keyword) and inner.arg == "cursor":
                keys |= {inner.value.value}  # type: ignore[attr-defined]
        # A stream adds `offset` when it resumes.
        self.words = keys | {"offset"}
        models = [a.id for a in node.args if isinstance(a, ast.Name) and a.id[0].isupper()]
        self.model = models[0] if models else None
        words = {keyword.arg for keyword in node.keywords}
        self.has_body = "body" in words


def operations() -> list[Operation]:
    """Return the requests of all client methods, from their source."""
    found = []
    for source in SOURCES:
        for function in ast.walk(ast.parse(source.read_text("utf-8"))):
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    texts = [text for a in node.args if (text := _text(a)) is not None]
                    paths = [text for text in texts if text.startswith("/")]
                    if paths:
                        methods = [t for t in texts if t in ("POST", "PUT", "DELETE")]
                        path = paths[0]
                        bare = node.func.attr in ("_text", "_probe") or path.startswith(API)
                        whole = path if bare else API + path
                        method = methods[0] if methods else "GET"
                        found.append(Operation(method, whole, node, function))
    return found


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(str(part.value))
            else:
                parts.append(API)
        return "".join(parts)
    return None


@pytest.fixture(scope="module")
def served(document: str) -> dict[tuple[str, str], documents.Schema]:
    return {(m, p): operation for m, p, operation in documents.Document(document).operations()}


def test_every_operation_of_the_server_has_a_method(
    served: dict[tuple[str, str], documents.Schema],
) -> None:
    here = {(operation.method, operation.path) for operation in operations()}
    # Only Waldur sends this request.
    hook = ("POST", f"{API}/accounting/hook/{{secret}}")
    assert set(served) - here == {hook}
    # The document does not describe its own path.
    assert here - set(served) == {("GET", "/openapi.json")}


def test_every_parameter_of_an_operation_can_be_given(
    served: dict[tuple[str, str], documents.Schema],
) -> None:
    words: dict[tuple[str, str], set[str]] = {}
    for operation in operations():
        words.setdefault((operation.method, operation.path), set()).update(operation.words)
    missing = [
        (method, path, parameter["name"])
        for (method, path), operation in served.items()
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "query" and parameter["name"] not in words[method, path]
    ]
    assert missing == []


def test_every_answer_is_read_as_what_the_server_calls_it(
    served: dict[tuple[str, str], documents.Schema],
) -> None:
    wrong = []
    for operation in operations():
        told = served.get((operation.method, operation.path), {}).get("responses", {})
        answers = {
            re.sub("^Page_", "", name)
            for status, answer in told.items()
            if status.startswith("2")
            for name in documents.refs(answer.get("content", {}).get("application/json", {}))
        }
        if operation.model and answers and operation.model not in answers:
            wrong.append((operation.method, operation.path, operation.model, answers))
    assert wrong == []


def test_what_takes_a_body_is_sent_one(served: dict[tuple[str, str], documents.Schema]) -> None:
    for operation in operations():
        takes = "requestBody" in served.get((operation.method, operation.path), {})
        if operation.method != "GET" and (operation.method, operation.path) in served:
            assert takes == operation.has_body, (operation.method, operation.path)
