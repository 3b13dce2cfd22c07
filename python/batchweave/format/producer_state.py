"""Producer state: the only place that answers "did I commit?". Inline in the manifest, or in a sealed table when long silent."""
from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import corrupt
from .index_node import Reference, decode_reference
from .stored_json import as_id, as_integer, as_list, as_name, as_record, as_tuple, check_unknown, open_json


class LastBatch(NamedTuple):
    """The producer's last batch: enough to derive the key of its last extent, where the resume point is."""

    base: int
    attempt: int
    extent: int
    size: int
    check: int
    epoch: int
    incarnation: str


class ProducerState(NamedTuple):
    """State of one producer id."""

    epoch: int
    incarnation: str
    #: The next seq: everything below is in the log.
    seq: int
    #: Version of the manifest that changed this state last.
    at: int
    #: Where the resume point is: in the last batch's footer, in a sealed table, or nowhere.
    last: LastBatch | Reference | None = None
    #: The epoch whose holder said that it is gone; 0: none did.
    left: int = 0
    #: Trailing elements that this version does not know, kept.
    rest: tuple[Any, ...] = ()

    @property
    def has_left(self) -> bool:
        """Whether the producer's holder closed it. The next holder is another epoch, which has not."""
        return self.left == self.epoch

    @property
    def made_by(self) -> int:
        """The epoch that made the last batch. Unknown when its state came back from a table: then the one before this."""
        if self.last is None:
            return 0
        return self.last.epoch if isinstance(self.last, LastBatch) else self.epoch - 1

    @property
    def own_last(self) -> LastBatch | None:
        """The last batch, if this very incarnation committed it."""
        last = self.last
        if not isinstance(last, LastBatch) or last.epoch != self.epoch or last.incarnation != self.incarnation:
            return None
        return last

    def stored(self) -> list[Any]:
        """The compact form; `last` leaves out what equals the state itself."""
        last: Any = 0
        if isinstance(self.last, LastBatch):
            last = list(self.last[:5]) if self.own_last else list(self.last)
        elif self.last is not None:
            last = {"table": list(self.last)}
        return [*self[:4], last, *([self.left] if self.left or self.rest else []), *self.rest]


class SilentProducer(NamedTuple):
    """A silent producer in a sealed table: its state and a copy of its resume point."""

    state: ProducerState
    resume_point: Any


def decode_state(value: Any, where: str) -> ProducerState:
    """Reads the compact form: [epoch, incarnation, seq, at, last, left?, ...]"""
    s = as_list(value, where, "producer state")
    epoch, incarnation, seq, at, stored_last = s[:5] if len(s) >= 5 else [*s, *[None] * (5 - len(s))]
    as_integer(epoch, where, "producer.epoch")
    as_id(incarnation, where, "producer.incarnation")
    as_integer(seq, where, "producer.seq")
    as_integer(at, where, "producer.at")
    last: LastBatch | Reference | None = None
    if isinstance(stored_last, list):
        if seq == 0:
            raise corrupt(where, "a producer has a last batch and no first")
        last = _decode_last(stored_last, epoch, incarnation, where)
    elif type(stored_last) is not int or stored_last != 0:
        last = decode_reference(as_record(stored_last, where, "producer.last").get("table"), where)
    if len(s) <= 5:
        return ProducerState(epoch, incarnation, seq, at, last)
    as_integer(s[5], where, "producer.left")
    check_unknown(s[6:], where)
    return ProducerState(epoch, incarnation, seq, at, last, s[5], tuple(s[6:]))


def _decode_last(stored: list[Any], epoch: int, incarnation: str, where: str) -> LastBatch:
    items = stored if len(stored) == 5 else as_tuple(stored, 7, where, "producer.last")
    last = LastBatch._make([*items, epoch, incarnation][:7])
    for field in ("base", "attempt", "extent", "size", "check", "epoch"):
        as_integer(getattr(last, field), where, f"last.{field}")
    as_id(last.incarnation, where, "last.incarnation")
    return last


def decode_table(data: bytes, where: str, namespace: str) -> dict[str, SilentProducer]:
    """Silent producers by their ids."""
    f = open_json(data, where, "table", namespace)
    producers = {}
    for producer, value in as_record(f.get("producers"), where, "producers").items():
        as_name(producer, where, "a producer id")
        state, resume_point = as_tuple(value, 2, where, f"producers.{producer}")
        producers[producer] = SilentProducer(decode_state(state, where), resume_point)
    return producers
