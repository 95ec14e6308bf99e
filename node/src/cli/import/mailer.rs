//! Recognizes the email that a command sends: `mail -s Subject address` and similar programs.
//!
//! Called by [`super::plan`]. Three families are recognized by the program's name: `mail` (mailx, s-nail, GNU mail),
//! `mutt`, and `sendmail` (msmtp and others with the same options). They yield subject, recipients and sender. The text
//! is read only from the line itself: after `%`, after `<<<`, or from an `echo` before a pipe.
//!
//! This is no shell: text that needs expansion, a file or another program becomes a warning.

use super::shell::{Input, Joint, Simple, Word};

/// An email as a command would send it. Nothing in it is validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mail {
    /// Recipients: the words at the place of addresses.
    pub to: Vec<String>,
    /// Subject, if the command sets one.
    pub subject: Option<String>,
    /// Sender, if the command sets one.
    pub sender: Option<String>,
    /// Text of the email, if it is on the line.
    pub text: Option<String>,
    /// Differences from what the command would do.
    pub warnings: Vec<String>,
}

/// A family of programs with the same options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Mail,
    Mutt,
    Sendmail,
}

impl Family {
    fn of(program: &str) -> Option<Family> {
        match program.rsplit('/').next()? {
            "mail" | "mailx" | "Mail" | "nail" | "s-nail" | "bsd-mailx" | "heirloom-mailx" => Some(Family::Mail),
            "mutt" | "neomutt" => Some(Family::Mutt),
            "sendmail" | "msmtp" | "ssmtp" | "exim" | "exim4" => Some(Family::Sendmail),
            _ => None,
        }
    }

    /// Returns the letters of options that take a value.
    fn valued(self) -> &'static str {
        match self {
            Family::Mail => "sabcrSAqMXY",
            Family::Mutt => "sabceifFHmhQA",
            Family::Sendmail => "fFraCONRVXLh",
        }
    }
}

/// Long options of `mail` that need a value, in the same word after `=` or in the next word.
const LONG_WITH_VALUE: [&str; 5] = ["subject", "return-address", "from", "append", "attach"];

/// Words before a command that are not part of it.
const BEFORE: [&str; 9] = ["then", "else", "do", "{", "!", "exec", "nice", "time", "sudo"];

/// Returns the email that the last mail program of a line sends. `input` is the text after `%`.
pub fn find(commands: &[Simple], input: Option<&str>) -> Option<Mail> {
    let mailer = |simple: &Simple| {
        let words = program(&simple.words);
        Some((Family::of(&words.first()?.text)?, words.get(1..)?.to_vec()))
    };
    let place = commands.iter().rposition(|simple| mailer(simple).is_some())?;
    let simple = commands.get(place)?;
    let (family, arguments) = mailer(simple)?;
    let mut mail = Mail::default();
    read(family, &arguments, &mut mail);
    let before = place.checked_sub(1).and_then(|place| commands.get(place));
    mail.text = text(simple, before, input, &mut mail.warnings);
    if family == Family::Sendmail {
        take_head(&mut mail);
    }
    let is_conditional = commands.iter().take(place + 1).any(|one| one.joint == Joint::Perhaps)
        || commands.iter().any(|one| one.words.first().is_some_and(|word| word.text == "if"));
    if is_conditional {
        mail.warnings.push("the command sends under a condition; the schedule sends every time".to_owned());
    }
    Some(mail)
}

/// Returns the words from the program on, without variables and prefixes such as `sudo`.
pub fn program(words: &[Word]) -> &[Word] {
    let is_setting = |word: &Word| {
        let name = word.text.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
    };
    let passed = words.iter().take_while(|word| is_setting(word) || BEFORE.contains(&word.text.as_str())).count();
    words.get(passed..).unwrap_or_default()
}

fn read(family: Family, arguments: &[Word], mail: &mut Mail) {
    let mut words = arguments.iter();
    let (mut attaches, mut copies, mut only_operands) = (false, false, false);
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if only_operands || !text.starts_with('-') || text == "-" {
            recipient(word, mail);
        } else if text == "--" {
            only_operands = true;
            if family == Family::Mutt && attaches {
                // `mutt -a FILE… -- ADDRESS`: the words before `--` are files.
                mail.to.clear();
            }
        } else if let Some(option) = text.strip_prefix("--") {
            match option.split_once('=') {
                Some((name, value)) => long(name, &Word { text: value.to_owned(), ..word.clone() }, mail),
                None if LONG_WITH_VALUE.contains(&option) => {
                    words.next().into_iter().for_each(|value| long(option, value, mail))
                }
                None => {}
            }
        } else {
            for (letter, value) in letters(text, family, &mut words) {
                attaches |= letter == 'a' || letter == 'A';
                copies |= letter == 'c' || letter == 'b';
                short(family, letter, &Word { text: value, ..word.clone() }, mail);
            }
        }
    }
    if copies {
        mail.warnings.push("copies (-c, -b) become recipients: each gets a mail of its own".to_owned());
    }
}

/// Splits an option word into its letters. The last letter may take a value, from the rest of the word or from the next
/// word.
fn letters<'a>(text: &str, family: Family, words: &mut impl Iterator<Item = &'a Word>) -> Vec<(char, String)> {
    let mut found = Vec::new();
    let mut rest = text.chars().skip(1);
    while let Some(letter) = rest.next() {
        if family.valued().contains(letter) {
            let attached: String = rest.by_ref().collect();
            let value = match attached.as_str() {
                "" => words.next().map(|word| word.text.clone()).unwrap_or_default(),
                _ => attached,
            };
            found.push((letter, value));
        } else if family == Family::Sendmail && "obq".contains(letter) {
            // `-oi`, `-bm`: the value is always in the same word.
            break;
        } else {
            found.push((letter, String::new()));
        }
    }
    found
}

fn short(family: Family, letter: char, value: &Word, mail: &mut Mail) {
    match (family, letter) {
        (Family::Mail | Family::Mutt, 's') => subject(value, mail),
        (Family::Mail | Family::Mutt, 'c' | 'b') => recipient(value, mail),
        (Family::Mail, 'r') | (Family::Sendmail, 'f' | 'r') => mail.sender = Some(value.text.clone()),
        (Family::Mail, 'a') if is_field(&value.text) => field(&value.text, mail),
        (Family::Mail, 'a' | 'A') | (Family::Mutt, 'a') => attachment(&value.text, mail),
        _ => {}
    }
}

fn long(name: &str, value: &Word, mail: &mut Mail) {
    match name {
        "subject" => subject(value, mail),
        "return-address" | "from" => mail.sender = Some(value.text.clone()),
        "append" => field(&value.text, mail),
        "attach" => attachment(&value.text, mail),
        _ => {}
    }
}

fn subject(value: &Word, mail: &mut Mail) {
    // `expands` belongs to the option's word. If the value is the next word, its characters decide.
    if value.expands || value.text.contains(['$', '`']) {
        mail.warnings
            .push(format!("the subject `{}` may hold what a shell expands; here it is plain text", value.text));
    }
    mail.subject = Some(value.text.clone());
}

fn recipient(value: &Word, mail: &mut Mail) {
    mail.to.extend(value.text.split(',').map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned));
}

fn attachment(file: &str, mail: &mut Mail) {
    mail.warnings.push(format!("the attachment {file} is not taken over"));
}

/// True for a header field such as `Name: value`; otherwise the text is a file name.
fn is_field(text: &str) -> bool {
    let name = text.split_once(':').map(|(name, _)| name);
    name.is_some_and(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'))
}

fn field(text: &str, mail: &mut Mail) {
    let (name, value) = text.split_once(':').unwrap_or((text, ""));
    let value = value.trim().to_owned();
    match name.to_ascii_lowercase().as_str() {
        "from" => mail.sender = Some(value),
        "subject" => mail.subject = Some(value),
        "to" | "cc" | "bcc" => recipient(&Word { text: value, expands: false }, mail),
        _ => mail.warnings.push(format!("the header field {name} is not taken over")),
    }
}

/// Returns the email's text if the line contains it. Otherwise adds a warning with its origin.
fn text(simple: &Simple, before: Option<&Simple>, input: Option<&str>, warnings: &mut Vec<String>) -> Option<String> {
    let mut elsewhere = |from: String| {
        warnings.push(format!("its text came from {from}; write it yourself"));
        None
    };
    if simple.joint == Joint::Pipe {
        let words = before.map(|before| program(&before.words)).unwrap_or_default();
        return match echoed(words) {
            Some(text) => Some(text),
            None => elsewhere(format!("`{}`", words.first().map(|word| word.text.as_str()).unwrap_or_default())),
        };
    }
    match (&simple.input, input) {
        (Some(Input::Text(word)), _) if !word.expands => Some(word.text.clone()),
        (Some(Input::Text(_)), _) => elsewhere("an expansion of the shell".to_owned()),
        (Some(Input::File(file)), _) if file.text == "/dev/null" => Some(String::new()),
        (Some(Input::File(file)), _) => elsewhere(format!("the file {}", file.text)),
        (None, Some(input)) => Some(input.to_owned()),
        (None, None) => Some(String::new()),
    }
}

/// Returns what an `echo` prints, if it needs no expansion.
fn echoed(words: &[Word]) -> Option<String> {
    let (echo, words) = words.split_first()?;
    let words = match words {
        [first, rest @ ..] if matches!(first.text.as_str(), "-n" | "-e" | "-ne" | "-en") => rest,
        words => words,
    };
    let is_plain = words.iter().all(|word| !word.expands && !word.text.contains('\\'));
    let text = || words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    (echo.text == "echo" && is_plain).then(text)
}

/// Splits the text of `sendmail`, which begins with header fields.
fn take_head(mail: &mut Mail) {
    let Some(whole) = mail.text.take() else { return };
    let mut lines = whole.lines();
    let begins = lines.clone().next().is_some_and(is_field);
    if begins {
        for line in lines.by_ref().take_while(|line| !line.is_empty()) {
            field(line, mail);
        }
    }
    mail.text = Some(lines.collect::<Vec<_>>().join("\n"));
}

#[cfg(test)]
mod tests {
    use super::super::shell;
    use super::*;

    fn mail(line: &str, input: Option<&str>) -> Mail {
        find(&shell::read(line).expect("a command"), input).unwrap_or_else(|| panic!("no mail in {line}"))
    }

    fn parts_of(mail: &Mail) -> (&str, &str, &str) {
        let [subject, sender, text] =
            [&mail.subject, &mail.sender, &mail.text].map(|one| one.as_deref().unwrap_or("-"));
        (subject, sender, text)
    }

    #[test]
    fn mail_programs_are_known_by_name_and_their_options() {
        for (line, to, subject, sender) in [
            ("mail -s Hello a@x.org", "a@x.org", "Hello", "-"),
            ("/usr/bin/mailx -s 'A B' a@x.org b@x.org,c@x.org", "a@x.org b@x.org c@x.org", "A B", "-"),
            ("mail -sHi -r me@x.org a@x.org", "a@x.org", "Hi", "me@x.org"),
            ("mail -a 'From: Me <me@x.org>' -Es Hi a@x.org", "a@x.org", "Hi", "Me <me@x.org>"),
            ("mail --subject='Hi all' --return-address=me@x.org a@x.org", "a@x.org", "Hi all", "me@x.org"),
            ("mail --subject 'Hi all' --debug --from me@x.org a@x.org", "a@x.org", "Hi all", "me@x.org"),
            ("LANG=C nice mail -s Hi a@x.org >/dev/null 2>&1", "a@x.org", "Hi", "-"),
            ("mutt -s Hi -- a@x.org", "a@x.org", "Hi", "-"),
            ("mutt -s Hi -a /tmp/f /tmp/g -- a@x.org", "a@x.org", "Hi", "-"),
            ("sendmail -oi -f me@x.org a@x.org", "a@x.org", "-", "me@x.org"),
            ("/usr/sbin/sendmail -fme@x.org a@x.org", "a@x.org", "-", "me@x.org"),
            ("msmtp -a work a@x.org", "a@x.org", "-", "-"),
            ("/bin/job && mail -s ok a@x.org || mail -s bad b@x.org", "b@x.org", "bad", "-"),
            ("mail -s Hi -c b@x.org a@x.org", "b@x.org a@x.org", "Hi", "-"),
        ] {
            let mail = mail(line, None);
            let (found, from, _) = parts_of(&mail);
            assert_eq!((mail.to.join(" ").as_str(), found, from), (to, subject, sender), "{line}");
        }
    }

    #[test]
    fn other_programs_send_no_email() {
        for line in ["/usr/local/bin/backup.sh mail", "mailq", "echo mail -s x a@x.org", "grep mail /var/log/x", ""] {
            assert_eq!(find(&shell::read(line).expect("a command"), None), None, "{line}");
        }
    }

    #[test]
    fn text_on_crontab_line_is_text_of_email() {
        for (line, input, text) in [
            ("mail -s Hi a@x.org", Some("Dear all,\nBye"), "Dear all,\nBye"),
            ("echo 'All is well' | mail -s Hi a@x.org", None, "All is well"),
            ("echo -n a b | mail -s Hi a@x.org", None, "a b"),
            ("mail -s Hi a@x.org <<< 'One line'", None, "One line"),
            ("mail -s Hi a@x.org < /dev/null", None, ""),
            ("mail -s Hi a@x.org", None, ""),
        ] {
            assert_eq!(parts_of(&mail(line, input)).2, text, "{line}");
            assert_eq!(mail(line, input).warnings, Vec::<String>::new(), "{line}");
        }
        let mail = mail("sendmail -t", Some("To: a@x.org, b@x.org\nSubject: Hi\nFrom: me@x.org\n\nDear all"));
        assert_eq!((mail.to.join(" ").as_str(), parts_of(&mail)), ("a@x.org b@x.org", ("Hi", "me@x.org", "Dear all")));
    }

    #[test]
    fn unsupported_parts_become_warnings() {
        for (line, words) in [
            ("df -h | mail -s Disks a@x.org", "its text came from `df`"),
            ("echo $HOME | mail -s Hi a@x.org", "its text came from `echo`"),
            ("mail -s Hi a@x.org < /tmp/report", "its text came from the file /tmp/report"),
            ("mail -s Hi a@x.org <<< \"$A\"", "an expansion of the shell"),
            ("mail -s \"Report $(date +%F)\" a@x.org", "may hold what a shell expands"),
            ("mail -s Hi -A /tmp/f a@x.org", "the attachment /tmp/f"),
            ("mail -s Hi -a /tmp/f a@x.org", "the attachment /tmp/f"),
            ("mail -s Hi -a 'X-A: b' a@x.org", "the header field X-A"),
            ("mail -s Hi -b b@x.org a@x.org", "each gets a mail of its own"),
            ("test -s /tmp/f && mail -s Hi a@x.org", "under a condition"),
            ("if [ -s f ]; then mail -s Hi a@x.org; fi", "under a condition"),
        ] {
            let warnings = mail(line, None).warnings;
            assert!(warnings.iter().any(|warning| warning.contains(words)), "{line}: {warnings:?}");
        }
    }
}
