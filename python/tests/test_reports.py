"""sysfs and slabinfo: a reader written from the formats alone finds the numbers of the frames in every text."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest
import slabinfo_reader as reader

import slablab as sl
from slablab.cli import main

SLUB = [f"slub@{e['era']}" for a in sl.catalog()["allocators"] if a["name"] == "slub" for e in a["eras"]]
MACHINE = sl.Sim(sockets=2, cores_per_socket=2, numa_nodes=2)


def busy() -> sl.Script:
    """Caches of several kinds on four CPUs of two nodes: merged, constructed, freed remotely, partly left over."""
    caches = [
        {"name": "buffer_head", "size": 104},
        {"name": "twin", "size": 104},
        {"name": "constructed", "size": 200, "ctor": True},
        {"name": "reclaimed", "size": 1000, "reclaim_account": True},
        {"name": "big", "size": 3000, "hwcache_align": True},
        {"name": "rcu", "size": 64, "typesafe_by_rcu": True},
    ]
    ops: list[dict[str, Any]] = []
    slot = 0
    taken = []
    for cache in range(len(caches)):
        for n in range(150):
            cpu = n % 4
            ops.append({"cpu": cpu, "op": {"alloc": {"cache": cache, "slot": slot}}})
            taken.append((slot, cpu))
            slot += 1
    # Two thirds go back, half of those on another CPU.
    for slot_, cpu in taken:
        if slot_ % 3:
            ops.append({"cpu": (cpu + slot_ % 2) % 4, "op": {"free": {"slot": slot_}}})
    return sl.Script(caches=caches, ops=ops)


@pytest.fixture(scope="module")
def runs() -> dict[str, sl.Result]:
    names = [*SLUB, "slab@2.6.24", "slab@6.1", "slqb"]
    return {name: sl.run(machine=MACHINE, allocator=name, workload=busy()) for name in names}


def of(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    """The row of a cache by the name that a report shows: its own, an alias's, or that of its directory."""
    found = frame[(frame["directory"] == name) | (frame["cache"] == name)]
    assert len(found) == 1, (name, found)
    return found.iloc[0]


def events(one: sl.Result, cache: str, *names: str) -> int:
    stats = one.stats()
    return int(stats.loc[(stats["cache"] == cache) & stats["stat"].isin(names), "count"].sum())


ALL = [*SLUB, "slab@2.6.24", "slab@6.1", "slqb"]


@pytest.mark.parametrize("name", ALL)
def test_the_listing_reads_back(name: str, runs: dict[str, sl.Result]):
    one = runs[name]
    caches = one.caches()
    lines = reader.listing(one.slabinfo("-l"))
    assert len(lines) == (caches["slabs"] > 0).sum()
    assert [line.name.lower() for line in lines] == sorted(line.name.lower() for line in lines)
    for line in lines:
        row = of(caches, line.name)
        space = int(row["slabs"]) * (4096 << int(row["order"]))
        free = row["partial"] + (row["free_slabs"] if name.startswith("slab") else 0)
        expected = {
            "Objects": row["objects"],
            "Objsize": row["object_size"],
            "Space": space,
            "O/S": row["objects_per_slab"],
            "O": row["order"],
            "%Fr": 100 * free // row["slabs"],
            "%Ef": 100 * row["objects"] * row["object_size"] // space,
        }
        if not name.startswith("slub"):
            expected["Queued"] = row["queued"]
            limits = ("Lim", "Bat") if name.startswith("slab") else ("Hiwater", "Batch")
            expected |= dict(zip(limits, (row["limit"], row["batchcount"]), strict=True))
        for column, value in expected.items():
            assert value in line.values[column], (line, column, value)
        assert line.flags == row["flags"]
        if name in ("slub@2.6.22", "slub@2.6.21-mm1"):
            assert line.slabs == (row["slabs"], row["partial"], row["cpu_slabs"])
        elif name.startswith("slub"):
            assert line.slabs == (row["slabs"] - row["cpu_slabs"], row["partial"], row["cpu_slabs"])
        elif name.startswith("slab"):
            assert line.slabs == (row["slabs"], row["partial"] + 0, row["free_slabs"])
        else:
            assert line.slabs == (row["slabs"], row["partial"])


PATHS = {
    "slub": (("alloc_fastpath", "alloc_slowpath"), ("free_fastpath", "free_slowpath")),
    "slab": (("allochit", "allocmiss", "nodeallocs"), ("freehit", "freemiss", "remotefrees")),
    "slqb": (("alloc",), ("free",)),
}
COLUMNS = {
    "Fallb": "order_fallback", "CmpX": "cmpxchg_double_fail", "UL": "cmpxchg_double_cpu_fail", "Grown": "grown",
    "Reaped": "reaped", "Node": "nodeallocs", "Overfl": "alienoverflow", "New": "alloc_slab_new",
    "Flush": "flush_free_list", "Sent": "flush_rfree_list", "Claim": "claim_remote_list",
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in ALL if not n.startswith("slub@2.6.2") or n[-1] in "57" or n[-2:] == "31"])
def test_the_activity_reads_back(name: str, runs: dict[str, sl.Result]):
    one = runs[name]
    caches, kind = one.caches(), name.partition("@")[0]
    lines = reader.activity(one.slabinfo("-AD"))
    busiest = [line.values["Alloc"].low + line.values["Free"].low for line in lines]
    assert busiest == sorted(busiest, reverse=True)
    assert busiest[0] > 200
    for line in lines:
        row = of(caches, line.name)
        for column, paths in zip(("Alloc", "Free"), PATHS[kind], strict=True):
            total = events(one, row["cache"], *paths)
            assert total in line.values[column], (line, column)
            if kind != "slqb":
                share = 100 * events(one, row["cache"], paths[0]) // total if total else 0
                assert share in line.values[f"%{column}"]
        assert row["objects"] in line.values["Objects"]
        for column in set(line.values) & set(COLUMNS):
            assert events(one, row["cache"], COLUMNS[column]) in line.values[column], (line, column)
        if "Remote" in line.values:
            assert events(one, row["cache"], "remotefrees", "free_remote") in line.values["Remote"]
    if kind == "slub":
        era = name.partition("@")[2]
        late = [] if era in ("2.6.25", "2.6.27", "2.6.31") else ["CmpX", "UL"]
        fallback = [] if era == "2.6.25" else ["Fallb", "O"]
        assert list(lines[0].values)[5:] == [*fallback, *late]


@pytest.mark.parametrize("name", ALL)
def test_the_totals_read_back(name: str, runs: dict[str, sl.Result]):
    one = runs[name]
    caches = one.caches().dropna(subset=["objects"])
    active = caches[(caches["slabs"] > 0) & (caches["objects"] > 0)]
    found = reader.totals(one.slabinfo("-T"))
    space = active["slabs"] * 4096 * 2 ** active["order"]
    used = active["objects"] * active["object_size"]
    partial = active["partial"] + (active["free_slabs"] if name.startswith("slab") else 0)
    assert len(caches) in found.head["Slabcaches"]
    assert len(active) in found.head["Active"]
    assert space.sum() in found.head["Memory used"]
    assert active["objects_partial"].sum() in found.head["PartObj"]
    expected = {
        "#Objects": active["objects"],
        "#Slabs": active["slabs"],
        "#PartSlab": partial,
        "Memory": space,
        "Used": used,
        "Loss": space - used,
    }
    if not name.startswith("slub"):
        expected["Queued"] = active["queued"]
    for row, values in expected.items():
        average, least, most, total = found.per_cache[row]
        assert int(values.sum()) // len(active) in average, (row, average)
        assert values.min() in least
        assert values.max() in most
        assert values.sum() in total
    assert 100 * int(partial.sum()) // int(active["slabs"].sum()) in found.per_cache["%PartSlab"][3]
    objects = int(active["objects"].sum())
    assert int((active["objects"] * active["slot_size"]).sum()) // objects in found.per_object["Memory"][0]
    assert int(used.sum()) // objects in found.per_object["User"][0]
    share = 100 * int(active["objects_partial"].sum()) // objects
    assert share in found.per_cache["PartObjs"][0]
    assert share in found.head["ORatio"]


@pytest.mark.parametrize("name", ["slub@2.6.24", "slub@6.1", "slub@7.1", "slab@6.1", "slqb"])
def test_proc_slabinfo_reads_back(name: str, runs: dict[str, sl.Result]):
    one = runs[name]
    caches = one.caches().set_index("cache")
    for cache, columns in reader.proc(one.slabinfo()).items():
        row = caches.loc[cache]
        assert columns["active_objs"] == row["active_objects"]
        assert columns["num_objs"] == row["total_objects"]
        assert columns["objsize"] == row["slot_size"]
        assert columns["objperslab"] == row["objects_per_slab"]
        assert columns["num_slabs"] == row["slabs"]


@pytest.mark.parametrize("name", SLUB)
def test_sysfs_reads_back(name: str, runs: dict[str, sl.Result]):
    one = runs[name]
    stats, era = one.stats(), name.partition("@")[2]
    for _, row in one.caches().iterrows():
        files = one.sysfs(row["directory"])
        for file, column in (
            ("object_size", "object_size"), ("slab_size", "slot_size"), ("order", "order"),
            ("objs_per_slab", "objects_per_slab"), ("aliases", "aliases"),
        ):  # fmt: skip
            assert int(files[file]) == row[column]
        for file in ("objects", "objects_partial", "slabs", "partial", "cpu_slabs"):
            if file in files:
                total, nodes = reader.attribute(files[file])
                assert total == sum(nodes.values()) == row[file], (file, files[file])
                assert 0 not in nodes.values()
                assert set(nodes) <= {"N0", "N1"}
        mine = stats[stats["cache"] == row["cache"]]
        counted = 0
        for event in [f for f in files if f in {s["name"] for s in sl.catalog()["statistics"]}]:
            total, cpus = reader.attribute(files[event])
            here = mine[(mine["stat"] == event) & (mine["count"] > 0)]
            assert cpus == {f"C{cpu}": n for cpu, n in zip(here["cpu"], here["count"], strict=True)}
            assert total == here["count"].sum()
            counted += 1
        assert counted == NUMBER_OF_EVENTS[era]
        # Up to 2.6.24 the lab counts what the kernel did not.
        assert not counted or set(mine["stat"]) <= set(files)
        if "slabs_cpu_partial" in files:
            (_, slabs), cpus_ = reader.cpu_partial(files["slabs_cpu_partial"])
            assert slabs == sum(n for _, n in cpus_.values())
            assert slabs <= row["cpu_slabs"]


NUMBER_OF_EVENTS = dict.fromkeys(("2.6.21-mm1", "2.6.22", "2.6.24-rc2", "2.6.24"), 0) | {
    "2.6.25": 17, "2.6.27": 18, "2.6.31": 18, "3.1": 22, "3.2": 24, "6.1": 26, "6.8": 26, "6.18": 43, "7.1": 26,
}  # fmt: skip

SINCE = {
    "total_objects": "2.6.27", "objects_partial": "2.6.27", "min_partial": "2.6.31", "failslab": "3.1",
    "cpu_partial": "3.2", "slabs_cpu_partial": "3.2", "usersize": "6.1", "sheaf_capacity": "6.18",
    "remote_node_defrag_ratio": "2.6.25",
}  # fmt: skip


@pytest.mark.parametrize("name", SLUB)
def test_each_era_has_the_attributes_of_its_time(name: str, runs: dict[str, sl.Result]):
    files = runs[name].sysfs("constructed")
    for attribute, first in SINCE.items():
        assert (attribute in files) == (SLUB.index(name) >= SLUB.index(f"slub@{first}")), attribute
    assert ("defrag_ratio" in files) == ("remote_node_defrag_ratio" not in files)
    assert files["ctor"] == "constructed_ctor"
    for flag in ("hwcache_align", "reclaim_account", "cache_dma", "destroy_by_rcu", "sanity_checks", "red_zone",
                 "poison", "store_user", "trace"):  # fmt: skip
        assert files[flag] == "0"
    assert runs[name].sysfs("rcu")["destroy_by_rcu"] == "1"
    assert runs[name].sysfs("big")["hwcache_align"] == "1"
    if name == "slub@7.1":
        assert (files["cpu_partial"], files["slabs_cpu_partial"]) == ("0", "0(0)")
        assert files["sheaf_capacity"] == "60"


def test_shared_directories_have_the_kernel_s_ids(runs: dict[str, sl.Result]):
    for name, reclaimed in (("slub@2.6.24", ":a-0001000"), ("slub@3.2", ":at-0001000"), ("slub@6.1", ":a-0001000")):
        one = runs[name]
        caches = one.caches()
        assert caches.loc[caches["cache"] == "reclaimed", "directory"].tolist() == [reclaimed]
        assert caches.loc[caches["cache"] == "constructed", "directory"].tolist() == ["constructed"]
        # The twin shares: one directory, two links to it, and the tool shows the id.
        assert one.sysfs("twin") == one.sysfs("buffer_head")
        assert one.sysfs("twin")["aliases"] == "1"
        shown = [line.name for line in reader.listing(one.slabinfo("-l"))]
        assert caches.loc[caches["cache"] == "buffer_head", "directory"].item() in shown
        assert "reclaimed" in shown
        assert "*" in next(line.flags for line in reader.listing(one.slabinfo("-l")) if line.name.endswith("0000104"))
    alone = sl.run(machine=MACHINE, allocator=sl.Slub("6.1", merge=False), workload=busy())
    assert alone.caches()["directory"].tolist() == alone.caches()["cache"].tolist()
    assert alone.sysfs("twin")["aliases"] == "0"


def test_debug_flags_show_as_files_and_letters():
    one = sl.run(machine=MACHINE, allocator=sl.Slub("6.1", debug="FZPU,big"), workload=busy())
    files = one.sysfs("big")
    assert [files[f] for f in ("sanity_checks", "red_zone", "poison", "store_user", "trace")] == list("11110")
    flags = {line.name: line.flags for line in reader.listing(one.slabinfo("-l"))}
    assert flags["big"] == "APZFU"
    assert files["cpu_partial"] == "0"


def test_slqb_has_files_of_its_own_and_slab_and_slob_have_none(runs: dict[str, sl.Result]):
    files = runs["slqb"].sysfs("constructed")
    assert list(files)[:4] == ["slab_size", "object_size", "objs_per_slab", "order"]
    assert len([f for f in files if f in {s["name"] for s in sl.catalog()["statistics"]}]) == 14
    assert int(files["hiwater"]) == 4 * int(files["freebatch"])
    total, cpus = reader.attribute(files["alloc"])
    assert total >= sum(cpus.values()) > 0
    with pytest.raises(LookupError, match=r"slab@6.1 has no directory in sysfs"):
        runs["slab@6.1"].sysfs("big")
    slob = sl.run(machine=MACHINE, allocator="slob", workload=busy())
    for call in (lambda: slob.slabinfo("-AD"), lambda: slob.slabinfo("-T"), lambda: slob.sysfs("big")):
        with pytest.raises(LookupError, match=r"slob@2.6.24 has no \w+: its objects share the pages of one heap"):
            call()
    with pytest.raises(sl.ConfigError, match=r"cache = .bigg.: did you mean .big."):
        runs["slub@6.1"].sysfs("bigg")
    with pytest.raises(sl.ConfigError, match=r"options = .-Q.: of -l"):
        runs["slub@6.1"].slabinfo("-Q")
    with pytest.raises(sl.ConfigError, match=r"counts no events, -A and -D exist since 2.6.25"):
        runs["slub@2.6.24"].slabinfo("-AD")


def test_the_report_survives_a_store_and_a_document(tmp_path: Any):
    store = tmp_path / "runs.db"
    sl.sweep(allocator=["slub@6.1"], workload=sl.Tbench(seconds=0.005, warmup=0.0), store=store)
    with sl.Store(store, write=False) as kept:
        one = kept.sweep()[0]
    assert one.slabinfo("-AD").count("\n") > 3
    assert int(one.sysfs("kmalloc-512")["alloc_fastpath"].split()[0]) > 100
    document = json.loads(one.to_json())["result"]
    assert document["tool"]["kind"] == "slub"
    assert len(one.to_json()) < 400_000


def test_a_hands_on_cache_shows_its_files_after_each_call():
    k = sl.Kernel(sl.Sim(cpus=2), "slub@6.1")
    c = k.cache("buffer_head", 104)
    p = c.alloc(cpu=0)
    assert c.sysfs()["slabs"] == "1 N0=1"
    assert c.sysfs()["alloc_slowpath"] == "1 C0=1"
    c.free(p, cpu=1)
    assert c.sysfs()["free_frozen"] == "1 C1=1"
    assert c.sysfs()["min_partial"] == "5"
    c.write("min_partial", 7)
    assert c.sysfs()["min_partial"] == "7"
    assert "buffer_head" in k.slabinfo("-AD")
    assert k.slabinfo().startswith("slabinfo - version: 2.1")
    with pytest.raises(sl.ConfigError, match=r"cache.order = 1: not writable in this release: from 2.6.26 to 5.8"):
        c.write("order", 1)
    with pytest.raises(sl.ConfigError, match=r"cache.colour = 1: min_partial \(since 2.6.30\)"):
        c.write("colour", 1)
    assert c.sysfs()["min_partial"] == "7"
    c.destroy()
    with pytest.raises(sl.ConfigError, match="has not been destroyed"):
        c.sysfs()


def said(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert main(list(words)) == status
    read = capsys.readouterr()
    return read.out, read.err


TINY = ["--workload", "tbench", "--set", "workload.warmup=0", "--seconds", "0.005"]


@pytest.mark.parametrize("allocator", ["slub@6.1", "slab@6.1", "slqb"])
def test_the_shell_prints_the_same_texts(allocator: str, capsys: pytest.CaptureFixture[str]):
    one = sl.run(allocator=allocator, workload=sl.Tbench(warmup=0.0, seconds=0.005))
    words = ["slabinfo", "--allocator", allocator, *TINY]
    for option, text in ((["-AD"], one.slabinfo("-AD")), (["-T"], one.slabinfo("-T")), ([], one.slabinfo("-l"))):
        assert said(capsys, *words, *option)[0] == text
    assert said(capsys, *words, "--proc")[0] == one.slabinfo()
    as_json = json.loads(said(capsys, *words, "-D", "--json")[0])
    assert as_json["text"] == one.slabinfo("-D")
    assert len(as_json["caches"]) == len(one.caches())
    code = said(capsys, *words, "-AD", "--show-code")[0]
    names: dict[str, Any] = {}
    exec(compile(code, "code", "exec"), names)
    assert capsys.readouterr().out == one.slabinfo("-AD")


def test_the_shell_prints_attributes_and_takes_runs_of_a_store(tmp_path: Any, capsys: pytest.CaptureFixture[str]):
    store = str(tmp_path / "runs.db")
    assert main(["sweep", "--allocator", "slub@6.1", *TINY, "--over", "machine.cpus=2", "--store", store]) == 0
    key = json.loads(said(capsys, "store", "ls", store, "--runs", "--json")[0])[0]["key"]
    text = said(capsys, "slabinfo", "--sysfs", "kmalloc-512", "--store", store, "--key", key[:8])[0]
    lines = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert lines["object_size"] == "512"
    assert lines["ctor"] == "(empty)"
    files = json.loads(said(capsys, "slabinfo", "--sysfs", "kmalloc-512", "--store", store, "--key", key, "--json")[0])
    assert files["ctor"] == ""
    assert said(capsys, "slabinfo", "-AD", "--store", store, "--key", key)[0].startswith("Name ")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--allocator", "slob"], ["slob@2.6.24 has no slabinfo", "one heap"]),
        ([], ["--allocator", "slub@6.1"]),
        (["--key", "3f"], ["--key", "--store"]),
        (["--store", "none.db"], ["--key"]),
        (["--store", "none.db", "--key", "3f", "--allocator", "slub"], ["--allocator", "none with --store"]),
        (["--allocator", "slub@2.6.24", *TINY, "-AD"], ["options", "since 2.6.25"]),
        (["--allocator", "slub@6.1", *TINY, "--sysfs", "kmalloc"], ["cache", "did you mean"]),
        (["--allocator", "slab", *TINY, "--sysfs", "size-64"], ["slab@2.6.24 has no directory in sysfs"]),
        (["--allocator", "slub@6.1", "-T", "--proc"], ["options", "one of them"]),
    ],
)
def test_the_shell_says_in_one_line_what_cannot_be_shown(
    words: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
):
    err = said(capsys, "slabinfo", *words, status=2)[1]
    lines = [line for line in err.splitlines() if not line.startswith("# ")]
    assert len(lines) == 1
    for part in parts:
        assert part in lines[0]


def test_the_shell_twin_of_geometry(tmp_path: Any, capsys: pytest.CaptureFixture[str]):
    words = ["geometry", "--allocator", "slub@6.1", "--size", "192", "--cpus", "8", "--page-size", "65536",
             "--cache-line", "128", "--debug", "ZU", "--flags", "hwcache_align"]  # fmt: skip
    one = sl.geometry("slub@6.1", 192, cpus=8, page_size=65536, cache_line=128, debug="ZU", flags="hwcache_align")
    assert said(capsys, *words)[0] == f"{one}\n"
    assert json.loads(said(capsys, *words, "--json")[0]) == dict(one)
    csv = tmp_path / "g.csv"
    many = ["geometry", "--allocator", "slab@2.6.24,slub@2.6.24", "--size", "8..64", "--csv", str(csv)]
    table = said(capsys, *many, "--set", "allocator.order=0")[0]
    assert len(table.splitlines()) == 1 + 2 * 57
    assert len(pd.read_csv(csv)) == 114
    for command in (words, [*words, "--json"], many[:-2], [*many[:-2], "--json"], [*words, "--csv", str(csv)]):
        code = said(capsys, *command, "--show-code")[0]
        shown = said(capsys, *command)[0]
        exec(compile(code, "code", "exec"), {})
        printed = capsys.readouterr().out
        if "--json" in command:
            assert json.loads(printed) == json.loads(shown)
        elif command == words:
            assert printed == shown


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--allocator", "slub@3.3", "--size", "8"], ["era of slub", "3.3", "3.2"]),
        (["--allocator", "slub", "--size", "0"], ["cache.size = 0"]),
        (["--allocator", "slub", "--size", "8,x"], ["--size", "whole number"]),
        (["--allocator", "slub", "--size", "9..8"], ["--size", "LOW at most HIGH"]),
        (["--allocator", "slub", "--size", "8", "--page-size", "8192"], ["page_size = 8192", "4096, 16384 or 65536"]),
        (["--allocator", "slub", "--size", "8", "--debug", "Q"], ["allocator.debug", "F Z P U T"]),
        (["--allocator", "slub", "--size", "8", "--set", "allocator.max_order=11"], ["max_order = 11", "since 2.6.22"]),
        (["--allocator", "slub", "--size", "8", "--set", "allocator.max_order=-1"], ["max_order = -1", "since 2.6.22"]),
        (["--allocator", "slub", "--size", "8", "--flags", "hw"], ["geometry.flags", "hwcache_align"]),
    ],
)
def test_the_shell_refuses_geometry_of_no_kernel(
    words: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
):
    err = said(capsys, "geometry", *words, status=2)[1]
    assert len(err.splitlines()) == 1
    for part in parts:
        assert part in err
