"""How a dataset reads epochs: which order a state belongs to, where the next epoch begins, and what is said at the end of one."""
from __future__ import annotations

import logging
from typing import Any, Callable, Mapping

from ..consumer.epochs import EpochOrder, Last, is_epoch_state, open_log_error, padding_rows, parse_epoch_state
from ..consumer.projection import Projection
from ..errors import BatchWeaveError, invalid
from ..format.cursor import make_cursor, parse_cursor
from ..format.manifest import Manifest
from ..log.log import Log

#: Where ends are told: rows left unread, a log that is read again.
READS = logging.getLogger("batchweave.read")


class EpochReading:
    """The settings of a dataset that concern epochs."""

    def __init__(self, epochs: int | None, seed: int | None, window: int, last: Last) -> None:
        if epochs is not None and not (type(epochs) is int and epochs >= 1):
            raise invalid(f"epochs must be a whole number of at least 1, not {epochs!r}.")
        if seed is not None and type(seed) is not int:
            raise invalid(f"seed must be a whole number, not {seed!r}.")
        if type(window) is not int or window < 1:
            raise invalid(f"shuffle_window is a number of rows, at least 1, not {window!r}.")
        if last not in ("drop", "pad", "ragged"):
            raise invalid(f'last must be "drop", "pad" or "ragged", not {last!r}.')
        self._epochs = epochs
        self._seed = seed
        self._window = window if seed is not None else 0
        self._padding: int | None = None
        #: Whether rows are taken by their place in epochs from the first share on. Else the first epoch is the log as it grows.
        self.is_ordered = epochs is not None or seed is not None or last != "drop"

    def parsed(self, state: Any) -> dict[str, Any]:
        """A saved state, checked against the settings."""
        if not is_epoch_state(state):
            cursor = parse_cursor(state)
            if self._seed is not None:
                raise invalid(
                    f"This state is a place in the log's own order (row {cursor['row']}), and this dataset shuffles. Read on without shuffle, or begin epochs of "
                    f"the rows from there on with start={{'row': {cursor['row']}}}."
                )
            return cursor
        found = parse_epoch_state(state)
        if (found["seed"], found["window"]) != (self._seed, self._window):
            raise invalid(
                f"This state is a place in rows shuffled with {_order_text(found['seed'], found['window'])}, and this dataset has "
                f"{_order_text(self._seed, self._window)}. Use the settings that it was saved with."
            )
        return found

    def order(self, log: Log, uri: str, state: Mapping[str, Any], first: Callable[[], dict[str, Any]]) -> EpochOrder:
        """The order that a state is a place in. `first` gives the cursor of the dataset's first row."""
        manifest = log.head.jump()
        if not manifest.closed:
            raise open_log_error(uri, manifest.end)
        rows = log.spec.rows
        begin = state["first"] if is_epoch_state(state) else first()["row"]
        count = manifest.end * rows - begin
        if is_epoch_state(state):
            if state["namespace"] != log.spec.uuid or state["rows"] != count:
                raise BatchWeaveError(
                    "WRONG_NAMESPACE",
                    f"This state is a place in epochs of {state['rows']} rows of namespace {state['namespace']}, and {uri} has {count} from row {begin} on and is "
                    f"{log.spec.uuid}. Open the namespace that it was saved from.",
                    {"found": state["namespace"], "expected": log.spec.uuid},
                )
        if count <= 0:
            raise invalid(f"{uri} has no rows to make epochs of: it ended at step {manifest.end}.", uri=uri)
        epoch = state["epoch"] if is_epoch_state(state) else 0
        padding = state["padding"] if is_epoch_state(state) else self._padding_of(log, manifest, begin)
        one = epoch if self._epochs is None else None
        return EpochOrder(log.spec.uuid, begin, count, self._seed, self._window, one, self._epochs or 1, padding)

    def _padding_of(self, log: Log, manifest: Manifest, first: int) -> int:
        """Looked up once: the log has ended. In its own order, rows that are no samples are last anyway."""
        if self._seed is None:
            return 0
        if self._padding is None:
            self._padding = padding_rows(log, manifest, first)
        return self._padding

    def pass_rows(self, order: EpochOrder) -> int:
        """Rows of one pass, over all ranks."""
        return order.rows * (self._epochs or 1)

    def next_epoch(self, order: EpochOrder, iteration: int, uri: str) -> dict[str, Any] | None:
        """The state that the epoch after this one begins with; None: all epochs that were asked for were read."""
        if order.epoch is None:
            READS.warning("%s: all %d epochs were read, and nothing is left to iterate. Raise epochs to go on.", uri, order.epochs)
            return None
        following = order._replace(epoch=order.epoch + 1)
        READS.info("%s: epoch %d begins.", uri, order.epoch + 1)
        return following.state((order.epoch + 1) * order.rows, iteration)


def _order_text(seed: int | None, window: int) -> str:
    return "no shuffle" if seed is None else f"seed={seed}, shuffle_window={window}"


def placed(order: EpochOrder, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """A state of epochs; of a cursor, the place in epoch 0 that it stands for."""
    if is_epoch_state(state):
        return state
    if not order.first <= state["row"] <= order.first + order.rows:
        raise invalid(f"This state is at row {state['row']}, and the epochs of this dataset begin at row {order.first}. Start them from that row or before it.")
    return order.state(state["row"] - order.first, state["iteration"])


def kept_cursor(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a checkpoint keeps: of epochs, all rows that they are made of, for they are read again."""
    return make_cursor(state["namespace"], state["first"], state["iteration"]) if is_epoch_state(state) else state


def count_iterations(projection: Projection, rows: int) -> int:
    """How many iterations `rows` make from the first on."""
    count, left = 0, rows
    fixed = projection.rows_of_rank(0) if projection.is_steady else None
    last = getattr(projection, "last", "drop")
    if fixed is not None:
        size = fixed * projection.data_ranks
        return rows // size if last == "drop" else -(-rows // size)
    while left > 0:
        size = projection.rows_of_rank(count) * projection.data_ranks
        if size > left and last == "drop":
            break
        left -= size
        count += 1
    return count


def tell_end(uri: str, projection: Projection, left: int, iteration: int, count: int) -> None:
    """Says how many rows were left, and if nothing was read."""
    if left > 0:
        size = projection.rows_of_rank(iteration) * projection.data_ranks
        READS.warning(
            '%s: the last %d rows were not read: an iteration takes %d (dp %d x %d rows). last="pad" or "ragged" reads them.',
            uri, left, size, projection.data_ranks, size // projection.data_ranks,
        )
    if count == 0:
        READS.warning("%s was read to its end before, so this loop got nothing. Iterate again for the next epoch, or end the run.", uri)
