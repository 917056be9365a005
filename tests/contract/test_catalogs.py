"""Every device, precision, optimizer, stack and step term of the package satisfies its suite."""

import re
from pathlib import Path

import pytest

from precision_time.cost.optimizer import known_optimizers
from precision_time.cost.stacks import stack_names
from precision_time.cost.terms import TERMS
from precision_time.hardware.catalog import known_devices
from precision_time.testing.devices import DeviceSuite
from precision_time.testing.optimizers import OptimizerSuite
from precision_time.testing.precisions import PrecisionSuite, aliases, known_spellings
from precision_time.testing.stacks import StackSuite, dangling_profiles
from precision_time.testing.terms import TermSuite

SPELLINGS = list(known_spellings())
GLOSSARY = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"


@pytest.mark.parametrize("device", known_devices(), ids=lambda device: device.name)
class TestDevices(DeviceSuite):
    test_prices_a_cnn_and_a_decoder = pytest.mark.sampled(8)(DeviceSuite.test_prices_a_cnn_and_a_decoder)


@pytest.mark.parametrize("spelling", SPELLINGS)
class TestPrecisions(PrecisionSuite):
    pass


@pytest.mark.parametrize("name", known_optimizers())
class TestOptimizers(OptimizerSuite):
    pass


@pytest.mark.parametrize("name", stack_names())
class TestStacks(StackSuite):
    pass


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.name)
class TestTerms(TermSuite):
    glossary = frozenset(re.findall(r"^### (.+)$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_alias_of_a_precision_names_one_that_exists() -> None:
    named = {f"{policy}:{variant}" if variant else policy for policy, variant in aliases().values()}
    assert named <= set(SPELLINGS)


def test_every_table_of_stacks_names_profiles_that_exist() -> None:
    assert dangling_profiles() == set()
