"""Reads a log as the ranks of many meshes do, for a test that compares what they get: `mesh_reader.py URI KIND < readings`.

Each line of the input is {"mesh", "rank", "policy", "layout"}; for each, one line of output: a list of iterations, each {field: [shape, sha256]}.
"""
from __future__ import annotations

import hashlib
import json
import sys

from batchweave import StreamingDataset
from batchweave.format.join import raw_bytes


def main() -> None:
    uri, kind = sys.argv[1:]
    for line in sys.stdin:
        reading = json.loads(line)
        dataset = StreamingDataset(uri, decode=kind, **reading)
        iterations = []
        for share in dataset:
            fields = share.batch().items()
            iterations.append({name: [list(t.shape), hashlib.sha256(raw_bytes(t)).hexdigest()] for name, t in fields})
        dataset.close()
        print(json.dumps(iterations), flush=True)


main()
