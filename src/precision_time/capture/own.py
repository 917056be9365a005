"""A user's own model by name: `package.module:function` or `path/to/file.py:function`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ..errors import CaptureError, ConfigError, PrecisionTimeError, nearest_names

_BUILDERS = ("build", "build_model", "get_model", "make_model", "create_model", "model")
"""Names that a function which returns the model usually has."""


def is_own(source: str) -> bool:
    """Whether a name is of a function or of a file of code."""
    return ":" in source or source.endswith(".py")


def own_label(source: str) -> str:
    """What a user's own model is called: its file without the folder, or its module; and its function."""
    file, attribute = _parts(source)
    if not file.endswith(".py"):
        return source
    return f"{Path(file).name}:{attribute}" if attribute else Path(file).name


def load_own(source: str, arguments: Mapping[str, Any] | None = None) -> tuple[Any, Any, str]:
    """A module, its example inputs where its function gives some, and what it is called.

    Args:
        source: `package.module:function` or `file.py:function`; in the place of the function may stand a
            class or a module of torch.
        arguments: Handed to the function or class.

    Raises:
        CaptureError: If it cannot be imported, or returns no module.
        ConfigError: If a file is named alone, or the function has no such argument.
    """
    made = _made(load_function(source), source, arguments or {})
    label = own_label(source)
    if isinstance(made, torch.nn.Module):
        return made, None, label
    if isinstance(made, tuple) and made and isinstance(made[0], torch.nn.Module):
        return made[0], made[1] if len(made) == 2 else made[1:], label
    raise CaptureError(
        f"{source!r} returned a {type(made).__name__}. The rule: a torch.nn.Module, or (module, example "
        "inputs). To fix: return one of these."
    )


def load_function(name: str) -> Callable[..., Any]:
    """The function (or class, or module of torch) of "package.module:function" or "file.py:function".

    The working directory counts for packages, the folder of a file for what it imports.

    Raises:
        ConfigError: If a file is named alone.
        CaptureError: If it cannot be imported.
    """
    file, attribute = _parts(name)
    if file.endswith(".py") and not attribute:
        raise ConfigError(
            f"{name} names a file alone. The rule: to read a model its file is run from top to bottom, so "
            "that a script would begin to train; a file is run only as file.py:object. To fix: say which "
            f"function, class or module of it is the model, such as {name}:build."
        )
    if file.endswith(".py"):
        module = _module_of_file(Path(file))
        found = getattr(module, attribute, None)
        if found is None:
            names = [*_models_of(module)]
            near = nearest_names(attribute, names) or names[:3]
            raise CaptureError(
                f"{file} has no {attribute!r}. To fix: "
                + (f"name one of its models: {', '.join(near)}." if near else "name a function of it.")
            )
        return found  # type: ignore[no-any-return]
    _on_path(os.getcwd())
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(file), attribute)
    except (Exception, SystemExit) as error:  # a user's module may raise anything while it is imported
        raise CaptureError(
            f"{name!r} cannot be imported: {type(error).__name__}: {error}. The form is "
            "package.module:function or file.py:function. To fix: run the command in the "
            "folder that holds the package; on a cluster every node must be able to import it."
        ) from error
    return function


def code_stamp(source: str) -> tuple[Any, ...]:
    """Changes with the code behind a name, as far as this process would see it."""
    file, _ = _parts(source)
    path = Path(file)
    is_file = file.endswith(".py") and os.path.isfile(path)
    return (str(path.resolve()), path.stat().st_mtime_ns) if is_file else ()


def _parts(source: str) -> tuple[str, str]:
    """File or package, and what is named in it; a colon may also follow the letter of a drive."""
    if source.endswith(".py"):
        return source, ""
    file, _, attribute = source.rpartition(":")
    return file, attribute


def _on_path(folder: str) -> None:
    if "" not in sys.path and folder not in sys.path:
        sys.path.insert(0, folder)


def _module_of_file(path: Path) -> ModuleType:
    """The module that a file is; its folder can be imported from, as for a script.

    Raises:
        CaptureError: If there is no such file, or it raises while it is imported.
    """
    if not os.path.isfile(path):
        raise CaptureError(f"There is no file {str(path)!r}. To fix: check the path.")
    resolved = path.resolve()
    digest = hashlib.blake2b(f"{resolved}{code_stamp(str(path))}".encode(), digest_size=4).hexdigest()
    name = f"{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    if str(resolved.parent) not in sys.path:
        sys.path.insert(0, str(resolved.parent))
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise CaptureError(f"{path} cannot be imported. To fix: name a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise CaptureError(
            f"{path} raised {type(error).__name__}: {error} while it was imported. To fix: correct it; code "
            'that trains belongs below `if __name__ == "__main__":`.'
        ) from error
    return module


def _models_of(module: ModuleType) -> dict[str, Any]:
    """What a file defines itself that is a model or may return one: functions, modules, classes."""
    own = {name: item for name, item in vars(module).items() if not name.startswith("_")}
    found = {name: own[name] for name in _BUILDERS if inspect.isfunction(own.get(name))}
    for name, item in own.items():
        if inspect.isfunction(item) and item.__module__ == module.__name__ and _says_module(item):
            found.setdefault(name, item)
        is_class = inspect.isclass(item) and issubclass(item, torch.nn.Module)
        if (is_class and item.__module__ == module.__name__) or isinstance(item, torch.nn.Module):
            found.setdefault(name, item)
    return found


def _says_module(function: Any) -> bool:
    """Whether a function is annotated to return a module."""
    said = inspect.signature(function).return_annotation
    if isinstance(said, str):
        return said.rpartition(".")[2] == "Module"
    return inspect.isclass(said) and issubclass(said, torch.nn.Module)


def _parameters(item: Any) -> list[inspect.Parameter]:
    if isinstance(item, torch.nn.Module):
        return []
    try:
        return [*inspect.signature(item).parameters.values()]
    except (TypeError, ValueError):
        return []


def _made(function: Any, source: str, arguments: Mapping[str, Any]) -> Any:
    """What a function or class returns; a module as it is.

    Raises:
        CaptureError: If it raises.
        ConfigError: If it has no such argument.
    """
    parameters = _parameters(function)
    names = [parameter.name for parameter in parameters]
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    unknown = [name for name in arguments if name not in names and not takes_all]
    if unknown:
        has = f"its arguments are {', '.join(names)}" if names else "it takes no arguments"
        raise ConfigError(
            f"{source} has no argument {unknown[0]!r} for --size: {has}. To fix: leave it "
            "out, or add it there."
        )
    if isinstance(function, torch.nn.Module):
        return function
    try:
        return function(**arguments)
    except PrecisionTimeError:
        raise
    except (Exception, SystemExit) as error:
        raise CaptureError(
            f"{source!r} raised {type(error).__name__}: {error}. The rule: called without arguments, or with "
            "those of --size, it returns a module. To fix: correct the function; --debug shows its traceback."
        ) from error
