"""A sink for Ray Data: `dataset.write_datasink(sink(...))` puts rows into a source log, each once, however often Ray runs a task.

A write task is a *unit*: its rows become blocks, and an actor that holds a lane of the log appends them. Which units a lane has is in the lane's
resume point, so a unit that a retried task, a restarted actor or a restarted driver writes again is found there, and nothing is written.
"""
from __future__ import annotations

import threading
import time
from typing import Any, Iterable, NamedTuple, Sequence

from ..env.ids import random_id
from ..errors import BatchWeaveError, invalid, is_error
from ..load.block_rule import BLOCK_BYTES, BLOCK_SAMPLES, Block, BlockRule
from ..load.fault import make_fault, stop_for
from ..load.preparing import Preparing
from ..load.source_log import open_source_log
from ..load.unit_lane import UnitLane

try:
    import ray
    from ray.data import Datasink
    from ray.data.block import BlockAccessor
except ImportError as error:
    raise BatchWeaveError("MISSING_PACKAGE", f"batchweave.ray needs Ray ({error}): run pip install 'ray[data]'.", {"package": "ray"}) from error

_KEEP_UP_S = 1.0
#: How long a task looks for the actor of its lane: a node that died takes a while to be noticed.
_ACTOR_WAIT_S = 120.0
_RAY_NAMESPACE = "batchweave"


class _Place(NamedTuple):
    """What an actor needs to open its lane."""

    uri: str
    source: str
    lanes: int
    print: str
    settings: dict[str, Any]


class LaneActor:
    """Holds one lane of the log, for the time of a write."""

    def __init__(self, place: _Place, lane: int) -> None:
        self._log = open_source_log(place.uri, place.source, place.lanes, place.print, **place.settings)
        self._lane = UnitLane(self._log, lane)
        threading.Thread(target=self._keep_up, name="keep-up", daemon=True).start()

    def add(self, unit: int, blocks: Sequence[Block]) -> bool:
        return self._lane.add(unit, blocks)

    def end(self, units: Sequence[int]) -> None:
        self._lane.end(units)

    def close(self) -> None:
        self._lane.close()

    def _keep_up(self) -> None:
        while not self._lane.is_over:
            time.sleep(_KEEP_UP_S)
            try:
                self._lane.keep_up()
            except BatchWeaveError as error:
                if is_error(error, "FENCED") or is_error(error, "CLOSED"):
                    return


class SampleSink(Datasink[int]):  # type: ignore[misc]
    """See `sink`."""

    def __init__(self, place: _Place, block: tuple[int, int], finish: Preparing, is_skipped: bool, id_column: str, rows: int | None) -> None:
        self._place = place
        self._block = block
        self._finish = finish
        self._is_skipped = is_skipped
        self._id_column = id_column
        self._rows = rows
        #: Actors of one write: a driver that starts again makes its own, and their lanes fence those of the first.
        self._run = random_id()
        self._actors: list[Any] = []

    def get_name(self) -> str:
        return f"BatchWeave({self._place.source})"

    @property
    def min_rows_per_write(self) -> int | None:
        return self._rows

    def on_write_start(self, schema: Any = None) -> None:
        self._start()

    def _start(self) -> None:
        if self._actors:
            return
        place = self._place
        open_source_log(place.uri, place.source, place.lanes, place.print, **place.settings)
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "max_concurrency": 8, "scheduling_strategy": "SPREAD", "namespace": _RAY_NAMESPACE}
        make = ray.remote(LaneActor)
        self._actors = [make.options(name=self._actor_name(lane), **options).remote(place, lane) for lane in range(place.lanes)]

    def _actor_name(self, lane: int) -> str:
        return f"batchweave-{self._place.source}-{self._run}-{lane}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_actors": []}  # tasks find them by name

    def _actor(self, lane: int) -> Any:
        until = time.monotonic() + _ACTOR_WAIT_S
        while True:
            try:
                return ray.get_actor(self._actor_name(lane), _RAY_NAMESPACE)
            except ValueError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def write(self, blocks: Iterable[Any], ctx: Any) -> int:
        unit = int(ctx.task_idx)
        made = self._blocks(blocks, unit)
        _call(self._actor(unit % self._place.lanes).add, unit, made)
        return unit

    def _blocks(self, blocks: Iterable[Any], unit: int) -> list[Block]:
        source = self._place.source
        rule = BlockRule(source, *self._block)
        found: list[Block] = []
        number = 0
        for block in blocks:
            for row in BlockAccessor.for_block(block).iter_rows(public_row_format=True):
                id = str(row[self._id_column]) if self._id_column in row else f"{unit}:{number}"
                number += 1
                for piece in self._finish([row]):
                    full = None
                    if piece.sample is not None:
                        full = rule.add(piece.sample._replace(id=id + piece.suffix), None)
                    elif piece.fault is not None:
                        full = rule.leave_out(self._fault(id + piece.suffix, *piece.fault), None)
                    found += [full] if full else []
        return found if rule.is_empty else [*found, rule.take()]

    def _fault(self, id: str, stage: str, reason: str, tokens: int | None) -> dict[str, Any]:
        source = self._place.source
        if stage == "no-tokens":
            raise invalid(f"Row {id} of source {source} has no column tokens: make one before the write, as in dataset.map(tokenize).", id=id)
        fault = make_fault(source, id, stage, reason, 1, tokens)
        if (stage == "transform" and not self._is_skipped) or (stage == "length" and self._finish.too_long == "stop"):
            raise stop_for(fault)
        return fault

    def on_write_complete(self, write_result: Any) -> None:
        """Every unit is in the log. Ends the lanes, then the log."""
        self._start()
        units = sorted(int(unit) for unit in write_result.write_returns)
        for actor in self._actors:
            _call(actor.end, units)
        for actor in self._actors:
            _call(actor.close)
        place = self._place
        open_source_log(place.uri, place.source, None, place.print, **place.settings).finish()
        self._release()

    def on_write_failed(self, error: Exception) -> None:
        """What is in the log stays; the same write, started again, goes on."""
        self._release()

    def _release(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []


def _call(method: Any, *arguments: Any) -> Any:
    """Calls an actor; a failure of ours is raised as it was."""
    try:
        return ray.get(method.remote(*arguments))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, BatchWeaveError):
            raise error.cause from None
        raise


def sink(
    uri: str,
    source: str,
    lanes: int = 1,
    tokens_max: int | None = None,
    too_long: str = "stop",
    on_fault: str = "stop",
    id_column: str = "id",
    rows_per_unit: int | None = None,
    block_samples: int = BLOCK_SAMPLES,
    block_bytes: int = BLOCK_BYTES,
    **settings: Any,
) -> SampleSink:
    """A sink for `Dataset.write_datasink`. Rows have `tokens`, and if they want `loss_mask`, `images`, `features` and a name in `id_column`.

    uri, source, lanes: the folder of source logs, the source's name, and its lanes, as in the pipeline of the constructors.
    Exactly once holds for a write that is the same every time: keep the number of blocks and their order fixed
    (`override_num_blocks`, `DataContext.execution_options.preserve_order`). A write that differs is refused.
    Order: rows of a write task stay together and in order; tasks lie in the order in which they finished.
    """
    if on_fault not in ("stop", "skip"):
        raise invalid(f'on_fault is "stop" or "skip", not {on_fault!r}.')
    BlockRule(source, block_samples, block_bytes)
    print = f"ray {lanes} {block_samples} {block_bytes} {tokens_max} {too_long}"
    place = _Place(uri, source, lanes, print, settings)
    return SampleSink(place, (block_samples, block_bytes), Preparing(tokens_max, too_long), on_fault == "skip", id_column, rows_per_unit)
