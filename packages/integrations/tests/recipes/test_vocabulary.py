"""The data of the vocabularies: names that exist, sources, defaults that hold."""

from __future__ import annotations

import pytest

from precision_time.cost.stacks import get_stack_profile, stack_name
from precision_time.io import packaged_toml
from precision_time.planning.run.schema import RunOptions
from precision_time.request.request import Request
from precision_time.request.schema import RequestFields
from precision_time_integrations.commands.launchers import programs
from precision_time_integrations.recipes.vocabulary import RECIPES, vocabulary

_FIELDS = {*RequestFields.model_fields}
_PSEUDO = {"flavor", "devices_per_node", "layers_per_chunk"}
"""Names that become fields together with others."""


@pytest.mark.parametrize("name", RECIPES)
def test_names_on_our_side_are_fields(name: str) -> None:
    words = vocabulary(name)
    ours = {*words.fields, *words.defaults, *words.fill} | {
        each for rule in words.rules for each in {**rule.fields, **rule.assume}
    }
    assert {each for each in ours if not each.startswith("sizes.")} <= _FIELDS | _PSEUDO
    assert {*words.run} <= RunOptions.model_fields.keys()
    assert words.source and words.version and words.own


@pytest.mark.parametrize("name", RECIPES)
def test_defaults_and_rules_have_values_that_fields_take(name: str) -> None:
    words = vocabulary(name)
    for fields in (
        words.defaults,
        *(rule.fields for rule in words.rules),
        *(rule.assume for rule in words.rules),
    ):
        stated = {key: value for key, value in fields.items() if value not in (None, "")}
        Request.of({"model": "llama2-7b", **stated})


@pytest.mark.parametrize("name", RECIPES)
def test_stacks_are_known(name: str) -> None:
    stack = vocabulary(name).stack
    assert stack_name(stack) is not None or get_stack_profile(stack)


def test_projects_of_documents_and_programs_have_a_vocabulary() -> None:
    signs = packaged_toml("precision_time.request", "data/recipes.toml")
    for name in {*signs} - {"nemo1"} | {table["project"] for table in programs().values()}:
        assert vocabulary(name).own, name
    assert {name: table["title"] for name, table in signs.items() if name in RECIPES} == {
        name: vocabulary(name).title.replace("transformers", "Hugging Face Trainer")
        for name in signs
        if name in RECIPES
    }


def test_defaults_of_training_arguments_are_those_of_its_own_parser() -> None:
    import transformers

    own = {
        field.name: field.default for field in transformers.TrainingArguments.__dataclass_fields__.values()
    }
    words = vocabulary("hf-trainer")
    for field, key in (("batch_size", "per_device_train_batch_size"), ("epochs", "num_train_epochs"),
                       ("num_microbatches", "gradient_accumulation_steps")):  # fmt: skip
        assert key in words.fields[field]
        assert words.defaults[field] == own[key]
    assert not own["gradient_checkpointing"] and words.defaults["recompute"] == "none"
    unknown = [key for key in own if not _is_known(key)]
    assert len(unknown) < 0.1 * len(own), unknown


def _is_known(key: str) -> bool:
    words = vocabulary("hf-trainer")
    listed = {name for keys in words.fields.values() for name in keys} | {
        name for rule in words.rules for name in {*rule.when, *rule.unless}
    }
    return key in listed or key in words.files or bool(words.idle.fullmatch(key) or words.why_unmodeled(key))
