"""SLQB against SLUB on two Xeon machines, December 2008: netperf, hackbench, Volanomark and the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from slablab.config import (
    Aim7,
    Cpu2k,
    Dbench,
    Hackbench,
    Kbuild,
    Netperf,
    Oltp,
    Part,
    Sim,
    Slqb,
    Slub,
    Specjbb,
    Tbench,
    Volanomark,
)
from slablab.published import files
from slablab.published.model import Ablation, Case, Claim, How, Published, Use

if TYPE_CHECKING:
    from slablab.result import Result

FILE = "yanmin_2008_slqb.csv"
CORES = {"stoakley-2x4": 4, "tigerton-4x4": 4}
CPUS = {"stoakley-2x4": 8, "tigerton-4x4": 16}
BASE, TESTED = Slub("2.6.27"), Slqb("2.6.29")
"""2.6.27 stands for 2.6.28."""
ERA: Final = "2.6.28"
NO_CAUSE = "no path of an allocator explains a fifth of a build"
SECONDS_2008 = {"slub": 24.6, "slqb": 23.0}
"""hackbench 100 process 2000 on the Tigerton."""


def pair(machine: str, workload: Part, allocator: Slub | Slqb) -> Case:
    """One run."""
    return Case(machine=Sim(machine, kernel="2.6.28"), allocator=allocator, workload=workload)


def bound(machine: str, test: Literal["TCP_STREAM", "TCP_RR", "UDP_STREAM", "UDP_RR"], message: int) -> Netperf:
    """One pair, client and server on different sockets."""
    return Netperf(test=test, message=message, client_cpu=0, server_cpu=CORES[machine], era=ERA)


def said(workload: str, machine: str = "") -> tuple[float, float]:
    """Low and high end of a published change in percent, SLQB better above zero."""
    ends = [
        [v for keys, v in files.rows(FILE, column, workload=workload) if machine.partition("-")[0] in keys["machine"]]
        for column in ("delta_pct_low", "delta_pct_high")
    ]
    return ends[0][0], ends[1][0]


def null_rows(cpus: int) -> dict[str, Part]:
    """The rows without a difference, beside TCP and volanoMark of ten rooms."""
    return {
        "tbench": Tbench(clients=cpus, era=ERA),
        "dbench": Dbench(clients=cpus, era=ERA),
        "aim7": Aim7(tasks=4 * cpus, era=ERA),
        "oltp": Oltp(submitters=4 * cpus),
        "specjbb": Specjbb(warehouses=cpus),
        "cpu2k": Cpu2k(copies=cpus),
    }


def build(cpus: int) -> Kbuild:
    """Two compilations per CPU."""
    return Kbuild(jobs=2 * cpus, era=ERA)


def busiest_rank(run: Result) -> float:
    """Which place kmalloc-4096 has in `slabinfo -AD`, busiest first; shared slabs have a name of their own."""
    caches = run.caches().set_index("cache")
    names = [line.split()[0] for line in run.slabinfo("-AD").splitlines()[1:] if line.strip()]
    return 1.0 + names.index(str(caches.loc["kmalloc-4096", "directory"]))


def claims() -> list[Claim]:
    """Every row of the mail that the workloads here can run, on each of its machines."""
    made: list[Claim] = []

    def add(row: str, machine: str, load: Part, published: tuple[float, float], within: float, **words: str) -> None:
        name = machine.partition("-")[0].capitalize()
        how: How = "time saved" if isinstance(load, Hackbench) else "change"
        use: Use = "not claimed" if words.get("why") else "scored"
        made.append(
            Claim(
                row=f"{row}, {name}",
                tested=(pair(machine, load, TESTED),),
                base=(pair(machine, load, BASE),),
                how=how,
                slower_is_more=isinstance(load, Hackbench),
                published=published,
                within=None if words.get("why") else within,
                use=use,
                why=words.get("why", ""),
            )
        )

    for machine in CORES:
        add("UDP-U-4k", machine, bound(machine, "UDP_STREAM", 4096), said("UDP-U-4k"), 6.0)
        add("UDP-U-1k", machine, bound(machine, "UDP_STREAM", 1024), said("UDP-U-1k"), 3.0)
        add("UDP-RR-1", machine, bound(machine, "UDP_RR", 1), said("UDP-RR-1"), 3.0)
        add("UDP-RR-512", machine, bound(machine, "UDP_RR", 512), said("UDP-RR-512"), 3.0)
        add("TCP_STREAM", machine, bound(machine, "TCP_STREAM", 16384), said("TCP"), 2.0)
        add("TCP_RR", machine, bound(machine, "TCP_RR", 1), said("TCP"), 2.0)
        hackbench = Hackbench(groups=100, loops=2000, era=ERA, warmup=0.8, seconds=0.3)
        add("hackbench 100", machine, hackbench, said("hackbench 100 process 2000", machine), 3.0)
        add("volanoMark 10 rooms", machine, Volanomark(rooms=10, era=ERA), said("volanoMark 10 rooms"), 2.0)
        rooms = Volanomark(rooms=2 * CPUS[machine], era=ERA)
        add("volanoMark CPU*2 rooms", machine, rooms, said("volanoMark CPU*2 rooms"), 3.0)
        for row, load in null_rows(CPUS[machine]).items():
            add(row, machine, load, (0.0, 0.0), 2.0)
        add("kbuild", machine, build(CPUS[machine]), said("kbuild", machine), 0.0, why=NO_CAUSE)
        made.append(
            Claim(
                row=f"kbuild, rank of kmalloc-4096 in slabinfo -AD, {machine.partition('-')[0].capitalize()}",
                tested=(pair(machine, build(CPUS[machine]), BASE),),
                unit="",
                metric=busiest_rank,
                slower_is_more=True,
                published=(1.0, 3.0),
                within=0.0,
            )
        )
        if machine == "tigerton-4x4":
            for allocator in (BASE, TESTED):
                name = str(allocator.document()["name"])
                made.append(
                    Claim(
                        row=f"hackbench 100, {name}, Tigerton",
                        tested=(pair(machine, hackbench, allocator),),
                        unit="s",
                        slower_is_more=True,
                        published=(SECONDS_2008[name],) * 2,
                        use="shape",
                    )
                )
    wire = Netperf(test="UDP_RR", link="wire", pairs=64, era=ERA)
    add("UDP-RR-1, 64 clients, wire", "stoakley-2x4", wire, said("UDP-RR-1 real network 64 clients"), 3.0)
    return made


RESULT = Published(
    name="zhang-2008-slqb",
    title="SLQB against SLUB on Stoakley and Tigerton, Linux 2.6.28-rc8",
    question="Where does SLQB win against SLUB, and where does it make no difference?",
    source="Zhang Yanmin, linux-kernel, 19 December 2008",
    claims=claims,
    fits=tuple,
    reduce="median",
    seeds=5,
    headline=lambda: [c for c in claims() if c.row in ("UDP-U-4k, Stoakley", "volanoMark CPU*2 rooms, Stoakley")],
    quick=lambda claim: "UDP-U" in claim.row or "RR-1" in claim.row,
    ablations=(
        Ablation(
            name="no pass-through",
            meaning="SLUB serves 8 KiB requests from slabs of its own",
            values={"allocator.kmalloc_max": 8192},
            allocators=("slub",),
        ),
        Ablation(name="mcs locks", meaning="waiters spin on lines of their own", values={"machine.locks": "mcs"}),
        Ablation(
            name="short queues",
            meaning="SLQB flushes its queues after 32 objects",
            values={"allocator.hiwater": 32, "allocator.freebatch": 16},
            allocators=("slqb",),
        ),
        Ablation(name="no idle costs", meaning="sleeping CPUs wake at once", values={"machine.idle_scale": 0.0}),
    ),
    limits=("kbuild: no allocator path explains a fifth of a build", "which machine the wire row was measured on"),
)
