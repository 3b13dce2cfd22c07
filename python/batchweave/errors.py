"""The one error class and its table of codes; the same codes, remedies and exit statuses as the TypeScript side."""
from __future__ import annotations

import re
from typing import Any

#: code -> (what the user must do, exit status of the command line). docs/errors.md says when each one comes.
ERROR_CODES: dict[str, tuple[str, int]] = {
    "INVALID_ARGUMENT": ("fix", 2),
    "UNKNOWN_SCHEME": ("fix", 2),
    "MISSING_PACKAGE": ("fix", 2),
    "NO_NAMESPACE": ("fix", 2),
    "GRID_MISMATCH": ("fix", 2),
    "NOT_EMPTY": ("fix", 2),
    "MESH_MISMATCH": ("fix", 2),
    "WRONG_NAMESPACE": ("fix", 2),
    "UNSUPPORTED_FORMAT": ("fix", 2),
    "UNSUPPORTED_ENCODING": ("fix", 2),
    "CORRUPT": ("report", 2),
    "MISSING_OBJECT": ("report", 2),
    "FENCED": ("stop", 1),
    "CLOSED": ("stop", 1),
    "DELETED": ("stop", 1),
    "SEQUENCE_CONFLICT": ("report", 1),
    "UPLOAD_EXPIRED": ("retry", 1),
    "RECLAIMED": ("fix", 2),
    "CHECKPOINT_RELEASED": ("fix", 2),
    "CHECKPOINT_CONFLICT": ("fix", 2),
    "NO_CHECKPOINT": ("fix", 2),
    "LIMIT": ("fix", 2),
    "WAIT_TIMEOUT": ("retry", 1),
    "LAG_DEADLOCK": ("fix", 1),
    "UNSAFE_STORE": ("fix", 2),
    "STORE_DENIED": ("fix", 2),
    "STORE_FULL": ("fix", 1),
    "STORE_UNAVAILABLE": ("retry", 1),
    "ENGINE_FAILED": ("fix", 1),
    "CONTENDED": ("retry", 1),
}


class BatchWeaveError(Exception):
    """Everything BatchWeave raises on purpose. The message says what happened, to what, and what to do."""

    def __init__(self, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        # It may hold another sentence, which brought its own full stop. An ellipsis and a path stay as they are.
        message = re.sub(r"(?<=[^\s./])\.\.(?=\s|$)", ".", message)
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details or {}

    @property
    def remedy(self) -> str:
        """What the user must do: retry, refresh, stop, fix or report."""
        return ERROR_CODES[self.code][0]

    @property
    def exit(self) -> int:
        """The exit status of the command line for this error."""
        return ERROR_CODES[self.code][1]

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes of a DataLoader hand their failure to the main process.
        return (BatchWeaveError, (self.code, self.message, self.details))

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"


def is_error(error: object, code: str | None = None) -> bool:
    """True for a BatchWeaveError, optionally of one code."""
    return isinstance(error, BatchWeaveError) and (code is None or error.code == code)


def corrupt(where: str, what: str, **details: Any) -> BatchWeaveError:
    """CORRUPT for the object `where`."""
    return BatchWeaveError(
        "CORRUPT",
        f"{where} is corrupt: {what}. Do not delete anything; restore the object from a replica or a backup, "
        "or report this with `batchweave verify`.",
        {"key": where, "what": what, **details},
    )


def deleted(uri: str, namespace: str) -> BatchWeaveError:
    """DELETED, for every handle of a namespace that was deleted. `uri` may be that of its life or its place."""
    place = uri.replace(f"/life/{namespace}", "")
    return BatchWeaveError(
        "DELETED",
        f"The namespace {namespace} at {place} was deleted: nothing is read from it or committed to it any more. If the deletion "
        f"was interrupted, finish it with `batchweave delete {place}`; if another namespace was made there since, open that.",
        {"uri": place, "namespace": namespace},
    )


def invalid(message: str, **details: Any) -> BatchWeaveError:
    """INVALID_ARGUMENT."""
    return BatchWeaveError("INVALID_ARGUMENT", message, details)
