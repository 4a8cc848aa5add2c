//! The sizes and limits of the workloads specification, section by section.

use super::*;

const BUFFERS: &str = include_str!("../tests/oracle/data/skb_buffers.csv");

/// The request of a message of the table, by its rules.
fn request(rules: &Rules, message: &str) -> u64 {
    match message {
        "unix_100" => rules.unix_buffer(100),
        "udp_1" => rules.udp_buffer(1),
        "udp_512" => rules.udp_buffer(512),
        "udp_1k" => rules.udp_buffer(1024),
        "udp_4k" => rules.udp_buffer(4096),
        "tcp_ack" => rules.ack_bytes,
        "tcp_data" => rules.data_bytes,
        other => panic!("what is {other}?"),
    }
}

#[test]
fn s2_1_buffers_of_every_era_and_message() {
    let mut seen = 0;
    for line in BUFFERS.lines().skip(1) {
        let f: Vec<&str> = line.split(',').collect();
        let (era, message, header, bytes, cache) = (f[0], f[1], f[2], f[4], f[5]);
        let rules = Rules::of(Era::named(era).expect("a known era"), 1.0);
        let asked = request(&rules, message);
        assert_eq!(asked.to_string(), bytes, "{era} {message}");
        assert_eq!(asked <= rules.small_head, cache == "skbuff_small_head", "{era} {message}: {cache}");
        assert_eq!(message == "tcp_data", header == "skbuff_fclone_cache");
        seen += 1;
    }
    assert_eq!(seen, 5 * 7);
}

#[test]
fn s2_1_a_page_less_headers_and_shared_info_is_3504_bytes_in_2_6_24() {
    let rules = Rules::of(Era::V2_6_24, 1.0);
    assert_eq!((rules.linear, rules.data_bytes, rules.mss), (3504, 4088, 16_384));
    assert!(
        Era::NAMES[2..].iter().all(|e| Rules::of(Era::named(e).unwrap(), 1.0).linear == 0),
        "head-only since 2.6.28"
    );
}

/// Datagrams of `payload` bytes that a receiver takes before one is dropped.
fn taken(rules: &Rules, payload: u32, limit: u32) -> u32 {
    let truesize = rules.truesize(rules.udp_buffer(payload));
    let mut queued = 0;
    while rules.takes(queued, truesize, limit) {
        queued += truesize;
    }
    queued / truesize
}

#[test]
fn s2_3_datagrams_in_flight() {
    let old = Rules::of(Era::V2_6_24, 1.0);
    assert_eq!(old.buffer, 124_928);
    assert_eq!([taken(&old, 1024, old.buffer), taken(&old, 4096, old.buffer)], [94, 28]);
    assert_eq!([taken(&old, 1024, 65_536), taken(&old, 4096, 65_536)], [49, 14]);
    // Profiles of 6.1: most live at once, the one being sent included.
    let new = Rules::of(Era::V6_1, 1.0);
    assert_eq!([taken(&new, 1024, new.buffer) + 1, taken(&new, 4096, new.buffer) + 1], [94, 27]);
}

#[test]
fn s2_4_messages_in_flight_on_a_stream_socket() {
    for (era, truesize, most, wakes) in
        [(Era::V2_6_24, 360, 348, Some(86)), (Era::V3_0, 368, 346, None), (Era::V6_1, 768, 278, Some(69))]
    {
        let rules = Rules::of(era, 1.0);
        assert_eq!(rules.truesize(rules.unix_buffer(100)), truesize, "{era:?}");
        // A writer may send while what is written is below the limit.
        assert_eq!((rules.buffer - 1) / truesize + 1, most, "{era:?}");
        if let Some(left) = wakes {
            assert_eq!(rules.buffer / 4 / truesize, left, "{era:?}: a writer wakes");
        }
    }
}

#[test]
fn a_release_has_the_rules_of_the_newest_era_that_is_not_newer() {
    for (release, era) in [
        ((2, 6, 22), "2.6.24"),
        ((2, 6, 24), "2.6.24"),
        ((2, 6, 28), "2.6.28"),
        ((2, 6, 31), "2.6.28"),
        ((3, 0, 0), "3.0"),
        ((4, 13, 0), "3.0"),
        ((5, 19, 0), "6.1"),
        ((6, 1, 0), "6.1"),
        ((6, 18, 0), "6.18"),
        ((7, 1, 0), "6.18"),
    ] {
        assert_eq!(Era::of_release(release), era, "{release:?}");
        assert!(Era::named(era).is_some());
    }
}
