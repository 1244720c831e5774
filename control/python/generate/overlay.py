"""Additions to the served OpenAPI document."""

from __future__ import annotations

# Schemas of responses that no operation of the document references.
ANSWERS = ("ObservedChanges", "CompactedEvents")

# Schema name to Python class name.
NAMES = {"Problem": "ProblemDocument"}
