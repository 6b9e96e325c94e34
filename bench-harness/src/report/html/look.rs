//! The colour and marks of a backend, the same in every picture and in every report.

use std::collections::BTreeMap;

use crate::result::Run;

/// The colours of the style sheet by backend. With a policy, a backend keeps its colour; its line is
/// dashed and its marks are hollow.
const COLOURS: [(&str, usize); 9] = [
    ("pread", 0),
    ("mmap", 1),
    ("direct", 2),
    ("uring", 3),
    ("uncached", 4),
    ("tokio-uring", 5),
    ("memory", 6),
    ("auto", 7),
    ("fio", 8),
];

/// Colours for names that this program does not know, from 9 on.
const SPARE_COLOURS: usize = 3;

/// Shapes in the page's `<defs>`.
const MARKS: usize = 6;

/// A colour class and shapes, so that no information depends on colour alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    colour: usize,
    mark: usize,
    is_hollow: bool,
    dashes: &'static str,
}

impl Look {
    /// Returns the class that sets the colour.
    pub(crate) fn class(self) -> String {
        format!("c{}", self.colour)
    }

    /// Returns the mark at a place, which is given as attributes.
    pub(crate) fn mark(self, x: &str, y: f64) -> String {
        let hollow = if self.is_hollow { " hollow" } else { "" };
        let (mark, colour) = (self.mark, self.colour);
        format!(
            "<use href=\"#mark{mark}\" class=\"mark c{colour}{hollow}\" x=\"{x}\" y=\"{y:.1}\"/>"
        )
    }

    /// Returns the id of the hatching.
    pub(crate) fn hatching(self) -> String {
        format!("hatch{}", self.colour)
    }

    /// Returns the value of `stroke-dasharray`.
    pub(crate) fn dashes(self) -> &'static str {
        self.dashes
    }
}

/// The looks of all backends of a run.
#[derive(Debug)]
pub(crate) struct Looks(BTreeMap<String, Look>);

impl Looks {
    pub(crate) fn of(run: &Run) -> Self {
        Self::of_names(run.cells.iter().map(|cell| cell.backend.as_str()))
    }

    pub(crate) fn of_names<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut looks = BTreeMap::new();
        let mut strangers = 0;
        for name in names {
            if looks.contains_key(name) {
                continue;
            }
            let look = known(name).unwrap_or_else(|| {
                strangers += 1;
                let number = strangers - 1;
                let colour = COLOURS.len() + number % SPARE_COLOURS;
                Look { colour, mark: number % MARKS, is_hollow: false, dashes: "8 3" }
            });
            looks.insert(name.to_owned(), look);
        }
        Self(looks)
    }

    pub(crate) fn get(&self, backend: &str) -> Look {
        let stranger = Look { colour: COLOURS.len(), mark: 0, is_hollow: false, dashes: "8 3" };
        self.0.get(backend).copied().unwrap_or(stranger)
    }

    /// Returns the number of colour classes.
    pub(crate) fn colours() -> usize {
        COLOURS.len() + SPARE_COLOURS
    }
}

fn known(backend: &str) -> Option<Look> {
    let (kind, policy) = backend.split_once(['+', ':']).unwrap_or((backend, ""));
    let (_, colour) = COLOURS.iter().find(|(name, _)| *name == kind)?;
    // The shape of the mark is this many after that of the backend without a policy.
    let (dashes, shape) = match policy {
        "" => ("none", 0),
        "buffered" => ("6 3", 0),
        "uncached" => ("2 2.5", 1),
        "release" => ("7 2.5 2 2.5", 0),
        "huge" => ("12 3", 1),
        "random" => ("1.5 3", 2),
        "sequential" => ("5 2", 3),
        "psync" => ("1.5 3", 0),
        "mmap" => ("5 3 1.5 3", 1),
        "io_uring" => ("4 3", 0),
        _ => ("9 3", 4),
    };
    let is_hollow = !matches!(policy, "" | "io_uring");
    Some(Look { colour: *colour, mark: (colour + shape) % MARKS, is_hollow, dashes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_backend_looks_the_same_in_every_run() {
        let (small, big) = (Looks::of(&fixture::small_run()), Looks::of(&fixture::big_run()));
        for (name, look) in &small.0 {
            assert_eq!(big.get(name), *look, "{name}");
        }
    }

    #[test]
    fn no_two_known_backends_look_alike() {
        let policies = ["release", "huge", "random", "sequential"].map(|it| format!("mmap+{it}"));
        let names = ["pread", "pread+random", "pread+sequential", "mmap", "uring+buffered"];
        let more = ["uring+uncached", "tokio-uring+buffered", "tokio-uring+uncached", "auto"];
        let names = names.into_iter().chain(more).chain(policies.iter().map(String::as_str));
        let looks: Vec<Look> = Looks::of_names(names).0.into_values().collect();
        let marks: Vec<_> = looks.iter().map(|it| (it.colour, it.mark, it.is_hollow)).collect();
        for (index, mark) in marks.iter().enumerate() {
            assert!(!marks[..index].contains(mark), "{:?} has a mark of another", looks[index]);
        }
        let looks: Vec<Look> = Looks::of(&fixture::big_run()).0.into_values().collect();
        for (index, look) in looks.iter().enumerate() {
            assert!(!looks[..index].contains(look), "{look:?}");
        }
    }
}
