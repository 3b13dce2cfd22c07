"""One rank reads for its tensor- and pipeline-parallel peers, which would otherwise read the same bytes tp x pp times."""
from __future__ import annotations

import json
from typing import Any, Iterator, Sequence

from ..consumer.consumer import Consumer, projection_of, start_position
from ..consumer.epochs import EpochOrder
from ..consumer.mesh import Place
from ..consumer.reader import Slice
from ..consumer.share import Share, share_of
from ..errors import BatchWeaveError, invalid
from ..format.cursor import make_cursor
from ..log.log import Log

_END, _SHARE, _FAILURE = range(3)


class BroadcastConsumer:
    """A Consumer whose shares come from the first rank of its group of peers, over gloo. Every rank of the job makes one.

    Every rank of a group calls `next` the same number of times; a failure of the reader is raised on all of them.
    """

    def __init__(self, log: Log, place: Place, start: Any, axes: Sequence[str], settings: dict[str, Any]) -> None:
        import torch
        import torch.distributed as dist

        if not dist.is_initialized():
            raise invalid("broadcast needs torch.distributed: call init_process_group first, or leave broadcast out.")
        self._torch: Any = torch
        self._dist: Any = dist
        self.place = place
        self._log = log
        world: Any = dist.new_group(backend="gloo")
        kept = [place.d, place.c, *(place.coordinates.get(a, 0) for a in ("tp", "pp") if a not in axes)]
        mine = torch.tensor(kept, dtype=torch.int64)
        all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(all_of_them, mine, group=world)
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank, key in enumerate(all_of_them):
            groups.setdefault(tuple(key.tolist()), []).append(rank)
        # Every rank makes every group, in the same order.
        made = {key: dist.new_group(ranks, backend="gloo") for key, ranks in sorted(groups.items())}
        self._group = made[tuple(kept)]
        self._source = min(groups[tuple(kept)])
        #: Ranks that get the same bytes, and whether this one reads them.
        self.peers = len(groups[tuple(kept)])
        self.is_reader = dist.get_rank() == self._source
        self._finish = settings.get("finish")
        self._consumer = Consumer(log, place, start, **settings) if self.is_reader else None
        self._order: EpochOrder | None = settings.get("order")
        self._is_ragged = settings.get("last") == "ragged"
        shape = {name: settings[name] for name in ("policy", "layout", "rows_per_rank", "order", "last") if name in settings}
        self.projection = projection_of(log, place, **shape)
        place_of: tuple[int, int] = start_position(start, log, log.head.newest()) if self._order is None else self._order.position(start)
        self._row, self._iteration = place_of
        self.reader = self._consumer.reader if self._consumer else None
        self.leftover_rows: int | None = None

    @property
    def waited(self) -> float:
        """Seconds that the reader waited for data; 0 on its peers."""
        return self._consumer.waited if self._consumer else 0.0

    @property
    def cursor(self) -> dict[str, Any]:
        """Where the next share begins."""
        return make_cursor(self._log.spec.uuid, self._row, self._iteration) if self._order is None else self._order.state(self._row, self._iteration)

    def __iter__(self) -> Iterator[Share[Any]]:
        return self

    def __next__(self) -> Share[Any]:
        if self.leftover_rows is not None:
            raise StopIteration
        share = self._send() if self._consumer else self._receive()  # the reader's was finished on its threads
        plan = self.projection.plan(self._row, self._iteration)
        self._row, self._iteration = plan.next_row, plan.iteration + 1
        return share

    def close(self) -> None:
        """Ends the reader's threads."""
        if self._consumer:
            self._consumer.close()

    def _send(self) -> Share[Any]:
        assert self._consumer is not None
        try:
            share = next(self._consumer)
        except StopIteration:
            self.leftover_rows = self._consumer.leftover_rows or 0
            self._share_numbers([_END, self.leftover_rows, 0, 0], 4)
            raise
        except BatchWeaveError as error:
            text = json.dumps([error.code, error.message]).encode()
            self._share_numbers([_FAILURE, 0, 0, len(text)], 4)
            self._share_bytes(self._torch.frombuffer(bytearray(text), dtype=self._torch.uint8))
            raise
        lengths = [len(s.bytes) for s in share.slices]
        self._share_numbers([_SHARE, share.iteration, len(lengths), sum(lengths)], 4)
        self._share_numbers(lengths, len(lengths))
        payload = bytearray().join(s.bytes for s in share.slices)
        if payload:
            self._share_bytes(self._torch.frombuffer(payload, dtype=self._torch.uint8))
        return share

    def _receive(self) -> Share[Any]:
        kind, number, count, size = self._share_numbers(None, 4)
        if kind == _END:
            self.leftover_rows = number
            raise StopIteration
        lengths = self._share_numbers(None, count) if kind == _SHARE else []
        buffer = bytearray(size)
        if size:
            self._share_bytes(self._torch.frombuffer(buffer, dtype=self._torch.uint8))
        if kind == _FAILURE:
            code, message = json.loads(buffer)
            raise BatchWeaveError(code, f"The rank that reads for this one (rank {self._source}) failed: {message}", {})
        plan = self.projection.plan(self._row, self._iteration)
        if number != plan.iteration or count != len(plan.cells):
            raise invalid(
                f"The rank that reads for this one is at iteration {number}, this one at {plan.iteration}. Start all ranks from "
                "the same state, and take the same number of shares on each."
            )
        view, at, slices = memoryview(buffer), 0, []
        for cell, length in zip(plan.cells, lengths):
            slices.append(Slice(*cell, view[at : at + length]))
            at += length
        share = share_of(plan, slices, self._log.spec.uuid, self._order, self._is_ragged)
        if self._finish is not None:
            self._finish(share)
        return share

    def _share_numbers(self, numbers: list[int] | None, count: int) -> list[int]:
        tensor = self._torch.tensor(numbers if numbers is not None else [0] * count, dtype=self._torch.int64)
        if count:
            self._dist.broadcast(tensor, self._source, group=self._group)
        found: list[int] = tensor.tolist()
        return found

    def _share_bytes(self, tensor: Any) -> None:
        self._dist.broadcast(tensor, self._source, group=self._group)
