//! Splits a shell command into words: enough to find a mail program, its options and its recipients.
//!
//! Called by [`super::mailer`] and [`super::name`]. Handles quotes, backslashes, redirections and the operators between
//! commands. Nothing is expanded: a word that the shell would expand is marked. Text that a shell would reject, such as
//! an open quote, yields no command.

use std::iter::Peekable;
use std::str::Chars;

/// A word of a command, without its quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// The word's text without quotes.
    pub text: String,
    /// True if the shell would expand a part of it (`$NAME`, `$(command)`).
    pub expands: bool,
}

/// How a command is joined to the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Joint {
    /// It always runs.
    #[default]
    Always,
    /// It runs depending on the exit code of the one before it: `&&`, `||`.
    Perhaps,
    /// It reads the output of the one before it.
    Pipe,
}

/// Redirected input of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A file by name: `<`.
    File(Word),
    /// A text: `<<<`.
    Text(Word),
}

/// One command of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Simple {
    /// How it is joined to the command before it.
    pub joint: Joint,
    /// Its words without redirections.
    pub words: Vec<Word>,
    /// Its redirected input.
    pub input: Option<Input>,
}

/// Returns the commands of a line in order, or `None` if a quote is not closed.
pub fn read(line: &str) -> Option<Vec<Simple>> {
    let mut reader = Reader {
        characters: line.chars().peekable(),
        commands: Vec::new(),
        now: Simple::default(),
        word: None,
        target: None,
    };
    while let Some(one) = reader.characters.next() {
        if one == '#' && reader.word.is_none() {
            break;
        }
        reader.take(one)?;
    }
    reader.end_command(Joint::Always);
    Some(reader.commands)
}

/// Where the next word goes, if it is part of a redirection.
enum Target {
    Elsewhere,
    File,
    Text,
}

struct Reader<'a> {
    characters: Peekable<Chars<'a>>,
    commands: Vec<Simple>,
    now: Simple,
    word: Option<Word>,
    target: Option<Target>,
}

impl Reader<'_> {
    fn take(&mut self, one: char) -> Option<()> {
        match one {
            one if one.is_whitespace() => self.end_word(),
            '\'' => self.single()?,
            '"' => self.double()?,
            '\\' => {
                let next = self.characters.next();
                self.word().text.extend(next);
            }
            '$' | '`' => self.expansion(one)?,
            '<' | '>' => self.redirection(one),
            '&' if self.follows('>') => self.redirection('>'),
            '|' if self.follows('|') => self.end_command(Joint::Perhaps),
            '&' if self.follows('&') => self.end_command(Joint::Perhaps),
            '|' => {
                self.follows('&');
                self.end_command(Joint::Pipe);
            }
            ';' | '&' | '(' | ')' => self.end_command(Joint::Always),
            one => self.word().text.push(one),
        }
        Some(())
    }

    fn word(&mut self) -> &mut Word {
        self.word.get_or_insert_default()
    }

    /// Consumes the next character if it is `wanted`.
    fn follows(&mut self, wanted: char) -> bool {
        self.characters.next_if_eq(&wanted).is_some()
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        match self.target.take() {
            None => self.now.words.push(word),
            Some(Target::Elsewhere) => {}
            Some(Target::File) => self.now.input = Some(Input::File(word)),
            Some(Target::Text) => self.now.input = Some(Input::Text(word)),
        }
    }

    fn end_command(&mut self, next: Joint) {
        self.end_word();
        self.target = None;
        let ended = std::mem::replace(&mut self.now, Simple { joint: next, ..Simple::default() });
        if !ended.words.is_empty() {
            self.commands.push(ended);
        } else if next == Joint::Always && ended.joint == Joint::Perhaps {
            // In `a && ( b )`, the command in brackets is conditional, too.
            self.now.joint = Joint::Perhaps;
        }
    }

    fn single(&mut self) -> Option<()> {
        self.word();
        loop {
            match self.characters.next()? {
                '\'' => return Some(()),
                one => self.word().text.push(one),
            }
        }
    }

    fn double(&mut self) -> Option<()> {
        self.word();
        loop {
            match self.characters.next()? {
                '"' => return Some(()),
                '\\' => match self.characters.next()? {
                    one @ ('"' | '\\' | '$' | '`') => self.word().text.push(one),
                    one => self.word().text.extend(['\\', one]),
                },
                one @ ('$' | '`') => self.expansion(one)?,
                one => self.word().text.push(one),
            }
        }
    }

    /// Reads `$NAME`, `${NAME}`, `$(command)` or a command in backticks, and keeps it as written.
    fn expansion(&mut self, begin: char) -> Option<()> {
        let next = self.characters.peek().copied();
        let ends = match (begin, next) {
            ('`', _) => Some('`'),
            ('$', Some('(')) => Some(')'),
            ('$', Some('{')) => Some('}'),
            ('$', Some(one)) => {
                self.word().expands |= one.is_ascii_alphanumeric() || "_@*#?$!-".contains(one);
                None
            }
            _ => None,
        };
        self.word().text.push(begin);
        let Some(end) = ends else { return Some(()) };
        self.word().expands = true;
        let mut depth = 0_usize;
        loop {
            let one = self.characters.next()?;
            self.word().text.push(one);
            match one {
                _ if end == '`' && one == end => return Some(()),
                '(' | '{' if Some(one) == next => depth += 1,
                _ if one == end && depth <= 1 => return Some(()),
                _ if one == end => depth -= 1,
                _ => {}
            }
        }
    }

    fn redirection(&mut self, begin: char) {
        // In `2>`, the number belongs to the redirection.
        let is_number = |word: &Word| !word.text.is_empty() && word.text.bytes().all(|byte| byte.is_ascii_digit());
        if self.word.as_ref().is_some_and(is_number) {
            self.word = None;
        }
        self.end_word();
        let mut signs = 1;
        while self.characters.next_if(|next| matches!(next, '<' | '>' | '&' | '|')).is_some() {
            signs += 1;
        }
        self.target = Some(match (begin, signs) {
            ('<', 1) => Target::File,
            ('<', 3) => Target::Text,
            _ => Target::Elsewhere,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<String>> {
        let commands = read(line).unwrap_or_else(|| panic!("{line}"));
        commands.into_iter().map(|one| one.words.into_iter().map(|word| word.text).collect()).collect()
    }

    #[test]
    fn words_lose_their_quotes() {
        for (line, expected) in [
            (r#"mail -s "A B" 'c d'e f\ g"#, vec!["mail", "-s", "A B", "c de", "f g"]),
            (r#"echo "a \"b\" \$c \n""#, vec!["echo", r#"a "b" $c \n"#]),
            ("a '' b", vec!["a", "", "b"]),
            ("a # b", vec!["a"]),
            ("a b#c", vec!["a", "b#c"]),
        ] {
            assert_eq!(words(line), [expected], "{line}");
        }
        assert_eq!(words(""), Vec::<Vec<String>>::new());
    }

    #[test]
    fn commands_are_parted_by_operators() {
        let joints = |line: &str| read(line).map(|all| all.iter().map(|one| one.joint).collect::<Vec<_>>());
        assert_eq!(words("a; b && c || d | e & f"), [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]);
        use Joint::{Always, Perhaps, Pipe};
        assert_eq!(joints("a; b && c || d | e & f"), Some(vec![Always, Always, Perhaps, Perhaps, Pipe, Always]));
        assert_eq!(words("test -x a || ( cd / && b )"), [vec!["test", "-x", "a"], vec!["cd", "/"], vec!["b"]]);
        assert_eq!(joints("test -x a || ( cd / && b )"), Some(vec![Always, Perhaps, Perhaps]));
    }

    #[test]
    fn redirections_are_no_arguments() {
        for line in
            ["a b > /dev/null 2>&1", "a 2>>log b", "a b &> /dev/null", "a b >/dev/null", ">x a b", "a b 2>/dev/null"]
        {
            assert_eq!(words(line), [["a", "b"]], "{line}");
        }
        let input = |line: &str| read(line).and_then(|mut all| all.pop()).and_then(|one| one.input);
        let word = |text: &str| Word { text: text.to_owned(), expands: false };
        assert_eq!(input("mail a < /tmp/x"), Some(Input::File(word("/tmp/x"))));
        assert_eq!(input("mail a <<< 'Hi you'"), Some(Input::Text(word("Hi you"))));
    }

    #[test]
    fn shell_expansion_is_kept_and_marked() {
        let expands = |line: &str| {
            let word = read(line).and_then(|all| all.into_iter().next()).and_then(|one| one.words.into_iter().next());
            word.map(|word| (word.text, word.expands))
        };
        for text in ["$A", "a${B}c", "$(date +%F)", "`date`", "$(a $(b))"] {
            assert_eq!(expands(&format!("\"{text}\" x")), Some((text.to_owned(), true)), "{text}");
            assert_eq!(expands(&format!("{text} x")), Some((text.to_owned(), true)), "{text}");
        }
        assert_eq!(expands("'$A'"), Some(("$A".to_owned(), false)));
        assert_eq!(expands("5$"), Some(("5$".to_owned(), false)));
    }

    #[test]
    fn open_quote_is_no_command() {
        for line in ["a 'b", "a \"b", "a `b", "a $(b", "a ${b", "a \"b\\"] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
