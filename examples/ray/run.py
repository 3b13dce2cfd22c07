"""Images and text, prepared by Ray Data in Python, mixed and balanced by constructors, read by two torch ranks, while a raylet is killed.

    pip install 'batchweave[ray,torch]' tokenizers transformers
    python examples/ray/run.py

Starts a cluster of three raylets on this machine and ends it. Needs no download: the tokenizer is made on the spot.
"""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

from batchweave import BatchWeaveError, StreamingDataset, open_namespace
from batchweave.ray import sink

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS, IMAGES, UNITS = 240, 60, 8
PATCH = 8
#: The first token of a sample is its name: so readers can tell what they saw.
TEXT_FIRST, IMAGE_FIRST, IMAGE_PLACE = 10_000, 20_000, 3


def make_tokenizer() -> Any:
    """A tokenizer of six words. Any other works the same way."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["[UNK]", "the", "log", "holds", "every", "sample", "once"]
    tokenizer = Tokenizer(models.WordLevel({word: 100 + i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


class Tokenize:
    """A transform with state: Ray makes one for each actor."""

    def __init__(self) -> None:
        self._tokenizer = make_tokenizer()

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        n = int(row["id"])
        time.sleep(0.02)
        text = "the log holds every sample once " * (1 + n % 4)
        return {"id": f"text-{n}", "tokens": [TEXT_FIRST + n, *self._tokenizer(text)["input_ids"]]}


def cut_image(row: dict[str, Any]) -> dict[str, Any]:
    """A picture of random size, cut into patches; its placeholders stand before the caption."""
    n = int(row["id"])
    time.sleep(0.05)
    chance = np.random.default_rng(n)
    down, across = (int(k) for k in chance.integers(1, 5, 2))
    pixels = chance.random((down * PATCH, across * PATCH, 3), dtype=np.float32)
    patches = pixels.reshape(down, PATCH, across, PATCH, 3).swapaxes(1, 2).reshape(down * across, -1)
    image = {
        "at": 1, "tokens": down * across, "height": down, "width": across, "data": patches.tobytes(), "patch_values": patches.shape[1], "dtype": "float32",
    }
    return {"id": f"image-{n}", "tokens": [IMAGE_FIRST + n, *[IMAGE_PLACE] * (down * across), 101, 102], "images": [image]}


def prepare(uri: str) -> None:
    """Two writes of Ray Data at the same time. Both can be started again at any moment, and write nothing twice."""
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    text = ray.data.range(TEXTS, override_num_blocks=UNITS).map(Tokenize, concurrency=1, num_cpus=0.5)
    images = ray.data.range(IMAGES, override_num_blocks=UNITS).map(cut_image, num_cpus=0.5)
    writes = [
        threading.Thread(target=lambda d=dataset, s=source: d.write_datasink(sink(f"{uri}.sources", s, lanes=2, block_samples=16)))
        for dataset, source in ((text, "text"), (images, "images"))
    ]
    for write in writes:
        write.start()
    for write in writes:
        write.join()


def read(uri: str, rank: int, seen: Counter[int]) -> None:
    """What a training script does, but for the training."""
    for share in StreamingDataset(uri, mesh={"dp": 2}, rank=rank, decode="torch"):
        tokens = share["tokens"]
        seen.update(tokens[tokens >= TEXT_FIRST].flatten().tolist())


def blocks(uri: str) -> int:
    try:
        return int(open_namespace(uri).info()["steps"]["end"])
    except BatchWeaveError:
        return 0


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="batchweave-ray-") as folder:
        uri = f"file://{folder}/log"
        small: dict[str, Any] = {"object_store_memory": 80 << 20}
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **small})
        node = cluster.add_node(num_cpus=2, **small)
        cluster.add_node(num_cpus=2, **small)
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        command = os.environ.get("BATCHWEAVE", "npx batchweave").split()
        constructors = [subprocess.Popen([*command, "construct", os.path.join(HERE, "pipeline.mjs")], env={**os.environ, "EXAMPLE_URI": uri}) for _ in range(2)]
        seen: Counter[int] = Counter()
        ranks = [threading.Thread(target=read, args=(uri, rank, seen)) for rank in range(2)]
        for rank in ranks:
            rank.start()
        preparing = threading.Thread(target=prepare, args=(uri,))
        preparing.start()
        while blocks(f"{uri}.sources/text") < 4:
            time.sleep(0.2)
        cluster.remove_node(node, allow_graceful=False)
        print("killed a raylet", flush=True)
        for thread in (preparing, *ranks):
            thread.join()
        status = max(constructor.wait() for constructor in constructors)
        ray.shutdown()
        cluster.shutdown()
    wanted = {*range(TEXT_FIRST, TEXT_FIRST + TEXTS), *range(IMAGE_FIRST, IMAGE_FIRST + IMAGES)}
    lost = len(wanted - set(seen))
    repeated = sum(count - 1 for count in seen.values() if count > 1)
    print(f"{len(seen)} samples read by two ranks; lost {lost}, repeated {repeated}")
    return 1 if lost or repeated or status else 0


if __name__ == "__main__":
    sys.exit(main())
