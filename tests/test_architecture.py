"""The budgets of surface.toml are kept, packages import one way, and every public name exists."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from surface import SOURCE, budgets, exceeded, figures, imports, module_of, skips, source_files, tree_of

import precision_time

from .conftest import SKIPS

ROOT = SOURCE.parents[1]
PACKAGES = (
    "render",
    "workload", "hardware", "precision", "parallel", "cost", "request", "corpus", "learn", "predict",
    "launch", "planning", "client", "testing", "cli", "measure", "online", "integrations", "papers",
    "evaluation", "server",
)  # fmt: skip
MAY_IMPORT = {
    "layouts": set(), "money": set(), "energy": set(), "run": {"money", "energy"},
    "decision": {"layouts", "money", "energy", "run"}, "queue": {"money", "energy", "run"},
    "precisions": {"money", "energy", "run"},
}  # fmt: skip
"""What each part of `planning` may import of the others."""
SHARED = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
SLOW_PACKAGES = {
    "torch",
    "ray",
    "lightgbm",
    "pandas",
    "scipy",
    "transformers",
    "timm",
    "ortools",
    "gymnasium",
}


PARTS = {
    "integrations": {"measure", "online", "integrations"}, "papers": {"papers", "evaluation"},
    "server": {"server"},
}  # fmt: skip
"""Folders of what becomes a distribution of its own; all others are the core."""
MAY_TAKE_FROM = {
    "core": {"core"}, "integrations": {"integrations", "core"}, "papers": {"papers", "integrations", "core"},
    "server": {"server", "core"},
}  # fmt: skip
ROUTING = "precision_time.server.routing"
"""All that route files of other parts take of the server, which alone loads them."""


def part_of(folder: str) -> str:
    """The part that a folder of the package, or a file beside the folders, belongs to."""
    return next((part for part, folders in PARTS.items() if folder in folders), "core")


def wrong_arrow(place: tuple[str, ...], module: str) -> bool:
    """Whether a file, by its path in the package, takes from a part that it must not."""
    if place[1:2] == ("routes",) and module.startswith(f"{ROUTING}."):
        return False
    return part_of(package_of(module)) not in MAY_TAKE_FROM[part_of(place[0])]


def package_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def test_budgets_are_kept() -> None:
    """A rise needs an edit of tests/surface.toml and its reason; what fell must be lowered there."""
    assert exceeded(figures(), budgets()) == []


def test_budgets_only_tighten() -> None:
    """What each planted fault is called: a new option, a room without a budget, a budget left too high."""
    budget = {"surface": {"options": 10}, "lines": {"cost": 100}}
    assert exceeded({"surface": {"options": 10}, "lines": {"cost": 60}}, budget) == []
    assert exceeded({"surface": {"options": 11}}, budget) == [
        "[surface] options: 11 are above the budget of 10"
    ]
    assert exceeded({"surface": {"options": 9}}, budget) == [
        "[surface] options: 9 are below the budget of 10: lower it"
    ]
    assert exceeded({"lines": {"cost": 49, "new": 1}}, budget) == [
        "[lines] cost: 49 are below the budget of 100: lower it", "[lines] new = 1 has no budget"
    ]  # fmt: skip
    assert exceeded({"lines": {}}, budget) == ["[lines] cost is gone"]


MOST_SKIPS = 40
"""Places of the tests that skip, in all."""


def wrong_skips(root: Path) -> dict[str, tuple[int, int]]:
    """Reasons of the code and of skips.toml with their places in both, where these differ."""
    found = Counter(skip.reason for skip in skips(root))
    text = (root / "tests" / "skips.toml").read_text(encoding="utf-8")
    listed = Counter({reason: each["places"] for reason, each in tomllib.loads(text).items()})
    wrong = {
        reason: (found[reason], listed[reason])
        for reason in sorted(found | listed)
        if found[reason] != listed[reason]
    }
    return wrong | ({"in all": (found.total(), MOST_SKIPS)} if found.total() > MOST_SKIPS else {})


def test_every_skip_is_listed_and_they_are_few() -> None:
    assert wrong_skips(ROOT) == {}
    assert all(each["why"] and each.keys() <= {"places", "why", "on_ci"} for each in SKIPS.values())


def test_the_first_skip_too_many_is_told(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    for count, wrong in ((MOST_SKIPS, {}), (MOST_SKIPS + 1, {"in all": (MOST_SKIPS + 1, MOST_SKIPS)})):
        (tmp_path / "tests" / "skips.toml").write_text(f"['no tea']\nplaces = {count}\n")
        path = tmp_path / "tests" / f"test_{count}.py"
        path.write_text("pytest.skip('no tea')\n" * count)
        assert wrong_skips(tmp_path) == wrong
        path.unlink()


def test_a_skip_that_is_not_listed_is_told(tmp_path: Path) -> None:
    """A reason, a second place, an import, and what is listed and gone."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "skips.toml").write_text("['no tea']\nplaces = 1\n['no cup']\nplaces = 1\n")
    wrong = {
        "def test(): pytest.skip('no milk')": {"no milk": (1, 0)},
        "@pytest.mark.skipif(NO, reason='no tea')\ndef test(): pytest.skip('no tea')": {"no tea": (2, 1)},
        "tea = pytest.importorskip('tea')\npytest.skip('x', allow_module_level=True)": {
            "tea": (1, 0),
            "x": (1, 0),
        },
        "def test(): pytest.skip(f'{no} tea')": {"f'{no} tea'": (1, 0)},
    }
    for number, (code, differs) in enumerate(wrong.items()):
        path = tmp_path / "tests" / f"test_{number}.py"
        path.write_text(code)
        assert wrong_skips(tmp_path) == {"no cup": (0, 1), "no tea": (0, 1), **differs}
        path.unlink()


def test_every_folder_is_a_known_package() -> None:
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(PACKAGES)


@pytest.mark.parametrize("path", source_files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_leftwards(path: Path) -> None:
    parts = path.relative_to(SOURCE).parts
    if len(parts) == 1 or parts[1:2] in (("cli",), ("routes",)):  # right of all of their part
        return
    allowed = SHARED | set(PACKAGES[: PACKAGES.index(parts[0]) + 1]) | {"__version__"}
    wrong = {module for module in imports(path) if package_of(module) not in allowed}
    assert not wrong, f"{path.name} imports {sorted(wrong)}, which lie to its right"


def test_no_part_takes_from_one_that_it_must_not() -> None:
    """Imports inside functions count; what only type checkers read does not."""
    wrong = {
        f"{path.relative_to(SOURCE)} imports {module}"
        for path in source_files()
        for module in imports(path, run=True)
        if wrong_arrow(path.relative_to(SOURCE).parts, module)
    }
    assert sorted(wrong) == []
    assert all((SOURCE / folder).is_dir() for folders in PARTS.values() for folder in folders)


def test_a_wrong_arrow_is_found() -> None:
    """Planted: the core asks a part, a part the server, papers the routes of the server by another door."""
    assert wrong_arrow(("cli", "predict.py"), "precision_time.papers.registry.PREDICTORS")
    assert wrong_arrow(("io.py",), "precision_time.online.RunMonitor")
    assert wrong_arrow(("measure", "plan.py"), "precision_time.papers.ernest.scaled")
    assert wrong_arrow(("server", "app.py"), "precision_time.integrations.slurm.limits.MARGIN")
    assert wrong_arrow(("papers", "routes", "predictddl.py"), "precision_time.server.bodies.json_object")
    assert wrong_arrow(("papers", "registry.py"), f"{ROUTING}.body")
    assert not wrong_arrow(("papers", "routes", "predictddl.py"), f"{ROUTING}.body")
    assert not wrong_arrow(("papers", "cli", "campaign.py"), "precision_time.measure.store.read_store")
    assert not wrong_arrow(("server", "cli", "serve.py"), "precision_time.client.client.Client")


def test_parts_of_planning_import_one_way() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)} imports {module}"
        for path in sorted((SOURCE / "planning").rglob("*.py"))
        for module in imports(path)
        if module.startswith("precision_time.planning.")
        and len(path.relative_to(SOURCE).parts) > 2
        and (to := module.split(".")[2]) != (part := path.relative_to(SOURCE).parts[1])
        and to not in MAY_IMPORT.get(part, set())
    ]
    assert wrong == []


INSTALLED_AS = {"PIL": "pillow", "pynvml": "nvidia-ml-py", "sklearn": "scikit-learn", "yaml": "pyyaml",
                "stable_baselines3": "stable-baselines3", "pydantic_core": "pydantic",
                "prometheus_client": "prometheus-client"}  # fmt: skip
"""Packages that are imported by another name than they are installed by."""
FINDERS = {"import_module", "required_module", "find_spec", "_needed"}
"""Functions that take the name of a module first."""


def declared() -> tuple[set[str], set[str]]:
    """Names of the packages that pyproject.toml installs: always, and with the extras of users."""
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [name for extra in extras.keys() - {"dev", "docs", "testing"} for name in extras[extra]]
    core, more = (
        {re.split(r"[><=\[ ]", name)[0].lower() for name in names}
        for names in (project["dependencies"], wanted)
    )
    return core, more


def foreign_imports(tree: ast.AST) -> Iterator[str]:
    """Packages of others that a tree imports, as they are installed."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            names = [str(node.args[0].value)] if called in FINDERS else []
        for top in {name.split(".")[0] for name in names}:
            if top and top != "precision_time" and top not in sys.stdlib_module_names:
                yield INSTALLED_AS.get(top, top).lower()


def test_every_import_is_declared() -> None:
    core, more = declared()
    found = {name: path for path in source_files() for name in foreign_imports(tree_of(path))}
    assert {name: path for name, path in found.items() if name not in core | more} == {}
    assert core <= found.keys(), "declared and imported nowhere"


def modules_loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(' '.join(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = modules_loaded_by("import precision_time")
    assert "precision_time" in loaded
    assert not loaded & (SLOW_PACKAGES | {"numpy", "pydantic", "rich", "typer"})


def test_commands_and_public_names_need_the_core_alone() -> None:
    commands = [
        module_of(path)
        for folder in (SOURCE / "cli", *SOURCE.glob("*/cli"))
        for path in sorted(folder.glob("[a-z]*.py"))
    ]
    loaded = modules_loaded_by(f"import {', '.join(commands)}\nfrom precision_time import *")
    core, more = declared()
    assert {"numpy", "typer"} <= loaded
    assert not {INSTALLED_AS.get(name, name) for name in loaded} & (more - core)


def test_help_loads_nothing_heavy() -> None:
    loaded = modules_loaded_by("import precision_time.cli.main")
    assert not loaded & (SLOW_PACKAGES | {"numpy", "pydantic"})


def test_conformance_suites_need_no_test_runner() -> None:
    suites = [path.stem for path in sorted((SOURCE / "testing").glob("*.py")) if path.stem != "__init__"]
    loaded = modules_loaded_by("\n".join(f"import precision_time.testing.{name}" for name in suites))
    assert not loaded & {"pytest", "hypothesis", "torch", "ray"}


def test_all_is_sorted_and_importable() -> None:
    assert list(precision_time.__all__) == sorted(precision_time.__all__)
    for name in precision_time.__all__:
        assert getattr(precision_time, name) is not None


def test_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'predict_tim'"):
        precision_time.predict_tim  # noqa: B018


@pytest.mark.parametrize("package", PACKAGES)
def test_all_of_each_package_is_importable(package: str) -> None:
    module = importlib.import_module(f"precision_time.{package}")
    names = getattr(module, "__all__", [])
    assert list(names) == sorted(names)
    for name in names:
        assert hasattr(module, name)


def test_every_extra_that_an_error_names_exists() -> None:
    declared = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = set(declared["project"]["optional-dependencies"])
    named = {
        extra
        for path in source_files()
        for extra in re.findall(r"""\bextra="([a-z-]+)"[,)]""", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 10 and named - {"forbid"} <= extras
