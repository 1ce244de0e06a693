//! Strongly connected components (Tarjan's algorithm).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(crate) type Imports = BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>;

/// The sets of files that import each other, directly or through others.
pub(crate) fn circles(imports: &Imports) -> Vec<Vec<PathBuf>> {
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
    /// The order in which a file was visited, and the earliest one that it leads back to.
    seen: BTreeMap<&'a Path, (usize, usize)>,
    stack: Vec<&'a Path>,
    found: Vec<Vec<PathBuf>>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, file: &'a Path) -> usize {
        let met = self.seen.len();
        let mut earliest = met;
        self.seen.insert(file, (met, met));
        self.stack.push(file);
        let imports = self.imports;
        for to in imports.get(file).into_iter().flat_map(BTreeMap::keys) {
            match self.seen.get(to.as_path()) {
                None => earliest = earliest.min(self.visit(to)),
                Some((met, _)) if self.stack.contains(&to.as_path()) => {
                    earliest = earliest.min(*met);
                }
                Some(_) => {}
            }
        }
        self.seen.insert(file, (met, earliest));
        if earliest == met {
            let at = self.stack.iter().rposition(|one| *one == file).unwrap();
            let mut circle: Vec<_> = self.stack.drain(at..).map(Path::to_owned).collect();
            if circle.len() > 1 {
                circle.sort();
                self.found.push(circle);
            }
        }
        earliest
    }
}
