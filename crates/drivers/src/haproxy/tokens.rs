//! Reads HAProxy's files as HAProxy does, for tests only: which words a line has, and which entries a map.
//! Written from HAProxy's manual (section 2.2), not from the renderer, so that the two can disagree.

/// The words of each line that is not empty.
pub(super) fn words(text: &str) -> Vec<Vec<String>> {
    let lines = text.split('\n').map(line);
    lines.filter(|words| !words.is_empty()).collect()
}

fn line(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars().peekable();
    while let Some(next) = chars.next() {
        match next {
            '#' => break,
            ' ' | '\t' | '\r' => words.extend(word.take()),
            '\\' => escaped(word.get_or_insert_default(), &mut chars),
            '\'' => {
                let word = word.get_or_insert_default();
                word.extend(chars.by_ref().take_while(|next| *next != '\''));
            }
            '"' => {
                let word = word.get_or_insert_default();
                while let Some(next) = chars.next() {
                    match next {
                        '"' => break,
                        '\\' => escaped(word, &mut chars),
                        '$' => word.push_str("(environment)"),
                        other => word.push(other),
                    }
                }
            }
            '\0' => panic!("HAProxy stops reading at a NUL"),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

/// Reads the character after a backslash. The backslash stays if nothing is escaped: `\.` is for a regular expression.
fn escaped(word: &mut String, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some(it @ (' ' | '#' | '\\' | '"' | '\'' | '$')) => word.push(it),
        Some('n') => word.push('\n'),
        Some('r') => word.push('\r'),
        Some('t') => word.push('\t'),
        Some('x') => panic!("nobody writes bytes by their numbers"),
        other => {
            word.push('\\');
            word.extend(other);
        }
    }
}

/// The entries of a map file.
pub(super) fn map_lines(text: &str) -> Vec<(&str, &str)> {
    let lines = text.split('\n').map(|line| line.trim_start_matches([' ', '\t']));
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (key, value) = line.split_once([' ', '\t']).unwrap_or((line, ""));
            (key, value.trim_matches([' ', '\t', '\r']))
        })
        .collect()
}

#[test]
fn lines_are_read_as_the_manual_says() {
    let text = "a b\\ c 'd \"e' # f\n  \"g\\\"h\"i\n\n#j\n''\n";
    assert_eq!(words(text), [vec!["a", "b c", "d \"e"], vec!["g\"hi"], vec![""]]);
    assert_eq!(words("a\\ b \\#c ^x\\.y$\n\tc # d\n"), [vec!["a b", "#c", "^x\\.y$"], vec!["c"]]);
}
