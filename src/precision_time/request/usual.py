"""What is assumed where a question leaves it open: what most people do, by the votes that ship."""

from __future__ import annotations

from dataclasses import replace

from ..cost.stacks import framework_profile, usual_profile
from .practice import of_question, practice, stack_alternatives
from .question import Question
from .votes import STACK, classes_table, shipped_votes, stacks_table


@of_question
def usual_stack(question: Question) -> str:
    """The stack that is assumed where a question leaves it open.

    That of the catalog for the framework, or for the family and the device; where `usual.times` as many votes
    are for another one, that.
    """
    device = question.device
    known = [framework_profile(name).name for name in question.frameworks]
    plain = known[0] if known else usual_profile(question.family_of_model, device.vendor, device.arch).name
    if question.kind not in classes_table()["usual"]["kinds"]:
        return plain
    shares = {
        str(each.fields.get(STACK, plain)): each.weight
        for each in stack_alternatives(question, shipped_votes().stacks)
        if each.fields.get(STACK, plain) not in stacks_table()["contests"]["stacks"]
    }
    most = max(shares, key=lambda name: shares[name], default=plain)
    times = classes_table()["usual"]["times"][question.scale]
    enough = float(times) * shares.get(plain, 0.0)
    return most if shares.get(most, 0.0) >= max(enough, float(classes_table()["usual"]["share"])) else plain


@of_question
def usual_recomputation(question: Question, stack: str) -> str | None:
    """What most users of a stack recompute in such a question; None where they differ."""
    found = practice(replace(question, stack=stack)).points(stack).get("recompute", ())
    if found and found[0].weight >= float(classes_table()["usual"]["recompute_share"]):
        return str(found[0].fields.get("recompute", "none"))
    return None
