//! Import cycles: the strongly connected components of the import graph (Tarjan's algorithm).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// By file: the files that it imports from, and the names that it imports.
pub(crate) type Imports = BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>;

/// The sets of files that import each other, directly or through others.
pub(crate) fn cycles(imports: &Imports) -> Vec<Vec<PathBuf>> {
    let mut search =
        Search { imports, seen: BTreeMap::new(), stack: Vec::new(), found: Vec::new() };
    for file in imports.keys() {
        if !search.seen.contains_key(file.as_path()) {
            search.visit(file);
        }
    }
    search.found
}

struct Search<'a> {
    imports: &'a Imports,
    /// By file: its position in the order of visits, and the earliest position that it leads back to.
    seen: BTreeMap<&'a Path, (usize, usize)>,
    stack: Vec<&'a Path>,
    found: Vec<Vec<PathBuf>>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, file: &'a Path) -> usize {
        let position = self.seen.len();
        let mut earliest = position;
        self.seen.insert(file, (position, position));
        self.stack.push(file);
        let imports = self.imports;
        for to in imports.get(file).into_iter().flat_map(BTreeMap::keys) {
            match self.seen.get(to.as_path()) {
                None => earliest = earliest.min(self.visit(to)),
                Some((position, _)) if self.stack.contains(&to.as_path()) => {
                    earliest = earliest.min(*position);
                }
                Some(_) => {}
            }
        }
        self.seen.insert(file, (position, earliest));
        if earliest == position {
            let at = self.stack.iter().rposition(|one| *one == file).unwrap();
            let mut cycle: Vec<_> = self.stack.drain(at..).map(Path::to_owned).collect();
            if cycle.len() > 1 {
                cycle.sort();
                self.found.push(cycle);
            }
        }
        earliest
    }
}
