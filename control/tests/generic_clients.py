#!/usr/bin/env python3
"""Test of a running cluster with generic clients, which use only its reflection and its OpenAPI
document.

First a gRPC client finds the services by reflection and calls each of their methods. Then
schemathesis sends valid and invalid requests generated from the OpenAPI document, and checks every
response against it. The test starts `lattice demo` (LATTICE_BINARY, else the one in target/), and
needs the packages of generic_clients.txt.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python" / "tests"))
from running import plays_out, started  # noqa: E402

CALL_TIMEOUT = 20.0
"""Timeout of one gRPC call in seconds."""
SERVICES = {"Allocations", "Nodes", "Conformance", "Dags", "Projects", "AdminService"}
STREAMS = {"grpc.health.v1.Health.Watch"}
"""Calls that never end by themselves."""


# gRPC


def reflected(context: dict[str, Any]) -> int:
    """Call every method found by reflection with an empty message; return the number of methods."""
    target = context["server"].removeprefix("https://").rstrip("/")
    credentials = grpc.ssl_channel_credentials(context["ca_pem"].encode())
    with grpc.secure_channel(target, credentials) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(database)
        names = set(database.get_services())
        missing = {f"lattice.v1.{name}" for name in SERVICES} - names
        assert not missing, f"reflection tells of no {missing}: {names}"
        healthy = asked(channel, pool, "grpc.health.v1.Health", "Check", "", {"service": ""})
        assert healthy[0] is grpc.StatusCode.OK and "status: SERVING" in healthy[1], healthy
        calls = 0
        for name in sorted(names):
            if name.startswith("grpc.reflection"):
                continue
            service: ServiceDescriptor = pool.FindServiceByName(name)
            for method in service.methods:
                if method.full_name in STREAMS:
                    continue
                calls += 1
                code, told = asked(channel, pool, name, method.name, context["token"], {})
                assert code not in (
                    grpc.StatusCode.UNKNOWN,
                    grpc.StatusCode.INTERNAL,
                    grpc.StatusCode.UNIMPLEMENTED,
                    grpc.StatusCode.UNAUTHENTICATED,
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                ), f"{method.full_name}: {code} {told}"
                if name.startswith("lattice."):
                    code, told = asked(channel, pool, name, method.name, "", {})
                    assert code is grpc.StatusCode.UNAUTHENTICATED, f"{method.full_name}: {code}"
    return calls


def asked(
    channel: grpc.Channel,
    pool: DescriptorPool,
    service: str,
    name: str,
    token: str,
    message: dict[str, Any],
) -> tuple[grpc.StatusCode, str]:
    """Call one method, and return its status code with the response or the error details.

    Of a streaming response only the first message is read.
    """
    method: MethodDescriptor = pool.FindServiceByName(service).methods_by_name[name]
    request = GetMessageClass(method.input_type)(**message)
    answer = GetMessageClass(method.output_type)
    kind = channel.unary_stream if method.server_streaming else channel.unary_unary
    call = kind(
        f"/{service}/{name}",
        request_serializer=lambda m: m.SerializeToString(),
        response_deserializer=answer.FromString,
    )
    metadata = [("authorization", f"Bearer {token}")] if token else []
    try:
        got = call(request, metadata=metadata, timeout=CALL_TIMEOUT)
        if method.server_streaming:
            for first in got:
                got.cancel()
                return grpc.StatusCode.OK, str(first)
            return grpc.StatusCode.OK, ""
        return grpc.StatusCode.OK, str(got)
    except grpc.RpcError as error:
        return error.code(), error.details() or ""


# REST


def generated(context: dict[str, Any], examples: int, seed: int) -> int:
    """Run schemathesis and return its exit code."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as ca:
        ca.write(context["ca_pem"])
        ca.flush()
        command = [
            str(Path(sys.executable).parent / "schemathesis"),
            f"--config-file={HERE / 'generic_clients.toml'}",
            "run",
            context["server"].rstrip("/") + "/openapi.json",
            f"--header=Authorization: Bearer {context['token']}",
            f"--tls-verify={ca.name}",
            f"--max-examples={examples}",
            f"--seed={seed}",
            "--checks=all",
            "--continue-on-failure",
            "--no-color",
        ]
        return subprocess.run(command, cwd=tempfile.gettempdir()).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=25, help="most cases of an operation")
    parser.add_argument("--seed", type=int, default=1, help="of the cases")
    parser.add_argument("--only", choices=["grpc", "rest"], help="leave the other out")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as demo:
        # The recorded jobs of the demo end first, so that only the clients use the cluster.
        plays_out(demo)
        context = demo.context
        if args.only != "rest":
            print(
                f"gRPC by reflection: {reflected(context)} calls, each asked and each answered",
                flush=True,
            )
        if args.only != "grpc":
            code = generated(context, args.examples, args.seed)
            assert demo.process.poll() is None, "the demo ended:\n" + "".join(demo.said[-40:])
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
