"""The processes of a fleet, each supervised by an actor: what `batchweave fleet up --on ray` runs.

Ray places the actors, and starts them again elsewhere when a node dies; an actor starts its process again when that fails. Processes are equal, and
the log says where each goes on, so nothing here remembers anything.
"""
from __future__ import annotations

import ctypes
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from ..cli.stopping import Stop, Stopped
from ..errors import BatchWeaveError

try:
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ImportError as error:
    raise BatchWeaveError("MISSING_PACKAGE", f"A fleet on Ray needs Ray ({error}): run pip install ray.", {"package": "ray"}) from error

_DELAY_S, _DELAY_MAX_S = 1.0, 60.0
#: A process that ran so long was well: its next failure is its first.
_WELL_S = 60.0
#: Input or configuration is at fault (docs/errors.md): starting it again would only say so again.
_HOPELESS = 2
#: How long a cluster may take to answer.
_REACH_S = 20.0
#: Between two tries to be told how many processes there should be: the training log may not be there yet.
_ADVICE_AGAIN_S = 15.0
#: How long the fleet waits for room in the cluster; one that scales itself needs minutes.
_ROOM_S = float(os.environ.get("BATCHWEAVE_RAY_ROOM_S", "600"))


def _end_with_parent() -> None:
    """The process ends with its actor, however that ends: Linux sends it a signal, and it stops cleanly."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    except (OSError, AttributeError):
        pass


class Supervisor:
    """Runs one process until it ends with status 0, or can never do better."""

    def run(self, name: str, command: list[str], environment: dict[str, str]) -> int:
        failures = 0
        while True:
            begun = time.monotonic()
            try:
                code = subprocess.run(command, env={**os.environ, **environment}, preexec_fn=_end_with_parent, stdin=subprocess.DEVNULL, check=False).returncode
            except FileNotFoundError:
                print(f"[{name}] there is no program {command[0]} on {os.uname().nodename}", file=sys.stderr, flush=True)
                return _HOPELESS
            if code in (0, _HOPELESS):
                return code
            failures = 1 if time.monotonic() - begun > _WELL_S else failures + 1
            delay = min(_DELAY_MAX_S, _DELAY_S * 2 ** (failures - 1)) * (0.5 + random.random())
            print(f"[{name}] ended with status {code}; starts again in {delay:.1f} s", file=sys.stderr, flush=True)
            time.sleep(delay)


class _Fleet:
    """The actors of a fleet, and their places. Bundles of an actor that was taken away are given to the next one."""

    def __init__(self, roles: list[dict[str, Any]]) -> None:
        self._roles = {role["name"]: role for role in roles}
        #: By the answer that says how its process ended: role, actor, place.
        self._waiting: dict[Any, tuple[str, Any, tuple[Any, int]]] = {}
        self._free: dict[str, list[tuple[Any, int]]] = {name: [] for name in self._roles}
        self._groups: list[Any] = []
        self._started: dict[str, int] = {}
        #: Roles of which a process has ended with status 0: there is nothing left to do for them.
        self._done: set[str] = set()

    @property
    def is_over(self) -> bool:
        return not self._waiting

    def reserve(self, counts: dict[str, int]) -> Any:
        """Room for processes. Spread: a node that dies takes few of a role with it. Bundles of a node that died are placed again."""
        names = [name for name, count in counts.items() for _ in range(count)]
        group = placement_group([{"CPU": self._roles[name]["cores"]} for name in names], strategy="SPREAD")
        self._groups.append(group)
        for k, name in enumerate(names):
            self._free[name].append((group, k))
        return group

    def count(self, name: str) -> int:
        return sum(role == name for role, _, _ in self._waiting.values())

    def scale(self, name: str, count: int) -> None:
        """As many processes of a role as that. Those that the cluster has no room for start when it has."""
        if name not in self._roles or name in self._done:
            return
        missing = max(1, count) - self.count(name)
        if missing > len(self._free[name]):
            self.reserve({name: missing - len(self._free[name])})
        for _ in range(missing):
            self._start(name)
        own = [ref for ref, (role, _, _) in self._waiting.items() if role == name]
        for ref in own[len(own) + missing :] if missing < 0 else []:
            _, actor, place = self._waiting.pop(ref)
            # Its process is told to stop, and gives its lanes up.
            ray.kill(actor)
            self._free[name].append(place)

    def _start(self, name: str) -> None:
        role, place = self._roles[name], self._free[name].pop(0)
        i = self._started[name] = self._started.get(name, -1) + 1
        strategy = PlacementGroupSchedulingStrategy(placement_group=place[0], placement_group_bundle_index=place[1])
        actor = ray.remote(Supervisor).options(
            num_cpus=role["cores"], max_restarts=-1, max_task_retries=-1, scheduling_strategy=strategy, name=f"{name}-{i}-{os.getpid()}"
        )
        environment = {"JOB_COMPLETION_INDEX": str(i), "BATCHWEAVE_PROCESSES": str(role["processes"]), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        supervisor = actor.remote()
        self._waiting[supervisor.run.remote(f"{name}-{i}", role["command"], environment)] = (name, supervisor, place)

    def collect(self) -> int:
        """Waits a second at most. The status of a process that can never do better, else 0."""
        done, _ = ray.wait(list(self._waiting), timeout=1.0)
        for ref in done:
            name, actor, place = self._waiting.pop(ref)
            if ray.get(ref) == _HOPELESS:
                return _HOPELESS
            self._done.add(name)
            self._free[name].append(place)
            ray.kill(actor)
        return 0

    def leave(self) -> None:
        for group in self._groups:
            remove_placement_group(group)


class _Advice:
    """What `fleet advice --watch` says, read from a process of its own that is started again when it fails."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._targets: dict[str, int] = {}
        self._child: subprocess.Popen[str] | None = None
        self._is_over = False
        threading.Thread(target=self._follow, name="batchweave-advice", daemon=True).start()

    def take(self) -> dict[str, int]:
        """Processes by role that were asked for since the last time."""
        targets, self._targets = self._targets, {}
        return targets

    def stop(self) -> None:
        self._is_over = True
        if self._child is not None:
            self._child.terminate()

    def _follow(self) -> None:
        while not self._is_over:
            self._child = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True, preexec_fn=_end_with_parent
            )
            assert self._child.stdout is not None
            for line in self._child.stdout:
                said = json.loads(line)
                own = {load_role(source): count for source, count in said.get("own", {}).items()}
                self._targets = {"load": said["loaders"], "run": said["loaders"], "construct": said["constructors"], **own}
            if self._child.wait() == 0:
                return  # the training log is complete
            time.sleep(_ADVICE_AGAIN_S)


def load_role(source: str) -> str:
    """The role of a Python source's loaders, as the command names it."""
    return re.sub(r"[^a-z0-9]+", "-", f"load-{source}".lower()).strip("-")[:40]


def _reach(address: str) -> None:
    """Ray itself would try for minutes. OSError: no server answers there."""
    match = re.fullmatch(r"(?:ray://)?\[?([^/]+?)\]?:([0-9]+)", address)
    if match is not None:
        socket.create_connection((match[1], int(match[2])), _REACH_S).close()


def run_fleet(spec: dict[str, Any]) -> int:
    """Until all processes have ended. Gives the exit status."""
    try:
        _reach(spec["address"])
        ray.init(address=spec["address"], logging_level="ERROR", ignore_reinit_error=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise BatchWeaveError(
            "ENGINE_FAILED", f"There is no Ray cluster at {spec['address']}: {str(error).splitlines()[0]}. Start one with `ray start --head`, or give --address.", {}
        ) from error
    counts = {role["name"]: role["processes"] for role in spec["roles"]}
    fleet = _Fleet(spec["roles"])
    advice = _Advice(spec["advice"]) if spec.get("advice") else None
    try:
        if not fleet.reserve(counts).wait(_ROOM_S):
            cores = sum(role["processes"] * role["cores"] for role in spec["roles"])
            raise BatchWeaveError(
                "ENGINE_FAILED",
                f"The Ray cluster has no room for {cores} cores in {sum(counts.values())} processes (it has {ray.cluster_resources().get('CPU', 0):g} in all). "
                "Add nodes, or ask for fewer.",
                {},
            )
        for name, count in counts.items():
            fleet.scale(name, count)
        while not fleet.is_over:
            if (status := fleet.collect()) != 0:
                return status
            for name, count in (advice.take() if advice else {}).items():
                before = fleet.count(name)
                fleet.scale(name, count)
                if fleet.count(name) != before:
                    print(f"{name}: {before} -> {fleet.count(name)}", file=sys.stderr, flush=True)
        return 0
    finally:
        if advice:
            advice.stop()
        fleet.leave()


def main(arguments: list[str]) -> int:
    stop = Stop()
    stop.listen()
    try:
        return run_fleet(json.loads(arguments[0]))
    except Stopped:
        # Actors belong to this driver: they end with it, and their processes with them.
        return 128 + stop.number
