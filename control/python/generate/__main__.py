"""Generator of the Python client: `python generate` in this folder.

It reads the OpenAPI document of a running server, found like the `lattice` command does
(`--context`, LATTICE_CONTEXT, the user's default, a demo), or of a file (`--document`). With
`--check` it writes nothing, and exits with 1 if a file is stale.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import blocking
import models
import request_types

from document import Document

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "lattice_client"


def blocking_files() -> dict[Path, str]:
    """Return the blocking client, generated from the asynchronous one: path to text."""
    sources = sorted((PACKAGE / "_async").glob("*.py"))
    return {PACKAGE / "_sync" / s.name: blocking.write(s.read_text("utf-8")) for s in sources}


def model_files(text: str) -> dict[Path, str]:
    """Return the files generated from the OpenAPI document: path to text."""
    document = Document(text)
    return {
        PACKAGE / "models.py": models.write(document),
        PACKAGE / "requests.py": request_types.write(document),
    }


def stale(wanted: dict[Path, str]) -> list[Path]:
    """Return the paths of missing files and of files with a different text."""
    return [
        path
        for path, text in wanted.items()
        if not path.exists() or path.read_text("utf-8") != text
    ]


def _served(context: str | None) -> str:
    sys.path.insert(0, str(PACKAGE.parent))
    from lattice_client import Client

    with Client(context=context) as client:
        return client.openapi()


def main() -> int:
    parser = argparse.ArgumentParser(prog="generate", description=__doc__)
    parser.add_argument("--document", type=Path, help="file with the OpenAPI document")
    parser.add_argument("--context", help="context file of the server to ask")
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args()
    files = blocking_files()
    changed = stale(files)
    if not args.check:
        _write({path: files[path] for path in changed})
    text = args.document.read_text("utf-8") if args.document else _served(args.context)
    files = model_files(text)
    changed += stale(files)
    if not args.check:
        _write({path: text for path, text in files.items() if path in changed})
    for path in changed:
        print(path.relative_to(PACKAGE))
    return int(args.check and bool(changed))


def _write(files: dict[Path, str]) -> None:
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
