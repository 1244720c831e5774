//! Column names of CSV: those of the JSON fields, each in snake case and used once.
//!
//! Fixed names are written so already. Names that come from a command line or a file, such as those of policies, are
//! converted.

use std::collections::BTreeSet;

/// Converts a name to snake case: `lattice:hpc-batch` becomes `lattice_hpc_batch`.
fn snake_case(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    let name = words
        .map(str::to_ascii_lowercase)
        .collect::<Vec<_>>()
        .join("_");
    match name.starts_with(|c: char| c.is_ascii_lowercase()) {
        true => name,
        false => format!("column_{name}").trim_end_matches('_').to_owned(),
    }
}

/// Converts the names of all columns. A repeated name gets a number: `easy`, `easy_2`.
pub(super) fn csv_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut used = BTreeSet::new();
    let unique = |name: &str| {
        let converted = snake_case(name);
        let (mut unique, mut number) = (converted.clone(), 2_u32);
        while !used.insert(unique.clone()) {
            unique = format!("{converted}_{number}");
            number += 1;
        }
        unique
    };
    names.into_iter().map(unique).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_names_are_unique_snake_case() {
        for (name, converted) in [
            ("max_nodes", "max_nodes"),
            ("held by", "held_by"),
            ("of_budget ", "of_budget"),
            ("lattice:hpc-batch", "lattice_hpc_batch"),
            ("Größe", "gr_e"),
            ("\u{1b}[31m", "column_31m"),
            ("日本", "column"),
        ] {
            assert_eq!(snake_case(name), converted);
        }
        let names = csv_names(["left", "left ", "LEFT", "left_2", "right"]);
        assert_eq!(names, ["left", "left_2", "left_3", "left_2_2", "right"]);
    }
}
