"""What the served document does not say, or not well. What is served goes before what is here, so a
server that says it makes the entry here needless.
"""

from __future__ import annotations

from typing import Any


def _number(description: str) -> dict[str, Any]:
    return {"type": "number", "description": description}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _maybe(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


def _object(description: str, properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "description": description,
        "required": required,
        "properties": properties,
    }


_BUDGETS = {
    "gpu_hours_budget": _maybe(_number("GPU hours that it may use in its period; `null`: any.")),
    "node_hours_budget": _maybe(_number("Node hours that it may use in its period; `null`: any.")),
    "fair_share_target": _maybe(_number("Its part of the cluster, 0 to 1; `null`: not said.")),
    "burst_allowance": _maybe(
        _number("How far it may go above its part, 1 or more; `null`: not said.")
    ),
}
_PERIOD = {
    "days": {"type": "integer", "description": "How many days it looks back."},
    "since": _text("From when on."),
    "until": _text("Until when."),
    "node_hours_used": _number("Node hours that were used."),
    "gpu_hours_used": _number("GPU hours that were used."),
}

# Schemas by name: their properties are added to what is served.
SCHEMAS: dict[str, dict[str, Any]] = {
    # Budgets, and what was used of them: servers before them have none.
    "TenantRequest": {"properties": _BUDGETS},
    "TenantUpdate": {"properties": _BUDGETS},
    "TenantView": {"properties": _BUDGETS},
    "TenantUsage": _object(
        "What a tenant used of late.",
        {
            "tenant": _text("Which."),
            **_PERIOD,
            "gpu_hours_budget": _BUDGETS["gpu_hours_budget"],
            "node_hours_budget": _BUDGETS["node_hours_budget"],
            "budget_used": _maybe(_number("The part of its budget that is used; 1 is all of it.")),
            "budget_factor": _maybe(_number("What that leaves of its work's priority.")),
            "source": _maybe(_text("Who counted.")),
        },
        "gpu_hours_budget",
        "node_hours_budget",
        "budget_used",
        "budget_factor",
        "source",
    ),
    "UserUsage": _object(
        "What a user used of late.",
        {
            "user": _text("Who."),
            **_PERIOD,
            "tenants": {
                "type": "array",
                "items": {"$ref": "#/components/schemas/UserTenantUsage"},
                "description": "In which tenants.",
            },
        },
    ),
    "UserTenantUsage": _object(
        "What a user used in one tenant.",
        {
            "tenant": _text("Which."),
            "node_hours_used": _number("Node hours that were used."),
            "gpu_hours_used": _number("GPU hours that were used."),
        },
    ),
    # The event stream carries these two besides `Changes`, the only one that the document has.
    "Observed": _object(
        "Nodes whose liveness, health, facts or digests are seen to be different, and allocations "
        "whose reason to wait is.",
        {
            "nodes": {
                "type": "array",
                "items": {"$ref": "#/components/schemas/NodeView"},
                "description": "As they are now.",
            },
            "waiting": {
                "type": "array",
                "items": {"$ref": "#/components/schemas/Waiting"},
                "description": "Allocations with their reason to wait.",
            },
        },
    ),
    "Waiting": _object(
        "Why one allocation waits.",
        {"id": {"type": "integer", "description": "Which."}, "reason": _text("Why.")},
    ),
    "Compacted": _object(
        "The revision asked for is no longer kept: read the lists again. The stream goes on from "
        "`oldest`.",
        {"oldest": {"type": "integer", "description": "Oldest revision that is kept."}},
    ),
    # Two requests are called `ReleaseRequest` in the document, which shows that of the brake.
    "NodesReleaseRequest": _object(
        "Claimed nodes are given back.",
        {
            "reason": _maybe(
                _text("Why; needed from who is not the claimant, and kept in the audit.")
            ),
            "wipe": {
                "$ref": "#/components/schemas/Wipe",
                "description": "What is done about the wipe: `once` (default) they are wiped and "
                "free when that is confirmed; `again`, where it failed or hangs; `waive`, they are "
                "taken for clean by who asks. The last two are for administrators.",
            },
        },
        "reason",
        "wipe",
    ),
}

# Schemas that are part of an answer or of a request, and that no operation in the document names.
ANSWERS = ("TenantUsage", "UserUsage", "Observed", "Compacted", "Problem")
REQUESTS = ("NodesReleaseRequest",)

# What they are called here.
NAMES = {"Problem": "ProblemDocument"}
