"""What a call did, in a sentence: from the maps before and after it, and the event counts between them.

No allocator is known here. An object that came to the CPU's list is a refill, one that left it a flush; a slab that was
not there before is new; where a free object lies now says whose it has become.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from slablab.slabmap import Block, Key, SlabView, View, cpu_of

LARGEST = 4 << 20
"""Bytes of the largest block of pages."""


def sentence(step: Mapping[str, Any], before: View, after: View) -> str:
    """Explains a step of a script."""
    ((op, given),) = step["op"].items()
    change = _Change(op, given, step["cpu"], before, after)
    said = {"alloc": change.alloc, "kmalloc": change.alloc, "free": change.free, "kfree": change.free}.get(
        op, change.other
    )()
    counted = change.counted()
    return f"{said} ({counted})" if counted else said


class _Change:
    """The difference that a step made."""

    def __init__(self, op: str, given: Mapping[str, Any], cpu: int, before: View, after: View) -> None:
        self.op, self.given, self.cpu, self.before, self.after = op, given, cpu, before, after
        self.new = [s for key, s in after.slabs.items() if key not in before.slabs]
        self.gone = [s for key, s in before.slabs.items() if key not in after.slabs]

    def alloc(self) -> str:
        """An allocation: fast path, refill, new slab, straight from a slab, pages, nothing."""
        slot = self.given["slot"]
        if slot in self.after.failed:
            asked = self.given.get("bytes", 0)
            why = "more than the largest block of pages" if asked > LARGEST else "no memory"
            return f"{why}: the allocation returned NULL"
        placed = self.after.placed(slot)
        if placed is None:
            return self._pageless(self.after, slot, "taken from")
        slab, index = placed
        block = slab.objects[index]
        if slab.cache is None:
            return self._slob_alloc(slab, block)
        old = self._was(slab, block)
        mine = f"cpu {self.cpu}"
        came = Counter({(slab.key, old.state if old else "new"): 1})
        came.update(self._moved(slab.cache, lambda was, now: now == mine and was != mine))
        total, slabs = sum(came.values()), len({key for key, state in came if state in ("free", "new")})
        if old and old.state == mine and total == 1:
            left = sum(s.states[mine] for s in self.after.of(slab.cache))
            parts = [f"fast path: the object was on CPU {self.cpu}'s own list ({_count(left, 'object')} left there)"]
        elif old and old.state == "free" and total == 1:
            where = self.before.slabs[slab.key].list
            own = f"its own slab {slab.frame}" if where == mine else f"slab {slab.frame}, {_on(where)}"
            parts = [f"one object straight out of {own}"]
        elif old is None and total == 1:
            parts = ["one object out of it"]
        else:
            sources = _list(self._source(*source) for source in came)
            touched = f", {_count(slabs, 'slab')} touched" if slabs else ""
            parts = [f"refill: {_count(total, 'object')} from {sources}{touched}"]
        return "; ".join([*self._new(slab.cache), *parts, *self._gone(slab.cache), *self._lists(slab.cache)])

    def free(self) -> str:
        """A free: fast path, flush, remote, into its slab, slab returned."""
        slot = self.given["slot"]
        if slot in self.before.failed:
            return "nothing: the pointer was NULL"
        placed = self.before.placed(slot)
        if placed is None:
            return self._pageless(self.before, slot, "given back to")
        slab, index = placed
        block = slab.objects[index]
        if slab.cache is None:
            return self._slob_free(slab, block)
        mine = f"cpu {self.cpu}"
        now = self._is(slab, block)
        home = "" if slab.node == self.after.cpu_nodes[self.cpu] else f" of node {slab.node}"
        flushed = self._moved(slab.cache, lambda was, now: was == mine and now != mine)
        parts = []
        if flushed:
            to: Counter[str] = Counter()
            for (_, state), n in flushed.items():
                to[state] += n
            whither = _list(self._target(state, n, flushed) for state, n in to.items())
            parts.append(f"flush of {_count(sum(to.values()), 'object')} from CPU {self.cpu}'s list: {whither}")
        if now is None:
            parts.append(f"free of the last object of slab {slab.frame}")
        elif now.state == mine:
            there = sum(s.states[mine] for s in self.after.of(slab.cache))
            path = "then" if flushed else "fast path:"
            parts.append(f"{path} onto CPU {self.cpu}'s own list ({_count(there, 'object')} there now)")
        elif now.state == "free":
            owner = cpu_of(self.before.slabs[slab.key].list)
            if owner is not None and owner != self.cpu:
                parts.append(f"remote free: into slab {slab.frame}, which CPU {owner} allocates from")
            else:
                place = self.after.slabs[slab.key].list
                kind = f"remote free of an object{home}: " if home else ""
                parts.append(f"{kind}straight into its slab {slab.frame}, {_on(place)}")
        else:
            there = sum(s.states[now.state] for s in self.after.of(slab.cache))
            kind = f"remote free of an object{home}" if home else "free"
            parts.append(f"{kind}: into {_queue(now.state)} ({_count(there, 'object')} there now)")
        moved = self._between_queues(slab.cache, mine)
        return "; ".join([*parts, *moved, *self._gone(slab.cache), *self._lists(slab.cache)])

    def other(self) -> str:
        """Any other step: what moved, over all caches."""
        moves: Counter[tuple[str, str, str]] = Counter()
        for key, old in self.before.slabs.items():
            new = self.after.slabs.get(key)
            states = {o.at: o.state for o in new.objects} if new else {}
            for o in old.objects:
                now = states.get(o.at, "free")
                if o.state != now and old.cache is not None:
                    moves[old.name, o.state, now] += 1
        parts = [
            f"{_count(n, 'object')} of {name} from {_queue(a)} to {_queue(b)}" for (name, a, b), n in moves.items()
        ]
        parts += self._new(None) + self._gone(None) + self._lists(None)
        if self.op == "create":
            made, name = self.after.made[-1], self.after.names[self.after.made[-1]]
            if made in self.before.made or name != self.given["cache"]["name"]:
                parts.insert(0, f"shares the slabs of {name}, whose slots have room for its objects")
        of = {"write": "write of {value} to {attribute}", "offline": f"CPU {self.cpu} taken out of service"}
        name = of.get(self.op, self.op).format(**self.given)
        return f"{name}: {'; '.join(parts) or 'no slab changed'}"

    def counted(self) -> str:
        """Event counts that have grown."""
        grown: Counter[str] = Counter()
        for cache, events in self.after.events.items():
            old = self.before.events.get(cache, {})
            for name, n in events.items():
                grown[name] += n - old.get(name, 0)
        return ", ".join(f"{name} +{n}" for name, n in grown.items() if n > 0)

    def _was(self, slab: SlabView, block: Block) -> Block | None:
        old = self.before.slabs.get(slab.key)
        return old.block(block.at) if old else None

    def _is(self, slab: SlabView, block: Block) -> Block | None:
        new = self.after.slabs.get(slab.key)
        return new.block(block.at) if new else None

    def _moved(self, cache: int, chosen: Any) -> Counter[tuple[Key, str]]:
        """Objects not in use on either side whose state changed as `chosen` says: slab, and the state of interest."""
        moved: Counter[tuple[Key, str]] = Counter()
        for s in self.after.of(cache):
            old = self.before.slabs.get(s.key)
            states = {o.at: o.state for o in old.objects} if old else {}
            for o in s.objects:
                was = states.get(o.at, "new")
                if o.state != "used" and was != "used" and chosen(was, o.state):
                    moved[s.key, was if o.state == f"cpu {self.cpu}" else o.state] += 1
        for s in self.gone:
            if s.cache == cache:
                for o in s.objects:
                    if o.state != "used" and chosen(o.state, "gone"):
                        moved[s.key, "gone"] += 1
        return moved

    def _between_queues(self, cache: int, mine: str) -> list[str]:
        """Objects that left a queue: the drain of a shared, alien or remote one."""
        left: Counter[tuple[str, str]] = Counter()
        for s in self.before.of(cache):
            new = self.after.slabs.get(s.key)
            states = {o.at: o.state for o in new.objects} if new else {}
            for o in s.objects:
                now = states.get(o.at, "gone")
                if o.state not in ("used", "free", mine, now):
                    left[o.state, now] += 1
        return [f"{_count(n, 'object')} from {_queue(a)} to {_queue(b)}" for (a, b), n in left.items()]

    def _source(self, key: Key, state: str) -> str:
        if state == "new":
            return "a new slab"
        if state != "free":
            return _queue(state)
        where = self.before.slabs[key].list
        if where == f"cpu {self.cpu}":
            return "its own slab, freed there by others"
        return f"the {where} slabs" if where == "empty" else where.replace("partial of", "the partial list of")

    def _target(self, state: str, n: int, flushed: Counter[tuple[Key, str]]) -> str:
        slabs = _count(sum(s == state for _, s in flushed), "slab")
        if state == "gone":
            return f"{n} into {slabs} that went back"
        return f"{n} into {slabs}" if state == "free" else f"{n} into {_queue(state)}"

    def _new(self, cache: int | None) -> list[str]:
        """New slabs: of this cache first, then of others, which hold arrays and slab management."""
        said = []
        for s in self.new:
            order = s.pages.bit_length() - 1
            of = "" if s.cache == cache else f" of {s.name or 'the heap'}"
            said.append(
                f"new slab{of} of order {order} (frame {s.frame}, node {s.node}, {_count(len(s.objects), 'object')})"
            )
        return said if len(said) < 4 else [f"{len(said)} new slabs"]

    def _gone(self, cache: int | None) -> list[str]:
        if not self.gone:
            return []
        pages = sum(s.pages for s in self.gone)
        others = {s.name for s in self.gone if s.cache != cache}
        of = f" of {', '.join(sorted(others))}" if others and cache is not None else ""
        return [f"{_count(len(self.gone), 'slab')}{of} returned to the page allocator ({_count(pages, 'page')})"]

    def _lists(self, cache: int | None) -> list[str]:
        """Slabs that were there and changed their list."""
        changed: Counter[tuple[str, str]] = Counter()
        frames: dict[tuple[str, str], int] = {}
        for s in self.after.of(cache):
            old = self.before.slabs.get(s.key)
            if old and old.list != s.list:
                changed[old.list, s.list] += 1
                frames[old.list, s.list] = s.frame
        return [
            f"slab {frames[a, b]} went from {a} to {b}" if n == 1 else f"{n} slabs went from {a} to {b}"
            for (a, b), n in changed.items()
        ]

    def _pageless(self, view: View, slot: int, verb: str) -> str:
        held = view.slots[slot]
        if held.get("zero_size"):
            return "0 bytes: an address of nothing, no memory"
        pages = abs(self.after.pages - self.before.pages)
        return f"too large for a slab: {_count(pages, 'page')} from frame {held['frame']} on, {verb} the page allocator"

    def _slob_alloc(self, page: SlabView, block: Block) -> str:
        old = self.before.slabs.get(page.key)
        at = f"a block of {block.bytes} bytes at byte {block.at} of page {page.frame}"
        if old is None:
            return f"new page of node {page.node}: {at}"
        hole = old.block(block.at)
        hole_bytes = hole.bytes if hole else block.bytes
        full = "; the page is full now" if page.list == "full" else ""
        return f"first fit: {at}, cut from a free one of {hole_bytes} bytes ({old.list}){full}"

    def _slob_free(self, page: SlabView, block: Block) -> str:
        now = self._is(page, block)
        if now is None:
            return f"the last block of page {page.frame}, so the page went back to the page allocator"
        if now.state != "free":
            return f"the block of {block.bytes} bytes in page {page.frame} is {now.state}"
        merged = "not merged" if now.bytes == block.bytes else f"merged into a free block of {now.bytes} bytes"
        back = ""
        if page.list == "full":
            back = f"; the page was full and is on {self.after.slabs[page.key].list} now"
        return f"{block.bytes} bytes back at byte {block.at} of page {page.frame}, {merged}{back}"


def _plain(where: str) -> bool:
    return where.startswith("partial")


def _on(where: str) -> str:
    return {"full": "which is full", "empty": "which is empty", "none": "which is on no list"}.get(where) or (
        f"which is {where}" if _plain(where) or where.startswith("waiting") else f"which is the slab of {where}"
    )


def _queue(state: str) -> str:
    cpu = cpu_of(state)
    if cpu is not None:
        return f"CPU {cpu}'s list"
    words = {"used": "users", "free": "their slabs", "gone": "slabs that went back"}
    # alien[1] is a name; a shared array, a barn, an rlist is a thing.
    return words.get(state, state if "[" in state else f"the {state}")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _list(words: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(words))
