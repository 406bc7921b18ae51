//! Size limits of a digest, and the merge of two digests.

use super::Digest;
use super::class::Class;
use toll_wire::accounting::saturating_add_to;
use toll_wire::log::INHERITED_DB;

/// Folds the lower half of the classes into one, or as many as take more than half of the memory. What they came to is kept, who they were is not;
/// a class that comes back says how many of its events may be in there.
pub(super) fn fold_smallest(digest: &mut Digest) {
    let rank = digest.settings.rank;
    let mut classes = std::mem::take(&mut digest.classes);
    classes.sort_by_key(|class| std::cmp::Reverse(rank.key(class)));
    let mut bytes = 0;
    let is_kept = |class: &&Class| {
        bytes += class.bytes();
        bytes <= digest.settings.classes_bytes_max / 2
    };
    let most = (digest.settings.classes_max / 2).max(1);
    let keep = classes.iter().take(most).take_while(is_kept).count().max(1);
    for class in classes.drain(keep.min(classes.len())..) {
        digest.floor = digest.floor.max(class.count_at_most());
        digest.folded.merge(&class, |name| name, Some);
        digest.folded_classes += 1;
    }
    digest.bytes = classes.iter().map(Class::bytes).sum();
    digest.classes = classes;
    digest.index = digest.classes.iter().zip(0..).map(|(class, n)| (class.key.clone(), n)).collect();
    digest.renumber();
}

/// Adds what `from` holds. Exact as long as neither had to fold classes; then a class says how many of its events may
/// be among those folded, of either. `inherited`: the schema
/// that [`INHERITED_DB`] stands for in `from`.
pub(super) fn merge_digests(digest: &mut Digest, from: &Digest, inherited: &[u8]) {
    let totals = &mut digest.totals;
    saturating_add_to(&mut totals.commands, from.totals.commands);
    saturating_add_to(&mut totals.queries, from.totals.queries);
    saturating_add_to(&mut totals.prepares, from.totals.prepares);
    saturating_add_to(&mut totals.admin, from.totals.admin);
    saturating_add_to(&mut totals.errors, from.totals.errors);
    saturating_add_to(&mut totals.tainted, from.totals.tainted);
    totals.last_ns = totals.last_ns.max(from.totals.last_ns);
    if from.totals.first_ns > 0 && (totals.first_ns == 0 || from.totals.first_ns < totals.first_ns) {
        totals.first_ns = from.totals.first_ns;
    }
    let names: Vec<u32> = (0..from.names.len())
        .map(|id| match from.names.text(id) {
            INHERITED_DB => digest.names.intern(inherited),
            name => digest.names.intern_again(name),
        })
        .collect();
    let names = move |id: u32| names.get(id as usize).copied().unwrap_or(super::names::OVERFLOW_ID);
    let others: Vec<Option<u8>> =
        from.others.names().iter().map(|(name, _)| digest.others.intern_name(name)).collect();
    let others = move |id: u8| others.get(usize::from(id)).copied().flatten();

    digest.all.merge(&from.all, &names, &others);
    digest.folded.merge(&from.folded, &names, &others);
    saturating_add_to(&mut digest.folded_classes, from.folded_classes);
    if from.floor > 0 {
        for class in digest.classes.iter_mut().filter(|class| !from.index.contains_key(&class.key)) {
            saturating_add_to(&mut class.count_short_by_at_most, from.floor);
        }
    }
    let (mine, theirs) = digest.time_axis.extend_to(from.time_axis);
    digest.coarsen_bins(mine);
    for class in &from.classes {
        let at = find_or_add_class(digest, class, inherited);
        let before = digest.classes[at].bytes();
        digest.classes[at].merge(class, &names, &others);
        digest.classes[at].merge_bins(class, theirs);
        let grown = digest.classes[at].bytes().saturating_sub(before);
        digest.add_bytes(grown);
    }
    saturating_add_to(&mut digest.floor, from.floor);
}

fn find_or_add_class(digest: &mut Digest, class: &Class, inherited: &[u8]) -> usize {
    if let Some(&at) = digest.index.get(&class.key) {
        return at as usize;
    }
    if digest.classes.len() >= digest.settings.classes_max {
        fold_smallest(digest);
    }
    let mut new = Class::new(&class.text, digest.floor);
    new.key = class.key.clone();
    new.id = class.id;
    new.kind = class.kind;
    new.distill = class.distill.clone();
    new.tables = class.tables.iter().map(|table| with_schema(table, inherited)).collect();
    let at = digest.classes.len();
    digest.index.insert(new.key.clone(), u32::try_from(at).unwrap_or(u32::MAX));
    digest.bytes += new.bytes();
    digest.classes.push(new);
    at
}

fn with_schema(table: &[u8], inherited: &[u8]) -> Vec<u8> {
    match table.strip_prefix(INHERITED_DB) {
        Some(name) if inherited.is_empty() => name.strip_prefix(b".").unwrap_or(name).to_vec(),
        Some(name) => [inherited, name].concat(),
        None => table.to_vec(),
    }
}
