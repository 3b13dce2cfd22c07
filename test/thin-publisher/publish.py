"""Publishes batches with two PUTs each, from FORMAT.md sections 2, 11, 19 and 20 alone. Standard library only.

usage: publish.py FOLDER NAMESPACE_UUID ROWS CHUNKS PRODUCER EPOCH INCARNATION FIRST_SEQ BASE COUNT
"""
import hashlib
import json
import os
import struct
import sys
import zlib


def crc32(data: bytes) -> int:
    return zlib.crc32(data) & 0xFFFFFFFF


def put(folder: str, key: str, data: bytes) -> None:
    path = os.path.join(folder, key)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)


def batch_object(uuid: str, name: str, extent: int, slices: list[bytes], metadata: dict) -> tuple[bytes, int]:
    """The bytes of one extent, and the offset of its slice table."""
    body = b"".join(slices)
    meta = json.dumps(metadata).encode()
    table, offset = b"", 0
    for item in slices:
        table += struct.pack("<QIIII", offset, len(item), crc32(item), len(item), 0)
        offset += len(item)
    table_offset = len(body) + len(meta)
    identity = hashlib.sha256(f"{name}.{extent}".encode()).digest()[:8]
    trailer = struct.pack("<QIIQII", len(body), len(meta), crc32(meta), table_offset, len(table), crc32(table))
    trailer += bytes.fromhex(uuid.replace("-", "")) + struct.pack("<IIII", 0, len(slices), extent, 1) + identity
    trailer += struct.pack("<I", crc32(trailer)) + b"TGB1"
    return body + meta + table + trailer, table_offset


def main() -> None:
    place, uuid, rows, chunks, producer, epoch, incarnation, first, base, count = sys.argv[1:]
    folder = os.path.join(place, "life", uuid)  # section 2
    cells = int(rows) * int(chunks)
    for seq in range(int(first), int(first) + int(count)):
        slices = [f"{producer}/{seq}/{cell}".encode() for cell in range(cells)]
        name = f"{producer}-{epoch}-{seq}-{incarnation}"
        metadata = {"producer": producer, "epoch": int(epoch), "incarnation": incarnation, "seq": seq, "resumePoint": {"next": seq + 1}}
        data, table = batch_object(uuid, name, 0, slices, metadata)
        stem = f"{name}0"  # attempt 0
        put(folder, f"batch/{crc32(stem.encode()) & 0xFF:02x}/{int(base):020d}/{stem}.0.tgb", data)
        check = crc32(data[table:-8])
        intent = f"{stem}-{int(base)}-{cells}.{len(data)}.{table}.{check}"
        seal = f"{crc32(f'{uuid}/{intent}'.encode()):08x}"
        put(folder, f"intent/{crc32(producer.encode()) % 16:x}/{intent}-{seal}", b"")


main()
