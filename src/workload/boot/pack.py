"""Packs a recorded boot for the `boot` workload: `pack.py TRACE.xz SNAP.jsonl.xz COVERAGE.csv OUT.xz`.

OUT is xz of one line of JSON and bytes. The JSON lists the caches: what each was made with, its slabs at the end of the
recording, whether the recording has all its objects, and whether it was made before the kernel counted its CPUs (SLAB:
seen from free_limit); apart from them those of kmalloc, which an allocator makes itself. Then the events in order. An
allocation: the cache's number, for kmalloc (number 0) followed by the bytes asked for. A free: 255, then how many
allocations ago the object was taken. Numbers above 127 are split into groups of seven bits, lowest first, the top bit
saying that more follow. Frees of objects that were taken before the recording began are left out. SLOB's recording has
no coverage: give "-".
"""

import csv
import json
import lzma
import re
import sys

trace, snap, coverage, out = sys.argv[1:]
covered = set()
if coverage != "-":
    with open(coverage) as file:
        for row in csv.DictReader(file):
            if row["traced_allocs"] != "0" and row["objects_from_before_the_trace"] == "0":
                covered.add(row["cache"])
caches, general, index = [], [], {}
with lzma.open(snap, "rt") as file:
    for line in file:
        seen = json.loads(line)
        if "cache" not in seen:
            continue
        cache = seen["cache"]
        flags = int(cache["flags"], 16)
        name = cache["name"]
        made = {"name": name, "size": cache["object_size"], "align": cache["align"]}
        for key, flag in ("hwcache_align", 0x2000), ("typesafe_by_rcu", 0x80000), ("reclaim_account", 0x20000):
            if flags & flag:
                made[key] = True
        if cache.get("has_ctor"):
            made["ctor"] = True
        entry = {"slabs": seen.get("nr_slabs", 0), "covered": name in covered}
        if re.fullmatch(r"kmalloc-\d+k?", name):
            general.append({"name": name, **entry})
            continue
        if name.startswith("kmalloc"):
            made["align"] = 0
        entry = {"spec": made, **entry}
        node = seen.get("node", [{}])[0]
        if node.get("free_limit") == cache.get("batchcount", 0) + cache.get("objs_per_slab", 0):
            entry["early"] = True
        index[name] = len(caches) + 1
        caches.append(entry)


def number(n):
    """Groups of seven bits, lowest first."""
    while n > 127:
        yield n & 127 | 128
        n >>= 7
    yield n


events, born, taken = bytearray(), {}, 0
pattern = re.compile(r": (kmalloc|kfree|kmem_cache_alloc|kmem_cache_free): (.*)")
with lzma.open(trace, "rt") as file:
    for line in file:
        if not (found := pattern.search(line)):
            continue
        kind, fields = found[1], dict(f.split("=", 1) for f in found[2].split() if "=" in f)
        at = fields["ptr"]
        if kind == "kmem_cache_alloc":
            name = fields["name"]
            if name not in index:
                # SLOB's snapshot leaves out the cache of cache descriptors.
                caches.append({"spec": {"name": name, "size": int(fields["bytes_req"])}, "slabs": 0, "covered": False})
                index[name] = len(caches)
            events.append(index[name])
        elif kind == "kmalloc":
            asked, name = int(fields["bytes_req"]), None
            if "__GFP_RECLAIMABLE" in fields["gfp_flags"] and asked <= 8192:
                got = 96 if 64 < asked <= 96 else int(fields["bytes_alloc"])
                name = f"kmalloc-rcl-{got if got < 1024 else f'{got // 1024}k'}"
            # SLOB has no caches of reclaimable kmalloc memory.
            if name in index:
                events.append(index[name])
            else:
                events.append(0)
                events.extend(number(asked))
        elif at in born:
            events.append(255)
            events.extend(number(taken - born.pop(at)))
            continue
        else:
            continue
        born[at] = taken
        taken += 1
assert len(caches) < 255
with lzma.open(out, "wb", preset=9 | lzma.PRESET_EXTREME) as file:
    file.write(json.dumps({"caches": caches, "kmalloc": general}).encode() + b"\n" + bytes(events))
print(f"{out}: {taken} allocations, {len(born)} live at the end, {len(caches)} caches, {len(events)} bytes of events")
