//! Reads nginx's file as nginx does, for tests only. Written from nginx's own reader (`ngx_conf_read_token`),
//! not from the renderer, so that the two can disagree.

/// A token of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A word, without its quotation marks and escapes.
    Word(String),
    /// `;`
    End,
    /// `{`
    Open,
    /// `}`
    Close,
}

/// The tokens of a file, or why nginx would refuse it.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(first) = chars.next() {
        match first {
            ' ' | '\t' | '\r' | '\n' => {}
            ';' => found.push(Token::End),
            '{' => found.push(Token::Open),
            '}' => found.push(Token::Close),
            '#' => drop(chars.by_ref().find(|it| *it == '\n')),
            quote @ ('"' | '\'') => {
                let mut word = String::new();
                loop {
                    match chars.next().ok_or("a quotation mark is not closed")? {
                        '\\' => escaped(&mut word, chars.next()),
                        it if it == quote => break,
                        it => word.push(it),
                    }
                }
                match chars.peek() {
                    Some(' ' | '\t' | '\r' | '\n' | ';' | '{' | ')') => {}
                    other => return Err(format!("unexpected {other:?} after a quotation mark")),
                }
                found.push(Token::Word(word));
            }
            first => {
                let mut word = String::new();
                let mut next = Some(first);
                while let Some(it) = next {
                    match it {
                        '\\' => escaped(&mut word, chars.next()),
                        '$' => {
                            word.push('$');
                            word.extend(chars.next_if_eq(&'{'));
                        }
                        it => word.push(it),
                    }
                    next = chars.next_if(|it| !matches!(it, ' ' | '\t' | '\r' | '\n' | ';' | '{'));
                }
                found.push(Token::Word(word));
            }
        }
    }
    Ok(found)
}

fn escaped(word: &mut String, next: Option<char>) {
    match next {
        Some(it @ ('"' | '\'' | '\\')) => word.push(it),
        Some('t') => word.push('\t'),
        Some('r') => word.push('\r'),
        Some('n') => word.push('\n'),
        other => {
            word.push('\\');
            word.extend(other);
        }
    }
}

/// A directive: its words, and what is in its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directive {
    pub(crate) words: Vec<String>,
    pub(crate) block: Option<Vec<Directive>>,
}

/// The directives of a file.
pub(crate) fn directives(text: &str) -> Result<Vec<Directive>, String> {
    let mut tokens = tokens(text)?.into_iter();
    block(&mut tokens, true)
}

fn block(
    tokens: &mut impl Iterator<Item = Token>,
    outermost: bool,
) -> Result<Vec<Directive>, String> {
    let (mut found, mut words) = (Vec::new(), Vec::new());
    loop {
        match tokens.next() {
            Some(Token::Word(word)) => words.push(word),
            Some(Token::End) if !words.is_empty() => {
                found.push(Directive { words: std::mem::take(&mut words), block: None });
            }
            Some(Token::Open) if !words.is_empty() => {
                let block = Some(block(tokens, false)?);
                found.push(Directive { words: std::mem::take(&mut words), block });
            }
            Some(Token::Close) if words.is_empty() && !outermost => return Ok(found),
            None if words.is_empty() && outermost => return Ok(found),
            other => return Err(format!("unexpected {other:?} after {words:?}")),
        }
    }
}

#[test]
fn files_are_read_as_nginx_reads_them() {
    let text = "a b\\ c 'd \"e'; # f;\nlocation \"/g\\\"h{};#\" { i ${j}k}; }\n";
    let leaf = |words: &[&str]| Directive {
        words: words.iter().map(|&it| it.to_owned()).collect(),
        block: None,
    };
    let inner = vec![leaf(&["i", "${j}k}"])];
    assert_eq!(
        directives(text).expect("read"),
        [
            leaf(&["a", "b\\ c", "d \"e"]),
            Directive { block: Some(inner), ..leaf(&["location", "/g\"h{};#"]) }
        ]
    );
    for bad in ["a", "a {", "}", "\"a\"b;", "\"a"] {
        assert!(directives(bad).is_err(), "{bad}");
    }
}
