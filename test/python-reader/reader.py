"""Reads a namespace on local files. Written from FORMAT.md alone, with the standard library alone: the proof that the document suffices.

    python3 reader.py FOLDER --dp 4 --cp 2 --rank 3        one line per iteration: {"iteration":0,"digest":"<sha256>"}
    python3 reader.py FOLDER --state                       what else the log holds, as one line of JSON
"""

import argparse
import hashlib
import json
import os
import re
import struct
import sys
import urllib.parse
import zlib


class Refused(Exception):
    """The namespace, or one object of it, is not what FORMAT.md says. The message names the object."""


def integer(value, where):
    if type(value) is not int or not 0 <= value < 2**53:
        raise Refused(f"{where}: {value!r} is not a whole number")
    return value


class Store:
    """Section 1: a folder; a key is the path below it."""

    def __init__(self, folder):
        self.folder = folder

    def get(self, key, start=0, length=-1):
        try:
            with open(os.path.join(self.folder, key), "rb") as file:
                file.seek(start)
                return file.read(length)
        except FileNotFoundError:
            return None

    def need(self, key, start=0, length=-1):
        data = self.get(key, start, length)
        if data is None:
            raise Refused(f"{key} is missing")
        return data

    def names(self, prefix):
        try:
            return sorted(os.listdir(os.path.join(self.folder, prefix)))
        except FileNotFoundError:
            return []


def open_json(data, key, kind, namespace=None):
    """Section 3."""
    body, ending = data[:-21], data[-21:]
    if len(data) <= 21 or ending != b',"crc32":"%08x"}\n' % zlib.crc32(body):
        raise Refused(f"{key}: its checksum does not match")
    try:
        fields = json.loads(data)
    except ValueError:
        raise Refused(f"{key}: it is not JSON") from None
    if integer(fields.get("format"), key) not in (1, 2):
        raise Refused(f"{key}: format version {fields['format']} is not known here")
    if fields.get("kind") != kind:
        raise Refused(f"{key}: it is not a {kind}")
    if namespace is not None and fields.get("namespace") != namespace:
        raise Refused(f"{key}: it belongs to another namespace")
    return fields


class Namespace:
    """One namespace: its spec, its verified head, its steps."""

    def __init__(self, folder):
        self.store = Store(folder)
        spec = open_json(self.store.need("namespace.json"), "namespace.json", "namespace")
        self.uuid = spec["namespace"]
        if spec["format"] == 2:  # section 2: a folder for each life
            self.store = Store(os.path.join(folder, "life", self.uuid))
        self.rows = integer(spec["grid"]["rows"], "grid")
        self.chunks = integer(spec["grid"]["chunks"], "grid")
        if spec["order"]["kind"] not in ("commit", "lanes"):
            raise Refused(f"namespace.json: order {spec['order']['kind']} is not known here")
        self.fork = spec.get("fork", {"origins": [], "tail": {"start": 0, "batches": []}})
        self.marker = 0
        self.boundary = 0
        self.cache = {}
        self.origins = {}
        self.footers = {}

    # Sections 9 and 10.

    def look(self):
        while True:
            key = f"boundary/{self.marker + 1:020d}.json"
            data = self.store.get(key)
            if data is None:
                return self.boundary
            fields = open_json(data, key, "boundary", self.uuid)
            if fields["n"] != self.marker + 1 or integer(fields["upTo"], key) <= self.boundary:
                raise Refused(f"{key}: the chain is broken")
            if fields.get("deleted", False):
                raise Refused("the namespace was deleted")
            self.marker, self.boundary = self.marker + 1, fields["upTo"]

    def read_manifest(self, version):
        if version == 0:
            tail = self.fork["tail"]
            starts = [r[0] for o in self.fork["origins"] for r in o["ranges"]]
            trim = self.fork.get("trim", min([tail["start"], *starts]))
            return {
                "version": 0,
                "steps": {"trim": trim, "end": tail["start"] + len(tail["batches"])},
                "closed": False,
                "index": [],
                "tail": tail,
                "producers": {},
                "tables": self.fork.get("tables", []),
            }
        key = f"manifest/{version:020d}.json"
        data = self.store.get(key)
        if data is None:
            return None
        fields = open_json(data, key, "manifest", self.uuid)
        if fields["version"] != version:
            raise Refused(f"{key}: it says version {fields['version']}")
        if fields.get("deleted", False):
            raise Refused("the namespace was deleted")
        return fields

    def head(self):
        for _ in range(100):
            listed = [re.fullmatch(r"(\d{20})\.json", name) for name in self.store.names("manifest")]
            candidate = max([int(m[1]) for m in listed if m], default=0)
            manifest = self.read_manifest(candidate)
            if manifest is None or self.look() >= max(candidate, 1):
                continue
            while True:
                following = self.read_manifest(manifest["version"] + 1)
                boundary = self.look()
                if following is not None and boundary < following["version"]:
                    manifest = following
                elif following is None and boundary < max(manifest["version"], 1):
                    return manifest
                else:
                    break
        raise Refused("manifest/: no version above the boundary")

    # Sections 5, 7 and 17.

    def index_object(self, reference, kind):
        base, commit_id, k, check = reference
        key = f"index/{base:020d}-{commit_id}-{k}.json"
        if key not in self.cache:
            data = self.store.need(key)
            if zlib.crc32(data) != check:
                raise Refused(f"{key}: it does not match the reference to it")
            self.cache[key] = open_json(data, key, kind, self.uuid)
        return self.cache[key]

    def descend(self, levels, step):
        for level, (start, refs) in enumerate(levels):
            position = step // 64 ** (level + 1) - start
            if not 0 <= position < len(refs):
                continue
            ref = refs[position]
            while level > 0:
                node = self.index_object(ref, "node")
                size = 64 ** (level + 1)
                if node["level"] != level or node["start"] != step // size * size or len(node["refs"]) != 64:
                    raise Refused(f"step {step}: a node is in the wrong place")
                ref = node["refs"][step // 64**level % 64]
                level -= 1
            if ref == 0:
                break
            segment = self.index_object(ref, "segment")
            if segment["start"] != step // 64 * 64 or len(segment["batches"]) != 64:
                raise Refused(f"step {step}: a segment is in the wrong place")
            return segment["batches"][step % 64]
        raise Refused(f"step {step} is in no index object")

    def origin(self, number):
        if number not in self.origins:
            origin = self.fork["origins"][number]
            ancestor = Namespace(urllib.parse.unquote(urllib.parse.urlparse(origin["uri"]).path))
            if ancestor.uuid != origin["uuid"]:
                raise Refused(f"{origin['uri']}: it is another namespace")
            self.origins[number] = ancestor
        return self.origins[number]

    def locate(self, manifest, step):
        """The namespace that holds the batch, and its descriptor."""
        if not manifest["steps"]["trim"] <= step < manifest["steps"]["end"]:
            raise Refused(f"step {step} cannot be read")
        tail = manifest["tail"]
        if step >= tail["start"]:
            return self.place(tail["batches"][step - tail["start"]])
        for number, origin in enumerate(self.fork["origins"]):
            for at, count, first in origin["ranges"]:
                if at <= step < at + count:
                    ancestor = self.origin(number)
                    descriptor = ancestor.inherited(origin["root"], first + step - at)
                    if len(descriptor) > 7 and descriptor[7] != -1:
                        return self.origin(origin["via"][descriptor[7]]), descriptor
                    return ancestor, descriptor
        return self.place(self.descend(manifest["index"], step))

    def inherited(self, reference, step):
        root = self.index_object(reference, "root")
        tail = root["tail"]
        if step >= tail["start"]:
            return tail["batches"][step - tail["start"]]
        return self.descend(root["index"], step)

    def place(self, descriptor):
        number = descriptor[7] if len(descriptor) > 7 else -1
        return (self, descriptor) if number == -1 else (self.origin(number), descriptor)

    # Section 11.

    def extent_key(self, producer, epoch, incarnation, seq, base, attempt, extent):
        stem = f"{producer}-{epoch}-{seq}-{incarnation}{attempt}"
        return f"batch/{zlib.crc32(stem.encode()) % 256:02x}/{base:020d}/{stem}.{extent}.tgb"

    def trailer(self, data, key):
        fields = struct.unpack("<QIIQII16sIIII8sI4s", data) if len(data) == 80 else None
        if fields is None or fields[13] != b"TGB1" or fields[12] != zlib.crc32(data[:72]):
            raise Refused(f"{key}: its trailer is damaged")
        if fields[10] != 1:
            raise Refused(f"{key}: format version {fields[10]} is not known here")
        if fields[6].hex() != self.uuid.replace("-", ""):
            raise Refused(f"{key}: it belongs to another namespace")
        return fields

    def footer(self, descriptor, number, first_cell):
        producer, epoch, incarnation, seq, base, attempt, extents = descriptor[:7]
        if not isinstance(extents[number], list):
            raise Refused("a batch by reference is not known here")
        cells, size, table, check = extents[number]
        key = self.extent_key(producer, epoch, incarnation, seq, base, attempt, number)
        if key in self.footers:
            return key, self.footers[key]
        data = self.store.need(key, table, size - table)
        if len(data) != size - table or zlib.crc32(data[:-8]) != check:
            raise Refused(f"{key}: its footer does not match the commit")
        trailer = self.trailer(data[-80:], key)
        identity = hashlib.sha256(f"{producer}-{epoch}-{seq}-{incarnation}.{number}".encode()).digest()[:8]
        if trailer[3] != table or trailer[4] != 24 * cells or trailer[7:10] != (first_cell, cells, number):
            raise Refused(f"{key}: its trailer describes another extent")
        if trailer[11] != identity:
            raise Refused(f"{key}: it is another batch's object")
        self.footers[key] = list(struct.iter_unpack("<QIIII", data[:-80]))
        return key, self.footers[key]

    def slice(self, descriptor, cell):
        first = 0
        for number, extent in enumerate(descriptor[6]):
            if cell < first + extent[0]:
                key, table = self.footer(descriptor, number, first)
                offset, length, crc, raw_length, encoding = table[cell - first]
                data = self.store.need(key, offset, length)
                if len(data) != length or zlib.crc32(data) != crc:
                    raise Refused(f"{key}: slice {cell} does not match its checksum")
                if encoding == 2 and length == raw_length + 8:
                    data = data[:raw_length]  # sealed: the table has vouched for it
                elif encoding != 0 or raw_length != length:
                    raise Refused(f"{key}: encoding {encoding} is not known here")
                return data
            first += extent[0]
        raise Refused(f"cell {cell} is in no extent")

    def metadata(self, key, size, check):
        trailer = self.trailer(self.store.need(key, size - 80, 80), key)
        data = self.store.need(key, trailer[0], size - trailer[0])
        if zlib.crc32(data[trailer[3] - trailer[0] : -8]) != check or zlib.crc32(data[: trailer[1]]) != trailer[2]:
            raise Refused(f"{key}: its metadata does not match its checksum")
        return json.loads(data[: trailer[1]])

    # Sections 8 and 12.

    def resume_point(self, producer, state):
        epoch, incarnation, seq, _, last = state[:5]
        if last == 0:
            return None
        if isinstance(last, dict):
            return self.index_object(last["table"], "table")["producers"][producer][1]
        base, attempt, extent, size, check = last[:5]
        if len(last) == 7:
            epoch, incarnation = last[5:]
        key = self.extent_key(producer, epoch, incarnation, seq - 1, base, attempt, extent)
        return self.metadata(key, size, check).get("resumePoint")

    def producers(self, manifest):
        states = {}
        for reference in manifest["tables"]:
            for producer, (state, point) in self.index_object(reference, "table")["producers"].items():
                states[producer] = {"epoch": state[0], "seq": state[2], "resumePoint": point}
        for producer, state in manifest["producers"].items():
            point = self.resume_point(producer, state)
            states[producer] = {"epoch": state[0], "seq": state[2], "resumePoint": point}
        return states

    def samples(self, descriptor):
        number = len(descriptor[6]) - 1
        _, size, _, check = descriptor[6][number]
        key = self.extent_key(*descriptor[:6], number)
        block = self.metadata(key, size, check).get("lineage")
        if block is None:
            return None
        data = self.store.need(key, block["offset"], block["length"])
        count, raw_length, crc = struct.unpack_from("<III", data, 4)
        if data[:4] != b"LIN1" or zlib.crc32(data[16:], zlib.crc32(data[:12])) != crc or zlib.crc32(data) != block["crc"]:
            raise Refused(f"{key}: its lineage is damaged")
        columns = json.loads(zlib.decompress(data[16:]))
        last, samples = {}, []
        for i in range(count):
            source, sample = columns["source"][i], columns["id"][i]
            if not isinstance(sample, str):
                last[source] = last.get(source, 0) + sample
                sample = str(last[source])
            samples.append([columns["sources"][source], sample, columns["tokens"][i]])
        return samples


def chunks_of(chunks, cp, c, layout):
    """Section 14."""
    if layout == "contiguous" or cp == 1:
        if chunks % cp:
            raise Refused(f"cp {cp} does not divide {chunks} chunks")
        return list(range(c * chunks // cp, (c + 1) * chunks // cp))
    if chunks % (2 * cp):
        raise Refused(f"2 x cp {cp} does not divide {chunks} chunks")
    size = chunks // (2 * cp)
    return [group * size + i for group in (c, 2 * cp - 1 - c) for i in range(size)]


def consume(namespace, options):
    manifest = namespace.head()
    c = options.rank // options.tp % options.cp
    d = options.rank // (options.tp * options.cp) % options.dp
    count = options.rows_per_rank
    if options.policy == "global-batch":
        if namespace.rows % options.dp:
            raise Refused(f"dp {options.dp} does not divide {namespace.rows} rows")
        count = namespace.rows // options.dp
    wanted = chunks_of(namespace.chunks, options.cp, c, options.layout)
    row, iteration = manifest["steps"]["trim"] * namespace.rows, 0
    if options.cursor:
        cursor = json.loads(options.cursor)
        row, iteration = cursor["row"], cursor["iteration"]
        text = f"1:{cursor['namespace']}:{row}:{iteration}"
        if cursor["batchweave"] != 1 or cursor["namespace"] != namespace.uuid:
            raise Refused("the cursor belongs to another namespace")
        if cursor.get("check", f"{zlib.crc32(text.encode()):08x}") != f"{zlib.crc32(text.encode()):08x}":
            raise Refused("the cursor is damaged")
    while row + options.dp * count <= manifest["steps"]["end"] * namespace.rows:
        digest = hashlib.sha256()
        for g in range(row + d * count, row + (d + 1) * count):
            holder, descriptor = namespace.locate(manifest, g // namespace.rows)
            for chunk in wanted:
                digest.update(holder.slice(descriptor, g % namespace.rows * namespace.chunks + chunk))
        print(f'{{"iteration":{iteration},"digest":"{digest.hexdigest()}"}}')
        row, iteration = row + options.dp * count, iteration + 1


def state(namespace):
    manifest = namespace.head()
    steps = range(manifest["steps"]["trim"], manifest["steps"]["end"])
    batches = []
    for step in steps:
        holder, descriptor = namespace.locate(manifest, step)
        batches.append([descriptor[0], descriptor[3], holder.samples(descriptor)])
    found = {"closed": manifest["closed"], "producers": namespace.producers(manifest), "batches": batches}
    print(json.dumps(found, separators=(",", ":")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    for axis in ("dp", "cp", "tp", "pp", "rows-per-rank"):
        parser.add_argument(f"--{axis}", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--policy", choices=["per-rank", "global-batch"], default="per-rank")
    parser.add_argument("--layout", choices=["contiguous", "zigzag"], default="contiguous")
    parser.add_argument("--cursor", help="JSON of a cursor")
    parser.add_argument("--state", action="store_true")
    options = parser.parse_args()
    try:
        namespace = Namespace(options.folder)
        state(namespace) if options.state else consume(namespace, options)
    except Refused as problem:
        sys.exit(f"refused: {problem}")


if __name__ == "__main__":
    main()
