"""`precision-time precisions`: the policies behind the words."""

from __future__ import annotations

from dataclasses import asdict

from .options import JsonOption
from .output import write_json, write_rows

EXAMPLES = """\b
Examples:
  precision-time precisions
  precision-time precisions --json
"""


def precisions(*, json_output: JsonOption = False) -> None:
    """List the precision policies.

    A policy says in which type each part of a training step is held and computed.
    """
    from ..precision.catalog import get_policy, known_precisions

    policies = [get_policy(name) for name in known_precisions()]
    if json_output:
        write_json({"precisions": [asdict(policy) for policy in policies]})
        return
    rows = [
        (
            policy.name,
            policy.matmul.value,
            policy.activation.value,
            policy.param.value,
            policy.reduce.value,
            policy.master.value if policy.master else "-",
            "yes" if policy.loss_scaling else "-",
            policy.summary,
        )
        for policy in policies
    ]
    write_rows(
        "",
        ("precision", "matmul", "activations", "parameters", "wire", "master", "scaler", "what it is"),
        rows,
    )
