"""hackbench, June 2011: SLUB before and after lists of partial slabs per CPU."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from slablab.config import Hackbench, Sim, Slub
from slablab.published import files
from slablab.published.model import Ablation, Case, Claim, Fit, Published

if TYPE_CHECKING:
    from slablab.result import Result
    from slablab.runs import Runs

FILE = "lameter_2011_hackbench.csv"
MACHINE = "stoakley-2x4"
JOBS = ((100, 200_000), (100, 20_000), (10, 20_000), (1, 20_000))
"""Groups and loops."""
WINDOWS = {100: (0.8, 1.0), 10: (0.4, 0.2), 1: (0.1, 0.2)}
"""Groups → warm-up and measurement in seconds: tasks of all groups have had their turns and filled their sockets."""
BEFORE, AFTER = Slub("3.1"), Slub("3.2")
"""The posted series became 3.2."""


def case(allocator: Slub, groups: int) -> Case:
    """One job of 20,000 loops."""
    machine = Sim(MACHINE, kernel="3.0")
    warmup, seconds = WINDOWS[groups]
    load = Hackbench(groups=groups, loops=20_000, era="3.0", warmup=warmup, seconds=seconds)
    return Case(machine=machine, allocator=allocator, workload=load)


def seconds(column: str, groups: int, loops: int) -> float:
    """Mean of the published runs of a job."""
    return fmean(value for _, value in files.rows(FILE, column, groups=str(groups), loops=str(loops)))


def tenfold(run: Result) -> float:
    """Seconds of ten times the loops: a job's time is its steady state, scaled."""
    return 10 * run.throughput


def claims() -> list[Claim]:
    """The ratio after/before of each job, and the seconds of both."""
    made = []
    for groups, loops in JOBS:
        job = f"{groups} groups, {loops} loops"
        before, after = seconds("before", groups, loops), seconds("after", groups, loops)
        made.append(
            Claim(
                row=f"after/before, {job}",
                tested=(case(AFTER, groups),),
                base=(case(BEFORE, groups),),
                how="ratio",
                unit="",
                slower_is_more=True,
                published=(after / before,) * 2,
                within=0.05,
            )
        )
        for word, allocator, value in (("before", BEFORE, before), ("after", AFTER, after)):
            made.append(
                Claim(
                    row=f"{word}, {job}",
                    tested=(case(allocator, groups),),
                    unit="s",
                    metric=tenfold if loops == 200_000 else "throughput",
                    slower_is_more=True,
                    published=(value, value),
                    use="baseline" if (word, groups) == ("before", 1) else "shape",
                )
            )
    return made


def mail(runs: Runs) -> list[str]:
    """The mail's table: seconds before and after, by job."""
    lines = [f"{'hackbench (seconds)':32}{'before':>8} {'after':>8}  {'published:':>11} {'before':>8} {'after':>8}"]
    for groups, loops in JOBS:
        mine = [runs.of(allocator, groups=groups) for allocator in (BEFORE, AFTER)]
        if all(mine):
            ours = [fmean(m) * loops / 20_000 for m in mine]
            said = [seconds(word, groups, loops) for word in ("before", "after")]
            job = f"hackbench {groups} process {loops}"
            lines.append(f"{job:32}{ours[0]:>8.2f} {ours[1]:>8.2f}  {'':>11} {said[0]:>8.2f} {said[1]:>8.2f}")
    return lines


def fits() -> list[Fit]:
    """One constant, on one group before the change."""
    return [
        Fit(
            parameter="workload.protocol_scale",
            workload="hackbench",
            machines=(MACHINE,),
            cases=(case(BEFORE, 1),),
            target=seconds("before", 1, 20_000),
            fitted_on="slub@3.1, 1 group",
            plausible=(0.6, 1.6),
            reason="a message over a local socket takes about 2,000 instructions each way",
            slower_is_more=True,
        )
    ]


RESULT = Published(
    name="lameter-2011-hackbench",
    title="hackbench on 2 × 4 Xeon, Linux 3.0: SLUB with and without per-CPU partial lists",
    question="What do lists of partial slabs per CPU bring when many tasks free each other's objects?",
    source="Christoph Lameter, linux-kernel, 20 June 2011",
    claims=claims,
    fits=fits,
    reduce="mean",
    seeds=3,
    headline=lambda: [c for c in claims() if c.how == "ratio" and ", 10 groups" in c.row],
    quick=lambda claim: ", 100 groups" not in claim.row,
    ablations=(
        Ablation(
            name="no per-CPU partial lists",
            meaning="3.2 without the lists that the series brought",
            values={"allocator.cpu_partial": "none"},
        ),
        Ablation(name="mcs locks", meaning="waiters spin on lines of their own", values={"machine.locks": "mcs"}),
        Ablation(name="slabs of one page", meaning="slabs of order 0", values={"allocator.order": 0}),
        Ablation(name="no merging", meaning="caches of equal slots stay apart", values={"allocator.merge": False}),
    ),
    mail=mail,
    limits=("process start and exit: hackbench's time is scaled from its steady state",),
)
