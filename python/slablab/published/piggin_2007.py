"""tbench on eight CPUs, November 2007: SLAB against SLUB over the number of clients."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from slablab.config import Part, Sim, Slab, Slob, Slqb, Slub, Tbench
from slablab.published import files
from slablab.published.model import Ablation, Case, Claim, Fit, Published, Use

FILE = "nick_2007_tbench.csv"
MACHINE = "opteron-2x4-2007"
UMA = "clovertown-2x4"
"""The dual quad of 2008 is not named; a Xeon of that time."""
CLIENTS = range(1, 17)
PLATEAU = range(9, 17)
RISE = range(1, 5)
ALLOCATORS = {"slab": Slab("2.6.24"), "slub": Slub("2.6.24-rc2"), "slob": Slob("2.6.24"), "slqb": Slqb("2.6.29")}
QUICK = (1, 2, 4, 8, 12, 16)
SOME = (10, 12, 14, 16)
"""Points of the plateau for ablations."""


def case(allocator: str, clients: int) -> Case:
    """One point of the figure."""
    return Case(machine=Sim(MACHINE), allocator=ALLOCATORS[allocator], workload=Tbench(clients=clients, era="2.6.24"))


def published(allocator: str) -> dict[int, float]:
    """Clients → MB/s of a published series."""
    return {int(keys["clients"]): value for keys, value in files.rows(FILE, allocator)}


def claims() -> list[Claim]:
    """Every point of the figure. SLOB and SLQB were not in it: they are drawn as predictions."""
    made = []
    for allocator in ALLOCATORS:
        said = published(allocator) if allocator in ("slab", "slub") else {}
        for n in CLIENTS:
            value = said.get(n)
            made.append(
                Claim(
                    row=f"{allocator}, {n} clients",
                    tested=(case(allocator, n),),
                    unit="MB/s",
                    published=None if value is None else (value, value),
                    use="prediction" if value is None else _use(allocator, n),
                    within=_within(n) if allocator == "slab" else None,
                    why="variable by the mail's own word: compared, not scored" if _unscored(allocator, n) else "",
                    x=n,
                    series=allocator,
                )
            )
    return [*made, ratio(PLATEAU), *of_2008()]


def of_2008() -> list[Claim]:
    """The same load on a machine without nodes, three months later: what the pass-through of 4 KiB requests costs."""
    own = Slub("2.6.24", kmalloc_max=4096, kmalloc_order3=True)
    slab = Claim(
        row="slab, 2 × 4 UMA, 2008",
        tested=(uma(Slab("2.6.24")),),
        unit="MB/s",
        published=(said_2008("SLAB"),) * 2,
        use="baseline",
    )
    ratios = [
        Claim(
            row=row,
            tested=(uma(allocator),),
            base=slab.tested,
            how="ratio",
            unit="",
            published=(said_2008(name) / said_2008("SLAB"),) * 2,
            within=0.02,
        )
        for row, allocator, name in (
            ("SLUB/SLAB, UMA, 2008", Slub("2.6.24"), "SLUB unmodified"),
            ("the same, kmalloc-4096", own, "SLUB with kmalloc-4096"),
        )
    ]
    return [slab, *ratios]


def uma(allocator: Part) -> Case:
    """The dual quad of February 2008, eight clients."""
    return Case(machine=Sim(UMA), allocator=allocator, workload=Tbench(clients=8, era="2.6.24"))


def said_2008(allocator: str) -> float:
    """MB/s of the mail of February 2008."""
    return next(value for _, value in files.rows("lameter_2008_tbench.csv", "mb_s", allocator=allocator))


def ratio(clients: Sequence[int]) -> Claim:
    """SLUB against SLAB at the plateau."""
    slab, slub = published("slab"), published("slub")
    plateau = fmean(slub[n] for n in PLATEAU) / fmean(slab[n] for n in PLATEAU)
    return Claim(
        row=f"SLUB/SLAB, {clients[0]} to {clients[-1]} clients",
        tested=tuple(case("slub", n) for n in clients),
        base=tuple(case("slab", n) for n in clients),
        how="ratio",
        unit="",
        published=(plateau, plateau),
        why="the size of the gap is an open question",
    )


def _unscored(allocator: str, clients: int) -> bool:
    return allocator == "slub" and clients in RISE


def _use(allocator: str, clients: int) -> Use:
    if allocator == "slub":
        return "not claimed" if _unscored(allocator, clients) else "scored"
    return "baseline" if clients in PLATEAU or clients in RISE else "shape"


def _within(clients: int) -> float:
    """The target for SLAB, in percent."""
    return 5.0 if clients >= 8 else 10.0 if clients >= 5 else 20.0


def probes() -> list[Claim]:
    """What a hypothesis about the gap is held against: the plateau, one client, SLAB alone, the machine of 2008."""
    one = Claim(row="SLUB/SLAB, 1 client", tested=(case("slub", 1),), base=(case("slab", 1),), how="ratio", unit="")
    level = Claim(row="SLAB, plateau", tested=tuple(case("slab", n) for n in SOME), unit="MB/s")
    return [ratio(SOME), one, level, next(c for c in of_2008() if c.how == "ratio")]


def fits() -> list[Fit]:
    """Two constants of the machine of 2007 and one of that of 2008, all on SLAB."""
    slab = published("slab")
    return [
        Fit(
            parameter="workload.protocol_scale",
            workload="tbench",
            machines=(MACHINE,),
            cases=tuple(case("slab", n) for n in PLATEAU),
            target=fmean(slab[n] for n in PLATEAU),
            fitted_on="slab, mean of clients 9 to 16",
            plausible=(0.6, 1.6),
            reason="a loopback segment takes 5,000 to 6,000 instructions of about two cycles; unscaled: 10,000 cycles",
        ),
        Fit(
            parameter="machine.idle_scale",
            workload="tbench",
            machines=(MACHINE,),
            cases=tuple(case("slab", n) for n in RISE),
            target=fmean(slab[n] for n in RISE),
            fitted_on="slab, mean of clients 1 to 4",
            plausible=(1.0, 1.5),
            reason="interrupt and exit from idle took 2 to 3 µs on the machines of the time; unscaled it is 2 µs",
        ),
        Fit(
            parameter="workload.protocol_scale",
            workload="tbench",
            machines=(UMA,),
            cases=(uma(Slab("2.6.24")),),
            target=said_2008("SLAB"),
            fitted_on="slab, 8 clients, February 2008",
            plausible=(0.6, 1.6),
            reason="as above; a core of another kind and clock",
        ),
    ]


RESULT = Published(
    name="piggin-2007-tbench",
    title="tbench on 2 × 4 Opteron, Linux 2.6.24-rc2",
    question="Why is SLUB a fifth slower than SLAB in tbench on an eight-CPU machine?",
    source="Nick Piggin, linux-kernel, November 2007 (highest of 5 runs, read off a graph, ± 5 MB/s)",
    claims=claims,
    curve=True,
    fits=fits,
    reduce="best",
    seeds=5,
    headline=lambda: [ratio(SOME)],
    quick=lambda claim: claim.x in QUICK or "2008" in claim.row,
    ablations=(
        Ablation(
            name="no pass-through",
            meaning="SLUB serves 4 KiB requests from order-3 slabs instead of asking the page allocator",
            values={"allocator.kmalloc_max": 4096, "allocator.kmalloc_order3": True},
            allocators=("slub",),
        ),
        Ablation(
            name="ticket locks",
            meaning="spin locks hand over in order of arrival (2.6.25)",
            values={"machine.locks": "ticket"},
        ),
        Ablation(
            name="no idle costs",
            meaning="a sleeping CPU is woken at no cost",
            values={"machine.idle_scale": 0.0},
        ),
        Ablation(
            name="ondemand governor",
            meaning="CPUs that are not busy run at half their clock",
            values={"machine.governor": "ondemand"},
        ),
        Ablation(name="one node", meaning="all memory is equally near", values={"machine.numa_nodes": 1}),
        Ablation(
            name="no merging",
            meaning="SLUB keeps caches of equal slots apart",
            values={"allocator.merge": False},
            allocators=("slub",),
        ),
    ),
    limits=(
        "code footprint against the instruction cache",
        "address translation",
        "kernel debug options of the machine, which are not known",
    ),
)
