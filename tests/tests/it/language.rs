//! Language ratchet: counts of words that new text must not use, which may only fall.
//!
//! `tests/language/words.txt` lists the words, `tests/language/counts.txt` how often each file still has them: in its
//! comments, its string literals (error texts, log messages, help) and, for documents, its whole text. A file that is
//! not listed must have none. After a file was cleaned, `LATTICE_BLESS=1` writes the counts again, and refuses a count
//! that has risen. Files to which text was moved are named in `LATTICE_MOVED`, with spaces between; their counts may
//! rise, and the sum of all may not.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Occurrences in one file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Count {
    /// Listed words in comments and documents.
    prose: usize,
    /// Listed words in string literals.
    literals: usize,
    /// Types with a listed name.
    types: usize,
}

impl Count {
    fn sum(self) -> usize {
        self.prose + self.literals + self.types
    }

    fn exceeds(self, stored: Count) -> bool {
        self.prose > stored.prose || self.literals > stored.literals || self.types > stored.types
    }
}

/// Listed words and type names.
struct WordLists {
    words: BTreeSet<String>,
    types: BTreeSet<String>,
}

impl WordLists {
    fn parse(text: &str) -> Self {
        let of = |kind: &str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix(kind));
            let names = lines.flat_map(str::split_whitespace);
            names.map(str::to_owned).collect()
        };
        WordLists {
            words: of("word "),
            types: of("type "),
        }
    }

    fn in_text(&self, text: &str) -> usize {
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        let is_listed = |word: &&str| self.words.contains(&word.to_lowercase());
        words.filter(is_listed).count()
    }

    fn in_types(&self, code: &str) -> usize {
        let tokens: Vec<&str> = code
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|token| !token.is_empty())
            .collect();
        let pairs = tokens.windows(2);
        let is_listed = |pair: &&[&str]| {
            matches!(pair[0], "struct" | "enum" | "trait" | "type") && self.types.contains(pair[1])
        };
        pairs.filter(is_listed).count()
    }

    fn count(&self, file: &str, text: &str) -> Count {
        if !file.ends_with(".rs") {
            return Count {
                prose: self.in_text(text),
                ..Count::default()
            };
        }
        let parts = Parts::of(text);
        Count {
            prose: self.in_text(&parts.comments),
            literals: self.in_text(&parts.literals),
            types: self.in_types(&parts.code),
        }
    }
}

/// Rust source, split into parts.
#[derive(Default)]
struct Parts {
    comments: String,
    literals: String,
    code: String,
}

impl Parts {
    fn of(source: &str) -> Self {
        let mut parts = Parts::default();
        let mut rest = source;
        while let Some(first) = rest.chars().next() {
            let length = if rest.starts_with("//") {
                let end = rest.find('\n').unwrap_or(rest.len());
                parts.comments.push_str(&rest[..end]);
                parts.comments.push('\n');
                end
            } else if rest.starts_with("/*") {
                let end = rest.find("*/").map_or(rest.len(), |end| end + 2);
                parts.comments.push_str(&rest[..end]);
                parts.comments.push('\n');
                end
            } else if let Some(end) = raw_literal(rest) {
                parts.literals.push_str(&rest[..end]);
                parts.literals.push('\n');
                end
            } else if first == '"' {
                let end = literal(rest);
                parts.literals.push_str(&rest[..end]);
                parts.literals.push('\n');
                end
            } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") {
                // A quote as a character does not open a string.
                rest.find("\"'").unwrap_or(0) + 2
            } else {
                parts.code.push(first);
                // A word is consumed as a whole, so an `r` at its end does not open a raw string.
                let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                let word = word.unwrap_or(rest.len()).max(first.len_utf8());
                parts.code.push_str(&rest[first.len_utf8()..word]);
                word
            };
            rest = &rest[length..];
        }
        parts
    }

    fn comment_lines(&self) -> usize {
        self.comments.lines().count()
    }
}

/// Length of the string literal at the start of `source`.
fn literal(source: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in source.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    source.len()
}

/// Length of the raw string literal at the start of `source`; `None` if there is none.
fn raw_literal(source: &str) -> Option<usize> {
    let rest = source
        .strip_prefix("br")
        .or_else(|| source.strip_prefix('r'))?;
    let hashes = rest.bytes().take_while(|byte| *byte == b'#').count();
    let body = rest[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = body.find(&close).map_or(body.len(), |at| at + close.len());
    Some(source.len() - body.len() + end)
}

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap().to_owned()
}

/// Source files and documents of this project, without captured data.
fn files() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(listed.status.success(), "git ls-files failed");
    let listed = String::from_utf8(listed.stdout).unwrap();
    let is_ours = |file: &&str| {
        let ending = Path::new(file).extension().and_then(|e| e.to_str());
        let is_text = matches!(
            ending,
            Some("rs" | "md" | "proto" | "py" | "html" | "js" | "css" | "toml" | "sh" | "feature")
        );
        let is_named = file.ends_with("justfile") || file.ends_with(".ci/run");
        let is_data =
            file.starts_with("fixtures/") && !file.ends_with(".rs") && !file.ends_with(".md");
        (is_text || is_named) && !is_data && root().join(file).is_file()
    };
    listed.lines().filter(is_ours).map(str::to_owned).collect()
}

fn counts(words: &WordLists) -> BTreeMap<String, Count> {
    let files = files();
    assert!(files.len() > 500, "git listed {} files", files.len());
    let counted = files.into_iter().map(|file| {
        let text = fs::read_to_string(root().join(&file)).unwrap();
        let count = words.count(&file, &text);
        (file, count)
    });
    counted.filter(|(_, count)| count.sum() > 0).collect()
}

fn parse_counts(text: &str) -> BTreeMap<String, Count> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let file = words.next().unwrap().to_owned();
        let mut number = || words.next().unwrap().parse().unwrap();
        let count = Count {
            prose: number(),
            literals: number(),
            types: number(),
        };
        (file, count)
    };
    lines.map(row).collect()
}

/// Files with counts above the stored ones, one line each.
fn risen(stored: &BTreeMap<String, Count>, found: &BTreeMap<String, Count>) -> Vec<String> {
    let known = |file: &str| stored.get(file).copied().unwrap_or_default();
    let risen = found
        .iter()
        .filter(|(file, count)| count.exceeds(known(file)));
    let line = |(file, count): (&String, &Count)| {
        let was = known(file);
        format!(
            "{file}: words in comments {} (at most {}), in string literals {} ({}), type names {} ({})",
            count.prose, was.prose, count.literals, was.literals, count.types, was.types
        )
    };
    risen.map(line).collect()
}

fn sum(counts: &BTreeMap<String, Count>) -> usize {
    counts.values().map(|count| count.sum()).sum()
}

fn words() -> WordLists {
    WordLists::parse(&fs::read_to_string(root().join("tests/language/words.txt")).unwrap())
}

#[test]
fn dialect_words_only_become_fewer() {
    let path = root().join("tests/language/counts.txt");
    let stored = parse_counts(&fs::read_to_string(&path).unwrap());
    let found = counts(&words());
    if std::env::var_os("LATTICE_BLESS").is_some() {
        let (before, after) = (sum(&stored), sum(&found));
        assert!(
            after <= before,
            "{after} listed words, and {before} are stored"
        );
        let moved = std::env::var("LATTICE_MOVED").unwrap_or_default();
        let moved: BTreeSet<&str> = moved.split_whitespace().collect();
        let mut not_moved = found.clone();
        not_moved.retain(|file, _| !moved.contains(&file[..]));
        let risen = risen(&stored, &not_moved);
        assert!(risen.is_empty(), "not in LATTICE_MOVED: {risen:#?}");
        let head = "# file, listed words in comments, in string literals, type names; written by `just bless`\n";
        let rows = found.iter().map(|(file, count)| {
            format!(
                "{file} {} {} {}\n",
                count.prose, count.literals, count.types
            )
        });
        fs::write(&path, head.to_owned() + &rows.collect::<String>()).unwrap();
        return;
    }
    let risen = risen(&stored, &found);
    assert!(
        risen.is_empty(),
        "words of tests/language/words.txt in new text; write plain technical English:\n{}",
        risen.join("\n")
    );
    let fallen = stored
        .iter()
        .filter(|(file, count)| found.get(*file).copied().unwrap_or_default() != **count);
    let fallen: Vec<&String> = fallen.map(|(file, _)| file).collect();
    assert!(
        fallen.is_empty(),
        "fewer listed words than stored; keep that with `just bless`: {fallen:?}"
    );
}

/// Prints listed words per 1,000 comment lines for each package: the figure in the style guide.
#[test]
fn rate_per_thousand_comment_lines_is_known() {
    let words = words();
    let mut packages: BTreeMap<String, (usize, usize, BTreeMap<String, usize>)> = BTreeMap::new();
    for file in files().iter().filter(|file| file.ends_with(".rs")) {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let parts = Parts::of(&text);
        let at = ["/src/", "/tests/", "/examples/", "/benches/", "/build.rs"];
        let end = at.iter().filter_map(|part| file.find(part)).min();
        let package = file[..end.unwrap_or(file.len())].to_owned();
        let (lines, listed, each) = packages.entry(package).or_default();
        *lines += parts.comment_lines();
        *listed += words.in_text(&parts.comments);
        for word in parts.comments.split(|c: char| !c.is_alphanumeric()) {
            let word = word.to_lowercase();
            if words.words.contains(&word) {
                *each.entry(word).or_default() += 1;
            }
        }
    }
    let mut all: (usize, BTreeMap<&String, usize>) = Default::default();
    println!("package, comment lines, listed words per 1,000");
    for (package, (lines, listed, each)) in &packages {
        println!(
            "{package:<24} {lines:>6} {:>6.1}",
            *listed as f64 * 1000.0 / (*lines).max(1) as f64
        );
        all.0 += lines;
        for (word, count) in each {
            *all.1.entry(word).or_default() += count;
        }
    }
    println!("word, per 1,000 comment lines of all packages");
    for (word, count) in &all.1 {
        println!("{word:<10} {:>6.1}", *count as f64 * 1000.0 / all.0 as f64);
    }
    assert!(all.0 > 10_000, "only {} comment lines were found", all.0);
}

#[test]
fn planted_word_is_found() {
    let words = WordLists::parse("word zig zag\ntype Zog\n");
    let source = "/* zig \" */ /// Zag it.\nstruct Zog; // 'zig'\nlet zag = \"to zig // zag\"; let zig = r#\"zig \"x\"#;";
    let count = words.count("new.rs", source);
    let expected = Count {
        prose: 3,
        literals: 3,
        types: 1,
    };
    assert_eq!(count, expected);
    let found = BTreeMap::from([("new.rs".to_owned(), count)]);
    assert_eq!(
        risen(&BTreeMap::new(), &found).len(),
        1,
        "a new file has none"
    );
    assert_eq!(risen(&found, &found).len(), 0);
}

#[test]
fn quotes_as_characters_open_no_string() {
    let parts = Parts::of(
        "let a = '\"'; let b = '\\\"'; call(b\"x\", \"it \\\" says\"); // said\nfor_r\"\"",
    );
    assert_eq!(parts.literals.lines().count(), 3, "{}", parts.literals);
    assert_eq!(parts.comments.trim(), "// said");
}
