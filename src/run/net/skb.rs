//! Packets: a header object, a data buffer, perhaps page fragments. Every object of the network is taken and given back
//! here, and counted.

use crate::alloc::SlabAllocator;
use crate::machine::{Access, Addr, Cpu, Machine};
use crate::page::Pfn;
use crate::spec::{CacheId, Object, Request};
use crate::units::CpuId;

use super::{Context, Net};
use crate::run::measured;

/// Most page fragments of one TCP segment: 16384 bytes over pages of which the first is partly used.
pub(super) const MAX_FRAGS: usize = 5;

/// Offset of the clone in a pair of packet headers.
pub(super) const CLONE: u64 = 232;
/// Offset of the pair's share count (kernel: fclone_ref, 4 bytes behind both headers): the last whole word inside the 468
/// bytes of the object, on the same line. A word that reached beyond would overwrite SLOB's next block.
pub(super) const SHARE_COUNT: u64 = 456;

/// Bytes of a packet header that are written when it is made.
pub(super) const HEADER: u64 = 232;

/// A TCP packet: header, linear buffer, page fragments. One with a pair of headers is shared by sender and receiver.
#[derive(Clone, Copy)]
pub(super) struct Packet {
    pub(super) head: Addr,
    pub(super) data: Addr,
    pub(super) frags: [(Pfn, u16, u16); MAX_FRAGS],
    pub(super) nr_frags: u8,
    /// The header has room for its clone, and the packet was sent as one.
    pub(super) fclone: bool,
    /// The buffer is of `skbuff_small_head`.
    pub(super) small: bool,
    /// Payload bytes; 0 for a pure acknowledgement.
    pub(super) len: u32,
    /// Those of them that lie in the linear buffer.
    pub(super) linear: u32,
    /// Everything up to here has reached the packet's sender.
    pub(super) ack: u64,
    /// Everything up to here has been read by its user.
    pub(super) read: u64,
    /// Stream position after its last byte.
    pub(super) end: u64,
    /// CPU that allocated it.
    pub(super) cpu: CpuId,
}

/// A datagram or a message of AF_UNIX, or a part of one: header and buffer.
#[derive(Clone, Copy)]
pub(super) struct Skb {
    pub(super) head: Addr,
    pub(super) data: Addr,
    /// Payload bytes, and how many of them have been read.
    pub(super) len: u32,
    pub(super) read: u32,
    /// What it counts against the socket's limit.
    pub(super) truesize: u32,
    pub(super) cpu: CpuId,
    /// The buffer is of `skbuff_small_head`.
    pub(super) small: bool,
    /// More parts of the same datagram follow.
    pub(super) more: bool,
}

impl<M: Machine> Net<M> {
    /// Takes a header and a buffer of `bytes`; `None`: memory is out.
    pub(super) fn take_pair<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        header: CacheId,
        bytes: u64,
        small_allowed: bool,
    ) -> Option<(Addr, Addr, bool)> {
        let head = measured::alloc(c.alloc, c.cpu, header, Request::default())?;
        let small = small_allowed && bytes <= self.plan.rules.small_head;
        let data = if small {
            measured::alloc(c.alloc, c.cpu, self.small, Request::default())
        } else {
            measured::kmalloc(c.alloc, c.cpu, bytes, Request::default())
        };
        let Some(data) = data else {
            measured::free(c.alloc, c.cpu, header, head);
            return None;
        };
        c.counts.allocs += 2;
        c.counts.held += 2;
        Some((head.addr(), data.addr(), small))
    }

    /// Gives a buffer and its header back.
    pub(super) fn give_pair<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        header: CacheId,
        (head, data, small): (Addr, Addr, bool),
        cpu: CpuId,
    ) {
        if small {
            measured::free(c.alloc, c.cpu, self.small, Object::at(data));
        } else {
            measured::kfree(c.alloc, c.cpu, Object::at(data));
        }
        measured::free(c.alloc, c.cpu, header, Object::at(head));
        c.counts.frees += 2;
        c.counts.held -= 2;
        c.counts.remote_frees += 2 * u64::from(cpu != c.cpu.id());
    }

    /// A message of `len` bytes in a buffer of `request` bytes, its payload copied in. `None`: memory is out.
    pub(super) fn make_skb<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        len: u32,
        request: u64,
        small_allowed: bool,
    ) -> Option<Skb> {
        let (head, data, small) = self.take_pair(c, self.head, request, small_allowed)?;
        // The header's lines, and the shared info at the buffer's end.
        c.cpu.touch_span(head, HEADER, Access::Write);
        c.cpu.touch(data.plus(request - self.plan.rules.shared_info), Access::Write);
        self.copy_bytes(c, data, len, true);
        let truesize = self.plan.rules.truesize(request);
        Some(Skb { head, data, len, read: 0, truesize, cpu: c.cpu.id(), small, more: false })
    }

    /// Gives a message back.
    pub(super) fn free_skb<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, skb: &Skb) {
        self.give_pair(c, self.head, (skb.head, skb.data, skb.small), skb.cpu);
    }

    /// Copies payload to (`write`) or from memory at `addr`.
    pub(super) fn copy_bytes<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        addr: Addr,
        bytes: u32,
        write: bool,
    ) {
        if bytes > 0 {
            c.counts.bytes_copied += u64::from(bytes);
            c.cpu.copy(c.pages.arena(), addr, u64::from(bytes), write);
        }
    }

    /// Drops one of the two references to a data packet; the last one frees it.
    pub(super) fn drop_shared<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, packet: &Packet) {
        if !packet.fclone {
            return self.free_packet(c, packet);
        }
        let left = c.pages.arena().fetch_add(c.cpu, packet.head.plus(SHARE_COUNT), -1);
        c.cpu.touch(packet.data.plus(self.shared_info()), Access::Rmw);
        if left == 1 {
            self.free_packet(c, packet);
        }
    }

    /// Gives a packet back.
    pub(super) fn free_packet<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, packet: &Packet) {
        for (pfn, ..) in &packet.frags[..usize::from(packet.nr_frags)] {
            self.put_frag(c, *pfn);
        }
        let header = if packet.fclone { self.fclone } else { self.head };
        self.give_pair(c, header, (packet.head, packet.data, packet.small), packet.cpu);
    }

    /// Offset of the shared info in the buffer of a TCP data packet.
    pub(super) fn shared_info(&self) -> u64 {
        self.plan.rules.data_bytes - self.plan.rules.shared_info
    }
}
