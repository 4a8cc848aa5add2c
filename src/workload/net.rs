//! Network rules of a kernel era: what one message takes from the allocator, and what the protocol costs
//! (workloads.md §2). The state machines stand in the executor; these are their numbers.

use crate::units::Picos;

/// Rules and costs of TCP over loopback.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// Payload bytes that fit into the linear buffer; the rest goes to page fragments.
    pub linear: u32,
    /// kmalloc request of a data packet's linear buffer.
    pub data_bytes: u64,
    /// kmalloc request of a pure acknowledgement's buffer.
    pub ack_bytes: u64,
    /// Probability of one more acknowledgement for a message with an odd number of full segments (event counts of two
    /// published slabinfo dumps, workloads.md §3.4; no throughput was used).
    pub odd_ack: f64,
    /// Index in `Plan::caches` of the packet header with room for its clone (kernel: skbuff_fclone_cache).
    pub fclone_cache: u32,
    /// Index in `Plan::caches` of the plain packet header (kernel: skbuff_head_cache).
    pub head_cache: u32,
    /// Protocol work of sending a data segment.
    pub tx: Picos,
    /// Protocol work of receiving a data segment.
    pub rx: Picos,
    /// Protocol work of sending a pure acknowledgement.
    pub ack_tx: Picos,
    /// Protocol work of receiving one.
    pub ack_rx: Picos,
}

/// Protocol costs before scaling, in nanoseconds: sending and receiving a data segment, a pure acknowledgement. Their
/// ratios are fixed; one scale for all four is fitted (specs: pilot-2007, method).
pub const PROTOCOL_NS: [f64; 4] = [2600.0, 2400.0, 1200.0, 1200.0];

impl Rules {
    /// 2.6.24 over loopback: a scatter-gather device without segmentation offload, so every data packet has a linear
    /// buffer of one page less its header room and shared info; MTU 16436.
    pub fn v2_6_24(protocol_scale: f64) -> Rules {
        let cost = |i: usize| Picos::from_ns(PROTOCOL_NS[i] * protocol_scale);
        Rules {
            mss: 16384,
            linear: 3504,
            data_bytes: 4088,
            ack_bytes: 632,
            odd_ack: 0.214,
            fclone_cache: 0,
            head_cache: 1,
            tx: cost(0),
            rx: cost(1),
            ack_tx: cost(2),
            ack_rx: cost(3),
        }
    }
}
