"""What can go wrong with the store of a service.

::

    StoreError
    ├── StoreUnavailableError   away or busy: come again
    ├── NewerStoreError         written by a newer release
    ├── ReadOnlyStoreError      may only be read
    ├── UnknownEntryError       what is named is not stored
    ├── QuotaError              the store holds as much as it may
    ├── EntryError              what is to be stored breaks a rule
    │   └── EntryTooLargeError
    └── ReusedKeyError          an idempotency key came with other rows
"""

from __future__ import annotations

from http import HTTPStatus

from precision_time.errors import PrecisionTimeError


class StoreError(PrecisionTimeError):
    """A store that cannot be used."""

    http_status = HTTPStatus.SERVICE_UNAVAILABLE


class StoreUnavailableError(StoreError):
    """The store is away or busy; the same call may work later."""

    headers = {"Retry-After": "5"}


class NewerStoreError(StoreError):
    """The store was written by a newer release."""


class ReadOnlyStoreError(StoreError):
    """The store may be read, not written."""


class UnknownEntryError(StoreError):
    """What is named is not stored."""

    http_status = HTTPStatus.NOT_FOUND


class QuotaError(StoreError):
    """The store holds as much as the operator lets it."""

    http_status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class EntryError(StoreError):
    """What is to be stored breaks a rule."""

    http_status = HTTPStatus.UNPROCESSABLE_ENTITY


class EntryTooLargeError(EntryError):
    """What is to be stored is larger than the store takes."""

    http_status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class ReusedKeyError(StoreError):
    """An idempotency key that came before, with other rows."""

    http_status = HTTPStatus.UNPROCESSABLE_ENTITY
