"""netperf TCP_STREAM and Volanomark on two Xeon machines, May 2007: SLUB against SLAB."""

from __future__ import annotations

from statistics import fmean

from slablab.config import AllocatorConfig, Netperf, Part, Sim, Slab, Slub, Volanomark
from slablab.published import files
from slablab.published.model import Ablation, Case, Claim, Fit, Published

FILE = "chen_2007_slub.csv"
STREAM, VOLANO = "netperf TCP_STREAM loopback", "Volanomark"
WOODCREST, CLOVERTOWN = "woodcrest-2x2", "clovertown-2x4"
TUNED = "slub_min_objects=16 slub_max_order=4"
SLAB = Slab("2.6.24")
DEFAULT = Slub("2.6.21-mm1")
WITHIN = 3.0


def tuned(min_objects: int) -> Slub:
    """SLUB as the second mail tuned it."""
    return Slub("2.6.21-mm1", max_order=4, min_objects=min_objects)


def load(workload: str) -> Part:
    """One stream over loopback, or ten chat rooms."""
    return Netperf(test="TCP_STREAM", era="2.6.24") if workload == STREAM else Volanomark(era="2.6.24")


def case(machine: str, allocator: AllocatorConfig, workload: str) -> Case:
    """One run."""
    return Case(machine=Sim(machine, kernel="2.6.24"), allocator=allocator, workload=load(workload))


def said(workload: str, parameters: str, machine: str = "", kernel: str = "") -> float:
    """A published change in percent."""
    where = {"workload": workload, "slub_parameters": parameters}
    for keys, value in files.rows(FILE, "slub_vs_slab_delta_pct", **where):
        if machine.lower() in keys["machine"].lower() and kernel in keys["kernel"]:
            return value
    raise LookupError(f"{FILE}: {workload}, {parameters}, {machine}, {kernel}")


def change(row: str, machine: str, allocator: AllocatorConfig, workload: str, value: float) -> Claim:
    """SLUB against SLAB on one machine."""
    return Claim(
        row=row,
        tested=(case(machine, allocator, workload),),
        base=(case(machine, SLAB, workload),),
        how="change",
        published=(value, value),
        within=WITHIN,
    )


def claims() -> list[Claim]:
    """Every row of the mails; what they say of a machine that is not named is taken for the Clovertown."""
    stream, lockless = said(STREAM, "default"), "with lockless list"
    return [
        change("TCP_STREAM, Woodcrest", WOODCREST, DEFAULT, STREAM, stream),
        change("TCP_STREAM, Clovertown", CLOVERTOWN, DEFAULT, STREAM, stream),
        change("TCP_STREAM, tuned, 16 objects", CLOVERTOWN, tuned(16), STREAM, said(STREAM, TUNED)),
        change("TCP_STREAM, tuned, 8 objects", CLOVERTOWN, tuned(8), STREAM, said(STREAM, TUNED)),
        Claim(
            row="TCP_STREAM, 16 against 8 objects",
            tested=(case(CLOVERTOWN, tuned(16), STREAM),),
            base=(case(CLOVERTOWN, tuned(8), STREAM),),
            how="change",
            published=(0.0, 0.0),
            within=1.0,
        ),
        change("Volanomark, Woodcrest", WOODCREST, DEFAULT, VOLANO, said(VOLANO, "default", "woodcrest")),
        change("Volanomark, Clovertown", CLOVERTOWN, DEFAULT, VOLANO, said(VOLANO, "default", "clovertown")),
        change("Volanomark, tuned, 16 objects", CLOVERTOWN, tuned(16), VOLANO, said(VOLANO, TUNED)),
        change("Volanomark, tuned, 8 objects", CLOVERTOWN, tuned(8), VOLANO, said(VOLANO, TUNED)),
        change(
            f"TCP_STREAM, {lockless}",
            CLOVERTOWN,
            Slub("2.6.22", max_order=4),
            STREAM,
            said(STREAM, "slub_max_order=4", kernel="+ lockless"),
        ),
        change(
            f"TCP_STREAM, {lockless.replace('with', 'without')}",
            CLOVERTOWN,
            Slub("2.6.22", fast_path="slab_lock", max_order=4),
            STREAM,
            said(STREAM, "slub_max_order=4", kernel="without"),
        ),
    ]


def fits() -> list[Fit]:
    """One constant: the level of SLAB's TCP_STREAM, of a machine of that month whose name is not known."""
    runs = [value for _, value in files.rows("lameter_2007_tcp_stream.csv", "slab_mbit_s")]
    return [
        Fit(
            parameter="workload.protocol_scale",
            workload="netperf",
            machines=(WOODCREST, CLOVERTOWN),
            cases=(case(CLOVERTOWN, SLAB, STREAM),),
            target=fmean(runs),
            fitted_on="slab, mean of four runs of May 2007",
            plausible=(0.6, 1.6),
            reason="a loopback segment takes 5,000 to 6,000 instructions of about two cycles; unscaled: 10,000 cycles",
        )
    ]


RESULT = Published(
    name="chen-2007-netperf-volanomark",
    title="TCP_STREAM and Volanomark on two Xeons, Linux 2.6.21-rc7-mm: SLUB against SLAB",
    question="Why does SLUB lose 7 to 12 percent in the network benchmarks, and do larger slabs help?",
    source="Tim Chen, linux-kernel and linux-mm, 2 to 8 May 2007",
    claims=claims,
    fits=fits,
    reduce="median",
    seeds=5,
    headline=lambda: [c for c in claims() if c.row in ("TCP_STREAM, Clovertown", "Volanomark, Clovertown")],
    quick=lambda claim: "Clovertown" in claim.row or "tuned, 16" in claim.row,
    ablations=(
        Ablation(
            name="short queues",
            meaning="SLAB's queues hold eight objects, one slab's: the mail's own explanation",
            values={"allocator.limit": 8, "allocator.batchcount": 4, "allocator.sharedfactor": 0},
            allocators=("slab",),
        ),
        Ablation(
            name="lockless list",
            meaning="SLUB's fast path without the slab's lock",
            values={"allocator.fast_path": "descriptor"},
            allocators=("slub",),
        ),
        Ablation(
            name="no pass-through",
            meaning="SLUB serves 4 KiB requests from slabs of its own",
            values={"allocator.kmalloc_max": 4096, "allocator.kmalloc_order3": True},
            allocators=("slub",),
        ),
        Ablation(name="no yields", meaning="chat threads never yield", values={"workload.yields": 0.0}),
        Ablation(name="ticket locks", meaning="waiters in order of arrival", values={"machine.locks": "ticket"}),
    ),
    limits=("the Java machine's own work", "which machine the tuned rows were measured on"),
)
