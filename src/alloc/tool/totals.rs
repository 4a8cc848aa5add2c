//! The totals (-T, slabinfo.md §8). Partial slabs are those with free objects, for SLAB the empty ones of its free lists too;
//! SLAB and SLQB have a row on objects that wait in queues.

use super::{Directory, Kind, Report, percent, scaled};

/// Average, smallest, largest and sum over the active caches.
#[derive(Clone, Copy)]
struct Spread {
    average: u64,
    min: u64,
    max: u64,
    total: u64,
}

impl Spread {
    fn of(caches: &[&Directory], figure: impl Fn(&Directory) -> u64) -> Spread {
        let values: Vec<u64> = caches.iter().map(|c| figure(c)).collect();
        let total: u64 = values.iter().sum();
        Spread {
            average: total.checked_div(values.len() as u64).unwrap_or(0),
            min: values.iter().copied().min().unwrap_or(0),
            max: values.iter().copied().max().unwrap_or(0),
            total,
        }
    }
    fn line(&self, name: &str) -> String {
        let [a, min, max, total] = [self.average, self.min, self.max, self.total].map(scaled);
        format!("{name:<10} {a:>10} {min:>10} {max:>10} {total:>10}\n")
    }
}

fn partial(c: &Directory) -> u64 {
    c.sum(&["partial", "free_slabs"])
}

/// The text.
pub(super) fn text(report: &Report) -> String {
    let caches = &report.caches;
    let active: Vec<&Directory> = caches.iter().filter(|c| c.number("slabs") > 0 && c.number("objects") > 0).collect();
    if active.is_empty() {
        return "No objects and no slabs\n".into();
    }
    let spread = |figure: &dyn Fn(&Directory) -> u64| Spread::of(&active, figure);
    let figure = |name: &'static str| Spread::of(&active, move |c| c.number(name));
    let (space, used) = (spread(&Directory::space), spread(&Directory::used));
    let loss = spread(&|c| c.space() - c.used().min(c.space()));
    let (objects, slabs, partial_slabs) = (figure("objects"), figure("slabs"), spread(&partial));
    let partial_share = Spread {
        total: percent(partial_slabs.total, slabs.total, 0),
        ..spread(&|c| percent(partial(c), c.number("slabs"), 0).min(100))
    };
    let in_partial = figure("objects_partial");
    let share = percent(in_partial.total, objects.total, 0);
    // The tool prints the overall share where the average of this row would be.
    let in_partial_row = Spread { average: share, ..in_partial };
    let in_partial_share =
        Spread { total: share, ..spread(&|c| percent(c.number("objects_partial"), c.number("objects"), 0).min(100)) };
    let links: usize = caches.iter().map(|c| c.links.len()).sum();
    let targets = caches.iter().filter(|c| !c.links.is_empty()).count();
    let mut text = format!(
        "Slabcache Totals\nSlabcaches: {} Aliases: {links}->{targets} Active: {}\n",
        caches.len(),
        active.len()
    );
    text += &format!(
        "Memory used: {} # Loss: {} MRatio: {}%\n",
        scaled(space.total),
        scaled(loss.total),
        percent(loss.total, used.total, 0)
    );
    text +=
        &format!("# Objects: {} # PartObj: {} ORatio: {share}%\n\n", scaled(objects.total), scaled(in_partial.total));
    text += &format!("{:<10} {:>10} {:>10} {:>10} {:>10}\n", "Per Cache", "Average", "Min", "Max", "Total");
    let queued = figure("queued");
    let mut rows = vec![
        ("#Objects", &objects),
        ("#Slabs", &slabs),
        ("#PartSlab", &partial_slabs),
        ("%PartSlab", &partial_share),
        ("PartObjs", &in_partial_row),
        ("% PartObj", &in_partial_share),
        ("Memory", &space),
        ("Used", &used),
        ("Loss", &loss),
    ];
    if report.kind != Kind::Slub {
        rows.push(("Queued", &queued));
    }
    rows.iter().for_each(|(name, spread)| text += &spread.line(name));
    let per_object = |figure: &dyn Fn(&Directory) -> u64| {
        let weighted: u64 = active.iter().map(|c| c.number("objects") * figure(c)).sum();
        Spread { average: weighted / objects.total, ..spread(figure) }
    };
    text += &format!("\n{:<10} {:>10} {:>10} {:>10}\n", "Per Object", "Average", "Min", "Max");
    let rows = [
        ("Memory", per_object(&|c| c.number("slab_size"))),
        ("User", per_object(&|c| c.number("object_size"))),
        ("Loss", per_object(&|c| c.number("slab_size") - c.number("object_size"))),
    ];
    for (name, s) in rows {
        text += &format!("{name:<10} {:>10} {:>10} {:>10}\n", scaled(s.average), scaled(s.min), scaled(s.max));
    }
    text
}
