"""Property: the Python code gives every conformance case the result that the TypeScript code gave it, so neither can drift.

Method: run each case of test/conformance/fixtures with its own code; compare values as JSON, refusals by code.
"""
from __future__ import annotations

import base64
import copy
import hashlib
import json
import unittest
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable

from batchweave.consumer import mesh
from batchweave.consumer.consumer import Consumer
from batchweave.consumer.projection import Projection
from batchweave.consumer.reader import Slice, Slices
from batchweave.consumer.share import Share
from batchweave.errors import BatchWeaveError
from batchweave.format import batch, index_node, keys, lineage, manifest, namespace_spec, producer_state, sample_block, stored_json, tensors
from batchweave.format.checksum import crc32
from batchweave.format.cursor import make_cursor, parse_cursor, translate_cursor
from batchweave.format.descriptor import decode_descriptor
from batchweave.format.join import raw_bytes
from batchweave.lifecycle.checkpoints import live_checkpoints
from batchweave.log import draft, stage
from batchweave.log.log import Log
from head_store import HeadStore
from memory_store import MemoryStore

FIXTURES = Path(__file__).parents[2] / "test" / "conformance" / "fixtures"
WHERE = "case"


def result_of(run: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"value": json.loads(json.dumps(run()))}
    except BatchWeaveError as error:
        return {"code": error.code}


def fields_of(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in fields.items() if k != "crc32"}


def decode(case: dict[str, Any]) -> Any:
    data = base64.b64decode(case["input"])
    what, namespace = case["what"], case.get("namespace", "")
    if what == "manifest":
        found = manifest.decode_manifest(data, WHERE, namespace, case["version"])
        # Through the writer, which must lose nothing.
        return fields_of(json.loads(draft.encode_manifest(found)))
    if what == "namespace":
        namespace_spec.decode_namespace(data, WHERE)
        return fields_of(json.loads(data))
    if what == "boundary":
        up_to, is_last = manifest.decode_boundary(data, WHERE, namespace, case["n"])
        return {"n": case["n"], "upTo": up_to, **({"deleted": True} if is_last else {})}
    if what == "lineage":
        return lineage.decode_lineage(data, WHERE)
    if what == "safetensors":
        found_tensors, metadata = tensors.decode_safetensors(data, WHERE)
        shown = {n: [t.dtype, list(t.shape), base64.b64encode(t.data).decode()] for n, t in found_tensors.items()}
        return {"tensors": shown, "metadata": metadata}
    if what == "batch":
        return decode_batch(case, data)
    if what == "samples":
        table = sample_block.decode_sample_table(data, case["payloadBytes"], WHERE)
        rows = [{k: v for k, v in row._asdict().items() if k not in ("images", "features") or v} for row in table.samples]
        samples = [{**r, "images": list(r["images"])} if "images" in r else r for r in rows]
        return {"source": table.source, "samples": samples, "faults": [list(pair) for pair in table.faults]}
    decoders: dict[str, Callable[[bytes, str, str], Any]] = {
        "segment": index_node.decode_segment,
        "node": index_node.decode_node,
        "root": index_node.decode_root,
        "table": producer_state.decode_table,
    }
    decoders[what](data, WHERE, namespace)
    return fields_of(json.loads(data))


def fields(case: dict[str, Any]) -> list[str]:
    """What each change of a stored object's fields is refused with; "ok" where it is not."""
    found = []
    for path, value in case["changes"]:
        whole = copy.deepcopy(case["fields"])
        holder = whole
        for key in path[:-1]:
            holder = holder[key]
        if value != "<gone>":
            holder[path[-1]] = value
        else:
            del holder[path[-1]]
        body = stored_json.dump_json(whole)[:-1]
        sealed = body + f',"crc32":"{stored_json.crc_text(crc32(body))}"}}\n'.encode()
        result = result_of(lambda: decode({**case, "input": base64.b64encode(sealed)}))
        found.append(result.get("code", "ok"))
    return found


def decode_batch(case: dict[str, Any], data: bytes) -> Any:
    d = decode_descriptor(case["descriptor"], WHERE)
    cells, _, table, _ = d.extents[0]
    footer = batch.decode_footer(data[table:], WHERE, case["namespace"], d, 0, 0)
    t = footer.trailer
    block = data[t.metadata_offset : t.metadata_offset + t.metadata_length]
    return {
        "key": keys.batch_key(d, 0),
        "entries": [list(footer.entry(i)[:5]) for i in range(cells)],
        "metadata": batch.decode_metadata(block, WHERE, t),
    }


def project(case: dict[str, Any]) -> Any:
    place = mesh.place_rank(case["mesh"], case["rank"])
    grid = case["grid"]
    projection = Projection(
        grid["rows"], grid["chunks"], place.data_ranks, place.d, place.chunk_ranks, place.c, case["policy"], case["layout"],
        case["rowsPerRank"],
    )
    plan = projection.plan(case["row"], case["iteration"])
    return {
        "iteration": plan.iteration,
        "row": plan.row,
        "nextRow": plan.next_row,
        "firstStep": plan.first_step,
        "lastStep": plan.last_step,
        "rows": plan.rows,
        "cells": [list(cell) for cell in plan.cells],
    }


def resolve(case: dict[str, Any]) -> Any:
    p = mesh.resolve_mesh(case["mesh"], case["rank"], case["environment"])
    return {
        "rank": p.rank,
        "worldSize": p.world_size,
        "dataRanks": p.data_ranks,
        "d": p.d,
        "chunkRanks": p.chunk_ranks,
        "c": p.c,
        "coordinates": p.coordinates,
    }


def translate(case: dict[str, Any]) -> Any:
    spec = namespace_spec.decode_namespace(base64.b64decode(case["spec"]), WHERE)
    found = translate_cursor(parse_cursor(case["input"]), spec.fork, spec.rows)
    return None if found is None else make_cursor(spec.uuid, *found)


def intent(case: dict[str, Any]) -> Any:
    found = keys.parse_intent_key(case["namespace"], case["key"])
    if found is None:
        return None
    if isinstance(found, keys.OpeningIntent):
        return {"opening": found._asdict(), "key": keys.opening_intent_key(case["namespace"], found)}
    if isinstance(found, keys.LeavingIntent):
        return {"leaving": found._asdict(), "key": keys.leaving_intent_key(case["namespace"], found)}
    return {"batches": [d.stored() for d in found], "keys": keys.batch_intents(case["namespace"], found)[0]}


def join(case: dict[str, Any]) -> Any:
    """As arrays and, where torch is installed, as tensors; slice by slice, and all at once where they lie together: one result."""
    slices = [memoryview(base64.b64decode(text)) for text in case["slices"]]
    dtypes = {n: t.dtype for data in slices for n, t in tensors.decode_safetensors(data, WHERE)[0].items()}
    results = []
    for kind in (name for name in ("numpy", "torch") if find_spec(name)):
        for together in (False, True):
            found = Slices(Slice(0, 0, i, data) for i, data in enumerate(slices))
            if together and len({len(data) for data in slices}) == 1:
                found.joined = memoryview(b"".join(slices))
            share = Share(0, found, case["rows"], "", 0, 1)
            results.append(result_of(lambda: joined_of(share.finish(kind, WHERE, fields=case.get("fields")), case, dtypes)))
    assert all(result == results[0] for result in results), results
    if "code" in results[0]:
        raise BatchWeaveError(results[0]["code"], "as above", {})
    return results[0]["value"]


def joined_of(share: Share, case: dict[str, Any], dtypes: dict[str, str]) -> Any:
    def shown(name: str, array: Any) -> Any:
        if array is None:
            return None
        return [dtypes[name], list(array.shape), base64.b64encode(raw_bytes(array)).decode()]

    if case.get("apart"):
        return {name: [shown(name, row) for row in share.per_row(name)] for name in share.keys()}
    return {name: shown(name, array) for name, array in share.batch(case.get("fields")).items()}


def silent_of(value: Any) -> stage.SilentFinding | None:
    if not value:
        return None
    state, table = producer_state.decode_state(value["state"], WHERE), index_node.decode_reference(value["table"], WHERE)
    return stage.SilentFinding(state, table, value["hasResumePoint"])


def apply_change(d: draft.Draft, spec: namespace_spec.NamespaceSpec, c: dict[str, Any]) -> tuple[bool, Any]:
    kind = c["kind"]
    if kind == "batches":
        holder = stage.Holder(**c["holder"])
        returned = stage.stage_return(d, holder, silent_of(c.get("silent")))
        verdicts = stage.stage_batches(d, spec, holder, [decode_descriptor(b, WHERE) for b in c["batches"]])
        return not returned and "staged" not in verdicts, verdicts
    if kind == "open":
        return stage.stage_opening(d, c["producer"], c["incarnation"], silent_of(c.get("silent"))), None
    if kind == "leave":
        return not stage.stage_leaving(d, stage.Holder(**c["holder"])), None
    if kind == "close":
        return stage.stage_closing(d, c["dropWaiting"]), None
    if kind == "checkpoint":
        done = stage.stage_checkpoint(d, spec.rows, c["group"], c["id"], c["row"], c["iteration"], c.get("keepLast"))
        return done, None
    if kind == "maxLag":
        return stage.stage_max_lag(d, c.get("maxLag")), None
    if kind == "release":
        return stage.stage_release(d, c["group"], c["id"]), None
    openings = [keys.OpeningIntent(**o) for o in c["openings"]]
    silent = {k: f for k, v in c.get("silent", {}).items() if (f := silent_of(v))}
    leavings = [keys.LeavingIntent(**leaving) for leaving in c.get("leavings", [])]
    batches = [decode_descriptor(b, WHERE) for b in c["batches"]]
    carried = stage.stage_intents(d, spec, batches, openings, silent, leavings)
    return carried == 0, carried


def run_stage(case: dict[str, Any]) -> Any:
    spec = namespace_spec.decode_namespace(base64.b64decode(case["spec"]), WHERE)
    base = manifest.genesis(spec)
    if case["base"]:
        data = base64.b64decode(case["base"]["bytes"])
        base = manifest.decode_manifest(data, WHERE, spec.uuid, case["base"]["version"])
    before = json.dumps(base.fields)
    s = case["stamp"]
    d = draft.Draft(base, draft.Stamp(s["id"], s["by"], s["time"], s["boundaryHint"], s.get("kind")))
    done, result = apply_change(d, spec, case["change"])
    value: dict[str, Any] = {"done": done, "result": result}
    if not done:
        value["manifest"] = fields_of(json.loads(draft.encode_manifest(d.finish())))
        value["sealed"] = {key: data.decode() for key, data in d.sealed}
    assert json.dumps(base.fields) == before, "staging changed the base"
    return value


def block(case: dict[str, Any]) -> Any:
    samples = [
        sample_block.BlockSample(s["id"], s["tokens"], base64.b64decode(s["bytes"]), s.get("images", ()), s.get("features", {}))
        for s in case["samples"]
    ]
    table, payload = sample_block.encode_sample_block(case["source"], samples, case["faults"])
    return {"table": base64.b64encode(table).decode(), "payload": base64.b64encode(payload).decode()}


SETTINGS = {"from": "start", "policy": "policy", "layout": "layout", "rowsPerRank": "rows_per_rank"}


def view_of(case: dict[str, Any], view: dict[str, Any]) -> Any:
    store = MemoryStore(case["objects"])
    spec = namespace_spec.decode_namespace(store.get("namespace.json") or b"", WHERE)
    log = Log(store, spec, lambda uri: MemoryStore(case["origins"].get(uri, {}), uri))
    head = log.head.load()
    if view["kind"] == "head":
        groups: dict[str, list[str]] = {group: [] for group in head.checkpoints}
        for c in live_checkpoints(head, spec.rows):
            groups[c.group].append(c.id)
        steps = {"trim": head.trim, "end": head.end}
        return {"version": head.version, "steps": steps, "closed": head.closed, "checkpoints": groups}
    if view["kind"] == "step":
        place = log.locate(head, view["step"])
        return {"namespace": place.namespace, "key": keys.batch_key(place.descriptor, 0)}
    if view["kind"] == "resume":
        state = head.producers.get(view["producer"])
        point = log.read_resume_point(view["producer"], state) if state else None
        return {"found": state is not None, "resumePoint": point} if point is not None or state is None else {"found": True}
    given = view["settings"]
    place = mesh.resolve_mesh(given["mesh"], given["rank"], {})
    settings = {SETTINGS[k]: v for k, v in given.items() if k in SETTINGS}
    lines: list[Any] = []
    with Consumer(log, place, wait_timeout=60.0, **settings) as consumer:
        for share in consumer:
            digest = hashlib.sha256(b"".join(bytes(s.bytes) for s in share.slices)).hexdigest()
            lines.append([share.iteration, digest, share.next["row"]])
            if len(lines) == view["iterations"]:
                break
        return {"lines": lines, "leftoverRows": consumer.leftover_rows}


def head_case(case: dict[str, Any]) -> Any:
    """One process on a scripted store: what it concludes from each action, and every call it makes, in order."""
    store = HeadStore(case["bodies"], case["present"], case["script"])
    log = Log(store, namespace_spec.decode_namespace(base64.b64decode(case["spec"]), WHERE), lambda uri: MemoryStore())
    results: list[Any] = []
    for action in case["actions"]:
        store.calls.append(f"# {action}")
        found = result_of(lambda action=action: head_action(log, action))  # type: ignore[misc]
        results.append(found["value"] if "value" in found else found)
    return {"results": results, "calls": store.calls}


def head_action(log: Log, action: str) -> Any:
    def shown(found: manifest.Manifest) -> dict[str, Any]:
        return {"version": found.version, "by": found.commit["by"] if found.version else ""}

    if action in ("load", "jump", "advance", "newest"):
        return shown(getattr(log.head, action)())
    if action == "walk":
        return shown(log.head.walk(lambda _: False, 3))
    if action == "look":
        return log.head.boundary.look()
    if action == "keep":
        return log.head.keep(log.head.newest())
    def prepare(base: manifest.Manifest) -> None:
        """Something that staging needs and that is kept as long as its version."""
        if action == "commit looked up" and log.head.read(base.version) is None:
            raise BatchWeaveError("MISSING_OBJECT", "What staging needs is gone.", {})

    attempt = log.attempt("me", "settings", lambda d, _: (stage.stage_max_lag(d, 7), None), prepare, fresh=action == "commit")
    return {"outcome": attempt.outcome, **shown(attempt.manifest)}


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    operations: dict[str, Callable[[dict[str, Any]], Any]] = {
        "decode": decode,
        "fields": fields,
        "project": project,
        "resolve": resolve,
        "cursor": lambda c: parse_cursor(c["input"]),
        "translate": translate,
        "intent": intent,
        "block": block,
        "join": join,
        "stage": run_stage,
        "head": head_case,
        "namespace": lambda c: {name: result_of(lambda v=v: view_of(c, v)) for name, v in c["views"].items()},
    }
    return result_of(lambda: operations[case["op"]](case))


class Conformance(unittest.TestCase):
    maxDiff = 2_000


def _add(family: Path) -> None:
    with family.open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            # As our own reader reads JSON: JavaScript does not tell 1.0 from 1.
            case = stored_json.load_json(line.encode())

            def test(self: Conformance, case: dict[str, Any] = case) -> None:
                if case["op"] == "join" and not find_spec("numpy"):
                    self.skipTest("numpy is not installed")
                self.assertEqual(run_case(case), case["expect"])

            name = "".join(c if c.isalnum() else "_" for c in case["name"])
            setattr(Conformance, f"test_{family.stem}_{number:03d}_{name}", test)


for _family in sorted(FIXTURES.glob("*.jsonl")):
    _add(_family)


class Families(unittest.TestCase):
    def test_there_are_cases_of_every_family(self) -> None:
        found = sorted(path.name for path in FIXTURES.glob("*.jsonl"))
        self.assertEqual(found, ["blocks.jsonl", "codecs.jsonl", "fields.jsonl", "heads.jsonl", "hostile.jsonl", "joins.jsonl", "namespaces.jsonl", "projections.jsonl", "stages.jsonl"])


if __name__ == "__main__":
    unittest.main()
