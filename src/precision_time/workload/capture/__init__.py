"""Turning torch models into operator graphs on meta tensors (needs torch)."""

from ...errors import import_failure

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise import_failure(
        error, name="torch", package="torch", extra="capture", purpose="read modules, .onnx and .pt2 files"
    ) from error
