"""`python -m batchweave.ray.fleet SPEC`: the processes of a fleet, each supervised by an actor. What `batchweave fleet up --on ray` starts.

Ray places the actors, and starts them again elsewhere when a node dies; an actor starts its process again when that fails. Processes are equal, and
the log says where each goes on, so nothing here remembers anything.
"""
from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
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


def _start(role: dict[str, Any], group: Any, first: int) -> list[Any]:
    refs = []
    for i in range(role["processes"]):
        strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=first + i)
        actor = ray.remote(Supervisor).options(
            num_cpus=role["cores"], max_restarts=-1, max_task_retries=-1, scheduling_strategy=strategy, name=f"{role['name']}-{i}-{os.getpid()}"
        )
        environment = {"JOB_COMPLETION_INDEX": str(i), "BATCHWEAVE_PROCESSES": str(role["processes"]), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        supervisor = actor.remote()
        refs.append((supervisor, supervisor.run.remote(f"{role['name']}-{i}", role["command"], environment)))
    return refs


def run_fleet(spec: dict[str, Any]) -> int:
    """Until all processes have ended. Gives the exit status."""
    try:
        ray.init(address=spec["address"], logging_level="ERROR", ignore_reinit_error=True)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise BatchWeaveError(
            "ENGINE_FAILED", f"There is no Ray cluster at {spec['address']}: {str(error).splitlines()[0]}. Start one with `ray start --head`, or give --address.", {}
        ) from error
    roles = spec["roles"]
    bundles = [{"CPU": role["cores"]} for role in roles for _ in range(role["processes"])]
    # Spread: a node that dies takes few of a role with it. Bundles of a node that died are placed again.
    group = placement_group(bundles, strategy="SPREAD")
    try:
        if not group.wait(_ROOM_S):
            raise BatchWeaveError(
                "ENGINE_FAILED",
                f"The Ray cluster has no room for {sum(b['CPU'] for b in bundles)} cores in {len(bundles)} processes (it has {ray.cluster_resources().get('CPU', 0):g} in all). "
                "Add nodes, or ask for fewer.",
                {},
            )
        waiting: dict[Any, Any] = {}
        first = 0
        for role in roles:
            waiting.update({ref: actor for actor, ref in _start(role, group, first)})
            first += role["processes"]
        while waiting:
            done, _ = ray.wait(list(waiting), timeout=1.0)
            for ref in done:
                actor = waiting.pop(ref)
                if ray.get(ref) == _HOPELESS:
                    return _HOPELESS
                ray.kill(actor)
        return 0
    finally:
        remove_placement_group(group)


def main(arguments: list[str]) -> int:
    stop = Stop()
    stop.listen()
    try:
        return run_fleet(json.loads(arguments[0]))
    except Stopped:
        # Actors belong to this driver: they end with it, and their processes with them.
        return 128 + stop.number
    except BatchWeaveError as error:
        sys.stderr.write(f"error[{error.code}]: {error.message}\n")
        return error.exit


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
