//! TCP segments: building one from the era's buffers and page fragments, copying out of it, acknowledging.

use crate::alloc::SlabAllocator;
use crate::machine::{Access, Cpu, Machine};
use crate::page::{Asker, PageFlags, Pfn};
use crate::workload::SockId;

use super::skb::{CLONE, HEADER, MAX_FRAGS, Packet, SHARE_COUNT};
use super::tcp::Protocol;
use super::{Context, Net};

impl<M: Machine> Net<M> {
    /// Allocates a data packet, copies its payload in and keeps it as unacknowledged. `None`: memory is out.
    pub(super) fn build<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        protocol: &mut Protocol,
        len: u32,
    ) -> Option<Packet> {
        let rules = &self.plan.rules;
        let (head, data, small) = self.take_pair(c, self.fclone, rules.data_bytes, true)?;
        let mut packet = Packet {
            head,
            data,
            frags: [(Pfn(0), 0, 0); MAX_FRAGS],
            nr_frags: 0,
            fclone: true,
            small,
            len,
            linear: rules.linear,
            ack: protocol.received,
            read: protocol.read,
            end: protocol.sent + u64::from(len),
            cpu: c.cpu.id(),
        };
        // The header's lines, the shared info at the buffer's end, the protocol headers in front of the payload.
        c.cpu.touch_span(head, HEADER, Access::Write);
        c.cpu.touch(packet.data.plus(self.shared_info()), Access::Write);
        c.cpu.touch_span(packet.data, 128, Access::Write);
        if !self.add_fragments(c, protocol, &mut packet) {
            self.free_packet(c, &packet);
            return None;
        }
        self.copy(c, &packet, 0, len, true);
        // The clone lives in the second half of the header object: two references now.
        c.cpu.touch_span(head.plus(CLONE), HEADER, Access::Write);
        c.pages.arena().poke(head.plus(SHARE_COUNT), 2);
        c.cpu.touch(head.plus(SHARE_COUNT), Access::Rmw);
        c.cpu.touch(packet.data.plus(self.shared_info()), Access::Rmw);
        protocol.sent = packet.end;
        protocol.unacked.push_back(packet);
        c.counts.data_packets += 1;
        Some(packet)
    }

    /// Page fragments for what the linear buffer does not hold: parts of the socket's block, a new one when it is full.
    fn add_fragments<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        protocol: &mut Protocol,
        packet: &mut Packet,
    ) -> bool {
        let order = self.plan.rules.frag_order;
        let whole = order.bytes() as u32;
        let mut left = packet.len.saturating_sub(packet.linear);
        while left > 0 {
            let (pfn, used) = match protocol.page.take() {
                Some(page) => page,
                None => {
                    let flags = PageFlags { compound: order.0 > 0, asker: Asker::Fragments, ..PageFlags::default() };
                    let Some(page) = c.pages.alloc_pages(c.cpu, order, None, flags) else { return false };
                    c.counts.frag_pages += order.pages();
                    self.lent(order, 1);
                    (page.into_pfn(), 0)
                }
            };
            let n = left.min(whole - used);
            packet.frags[usize::from(packet.nr_frags)] = (pfn, used as u16, n as u16);
            packet.nr_frags += 1;
            left -= n;
            if used + n < whole {
                // The socket keeps its own reference to a page with room.
                c.pages.get_page(c.cpu, pfn);
                protocol.page = Some((pfn, used + n));
            }
        }
        true
    }

    /// Copies `n` payload bytes from `offset` on, in or out.
    pub(super) fn copy<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        p: &Packet,
        offset: u32,
        n: u32,
        write: bool,
    ) {
        c.counts.bytes_copied += u64::from(n);
        let (arena, mut at, end) = (c.pages.arena(), offset, offset + n);
        if at < p.linear.min(end) {
            let part = p.linear.min(end) - at;
            // Payload begins behind the room for headers.
            c.cpu.copy(arena, p.data.plus(u64::from(self.plan.rules.header + at)), u64::from(part), write);
            at += part;
        }
        let mut start = p.linear;
        for (pfn, off, len) in &p.frags[..usize::from(p.nr_frags)] {
            let (from, to) = (at.max(start), end.min(start + u32::from(*len)));
            if from < to {
                let addr = c.pages.addr_of(*pfn).plus(u64::from(*off) + u64::from(from - start));
                c.cpu.copy(arena, addr, u64::from(to - from), write);
            }
            start += u32::from(*len);
        }
    }

    /// Sends a pure acknowledgement: a plain header and a small buffer, freed by whoever processes it.
    pub(super) fn send_ack<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        sock: SockId,
        protocol: &mut Protocol,
    ) {
        let Some((head, data, small)) = self.take_pair(c, self.head, self.plan.rules.ack_bytes, true) else {
            c.counts.failed += 1;
            return;
        };
        c.cpu.touch_span(head, HEADER, Access::Write);
        c.cpu.touch_span(data, 128, Access::Write);
        self.work(c.cpu, self.plan.rules.costs.ack.0);
        let packet = Packet {
            head,
            data,
            frags: [(Pfn(0), 0, 0); MAX_FRAGS],
            nr_frags: 0,
            fclone: false,
            small,
            len: 0,
            linear: 0,
            ack: protocol.received,
            read: protocol.read,
            end: 0,
            cpu: c.cpu.id(),
        };
        c.counts.acks += 1;
        self.deliver(c, sock.peer(), packet);
    }
}
