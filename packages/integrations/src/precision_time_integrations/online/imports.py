"""Importing trainers where their own optional dependencies are broken."""

from __future__ import annotations

from contextlib import suppress


def declare_torchvision() -> None:
    """Lightning and transformers import torchvision where it is installed.

    Its library does not load beside a torch of another build: the operators that it needs are then declared.
    """
    from precision_time.capture.timm_models import import_torchvision

    with suppress(ImportError, RuntimeError):
        import_torchvision()
