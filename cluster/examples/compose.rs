//! What it takes to compose an email: rendered whole, or filled into the part that is the same for all recipients.
//!
//! `cargo run --release -p reveille-cluster --example compose`
//!
//! Both in turns, so that what else the machine does falls on both; of each the best of many.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use reveille_cluster::compose::{Compiled, Composed, ContentError, Stamp, message_id};
use reveille_ledger::content::{Content, Recipient};
use reveille_ledger::ids::{Epoch, Fence, RunId, Time};

/// Times that both are measured.
const TURNS: u32 = 40;
/// Emails of one measurement, each to another recipient.
const EMAILS: u32 = 512;

const LINE: &str = "The quick brown fox jumps over the lazy dog, and then it goes home for tea.\n";
const CYRILLIC: &str = "Съешь ещё этих мягких французских булок, да выпей же чаю.\n";

fn main() -> Result<(), Box<dyn Error>> {
    let name = "Hello {{ name }},\n\n";
    let link = "<p><a href=\"https://example.com/?a={{ recipient|urlencode }}\">Good bye</a></p>\n";
    let code = "{% if name == 'Ann' %}\n<p>Hello Ann!</p>\n{% else %}\n<p>Hello {{ name|upper }}</p>\n{% endif %}\n";
    let text = |line: &str, lines| Some(format!("{name}{}", line.repeat(lines)));
    let html = |head: &str, lines| Some(format!("{head}{}{link}", LINE.repeat(lines)));
    println!("{:32} {:>8} {:>9} {:>9} {:>6}", "content", "bytes", "whole us", "filled us", "ratio");
    for (title, text, html) in [
        ("2 KB of text", text(LINE, 26), None),
        ("2 KB of text, base64", text(CYRILLIC, 19), None),
        ("5 KB, text and html", text(LINE, 20), html("<p>Hello {{ name }}</p>\n", 40)),
        ("5 KB, text and html with code", text(LINE, 20), html(code, 40)),
        ("50 KB of html with code", None, html(code, 660)),
    ] {
        let content = Content {
            sender: "Morning Paper <paper@example.com>".to_owned(),
            subject: "Good morning, {{ name }}".to_owned(),
            text,
            html,
            headers: vec![(
                "List-Unsubscribe".to_owned(),
                "<https://example.com/u?a={{ recipient|urlencode }}>".to_owned(),
            )],
            ..Content::default()
        };
        measure(title, &Compiled::new(&content, &["name".to_owned()])?)?;
    }
    Ok(())
}

fn measure(title: &str, compiled: &Compiled) -> Result<(), ContentError> {
    let emails: Vec<(Recipient, Stamp)> = (0..EMAILS).map(mail).collect();
    let mut bytes = 0;
    for (recipient, stamp) in &emails {
        let whole = compiled.compose_whole(recipient, stamp)?;
        bytes = whole.data.len();
        assert_eq!(compiled.compose(recipient, stamp)?, whole);
    }
    let time = |compose: &dyn Fn(&Recipient, &Stamp) -> Result<Composed, ContentError>| {
        let begin = Instant::now();
        emails.iter().try_for_each(|(recipient, stamp)| compose(recipient, stamp).map(|mail| drop(black_box(mail))))?;
        Ok::<Duration, ContentError>(begin.elapsed())
    };
    let mut best = [Duration::MAX; 2];
    for _ in 0..TURNS {
        best[0] = best[0].min(time(&|recipient, stamp| compiled.compose_whole(recipient, stamp))?);
        best[1] = best[1].min(time(&|recipient, stamp| compiled.compose(recipient, stamp))?);
    }
    let [whole, filled] = best.map(|time| time.as_secs_f64() * 1e6 / f64::from(EMAILS));
    println!("{title:32} {bytes:>8} {whole:>9.1} {filled:>9.1} {:>6.1}", whole / filled);
    Ok(())
}

fn mail(number: u32) -> (Recipient, Stamp) {
    let run = RunId { index: 1042, place: 3 };
    let address = format!("r{number:08}@audience.invalid");
    let recipient = Recipient { key: address.clone(), address, values: vec![format!("Ann Number {number}")] };
    let stamp = Stamp {
        message_id: message_id(7, 1, run, number, "example.com"),
        run,
        fence: Some(Fence { group: 1, epoch: Epoch(9), index: 1050, place: number }),
        date: Time(1_795_219_200_000),
        boundary_seed: [7; 32],
        list_unsubscribe: None,
    };
    (recipient, stamp)
}
