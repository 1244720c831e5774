//! Patterns in output file names of Slurm, translated.

use super::values::{Job, SubmitFlag, Translation};

/// Translates `--output`. Without `--error`, standard error goes to the same file, as in sbatch.
pub(super) fn output(job: &Job<'_>, text: &str) -> Translation {
    let file = pattern(job, text)?;
    let both = (!job.has_error).then(|| SubmitFlag {
        with: Some("output"),
        ..SubmitFlag::new("error", file.clone())
    });
    Ok([SubmitFlag::new("output", file)]
        .into_iter()
        .chain(both)
        .collect())
}

pub(super) fn error(job: &Job<'_>, text: &str) -> Translation {
    Ok(vec![SubmitFlag::new("error", pattern(job, text)?)])
}

/// Meaning of a letter after `%`.
enum PatternMeaning {
    Replace(&'static str),
    Name,
    Unsupported(&'static str),
}

/// One rank runs on each node, so the rank and the relative node number are equal.
const PATTERN: [(char, PatternMeaning); 11] = [
    ('%', PatternMeaning::Replace("%%")),
    ('j', PatternMeaning::Replace("%j")),
    ('N', PatternMeaning::Replace("%n")),
    ('n', PatternMeaning::Replace("%r")),
    ('t', PatternMeaning::Replace("%r")),
    ('x', PatternMeaning::Name),
    ('A', PatternMeaning::Replace("%A")),
    ('a', PatternMeaning::Replace("%a")),
    (
        'b',
        PatternMeaning::Unsupported("not supported (array index modulo 10); use %a"),
    ),
    (
        'u',
        PatternMeaning::Unsupported("not supported; write the user name"),
    ),
    (
        'J',
        PatternMeaning::Unsupported("there are no steps; write %j"),
    ),
];

/// Translates the patterns in a file name, such as `%j`.
fn pattern(job: &Job<'_>, text: &str) -> Result<String, String> {
    let mut file = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                return Err(format!(
                    "{text:?}: a backslash is not supported; write %% for a percent sign"
                ));
            }
            '%' => {}
            other => {
                file.push(other);
                continue;
            }
        }
        let letter = characters.next();
        let fail = |why: &str| match letter {
            Some(letter) => Err(format!("{text:?}: %{letter}: {why}")),
            None => Err(format!(
                "{text:?}: nothing follows its last %; write %% for a percent sign"
            )),
        };
        match PATTERN.iter().find(|(known, _)| Some(*known) == letter) {
            Some((_, PatternMeaning::Replace(ours))) => file += ours,
            Some((_, PatternMeaning::Unsupported(why))) => return fail(why),
            Some((_, PatternMeaning::Name)) => match job.name {
                None => return fail("the job has no name; give --job-name"),
                Some(name) if name.contains('/') => {
                    return fail("the name has a / in it; write the file itself");
                }
                Some(name) => file += &name.replace('%', "%%"),
            },
            None if letter.is_some_and(|letter| letter.is_ascii_digit()) => {
                return fail("field widths are not supported; remove the number");
            }
            None => {
                return fail("it is not supported; valid are %j, %A, %a, %N, %n, %t, %x and %%");
            }
        }
    }
    Ok(file)
}
