"""Turning torch models into operator graphs on meta tensors (needs torch)."""

from ...errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        package="torch", extra="capture", purpose="read modules, .onnx and .pt2 files"
    ) from error
