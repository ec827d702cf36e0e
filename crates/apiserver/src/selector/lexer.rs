//! The tokens of label selectors. Only [`super::label`] uses it.

/// One token with the text it came from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Less,
    NotEquals,
    Open,
    /// A word. In the place of a value, `in` and `notin` are words.
    Word(&'a str),
}

impl<'a> Token<'a> {
    /// The text as messages quote it.
    pub(super) fn text(self) -> &'a str {
        match self {
            Token::End => "",
            Token::Close => ")",
            Token::Comma => ",",
            Token::Not => "!",
            Token::DoubleEquals => "==",
            Token::Equals => "=",
            Token::Greater => ">",
            Token::Less => "<",
            Token::NotEquals => "!=",
            Token::Open => "(",
            Token::Word(word) => word,
        }
    }
}

/// Splits a selector into tokens on demand. After the end it returns `End` forever.
pub(super) struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// The next token, without taking it.
    pub(super) fn peek(&self) -> Token<'a> {
        Lexer { rest: self.rest }.next()
    }

    /// Takes the next token.
    pub(super) fn next(&mut self) -> Token<'a> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        for symbol in [Token::DoubleEquals, Token::NotEquals]
            .into_iter()
            .chain([Token::Close, Token::Comma, Token::Not, Token::Equals])
            .chain([Token::Greater, Token::Less, Token::Open])
        {
            if let Some(rest) = self.rest.strip_prefix(symbol.text()) {
                self.rest = rest;
                return symbol;
            }
        }
        let stops = |c: char| "=!(),>< \t\r\n".contains(c);
        let end = self.rest.find(stops).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if word.is_empty() { Token::End } else { Token::Word(word) }
    }
}
