"""The budgets of surface.toml are kept, packages import one way, and every public name exists."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import precision_time
from surface import (
    CORE_API,
    PROJECTS,
    SOURCE,
    SOURCES,
    budgets,
    caches,
    core_api,
    exceeded,
    figures,
    imports,
    module_of,
    place_of,
    shown,
    skips,
    source_files,
    tree_of,
)

ROOT = SOURCE.parents[1]
PACKAGES = (
    "render",
    "workload", "hardware", "precision", "parallel", "cost", "request", "corpus", "learn", "predict",
    "launch", "planning", "explain", "mixed", "timeline", "client", "schemas", "testing", "cli", "capture",
    "price_lists", "ray",
)  # fmt: skip
"""Folders of the core: each imports those to its left. The last three are found as plug-ins are."""
BESIDE = {"capture": {"workload"}, "price_lists": {"hardware"}, "ray": set[str]()}
"""What the folders that nothing imports take of the others."""
BELOW = {
    "precision_time_integrations": ({"inventory"}, {"measure"}, {"online"}),
    "precision_time_papers": ({"precisions", "queue", "risk"},),
}
"""Folders of members that import nothing of their package but themselves and those named before."""
SKIPS = tomllib.loads((ROOT / "tests" / "skips.toml").read_text(encoding="utf-8"))
MAY_IMPORT = {
    "layouts": set(), "energy": set(), "run": {"energy"},
    "decision": {"layouts", "energy", "run"}, "precisions": {"energy", "run"},
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


MAY_TAKE_FROM = {
    "precision_time": {"precision_time"},
    "precision_time_integrations": {"precision_time_integrations", "precision_time"},
    "precision_time_papers": {"precision_time_papers", "precision_time_integrations", "precision_time"},
    "precision_time_server": {"precision_time_server", "precision_time"},
}
"""Arrows between the distributions."""
ROUTING = "precision_time_server.routing"
"""All that route files of other parts take of the server, which alone loads them."""


def wrong_arrow(place: tuple[str, ...], module: str) -> bool:
    """Whether a file, by its path with its package first, takes from a package that it must not."""
    if place[1:2] == ("routes",) and module.startswith(f"{ROUTING}."):
        return False
    return module.partition(".")[0] not in MAY_TAKE_FROM[place[0]]


def package_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def test_budgets_are_kept() -> None:
    """A rise needs an edit of tests/surface.toml and its reason; what fell must be lowered there."""
    assert exceeded(figures(), budgets()) == []


def test_the_core_has_one_kind_of_cache() -> None:
    """What functools has for it is bounded, listed and cleared by nobody."""
    assert caches()["other_caches"] == [], "To fix: memo, data or derived of precision_time.cache"


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


@pytest.mark.parametrize("path", source_files("precision_time"), ids=shown)
def test_imports_point_leftwards(path: Path) -> None:
    parts = place_of(path)[1:]
    if len(parts) == 1 or parts[1:2] == ("cli",):  # right of all of their part
        return
    allowed = SHARED | set(PACKAGES[: PACKAGES.index(parts[0]) + 1]) | {"__version__"}
    wrong = {module for module in imports(path) if package_of(module) not in allowed}
    assert not wrong, f"{path.name} imports {sorted(wrong)}, which lie to its right"


@pytest.mark.parametrize("folder", BESIDE)
def test_what_is_found_as_a_plug_in_is_imported_nowhere(folder: str) -> None:
    """Not even inside a function: `plugins("captures")` and its like find it."""
    wrong = []
    for path in source_files("precision_time"):
        inside = place_of(path)[1] == folder
        wrong += [
            f"{shown(path)} imports {module}"
            for module in imports(path)
            if (package_of(module) == folder) != inside
            and (package_of(module) == folder or package_of(module) not in SHARED | BESIDE[folder])
        ]
    assert wrong == []


def test_folders_of_members_import_one_way() -> None:
    wrong = []
    for member, layers in BELOW.items():
        for number, layer in enumerate(layers):
            known = set[str]().union(*layers[: number + 1]) | {"__version__"}
            wrong += [
                f"{shown(path)} imports {module}"
                for path in source_files(member)
                if place_of(path)[1] in layer
                for module in imports(path)
                if module.startswith(f"{member}.") and package_of(module) not in known
            ]
    assert wrong == []


def test_no_distribution_takes_from_one_that_it_must_not() -> None:
    """Imports inside functions count; what only type checkers read does not."""
    wrong = {
        f"{shown(path)} imports {module}"
        for path in source_files()
        for module in imports(path, run=True)
        if wrong_arrow(place_of(path), module)
    }
    assert sorted(wrong) == []


def test_a_wrong_arrow_is_found() -> None:
    """Planted: the core asks a member, a member the server, routes of papers the server by another door."""
    core, integrations, papers, server = (
        f"precision_time{name}" for name in ("", "_integrations", "_papers", "_server")
    )
    assert wrong_arrow((core, "cli", "predict.py"), f"{papers}.registry.PREDICTORS")
    assert wrong_arrow((core, "io.py"), f"{integrations}.online.RunMonitor")
    assert wrong_arrow((integrations, "measure", "plan.py"), f"{papers}.ernest.scaled")
    assert wrong_arrow((server, "app.py"), f"{integrations}.slurm.limits.MARGIN")
    assert wrong_arrow((papers, "routes", "predictddl.py"), f"{server}.bodies.json_object")
    assert wrong_arrow((papers, "registry.py"), f"{ROUTING}.body")
    assert not wrong_arrow((papers, "routes", "predictddl.py"), f"{ROUTING}.body")
    assert not wrong_arrow((papers, "campaign", "ray.py"), f"{integrations}.measure.store.only_writer")
    assert not wrong_arrow((server, "cli", "serve.py"), f"{core}.client.client.Client")


def beyond(some: Mapping[str, list[str]], others: Mapping[str, list[str]]) -> Iterator[str]:
    """Modules and names of one list that another does not have."""
    for module, names in some.items():
        yield from (f"{module}.{name}" for name in names if name not in others.get(module, ()))
        if module not in others:
            yield module


def test_members_import_of_the_core_what_is_listed() -> None:
    """A name more needs a line there, and what nobody takes any more goes: the core may change it then."""
    listed = tomllib.loads(CORE_API.read_text(encoding="utf-8"))
    taken = core_api()
    remedy = "To fix: python tools/surface.py --core-api"
    assert [*beyond(taken, listed)] == [], f"not listed. {remedy}"
    assert [*beyond(listed, taken)] == [], f"listed and not taken. {remedy}"


def test_parts_of_planning_import_one_way() -> None:
    wrong = [
        f"{shown(path)} imports {module}"
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
_BY_THE_SERVER = {"anyio", "fastapi", "starlette"}
BROUGHT_BY_OTHERS = {
    "precision_time": {"polars"},
    "precision_time_integrations": _BY_THE_SERVER | {"scikit-learn"}, "precision_time_papers": _BY_THE_SERVER,
}  # fmt: skip
"""Data frames where polars is; what route files import, which the server alone loads; digits to train on."""
FINDERS = {"import_module", "required_module", "find_spec", "_needed"}
"""Functions that take the name of a module first."""


def names_of(wanted: Iterable[str]) -> set[str]:
    """Packages of requirements, without versions and extras; ours are left out."""
    names = {re.split(r"[><=\[ ;]", name)[0].lower() for name in wanted}
    return {name for name in names if not name.startswith("precision-time")}


def declared(package: str) -> tuple[set[str], set[str]]:
    """What a distribution installs, with those it depends on: always, and with the extras of users."""
    core, more = set[str](), set[str]()
    for name in MAY_TAKE_FROM[package]:
        project = tomllib.loads(PROJECTS[name].read_text(encoding="utf-8"))["project"]
        extras = project["optional-dependencies"]
        core |= names_of(project["dependencies"])
        more |= names_of(each for wanted in extras.values() for each in wanted)
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
            if top and top not in SOURCES and top not in sys.stdlib_module_names:
                yield INSTALLED_AS.get(top, top).lower()


@pytest.mark.parametrize("package", SOURCES)
def test_every_import_is_declared(package: str) -> None:
    core, more = declared(package)
    found = {name: shown(path) for path in source_files(package) for name in foreign_imports(tree_of(path))}
    assert {
        name: path
        for name, path in found.items()
        if name not in core | more | BROUGHT_BY_OTHERS.get(package, set())
    } == {}
    if package == "precision_time":
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
        for package, folder in SOURCES.items()
        for path in sorted((folder / package / "cli").glob("[a-z]*.py"))
    ]
    loaded = modules_loaded_by(f"import {', '.join(commands)}\nfrom precision_time import *")
    core, _ = declared("precision_time")
    others = set[str]().union(*(each for package in SOURCES for each in declared(package)))
    assert {"numpy", "typer"} <= loaded
    assert not {INSTALLED_AS.get(name, name) for name in loaded} & (others - core)


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


def test_the_readme_lists_every_extra() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(precision-time[a-z-]*)` \| (.*) \|$", text, re.M)
    projects = [tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in PROJECTS.values()]
    known = {each["name"]: set(each["optional-dependencies"]) for each in projects}
    assert {name: set(re.findall(r"`([a-z-]+)`", listed)) for name, listed in rows} == known


def test_every_extra_that_an_error_names_exists() -> None:
    projects = [tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in PROJECTS.values()]
    known = {f"{each['name']}[{extra}]" for each in projects for extra in each["optional-dependencies"]}
    known |= {each["name"] for each in projects}
    named = {
        extra
        for path in source_files()
        for extra in re.findall(r"""\bextra="([a-z-]+(?:\[[a-z-]+\])?)"[,)]""", path.read_text("utf-8"))
    }
    assert len(named) > 10
    wanted = {name if name.startswith("precision-time") else f"precision-time[{name}]" for name in named}
    assert wanted - {"precision-time[forbid]"} <= known
