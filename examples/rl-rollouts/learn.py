"""A learner on rollouts: drops what was made by a policy too old, updates the policy, and goes on where it stopped.

    PYTHONPATH=python python3 examples/rl-rollouts/learn.py

Starts two rollout workers, kills one and starts it again; ends with a count of trajectories used, too old, lost and repeated.
"""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator

HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / "python"
sys.path.insert(0, str(PYTHON))

from batchweave import Share, StreamingDataset, create_namespace, decode_safetensors, open_namespace  # noqa: E402

ROWS, BATCHES, MAX_STALENESS, MAX_LAG = 4, 40, 3, 12


def policy_version(share: Share) -> list[int]:
    """The policy that made each row."""
    return [int.from_bytes(data["policy_version"].data, "little") for data in share.data or []]


def fresh_enough(dataset: StreamingDataset, newest: Any, max_staleness: int) -> Iterator[tuple[Share, list[bool]]]:
    """Every share, and which of its rows are not more than so many policies old. `newest` is the learner's own policy, which every rank replaces at the
    same iteration, not the file of the rollout workers, which ranks would read at different moments: so all of them judge alike."""
    for share in dataset:
        yield share, [newest() - version <= max_staleness for version in policy_version(share)]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        uri, policy = Path(folder, "ns").as_uri(), Path(folder, "policy")
        policy.write_text("0")
        # Workers stop so many batches ahead of the learner's newest checkpoint: what they make is not old before it is read.
        create_namespace(uri, rows=ROWS).set_max_lag(MAX_LAG)
        env = {**os.environ, "PYTHONPATH": str(PYTHON)}

        def worker(number: int) -> subprocess.Popen[bytes]:
            command = [sys.executable, str(HERE / "rollout.py"), uri, f"rollout-{number}", str(BATCHES), str(policy)]
            return subprocess.Popen(command, env=env)

        workers = [worker(0), worker(1)]
        try:
            # Plain bytes of the safetensors layout: no numpy, no torch; a trainer would say decode="torch".
            dataset = StreamingDataset(uri, mesh={"dp": 1}, rank=0, policy="global-batch", decode=lambda data: decode_safetensors(data)[0])
            seen: list[int] = []
            used = stale = version = 0
            for share, fresh in fresh_enough(dataset, lambda: version, MAX_STALENESS):
                seen += [int.from_bytes(data["trajectory"].data, "little") for data in share.data or []]
                used += sum(fresh)
                stale += len(fresh) - sum(fresh)
                if share.iteration % 4 == 3:  # a new policy
                    version += 1
                    (Path(folder) / "policy.next").write_text(str(version))
                    os.replace(Path(folder) / "policy.next", policy)
                    dataset.checkpoint(f"policy-{version}", keep_last=2)
                if share.iteration == 10:
                    workers[1].kill()
                    workers[1].wait()
                    workers[1] = worker(1)
                if share.iteration + 1 == 2 * BATCHES:
                    break
            for process in workers:
                process.wait()
        finally:
            for process in workers:
                process.kill()  # those that are done, are; a failure must not leave the others behind
        expected = {n * 1_000_000 + i for n in range(2) for i in range(BATCHES * ROWS)}
        lost, repeated = len(expected - set(seen)), len(seen) - len(set(seen))
        end = open_namespace(uri).info()["steps"]["end"]
        print(f"{end} batches, policy {version}: {used} trajectories used, {stale} older than {MAX_STALENESS} policies, {lost} lost, {repeated} repeated")
        if lost or repeated or used + stale != len(expected):
            sys.exit("FAILED: trajectories were lost or repeated")


if __name__ == "__main__":
    main()
