"""Module to graph: torch models, .onnx and .pt2 files as operator graphs (needs torch).

No room imports this: `plugins("captures")` finds it.
"""

from ..errors import import_failure

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise import_failure(
        error, name="torch", package="torch", extra="capture", purpose="read modules, .onnx and .pt2 files"
    ) from error
