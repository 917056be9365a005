"""Kubernetes manifests of training jobs: how long they run, and annotations and limits of time for them."""

from .annotations import Annotated, annotate, annotated
from .documents import read_documents, write_documents
from .estimates import estimate

__all__ = ["Annotated", "annotate", "annotated", "estimate", "read_documents", "write_documents"]
