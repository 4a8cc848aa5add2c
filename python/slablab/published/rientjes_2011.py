"""TCP_RR between two machines, 2011: SLUB before and after lists of partial slabs per CPU."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from slablab.config import Netperf, Sim, Slub
from slablab.published import files
from slablab.published.model import Ablation, Case, Claim, Fit, Published

if TYPE_CHECKING:
    from slablab.runs import Runs

FILE = "rientjes_2011_netperf.csv"
MACHINE = "opteron-4x4-2011"
THREADS = tuple(range(16, 161, 16))
BEFORE, AFTER = Slub("3.1"), Slub("3.2")
WIRE, CPU = 16, 48
"""Threads whose rate fixes the round trip and the CPU time of a transaction."""


def case(allocator: Slub, threads: int) -> Case:
    """The client machine: so many threads that ask, an interrupt CPU, a wire, and a server that answers."""
    load = Netperf(test="TCP_RR", link="wire", pairs=threads, rx_buffer=4096, era="3.0", seconds=0.3)
    return Case(machine=Sim(MACHINE, kernel="3.0"), allocator=allocator, workload=load)


def rates(column: str) -> dict[int, float]:
    """Threads → transactions per second."""
    return {int(keys["threads"]): value for keys, value in files.rows(FILE, column)}


def rate(column: str, threads: int) -> float:
    """One of them; no other is read."""
    return next(value for _, value in files.rows(FILE, column, threads=str(threads)))


def gain(threads: int) -> float:
    """The published gain in percent."""
    return 100 * (rate("after", threads) / rate("before", threads) - 1)


def claims() -> list[Claim]:
    """The gain at each number of threads, and the rates."""
    before, after = rates("before"), rates("after")
    made = []
    for n in THREADS:
        value = 100 * (after[n] / before[n] - 1)
        made.append(
            Claim(
                row=f"gain, {n} threads",
                tested=(case(AFTER, n),),
                base=(case(BEFORE, n),),
                how="change",
                published=(value, value),
                within=1.5,
                x=n,
                series="gain",
            )
        )
    for n in THREADS:
        for word, allocator, said in (("before", BEFORE, before), ("after", AFTER, after)):
            made.append(
                Claim(
                    row=f"{word}, {n} threads",
                    tested=(case(allocator, n),),
                    unit="/s",
                    published=(said[n], said[n]),
                    use="baseline" if word == "before" and n in (WIRE, CPU) else "shape",
                    x=n,
                    series=word,
                )
            )
    return made


def mail(runs: Runs) -> list[str]:
    """The mail's table: threads, transactions per second before and after, and the gain."""
    before, after = rates("before"), rates("after")
    heads = ("before", "after", "gain")
    ours, theirs = ("".join(f"{h:>{w}}" for h in heads) for w in (10, 9))
    lines = [f"{'threads':>7}{ours}{'published:':>12}{theirs}"]
    for n in THREADS:
        mine = [runs.of(allocator, pairs=n) for allocator in (BEFORE, AFTER)]
        if all(mine):
            rate_before, rate_after = map(median, mine)
            gains = [100 * (y / x - 1) for x, y in ((rate_before, rate_after), (before[n], after[n]))]
            ours = f"{rate_before:>10.0f}{rate_after:>10.0f}{gains[0]:>+9.1f}%"
            lines.append(f"{n:>7}{ours}{'':>12}{before[n]:>9.0f}{after[n]:>9.0f}{gains[1]:>+8.1f}%")
    return lines


def fits() -> list[Fit]:
    """Two constants, both before the change: the wire at 16 threads, the CPU of a transaction at 48."""
    return [
        Fit(
            parameter=parameter,
            workload="netperf",
            machines=(MACHINE,),
            cases=(case(BEFORE, threads),),
            target=rate("before", threads),
            fitted_on=f"slub@3.1, {threads} threads",
            plausible=plausible,
            reason=reason,
            start=start,
        )
        for parameter, threads, plausible, reason, start in (
            (
                "workload.round_trip_us",
                WIRE,
                (50.0, 250.0),
                "two passes of cards with interrupt moderation, a switch and the other machine: 212 µs at 16 threads",
                150.0,
            ),
            (
                "workload.protocol_scale",
                CPU,
                (0.6, 1.6),
                "as loopback, with a driver in place of the loop",
                1.0,
            ),
        )
    ]


RESULT = Published(
    name="rientjes-2011-netperf",
    title="netperf TCP_RR between two 4 × 4 Opterons, Linux 3.0",
    question="Do per-CPU partial lists help a server whose interrupt CPU allocates and whose other CPUs free?",
    source="David Rientjes, linux-mm, 2011",
    claims=claims,
    fits=fits,
    reduce="median",
    seeds=5,
    headline=lambda: [c for c in claims() if c.row in ("gain, 16 threads", "gain, 160 threads")],
    quick=lambda claim: claim.x in (16, 48, 160),
    ablations=(
        Ablation(
            name="no per-CPU partial lists",
            meaning="3.2 without the lists that the series brought",
            values={"allocator.cpu_partial": "none"},
        ),
        Ablation(name="mcs locks", meaning="waiters spin on lines of their own", values={"machine.locks": "mcs"}),
        Ablation(name="one node", meaning="all memory is equally near", values={"machine.numa_nodes": 1}),
        Ablation(name="four interrupt CPUs", meaning="the card has four queues", values={"workload.irq_cpus": 4}),
    ),
    mail=mail,
    limits=("the other machine: it answers after a fixed time", "the card's own timing"),
)
