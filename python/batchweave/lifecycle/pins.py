"""Pins: what a fork holds in its ancestors (FORMAT.md 17). Opening a fork makes sure of them."""
from __future__ import annotations

from typing import Any, Callable

from ..errors import BatchWeaveError, is_error
from ..format.keys import NAMESPACE_KEY
from ..format.namespace_spec import NamespaceSpec, decode_namespace
from ..log.draft import Draft
from ..log.log import Log
from ..store.object_store import Store


def confirm_pins(spec: NamespaceSpec, trim: int, open_store: Callable[[str], Store]) -> None:
    """A fork whose pins are gone may lose its data any time: better refused now than in the middle of a training run."""
    if spec.fork is None or trim >= spec.first_own_step:
        return
    for origin in spec.fork.origins:
        _confirm(spec.uuid, _open_ancestor(origin.uri, origin.uuid, open_store), origin.uri)


def _confirm(fork: str, log: Log, uri: str) -> None:
    pin = log.head.jump().pins.get(fork)
    if pin is not None and pin["confirmed"]:
        return

    def stage(draft: Draft, _: Any) -> tuple[bool, Any]:
        held = draft.pins.get(fork)
        if held is None or held["confirmed"]:
            return True, held is not None
        draft.pins[fork] = {**held, "confirmed": True}
        return False, True

    try:
        _, is_held = log.commit("confirm fork", "pin", stage)
    except BatchWeaveError as error:
        # A reader without the right to write relies on the pin as it is: no process removes it while the fork stands.
        if pin is None or not is_error(error, "STORE_DENIED"):
            raise
        return
    if not is_held:
        raise BatchWeaveError(
            "RECLAIMED",
            f"{uri} holds no pin for the fork {fork} (any more): the batches it shares may be reclaimed. Delete that fork and "
            "fork again.",
            {"fork": fork, "uri": uri},
        )


def _open_ancestor(uri: str, uuid: str, open_store: Callable[[str], Store]) -> Log:
    store = open_store(uri)
    data = store.get(NAMESPACE_KEY)
    if data is None:
        raise BatchWeaveError(
            "NO_NAMESPACE",
            f"There is no namespace at {uri}, where the ancestor {uuid} of a fork should be. Make it reachable under that address.",
            {"uri": uri, "expected": uuid},
        )
    spec = decode_namespace(data, f"{uri}/{NAMESPACE_KEY}")
    if spec.uuid != uuid:
        raise BatchWeaveError(
            "WRONG_NAMESPACE",
            f"The namespace at {uri} is {spec.uuid}, and {uuid} is expected there: it was deleted and made again. Forks of the old "
            "one have lost their batches.",
            {"uri": uri, "found": spec.uuid, "expected": uuid},
        )
    return Log(store, spec, open_store)
