//! Splitting of a line into words, by the rules of the shell.
//!
//! `shlex` is not used: it keeps a `#` within a word, where sbatch drops the rest of the line, and reports a fault
//! without its cause.

/// Splits a line at spaces. Quotes keep a word together, a backslash escapes the next character, and `#` at the start
/// of a word makes the rest a comment. Variables are not expanded: `$HOME` stays `$HOME`, as in sbatch. A `#` within a
/// word is rejected: the shell would keep it, and sbatch drops it and the rest of the line.
///
/// # Errors
/// Returns a text that describes the mistake in the line.
pub fn split(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let is_plain = quote.is_none();
        match (character, quote) {
            ('\\', None | Some('"')) => {
                let next = characters
                    .next()
                    .ok_or("line continuation is not supported; write the directive on one line")?;
                let word = word.get_or_insert_default();
                // In double quotes a backslash is literal, except before one of these characters.
                if !is_plain && !matches!(next, '"' | '\\' | '$' | '`') {
                    word.push('\\');
                }
                word.push(next);
            }
            ('"' | '\'', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (_, Some(end)) if character == end => quote = None,
            ('#', None) if word.is_none() => break,
            ('#', None) => return Err("# within a word; quote the word, or put a space before #"),
            (_, None) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed");
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn words_are_those_of_the_shell() {
        for (line, words) in [
            ("", &[] as &[&str]),
            ("  -N  4\t-t 10 ", &["-N", "4", "-t", "10"]),
            ("--comment=\"two words\"", &["--comment=two words"]),
            ("--comment='two \"words\"'", &["--comment=two \"words\""]),
            ("a\\ b 'c\\d' \"e\\\"f\\g\"", &["a b", "c\\d", "e\"f\\g"]),
            ("'' x", &["", "x"]),
            ("-N 4 # four nodes 'they say", &["-N", "4"]),
            ("-J 'a#b'", &["-J", "a#b"]),
            ("-o $HOME/%j", &["-o", "$HOME/%j"]),
        ] {
            let read = split(line);
            assert_eq!(
                read,
                Ok(words.iter().map(ToString::to_string).collect()),
                "{line}"
            );
        }
        for (line, why) in [
            ("-J 'x", "a quote is not closed"),
            ("-J \"x", "a quote is not closed"),
            ("-J a#b", "# within a word; quote"),
            ("-N 4 \\", "line continuation is not supported"),
        ] {
            assert!(
                split(line).is_err_and(|error| error.contains(why)),
                "{line}"
            );
        }
    }
}
