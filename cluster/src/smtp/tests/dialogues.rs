//! Tests of one session: every stage refused, lost or silent, and the state of the session afterwards.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::server::{
    Counting, Exchange, Script, ServerAction, ServerStep, mail, script, stepwise, until, when, willing,
};
use crate::smtp::cause::Cause;
use crate::smtp::gate::{Gate, GateAnswer};
use crate::smtp::replies::classification::ReplyClass;
use crate::smtp::replies::dialogue_result::DialogueResult;
use crate::smtp::session::deadlines::{Deadlines, Timeouts};
use crate::smtp::session::envelope::{Email, Extensions};
use crate::smtp::stage::Stage;

const SHORT: Duration = Duration::from_millis(40);

async fn deliver_once(script: Script, timeouts: Timeouts) -> (DialogueResult, Exchange, usize) {
    let exchange = Exchange::new(script);
    let mut gate = Counting::open(&exchange);
    let result = match exchange.session_within(timeouts).await {
        Ok(mut session) => session.run_transaction(&mail(b"hello\r\n"), &mut gate, &Deadlines::default(), None).await,
        Err(result) => *result,
    };
    let met = gate.times_met();
    (result, exchange, met)
}

fn all_short() -> Timeouts {
    Timeouts { opening: SHORT, envelope: SHORT, data: SHORT, dot: SHORT, ..Timeouts::default() }
}

fn stage_of(step: ServerStep) -> Stage {
    match step {
        ServerStep::Banner => Stage::Banner,
        ServerStep::Ehlo => Stage::Ehlo,
        ServerStep::Mail => Stage::Mail,
        ServerStep::Rcpt => Stage::Rcpt,
        ServerStep::Data => Stage::Data,
        _ => Stage::Answered,
    }
}

const QUESTIONS: [ServerStep; 6] =
    [ServerStep::Banner, ServerStep::Ehlo, ServerStep::Mail, ServerStep::Rcpt, ServerStep::Data, ServerStep::Dot];

#[tokio::test]
async fn ehlo_not_understood_falls_back_to_helo() {
    for refusal in ["500 what\r\n", "502 5.5.1 not implemented\r\n", "504 5.5.2 no\r\n"] {
        let exchange = Exchange::new(when(ServerStep::Ehlo, ServerAction::Reply(refusal)));
        let mut session = exchange.session().await.expect("a session");
        assert_eq!(session.extensions(), Extensions::default(), "nothing is offered");
        assert_eq!(exchange.commands(), ["EHLO node-1.example.org", "HELO node-1.example.org"]);
        let beyond = Email { to: "bj\u{f8}rn@example.com".to_owned(), ..mail(b"x") };
        let result =
            session.run_transaction(&beyond, &mut Counting::open(&exchange), &Deadlines::default(), None).await;
        assert_eq!(result, DialogueResult::NoSmtpUtf8 { asked: false }, "it may have SMTPUTF8");
    }
    let exchange = Exchange::new(when(ServerStep::Ehlo, ServerAction::Reply("554 5.3.2 no service\r\n")));
    assert!(exchange.session().await.is_err(), "a refusal of the service is none of the command");
}

#[tokio::test]
async fn refusal_is_definite_at_every_stage() {
    for step in QUESTIONS {
        for words in ["451 4.3.0 later\r\n", "554 5.3.0 never\r\n", "421 4.3.2 going down\r\n", "571 no\r\n", "450\r\n"]
        {
            for action in [ServerAction::Reply(words), ServerAction::ReplyAndClose(words)] {
                for script in [when(step, action.clone()), stepwise(when(step, action.clone()))] {
                    let (result, _, met) = deliver_once(script, Timeouts::default()).await;
                    let DialogueResult::Refused { stage, code, .. } = &result else {
                        panic!("{step:?} {words}: {result:?}")
                    };
                    assert_eq!((*stage, code.to_string().as_str()), (stage_of(step), &words[..3]));
                    assert_eq!(met, usize::from(step == ServerStep::Dot));
                }
            }
        }
    }
}

#[tokio::test]
async fn loss_is_in_doubt_only_after_the_dot() {
    let actions = [
        (ServerAction::Close, Timeouts::default()),
        (ServerAction::Hang, all_short()),
        (ServerAction::ReplyAndClose("25"), Timeouts::default()),
        (ServerAction::ReplyAndClose("250-half an answer\r\n"), Timeouts::default()),
        (ServerAction::Reply("hello?\r\n"), Timeouts::default()),
        (ServerAction::Reply("250-one\r\n550 another\r\n"), Timeouts::default()),
        (ServerAction::Flood(100_000), Timeouts::default()),
    ];
    for step in QUESTIONS {
        for (action, timeouts) in &actions {
            for script in [when(step, action.clone()), stepwise(when(step, action.clone()))] {
                let (result, _, met) = deliver_once(script, *timeouts).await;
                match &result {
                    DialogueResult::InDoubt { .. } => {
                        assert_eq!(step, ServerStep::Dot, "{action:?}: {result:?}")
                    }
                    DialogueResult::Broken { stage, .. } => {
                        assert_eq!(*stage, stage_of(step), "{action:?}: {result:?}")
                    }
                    other => panic!("{step:?} {action:?}: {other:?}"),
                }
                assert_eq!(met, usize::from(step == ServerStep::Dot));
            }
        }
    }
}

#[tokio::test]
async fn wrong_kind_of_answer_is_out_of_step() {
    let wrong = [
        (ServerStep::Banner, "354 go on\r\n"),
        (ServerStep::Mail, "354 go on\r\n"),
        (ServerStep::Rcpt, "354 go on\r\n"),
        (ServerStep::Data, "250 fine\r\n"),
        (ServerStep::Dot, "354 go on\r\n"),
    ];
    for (step, words) in wrong {
        for script in [when(step, ServerAction::Reply(words)), stepwise(when(step, ServerAction::Reply(words)))] {
            let (result, _, _) = deliver_once(script, Timeouts::default()).await;
            let cause = match &result {
                DialogueResult::Broken { stage, cause } if *stage == stage_of(step) => cause,
                DialogueResult::Broken { stage: Stage::Ehlo, cause } if step == ServerStep::Banner => cause,
                DialogueResult::InDoubt { cause } if step == ServerStep::Dot => cause,
                other => panic!("{step:?}: {other:?}"),
            };
            assert!(matches!(cause, Cause::OutOfStep(_)), "{step:?}: {cause:?}");
        }
    }
}

#[tokio::test]
async fn bare_codes_are_enough_everywhere() {
    static BARE: [(ServerStep, ServerAction); 6] = [
        (ServerStep::Banner, ServerAction::Reply("220\r\n")),
        (ServerStep::Ehlo, ServerAction::Reply("250\r\n")),
        (ServerStep::Mail, ServerAction::Reply("250\r\n")),
        (ServerStep::Rcpt, ServerAction::Reply("250\r\n")),
        (ServerStep::Data, ServerAction::Reply("354\r\n")),
        (ServerStep::Dot, ServerAction::Reply("250\r\n")),
    ];
    let (result, exchange, met) = deliver_once(script(&BARE), Timeouts::default()).await;
    assert_eq!(result, DialogueResult::Accepted { code: 250, text: String::new() });
    assert_eq!((exchange.seen.lock().accepted.len(), met), (1, 1));
}

#[tokio::test]
async fn unusual_greeting_and_ehlo_are_understood() {
    static STRANGE: [(ServerStep, ServerAction); 2] = [
        (ServerStep::Banner, ServerAction::Reply("220-\u{fc}\r\n220-\r\n220 hi\r\n")),
        (
            ServerStep::Ehlo,
            ServerAction::Reply("250-relay\r\n250-pipelining\r\n250-SIZE 1\r\n250-X-UNKNOWN a b\r\n250 8bitmime\r\n"),
        ),
    ];
    let exchange = Exchange::new(script(&STRANGE));
    let session = exchange.session().await.expect("a session");
    assert!(session.extensions().pipelining);
    assert!(!session.extensions().utf8);
    assert_eq!(exchange.commands(), ["EHLO node-1.example.org"]);
}

#[tokio::test]
async fn banner_of_ten_megabytes_is_refused_early() {
    let (result, exchange, _) =
        deliver_once(when(ServerStep::Banner, ServerAction::Flood(10_000_000)), Timeouts::default()).await;
    assert_eq!(result, DialogueResult::Broken { stage: Stage::Banner, cause: Cause::ReplyTooLong });
    until("the connection is closed", || exchange.seen.lock().open == 0).await;
}

#[tokio::test]
async fn pipelined_email_with_short_text_takes_two_writes() {
    let exchange = Exchange::new(willing());
    let mut session = exchange.session().await.expect("a session");
    let before = exchange.written.lock().writes;
    let result =
        session.run_transaction(&mail(b"hello\r\n"), &mut Counting::open(&exchange), &Deadlines::default(), None).await;
    assert!(matches!(result, DialogueResult::Accepted { .. }));
    assert_eq!(exchange.written.lock().writes - before, 2, "the offer; the text with its final dot");
    session.run_transaction(&mail(b"hello\r\n"), &mut Counting::open(&exchange), &Deadlines::default(), None).await;
    assert_eq!(exchange.written.lock().writes - before, 4);
    assert!(!exchange.commands().contains(&"RSET".to_owned()), "there was nothing to reset");
}

#[tokio::test]
async fn without_pipelining_each_command_waits_for_its_answer() {
    let (result, exchange, _) =
        deliver_once(stepwise(when(ServerStep::Rcpt, ServerAction::Reply("550 5.1.1 no\r\n"))), Timeouts::default())
            .await;
    assert!(matches!(result, DialogueResult::Refused { stage: Stage::Rcpt, class: ReplyClass::Recipient, .. }));
    assert_eq!(
        exchange.commands(),
        ["EHLO node-1.example.org", "MAIL FROM:<news@example.org>", "RCPT TO:<anna@example.com>"],
        "DATA was never said"
    );
}

#[tokio::test]
async fn refused_recipient_does_not_affect_next_email() {
    for step_by_step in [false, true] {
        let refuse_first: Script = Arc::new(|step, _| match step {
            ServerStep::Data => Some(ServerAction::Reply("554 5.5.1 no valid recipients\r\n")),
            ServerStep::Rcpt => Some(ServerAction::Reply("550 5.1.1 no such user\r\n")),
            _ => None,
        });
        let mut exchange = Exchange::new(if step_by_step { stepwise(refuse_first) } else { refuse_first });
        let mut session = exchange.session().await.expect("a session");
        let mut gate = Counting::open(&exchange);
        for _ in 0..2 {
            let result = session.run_transaction(&mail(b"hello\r\n"), &mut gate, &Deadlines::default(), None).await;
            assert!(
                matches!(result, DialogueResult::Refused { code: 550, class: ReplyClass::Recipient, .. }),
                "{result:?}"
            );
        }
        assert_eq!(exchange.commands().iter().filter(|line| *line == "RSET").count(), 1, "before the second");
        exchange.script = willing();
        assert_eq!(gate.times_met(), 0);
    }
}

#[tokio::test]
async fn our_own_refusals_do_not_touch_the_wire() {
    let exchange = Exchange::new(stepwise(willing()));
    let mut session = exchange.session().await.expect("a session");
    let written = exchange.written.lock().bytes.len();
    let mut gate = Counting::open(&exchange);
    let utf8 = Email { to: "bj\u{f8}rn@example.com".to_owned(), ..mail(b"x") };
    assert_eq!(
        session.run_transaction(&utf8, &mut gate, &Deadlines::default(), None).await,
        DialogueResult::NoSmtpUtf8 { asked: true }
    );
    let bad = Email { to: "no address".to_owned(), ..mail(b"x") };
    let result = session.run_transaction(&bad, &mut gate, &Deadlines::default(), None).await;
    assert!(matches!(result, DialogueResult::Refused { .. }), "{result:?}");
    assert_eq!(exchange.written.lock().bytes.len(), written);
    assert!(session.is_open());
}

#[tokio::test]
async fn late_answer_counts() {
    let late: Script = Arc::new(|step, _| {
        if step == ServerStep::Dot {
            std::thread::sleep(Duration::from_millis(100));
        }
        None
    });
    let timeouts = Timeouts { envelope: Duration::from_secs(60), ..Timeouts::default() };
    let (result, _, _) = deliver_once(late, timeouts).await;
    assert!(matches!(result, DialogueResult::Accepted { .. }));
}

#[tokio::test]
async fn farewell_after_answer_is_fine_and_other_bytes_are_doubtful() {
    for words in ["250 queued\r\n421 4.3.2 that was enough\r\n", "250 queued\r\n42"] {
        let (result, _, _) = deliver_once(when(ServerStep::Dot, ServerAction::Reply(words)), Timeouts::default()).await;
        assert!(matches!(result, DialogueResult::Accepted { .. }), "{result:?}");
    }
    let (result, _, _) =
        deliver_once(when(ServerStep::Dot, ServerAction::Reply("250 a\r\n550 b\r\n")), Timeouts::default()).await;
    assert!(matches!(result, DialogueResult::InDoubt { cause: Cause::OutOfStep(_) }), "{result:?}");
}

#[tokio::test]
async fn relay_may_close_between_emails() {
    let exchange = Exchange::new(when(ServerStep::Dot, ServerAction::ReplyAndClose("250 queued\r\n")));
    let mut session = exchange.session().await.expect("a session");
    let mut gate = Counting::open(&exchange);
    assert!(matches!(
        session.run_transaction(&mail(b"a"), &mut gate, &Deadlines::default(), None).await,
        DialogueResult::Accepted { .. }
    ));
    until("the server has left", || exchange.seen.lock().open == 0).await;
    let result = session.run_transaction(&mail(b"b"), &mut gate, &Deadlines::default(), None).await;
    assert_eq!(result, DialogueResult::Broken { stage: Stage::Mail, cause: Cause::ClosedBetweenEmails });
    assert_eq!(gate.times_met(), 1);
}

#[tokio::test]
async fn farewell_between_emails_is_seen_before_the_next() {
    let exchange = Exchange::new(when(ServerStep::Dot, ServerAction::Reply("250 queued\r\n421 enough\r\n")));
    let mut session = exchange.session().await.expect("a session");
    session.run_transaction(&mail(b"a"), &mut Counting::open(&exchange), &Deadlines::default(), None).await;
    assert!(!session.is_still_usable().await);
}

#[tokio::test]
async fn quit_is_sent_between_emails() {
    let exchange = Exchange::new(willing());
    let mut session = exchange.session().await.expect("a session");
    session.run_transaction(&mail(b"a"), &mut Counting::open(&exchange), &Deadlines::default(), None).await;
    session.quit().await;
    until("the server has left", || exchange.seen.lock().open == 0).await;
    assert_eq!(exchange.commands().last().map(String::as_str), Some("QUIT"));
}

#[tokio::test]
async fn deadline_of_caller_ends_dialogue_before_gate() {
    let exchange = Exchange::new(when(ServerStep::Mail, ServerAction::Hang));
    let mut session = exchange.session().await.expect("a session");
    let deadlines = Deadlines { gate_by: Some(Instant::now() + SHORT), ..Deadlines::default() };
    let result = session.run_transaction(&mail(b"a"), &mut Counting::open(&exchange), &deadlines, None).await;
    assert_eq!(result, DialogueResult::Broken { stage: Stage::Mail, cause: Cause::NotBegunInTime });
    assert!(!session.is_open());
}

#[tokio::test]
async fn cancelled_dialogue_stops_before_gate_and_not_after_it() {
    struct Stopping(Deadlines);
    impl Gate for Stopping {
        fn decide(&mut self) -> GateAnswer {
            self.0.stop.cancel();
            GateAnswer::Pass
        }
    }
    let exchange = Exchange::new(willing());
    let mut session = exchange.session().await.expect("a session");
    let deadlines = Deadlines::default();
    let result = session.run_transaction(&mail(b"a"), &mut Stopping(deadlines.clone()), &deadlines, None).await;
    assert!(matches!(result, DialogueResult::Accepted { .. }), "past the gate it waits: {result:?}");
    let result = session.run_transaction(&mail(b"a"), &mut Counting::open(&exchange), &deadlines, None).await;
    assert_eq!(result, DialogueResult::Broken { stage: Stage::Mail, cause: Cause::Stopped });
}
