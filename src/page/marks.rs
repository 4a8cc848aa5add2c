//! Watermarks and the tests against them (page-allocator.md §7).

use crate::units::{MAX_ORDER, Order, PAGE_SIZE};

use super::PageModel;

/// Watermarks [min, low, high] of a zone of `pages` out of `lowmem` pages: `min ≤ low ≤ high`.
pub(super) fn watermarks(model: PageModel, pages: u64, lowmem: u64) -> [u64; 3] {
    let most = if model.is_modern() { 262_144 } else { 65_536 };
    let min_free_kbytes = (16 * lowmem * (PAGE_SIZE / 1024)).isqrt().clamp(128, most);
    let min = (min_free_kbytes / 4) * pages / lowmem.max(1);
    if model.is_modern() {
        // watermark_scale_factor 10, of 10,000.
        let gap = (min / 4).max(pages * 10 / 10_000);
        [min, min + gap, min + 2 * gap]
    } else {
        [min, min + min / 4, min + min / 2]
    }
}

/// Whether a block of `order` may be taken with `free` pages left above `mark`. Up to 4.4 each order below the wanted one
/// takes its free pages off and halves the mark; today any sufficient block will do.
pub(super) fn watermark_ok(
    model: PageModel,
    free: u64,
    nr_free: impl Fn(usize) -> u64,
    order: Order,
    mark: u64,
) -> bool {
    let wanted = usize::from(order.0);
    let mut left = (free + 1).saturating_sub(order.pages());
    let mut mark = mark;
    if left <= mark {
        return false;
    }
    if model.is_modern() {
        return wanted == 0 || (wanted..MAX_ORDER).any(|o| nr_free(o) > 0);
    }
    for o in 0..wanted {
        left = left.saturating_sub(nr_free(o) << o);
        mark >>= 1;
        if left <= mark {
            return false;
        }
    }
    true
}

/// A mark as a caller without wait may use it (§7: HIGH, then HARDER).
pub(super) fn lowered(mark: u64, high: bool, harder: bool) -> u64 {
    let mark = if high { mark - mark / 2 } else { mark };
    if harder { mark - mark / 4 } else { mark }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// §13.13: pages of the zone and of all low memory; min, low, high of 2.6.24, then of today.
    #[test]
    fn watermarks_follow_the_tables_of_both_times() {
        for (pages, lowmem, old, new) in [
            (4096, 4096, [128, 160, 192], [128, 160, 192]),
            (16384, 16384, [256, 320, 384], [256, 320, 384]),
            (32768, 32768, [362, 452, 543], [362, 452, 542]),
            (131_072, 131_072, [724, 905, 1086], [724, 905, 1086]),
            (229_376, 229_376, [957, 1196, 1435], [957, 1196, 1435]),
            (262_144, 262_144, [1024, 1280, 1536], [1024, 1286, 1548]),
            (1_048_576, 1_048_576, [2048, 2560, 3072], [2048, 3096, 4144]),
            (4_194_304, 4_194_304, [4096, 5120, 6144], [4096, 8290, 12484]),
            (16_777_216, 16_777_216, [8192, 10240, 12288], [8192, 24969, 41746]),
            (4096, 1_048_576, [8, 10, 12], [8, 12, 16]),
            (1_044_480, 1_048_576, [2040, 2550, 3060], [2040, 3084, 4128]),
        ] {
            assert_eq!(watermarks(PageModel::HotCold, pages, lowmem), old, "{pages} of {lowmem}, 2.6.24");
            assert_eq!(watermarks(PageModel::Watermark, pages, lowmem), new, "{pages} of {lowmem}, today");
        }
    }

    /// §13.14: order, mark, reserve of a lower zone, HIGH, HARDER.
    #[test]
    fn the_watermark_test_of_2_6_24_halves_the_mark_per_order() {
        let counts = [400u64, 200, 50, 10, 2, 1, 0, 0, 0, 0, 0];
        for (order, mark, reserve, high, harder, ok) in [
            (0, 1000, 0, false, false, true),
            (0, 1280, 0, false, false, false),
            (0, 1280, 0, true, false, true),
            (0, 1280, 0, true, true, true),
            (1, 724, 0, false, false, true),
            (2, 724, 0, false, false, true),
            (3, 724, 0, false, false, true),
            (4, 100, 0, false, false, true),
            (6, 100, 0, false, false, false),
            (0, 724, 500, false, false, false),
            (3, 1100, 0, false, false, false),
        ] {
            // One zone per node leaves the reserve at 0; here it comes on top, as in the table.
            let mark = lowered(mark, high, harder) + reserve;
            let passes = watermark_ok(PageModel::HotCold, 1144, |o| counts[o], Order(order), mark);
            assert_eq!(passes, ok, "order {order}, mark {mark}");
        }
        assert_eq!((lowered(1280, true, false), lowered(1280, true, true)), (640, 480));
    }

    #[test]
    fn today_any_sufficient_block_passes_a_high_order() {
        let counts = [400u64, 200, 50, 10, 2, 1, 0, 0, 0, 0, 0];
        let ok = |order, mark| watermark_ok(PageModel::Watermark, 1144, |o| counts[o], Order(order), mark);
        assert!(ok(3, 1100) && ok(5, 1000));
        assert!(!ok(6, 100) && !ok(0, 1144));
    }

    #[test]
    fn the_test_is_monotone_in_order_and_mark() {
        let counts = [400u64, 200, 50, 10, 2, 1, 0, 0, 0, 0, 0];
        for model in [PageModel::HotCold, PageModel::Watermark] {
            let ok = |order, mark| watermark_ok(model, 1144, |o| counts[o], Order(order), mark);
            for mark in (0..1300).step_by(50) {
                for order in 0..10 {
                    assert!(ok(order, mark) || !ok(order + 1, mark), "{model:?}, order {order}, mark {mark}");
                    assert!(ok(order, mark) || !ok(order, mark + 50), "{model:?}, order {order}, mark {mark}");
                }
            }
        }
    }
}
