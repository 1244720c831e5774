//! Strongly connected components of a graph (Tarjan).

use std::collections::{BTreeMap, BTreeSet};

/// Components with more than one node, each in order of names. A node that is only a target has no successors.
pub(super) fn circles<'a>(graph: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<BTreeSet<&'a str>> {
    let mut search = Search {
        graph,
        numbers: BTreeMap::new(),
        open: Vec::new(),
        circles: Vec::new(),
    };
    for node in graph.keys() {
        if !search.numbers.contains_key(node) {
            search.visit(node);
        }
    }
    search.circles
}

struct Search<'a, 'g> {
    graph: &'g BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// Numbers of visited nodes, in the order of the visits.
    numbers: BTreeMap<&'a str, usize>,
    /// Visited nodes of incomplete components.
    open: Vec<&'a str>,
    circles: Vec<BTreeSet<&'a str>>,
}

impl<'a> Search<'a, '_> {
    /// Visits a node and all that it reaches; returns the lowest number of an open node among these.
    fn visit(&mut self, node: &'a str) -> usize {
        let number = self.numbers.len();
        self.numbers.insert(node, number);
        let start = self.open.len();
        self.open.push(node);
        let mut lowest = number;
        for &next in self.graph.get(node).into_iter().flatten() {
            match self.numbers.get(next) {
                None => lowest = lowest.min(self.visit(next)),
                Some(&visited) if self.open.contains(&next) => lowest = lowest.min(visited),
                Some(_) => {}
            }
        }
        if lowest == number {
            let component: BTreeSet<_> = self.open.drain(start..).collect();
            if component.len() > 1 {
                self.circles.push(component);
            }
        }
        lowest
    }
}
