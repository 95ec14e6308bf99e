//! Tests of announced emails (P5.3): MAIL, RCPT and DATA of the next email go out with the final dot of an email, and
//! nothing else about the two depends on each other.

use std::{sync::Arc, time::Duration};

use super::server::{Counting, Exchange, Script, ServerAction, ServerStep, mail, stepwise, until, when, willing};
use crate::smtp::cause::Cause;
use crate::smtp::replies::dialogue_result::DialogueResult;
use crate::smtp::session::deadlines::{Deadlines, Timeouts};
use crate::smtp::session::dialogue::Session;
use crate::smtp::session::envelope::Email;
use crate::smtp::stage::Stage;

const ANNOUNCEMENT: &str = "MAIL FROM:<news@example.org>\r\nRCPT TO:<bert@example.com>\r\nDATA\r\n";

fn anna() -> Email {
    mail(b"to anna\r\n")
}

fn bert() -> Email {
    Email { to: "bert@example.com".to_owned(), ..mail(b"to bert\r\n") }
}

/// Sends `email` and announces `next`. Also returns how often the gate was asked.
async fn send(
    exchange: &Exchange,
    session: &mut Session,
    email: &Email,
    next: Option<&Email>,
) -> (DialogueResult, usize) {
    let mut gate = Counting::open(exchange);
    let result = session.run_transaction(email, &mut gate, &Deadlines::default(), next).await;
    (result, gate.times_met())
}

/// Sends two emails over one session of a server with this script; the first one announces the second one.
async fn send_two(script: Script) -> (Exchange, Session, [(DialogueResult, usize); 2]) {
    let exchange = Exchange::new(script);
    let mut session = exchange.session().await.expect("a session");
    let first = send(&exchange, &mut session, &anna(), Some(&bert())).await;
    let second = send(&exchange, &mut session, &bert(), None).await;
    (exchange, session, [first, second])
}

/// As the given action, at one step of the email with this number.
fn at(number: usize, step: ServerStep, action: ServerAction) -> Script {
    Arc::new(move |now, email| ((now, email) == (step, number)).then(|| action.clone()))
}

fn is_accepted(result: &DialogueResult) -> bool {
    matches!(result, DialogueResult::Accepted { .. })
}

fn closed_between_emails() -> DialogueResult {
    DialogueResult::Broken { stage: Stage::Mail, cause: Cause::ClosedBetweenEmails }
}

#[tokio::test]
async fn announcement_goes_out_with_the_final_dot_and_each_email_meets_its_own_gate() {
    let exchange = Exchange::new(willing());
    let mut session = exchange.session().await.expect("a session");
    let mut gates = [Counting::open(&exchange), Counting::open(&exchange)];
    let result = session.run_transaction(&anna(), &mut gates[0], &Deadlines::default(), Some(&bert())).await;
    assert!(is_accepted(&result) && session.has_announced(), "{result:?}");
    let (before, written) = (gates[0].met.lock()[0], exchange.written.lock().bytes.clone());
    assert_eq!(String::from_utf8_lossy(&written[before..]), format!("to anna\r\n.\r\n{ANNOUNCEMENT}"));
    let writes = exchange.written.lock().writes;

    let result = session.run_transaction(&bert(), &mut gates[1], &Deadlines::default(), None).await;
    assert!(is_accepted(&result) && !session.has_announced(), "{result:?}");
    assert_eq!(exchange.written.lock().bytes[written.len()..], *b"to bert\r\n.\r\n");
    assert_eq!(exchange.written.lock().writes, writes + 1, "one write an email");
    assert_eq!(*gates[1].met.lock(), [written.len()], "nothing of its text is written before its own gate");
    assert_eq!(exchange.seen.lock().accepted, [b"to anna\r\n".to_vec(), b"to bert\r\n".to_vec()]);
}

#[tokio::test]
async fn gate_of_announced_email_waits_for_its_354() {
    let timeouts = Timeouts { data: Duration::from_millis(40), ..Timeouts::default() };
    let exchange = Exchange::new(at(1, ServerStep::Data, ServerAction::Hang));
    let mut session = exchange.session_within(timeouts).await.expect("a session");
    assert!(is_accepted(&send(&exchange, &mut session, &anna(), Some(&bert())).await.0));
    let result = send(&exchange, &mut session, &bert(), None).await;
    assert_eq!(result, (DialogueResult::Broken { stage: Stage::Data, cause: Cause::TimedOut }, 0));
    assert!(exchange.written.lock().bytes.ends_with(ANNOUNCEMENT.as_bytes()), "nothing of the text is written");
}

#[tokio::test]
async fn closed_gate_announces_nothing() {
    let exchange = Exchange::new(willing());
    let mut session = exchange.session().await.expect("a session");
    let mut gate = Counting::closed(&exchange);
    let result = session.run_transaction(&anna(), &mut gate, &Deadlines::default(), Some(&bert())).await;
    assert_eq!(result, DialogueResult::GateClosed);
    assert!(exchange.written.lock().bytes.ends_with(b"DATA\r\n") && !session.is_open());
    assert!(!session.has_announced());
}

/// What the relay answers to the announced email changes nothing about the first one.
#[tokio::test]
async fn refused_announcement_concerns_the_announced_email_only() {
    for (step, stage) in
        [(ServerStep::Mail, Stage::Mail), (ServerStep::Rcpt, Stage::Rcpt), (ServerStep::Data, Stage::Data)]
    {
        let script = at(1, step, ServerAction::Reply("550 5.1.1 no\r\n"));
        let (exchange, mut session, [first, (second, gates)]) = send_two(script).await;
        assert!(is_accepted(&first.0), "{step:?}: {first:?}");
        assert!(matches!(&second, DialogueResult::Refused { stage: at, code: 550, .. } if *at == stage), "{second:?}");
        assert_eq!((gates, exchange.seen.lock().accepted.len()), (0, 1), "{step:?}");
        assert!(!session.has_announced());
        if step == ServerStep::Rcpt {
            // Its transaction is reset before the next email.
            let (third, _) = send(&exchange, &mut session, &anna(), None).await;
            assert!(is_accepted(&third) || !session.is_open(), "{third:?}");
        }
    }
}

/// A refusal after the dot ends no session, so the announced email goes on.
#[tokio::test]
async fn announced_email_is_sent_after_refusal_of_the_one_before() {
    let (_, _, [first, second]) = send_two(at(0, ServerStep::Dot, ServerAction::Reply("550 5.1.1 no\r\n"))).await;
    assert!(matches!(first.0, DialogueResult::Refused { stage: Stage::Answered, .. }), "{first:?}");
    assert!(is_accepted(&second.0), "{second:?}");
}

#[tokio::test]
async fn end_of_session_after_answer_releases_announced_email() {
    for action in
        [ServerAction::ReplyAndClose("250 queued\r\n"), ServerAction::ReplyAndClose("250 queued\r\n421 enough\r\n")]
    {
        let (exchange, session, [first, second]) = send_two(at(0, ServerStep::Dot, action.clone())).await;
        assert!(is_accepted(&first.0), "{action:?}: {first:?}");
        assert_eq!(second, (closed_between_emails(), 0), "{action:?}");
        assert!(!session.is_open() && exchange.seen.lock().texts.len() == 1);
        assert_eq!(
            session.ended_after(),
            matches!(action, ServerAction::ReplyAndClose(words) if words.contains("421")).then_some(1)
        );
    }
}

#[tokio::test]
async fn lost_answer_ends_session_of_announced_email() {
    for action in [
        ServerAction::Close,
        ServerAction::ReplyAndClose("25"),
        ServerAction::ReplyAndClose("421 4.3.2 going down\r\n"),
    ] {
        let exchange = Exchange::new(when(ServerStep::Dot, action.clone()));
        let mut session = exchange.session().await.expect("a session");
        let (result, _) = send(&exchange, &mut session, &anna(), Some(&bert())).await;
        match &result {
            DialogueResult::Refused { code: 421, .. } | DialogueResult::InDoubt { .. } => {}
            other => panic!("{action:?}: {other:?}"),
        }
        assert!(!session.is_open(), "{action:?}");
        assert_eq!(exchange.seen.lock().texts.len(), 1);
    }
}

#[tokio::test]
async fn session_with_announcement_takes_no_other_email_and_no_quit() {
    let exchange = Exchange::new(willing());
    for other in [Some(anna()), None] {
        let mut session = exchange.session().await.expect("a session");
        send(&exchange, &mut session, &anna(), Some(&bert())).await;
        let written = exchange.written.lock().bytes.len();
        assert!(session.is_still_usable().await);
        match other {
            Some(other) => {
                assert_eq!(send(&exchange, &mut session, &other, None).await, (closed_between_emails(), 0));
                assert!(!session.is_open());
            }
            None => session.quit().await,
        }
        assert_eq!(exchange.written.lock().bytes.len(), written, "nothing may become the text of the announced email");
        until("the connection is closed", || exchange.seen.lock().open == 0).await;
    }
    assert_eq!(exchange.seen.lock().texts.len(), 2);
}

#[tokio::test]
async fn nothing_is_announced_that_the_relay_cannot_take() {
    let small = "250-relay\r\n250-PIPELINING\r\n250 SIZE 9\r\n";
    let beyond = Email { to: "bj\u{f8}rn@example.com".to_owned(), ..bert() };
    let long = Email { text: mail(b"more than nine bytes\r\n").text, ..bert() };
    let scripts = [stepwise(willing()), when(ServerStep::Ehlo, ServerAction::Reply(small))];
    for (script, next) in
        scripts.into_iter().zip([bert(), beyond]).chain([(when(ServerStep::Ehlo, ServerAction::Reply(small)), long)])
    {
        let exchange = Exchange::new(script);
        let mut session = exchange.session().await.expect("a session");
        let (result, _) = send(&exchange, &mut session, &anna(), Some(&next)).await;
        assert!(is_accepted(&result) && !session.has_announced() && session.is_open(), "{next:?}: {result:?}");
        assert!(exchange.written.lock().bytes.ends_with(b"to anna\r\n.\r\n"), "{next:?}");
    }
}

/// If text and final dot fill one write (8 KiB), no announcement follows: a relay that stops reading would delay the
/// answer. A longer text is written before the gate, and leaves room.
#[tokio::test]
async fn announcement_fits_into_one_write_with_the_final_dot() {
    for (text_bytes, announces) in [(8_000, true), (8_180, false), (100_000, true)] {
        let exchange = Exchange::new(willing());
        let mut session = exchange.session().await.expect("a session");
        let text = [vec![b'x'; text_bytes], b"\r\n".to_vec()].concat();
        let (result, gates) = send(&exchange, &mut session, &mail(&text), Some(&bert())).await;
        assert!(is_accepted(&result) && gates == 1, "{text_bytes}: {result:?}");
        assert_eq!(session.has_announced(), announces, "{text_bytes}");
        let (second, _) = send(&exchange, &mut session, &bert(), None).await;
        assert!(is_accepted(&second), "{text_bytes}: {second:?}");
    }
}
