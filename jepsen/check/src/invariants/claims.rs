//! I2: every accept is covered by a committed claim that precedes its DATA. I14: accepts are at most gate passes, and
//! as many in a run without faults.

use std::collections::BTreeMap;

use crate::book::{Book, Dot, Grant, rows_of};
use crate::history::{self, GateReading, Part};
use crate::verdict::Inquiry;

/// I2.
pub fn covered(book: &Book, inquiry: &mut Inquiry) {
    let claims_whole = inquiry.needs(book, &[Part::Accepts, Part::Claims]);
    for dot in book.accepts() {
        let told = || format!("{} at {:.3} s", book.describe(dot.item), dot.at_ns as f64 / 1e9);
        let Some(fence) = dot.fence else {
            inquiry.offends(|| format!("{}: a mail without a fence", told()));
            continue;
        };
        match grant_of(book, dot) {
            None if claims_whole => inquiry.offends(|| format!("{}: no claim {fence} grants it", told())),
            None => {}
            Some(grant) if grant.node != dot.node => inquiry.offends(|| {
                let (holder, sender) = (book.names.text(grant.node), book.names.text(dot.node));
                format!("{}: {fence} is {holder}'s, and {sender} sent it", told())
            }),
            Some(grant) if grant.committed_ns.is_some_and(|committed| committed > dot.data_ns) => {
                inquiry.offends(|| format!("{}: its DATA came before claim {fence} was committed", told()));
            }
            Some(_) => {}
        }
    }
}

/// The claim under which a mail came.
pub fn grant_of<'a>(book: &'a Book, dot: &Dot) -> Option<&'a Grant> {
    rows_of(&book.grants, dot.item).iter().find(|grant| Some(grant.fence) == dot.fence)
}

/// A life: its node, and which of that node's lives.
type Life<'a> = (&'a str, u64);

/// I14.
pub fn passed_the_gate(book: &Book, inquiry: &mut Inquiry) {
    if !inquiry.needs(book, &[Part::Accepts, Part::Gates, Part::Faults]) {
        return;
    }
    let accepts = accepts_by_life(book, inquiry);
    let passes = book.gates.iter().map(|gate| ((gate.node.as_str(), gate.incarnation), gate.passes));
    let passes: BTreeMap<Life, u64> = passes.collect();
    let faultless = book.faults.iter().all(|fault| !fault.may_have_struck());
    let mut lives: Vec<_> = accepts.keys().chain(passes.keys()).copied().collect();
    lives.sort_unstable();
    lives.dedup();
    for (node, life) in lives {
        let known = passes.get(&(node, life));
        if known.is_none() && is_over(book, (node, life)) {
            continue;
        }
        let (accepts, passes) = (accepts.get(&(node, life)).map_or(0, Vec::len) as u64, known.copied().unwrap_or(0));
        if accepts > passes || (faultless && accepts != passes) {
            inquiry.offends(|| format!("{node}, life {life}: {accepts} accepts, {passes} gate passes"));
        }
    }
    for GateReading { at_ns, node, incarnation, passes } in &book.readings {
        let of_life = accepts.get(&(node.as_str(), *incarnation));
        let accepts = of_life.map_or(0, |arrived| arrived.partition_point(|arrived| arrived < at_ns)) as u64;
        if accepts > *passes {
            let at = *at_ns as f64 / 1e9;
            inquiry.offends(|| {
                format!("{node}, life {incarnation}: {accepts} accepts before {at:.3} s, {passes} gate passes then")
            });
        }
    }
}

/// When the accepts of each life arrived, in order.
fn accepts_by_life<'a>(book: &'a Book, inquiry: &mut Inquiry) -> BTreeMap<Life<'a>, Vec<u64>> {
    let mut accepts: BTreeMap<Life, Vec<u64>> = BTreeMap::new();
    for dot in book.accepts() {
        match grant_of(book, dot).map(|grant| grant.incarnation) {
            Some(Some(life)) => accepts.entry((book.names.text(dot.node), life)).or_default().push(dot.at_ns),
            // That no claim covers it is I2's affair.
            None if book.is_whole(Part::Claims) => {}
            _ => inquiry.lacks("of some accepts, the life of the node that sent it"),
        }
    }
    accepts.values_mut().for_each(|arrived| arrived.sort_unstable());
    accepts
}

/// It ended, so that its counter may have been lost with it.
fn is_over(book: &Book, (node, life): Life) -> bool {
    let own = |known: &&history::Life| (known.node.as_str(), known.incarnation) == (node, Some(life));
    book.lives.iter().find(own).is_some_and(|known| known.ended_ns.is_some())
}
