"""What the served document does not say."""

from __future__ import annotations

# Schemas that are part of an answer, and that no operation in the document names.
ANSWERS = ("Observed", "Compacted")

# What they are called here.
NAMES = {"Problem": "ProblemDocument"}
