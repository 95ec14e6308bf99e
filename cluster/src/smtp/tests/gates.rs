//! Tests of the gate (P5): it is asked exactly once for each email, immediately before the first byte of the
//! final dot.

use std::time::Duration;

use proptest::prelude::*;

use super::server::{Counting, Exchange, ServerAction, ServerStep, mail, script, stepwise, until, when, willing};
use crate::smtp::cause::Cause;
use crate::smtp::gate::{Gate, GateAnswer};
use crate::smtp::replies::dialogue_result::DialogueResult;
use crate::smtp::session::deadlines::{Deadlines, Timeouts};
use crate::smtp::stage::Stage;

/// Returns the text that the server must receive: unchanged, with a line end after its last line.
fn ended(text: &[u8]) -> Vec<u8> {
    let mut ended = text.to_vec();
    if !text.ends_with(b"\r\n") {
        ended.extend_from_slice(b"\r\n");
    }
    ended
}

/// Sends `text` through small buffers and checks all guarantees of the gate.
async fn passes_the_gate_once(text: &[u8], buffer: usize, gulp: usize, step_by_step: bool) {
    let script = if step_by_step { stepwise(willing()) } else { willing() };
    let exchange = Exchange { buffer, gulp, ..Exchange::new(script) };
    let mut session = exchange.session().await.expect("a session");
    for round in 1..=2 {
        let mut gate = Counting::open(&exchange);
        let result = session.run_transaction(&mail(text), &mut gate, &Deadlines::default(), None).await;
        assert!(matches!(result, DialogueResult::Accepted { code: 250, .. }), "{result:?}");
        assert_eq!(gate.times_met(), 1, "once an email");
        let written = exchange.written.lock().bytes.clone();
        let (before, after) = written.split_at(gate.met.lock()[0]);
        assert!(after.ends_with(b"\r\n.\r\n") || after == b".\r\n", "the final dot is behind the gate");
        assert!(before.ends_with(b"\r\n"), "the text's last line, or DATA, is whole");
        let said = String::from_utf8_lossy(before).into_owned();
        let body = said.rsplit("DATA\r\n").next().expect("a text");
        assert!(!format!("\r\n{body}").contains("\r\n.\r\n"), "no final dot before the gate: {body:?}");
        let seen = exchange.seen.lock();
        assert_eq!(seen.texts.len(), round, "one email, one end of text");
        assert_eq!(seen.texts.last(), Some(&ended(text)), "the text arrives unchanged");
    }
}

#[tokio::test]
async fn every_kind_of_text_meets_the_gate_exactly_once() {
    let texts: [&[u8]; 12] = [
        b"",
        b"\r\n",
        b".",
        b".\r\n",
        b"..\r\n.\r\n...",
        b"no end of line",
        b"a line\r\n",
        b"a\r\n.\r\nMAIL FROM:<evil@example.org>\r\n",
        b"\r\n.\r\n\r\n.\r\n",
        b"ends with a dot line\r\n.",
        b".begins with a dot\r\n",
        b"a.\r\n.b\r\nc",
    ];
    for text in texts {
        for step_by_step in [false, true] {
            passes_the_gate_once(text, 64 * 1024, usize::MAX, step_by_step).await;
            passes_the_gate_once(text, 16, 1, step_by_step).await;
        }
    }
}

#[tokio::test]
async fn text_larger_than_buffers_meets_gate_once() {
    let text = b"line of the text\r\n.\r\n".repeat(20_000);
    passes_the_gate_once(&text, 1000, usize::MAX, false).await;
    passes_the_gate_once(&text, 64 * 1024, 4096, true).await;
}

proptest! {
    #![proptest_config(reveille_fuzz::cases(64))]
    #[test]
    fn any_text_meets_the_gate_exactly_once(
        pieces in prop::collection::vec(
            prop::sample::select(vec![".", "..", "\r\n", "\r\n.\r\n", "\r\n.", ".\r\n", "a", "DATA-\r\n", "QUIT\r\n"]),
            0..40,
        ),
        buffer in 1usize..200,
        gulp in 1usize..50,
        step_by_step: bool,
    ) {
        let text = pieces.concat();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(passes_the_gate_once(text.as_bytes(), buffer, gulp, step_by_step));
    }
}

#[tokio::test]
async fn closed_gate_writes_no_byte_of_final_dot_and_closes() {
    let exchange = Exchange::new(willing());
    let mut session = exchange.session().await.expect("a session");
    let mut gate = Counting::closed(&exchange);
    let result = session.run_transaction(&mail(b"hello\r\n"), &mut gate, &Deadlines::default(), None).await;
    assert_eq!(result, DialogueResult::GateClosed);
    assert_eq!(gate.times_met(), 1);
    assert_eq!(exchange.written.lock().bytes.len(), gate.met.lock()[0], "nothing was written after the answer");
    assert!(!session.is_open());
    until("the server sees the close", || exchange.seen.lock().open == 0).await;
    assert!(exchange.seen.lock().texts.is_empty());
}

#[tokio::test]
async fn unsolicited_bytes_before_gate_end_the_session() {
    let unasked = [
        when(ServerStep::Data, ServerAction::Reply("354 go on\r\n250 what was that\r\n")),
        when(ServerStep::InText, ServerAction::Reply("452 4.3.1 disk full\r\n")),
        when(ServerStep::InText, ServerAction::Reply("4")),
    ];
    for script in unasked {
        // The text is larger than the buffer, so the server has answered before the client has written all of it.
        never_meets_the_gate(Exchange { buffer: 64, ..Exchange::new(script) }).await;
    }
    // The server sends the second reply together with the 354, so the client has it before it asks the gate.
    never_meets_the_gate(Exchange::new(when(
        ServerStep::Data,
        ServerAction::Reply("354 go on\r\n250 what was that\r\n"),
    )))
    .await;
}

async fn never_meets_the_gate(exchange: Exchange) {
    let mut session = exchange.session().await.expect("a session");
    let mut gate = Counting::open(&exchange);
    let result =
        session.run_transaction(&mail(&b"0123456789\r\n".repeat(1_000)), &mut gate, &Deadlines::default(), None).await;
    assert!(matches!(result, DialogueResult::Broken { stage: Stage::Body, cause: Cause::OutOfStep(_) }), "{result:?}");
    assert_eq!(gate.times_met(), 0);
    assert!(!session.is_open());
    assert!(exchange.seen.lock().texts.is_empty());
}

#[tokio::test]
async fn relay_leaving_during_text_is_noticed_before_gate() {
    let exchange = Exchange { buffer: 64, ..Exchange::new(when(ServerStep::InText, ServerAction::ReplyAndClose(""))) };
    let mut session = exchange.session().await.expect("a session");
    let mut gate = Counting::open(&exchange);
    let result =
        session.run_transaction(&mail(&b"0123456789\r\n".repeat(1_000)), &mut gate, &Deadlines::default(), None).await;
    assert!(matches!(result, DialogueResult::Broken { stage: Stage::Body, .. }), "{result:?}");
    assert_eq!(gate.times_met(), 0);
}

#[tokio::test]
async fn dot_without_recipient_does_not_meet_gate() {
    static ACTS: [(ServerStep, ServerAction); 2] = [
        (ServerStep::Rcpt, ServerAction::Reply("550 5.1.1 no such user\r\n")),
        (ServerStep::Dot, ServerAction::Reply("554 5.5.1 no recipient\r\n")),
    ];
    let exchange = Exchange::new(script(&ACTS));
    let mut session = exchange.session().await.expect("a session");
    let mut gate = Counting::open(&exchange);
    let result = session.run_transaction(&mail(b"hello\r\n"), &mut gate, &Deadlines::default(), None).await;
    assert!(matches!(result, DialogueResult::Refused { stage: Stage::Rcpt, code: 550, .. }), "{result:?}");
    assert_eq!(gate.times_met(), 0);
    assert_eq!(exchange.seen.lock().texts, [b""], "the text that was asked for ended empty");
    assert!(session.is_open(), "and the session goes on");
    assert_eq!(session.run_transaction(&mail(b"x"), &mut gate, &Deadlines::default(), None).await, result);
}

#[tokio::test]
async fn no_dot_is_written_after_desynchronized_dialogue() {
    let exchange = Exchange::new(when(ServerStep::Mail, ServerAction::Reply("451 4.3.0 later\r\n")));
    let mut session = exchange.session().await.expect("a session");
    let mut gate = Counting::open(&exchange);
    let result = session.run_transaction(&mail(b"hello\r\n"), &mut gate, &Deadlines::default(), None).await;
    assert!(matches!(result, DialogueResult::Refused { stage: Stage::Mail, code: 451, .. }), "{result:?}");
    assert!(!session.is_open(), "RCPT and DATA were taken without a MAIL");
    assert!(!exchange.written.lock().bytes.ends_with(b".\r\n"));
    assert_eq!(gate.times_met(), 0);
}

#[tokio::test]
async fn failed_write_of_final_dot_is_in_doubt() {
    let exchange = Exchange::new(willing());
    let mut session = exchange.session().await.expect("a session");
    let mut gate = BreaksTransport(Counting::open(&exchange));
    let result = session.run_transaction(&mail(b"hello\r\n"), &mut gate, &Deadlines::default(), None).await;
    assert!(matches!(result, DialogueResult::InDoubt { cause: Cause::Io(_) }), "{result:?}");
}

/// A gate that passes. From then on every write to the transport fails.
struct BreaksTransport(Counting);

impl Gate for BreaksTransport {
    fn decide(&mut self) -> GateAnswer {
        self.0.written.lock().fails_after = Some(0);
        self.0.decide()
    }
}

#[tokio::test]
async fn panicking_gate_counts_as_closed() {
    struct Panicking;
    impl Gate for Panicking {
        fn decide(&mut self) -> GateAnswer {
            panic!("the journal is upside down")
        }
    }
    let exchange = Exchange::new(willing());
    let mut session = exchange.session().await.expect("a session");
    let result = session.run_transaction(&mail(b"hello\r\n"), &mut Panicking, &Deadlines::default(), None).await;
    assert!(
        matches!(&result, DialogueResult::Broken { stage: Stage::Body, cause: Cause::Panicked(text) } if text.contains("upside")),
        "{result:?}"
    );
    assert!(!session.is_open());
    assert!(exchange.written.lock().bytes.ends_with(b"DATA\r\n"), "nothing was written after DATA");
}

#[tokio::test]
async fn unaccepted_final_dot_is_in_doubt_after_timeout() {
    // The buffer is exactly full when the gate has passed, and the peer does not read.
    let exchange =
        Exchange { buffer: 8_192, ..Exchange::new(when(ServerStep::Data, ServerAction::Reply("354 go on\r\n"))) };
    let timeouts = Timeouts { dot: Duration::from_millis(50), ..Timeouts::default() };
    let hang = Exchange { script: when(ServerStep::InText, ServerAction::Hang), ..exchange };
    let mut session = hang.session_within(timeouts).await.expect("a session");
    let mut gate = Counting::open(&hang);
    // The server reads up to 4,096 bytes at once and then hangs. The remaining bytes exactly fill the buffer.
    let result = session
        .run_transaction(&mail(&b"0123456789abcd\r\n".repeat(768)), &mut gate, &Deadlines::default(), None)
        .await;
    assert!(matches!(result, DialogueResult::InDoubt { cause: Cause::TimedOut }), "{result:?}");
    assert_eq!(gate.times_met(), 1);
}
