//! Suggests how to fix a relay that a probe could not use: a command, if one fixes it.
//!
//! The probe calls it. The problem says which setting must change ([`Fix`]). The suggested command changes that setting
//! and keeps all others, quoted for a shell.

use std::borrow::Cow;
use std::fmt::Write;

use reveille_cluster::smtp::{Cause, DialogueResult, Fix, Stage};
use reveille_ledger::DEFAULT_POOL;
use reveille_ledger::access::{Access, Tls, Trust};
use reveille_ledger::command::Relay;

/// The usual port for TLS from the first byte (RFC 8314).
const IMPLICIT_PORT: u16 = 465;

/// Returns the next step after a session that did not open.
pub fn of(result: &DialogueResult, relay: &Relay) -> String {
    let again = format!("reveille relay test {}", relay.name);
    match result {
        DialogueResult::Broken { cause: Cause::Tls(problem) | Cause::Credentials(problem), .. } => {
            fix_of(problem.fix, relay, &again)
        }
        DialogueResult::Refused { stage, .. } | DialogueResult::Broken { stage, .. } => of_stage(*stage, relay, &again),
        DialogueResult::InDoubt { .. }
        | DialogueResult::GateClosed
        | DialogueResult::NoSmtpUtf8 { .. }
        | DialogueResult::Accepted { .. } => again,
    }
}

fn fix_of(fix: Fix, relay: &Relay, again: &str) -> String {
    let trust = relay.access.tls.trust().cloned().unwrap_or_default();
    let with = |tls: Tls| Relay { access: Access { tls, ..relay.access.clone() }, ..relay.clone() };
    let believing = |trust: Trust| with(renewed(&relay.access.tls, trust));
    match fix {
        Fix::TlsName => replace(&believing(Trust { name: Some("NAME".to_owned()), ..trust })),
        Fix::Ca => replace(&believing(Trust { ca: Some("FILE".to_owned()), ..trust })),
        Fix::CaFile => format!("fix that file on this node, then: {again}"),
        Fix::ImplicitTls => replace(&Relay { port: IMPLICIT_PORT, ..with(Tls::Implicit(trust)) }),
        Fix::StartTls if !matches!(relay.access.tls, Tls::StartTls(_)) => replace(&with(Tls::StartTls(trust))),
        Fix::LoginAfterStartTls => replace(&with(Tls::StartTls(trust))),
        Fix::NoLogin => {
            "ask the relay's operator which port takes a login: usual are 587 with --tls starttls, 465 with --tls implicit"
                .to_owned()
        }
        Fix::Reference => format!("correct [credentials] in this node's configuration, then: {again} --auth"),
        Fix::StartTls | Fix::Relay => format!("see to it at the relay, then: {again}"),
    }
}

fn renewed(tls: &Tls, trust: Trust) -> Tls {
    match tls {
        Tls::None => Tls::None,
        Tls::StartTls(_) => Tls::StartTls(trust),
        Tls::Implicit(_) => Tls::Implicit(trust),
    }
}

fn of_stage(stage: Stage, relay: &Relay, again: &str) -> String {
    let words = match stage {
        Stage::Connect => {
            let (host, port) = (quoted(&relay.host), relay.port);
            let other = replace(&Relay { host: "HOST".to_owned(), ..relay.clone() });
            return format!(
                "check that this node reaches {host}, port {port}, then: {again}; with another host: {other}"
            );
        }
        Stage::Banner if relay.port == IMPLICIT_PORT && !matches!(relay.access.tls, Tls::Implicit(_)) => {
            let tls = Tls::Implicit(relay.access.tls.trust().cloned().unwrap_or_default());
            return replace(&Relay { access: Access { tls, ..relay.access.clone() }, ..relay.clone() });
        }
        Stage::Banner => {
            "the relay may refuse this node's address; a port of implicit TLS accepts no plaintext connection"
        }
        Stage::Tls => "look into the relay's log; its TLS may not be set up",
        Stage::Auth => "check the user and the password that this node reads, and that the relay knows them",
        _ => "look into the relay's log",
    };
    format!("{words}; then: {again}")
}

/// Returns the command that replaces the relay of that name with `relay`.
fn replace(relay: &Relay) -> String {
    let mut command =
        format!("reveille relay add {} --replace --host {} --port {}", relay.name, quoted(&relay.host), relay.port);
    let mut add = |flag: &str, value: &dyn std::fmt::Display| {
        // Writing to a String cannot fail.
        let _ = write!(command, " --{flag} {}", quoted(&value.to_string()));
    };
    if relay.pool != DEFAULT_POOL {
        add("pool", &relay.pool);
    }
    add(
        "tls",
        &match relay.access.tls {
            Tls::None => "none",
            Tls::StartTls(_) => "starttls",
            Tls::Implicit(_) => "implicit",
        },
    );
    let trust = relay.access.tls.trust();
    trust.iter().filter_map(|trust| trust.name.as_ref()).for_each(|name| add("tls-name", name));
    trust.iter().filter_map(|trust| trust.ca.as_ref()).for_each(|ca| add("ca", ca));
    relay.access.credentials.iter().for_each(|name| add("credentials", name));
    for (flag, milli) in [("rate", relay.rate_milli), ("late-rate", relay.late_rate_milli)] {
        if milli > 0 {
            add(flag, &(milli as f64 / 1_000.0));
        }
    }
    add("sessions", &relay.max_sessions);
    if relay.weight > 1 {
        add("weight", &relay.weight);
    }
    command
}

/// Quotes any text as one word for a shell.
fn quoted(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("'{}'", text.replace('\'', r"'\''"))),
    }
}

#[cfg(test)]
pub mod tests {
    use reveille_cluster::smtp::SetupProblem;

    use super::*;

    /// Returns a relay without TLS.
    pub fn relay() -> Relay {
        Relay {
            name: "main".into(),
            pool: DEFAULT_POOL.into(),
            host: "127.0.0.1".into(),
            port: 25,
            access: Access::default(),
            rate_milli: 0,
            max_sessions: 10,
            late_rate_milli: 0,
            weight: 1,
        }
    }

    fn secured(tls: fn(Trust) -> Tls, port: u16) -> Relay {
        let access = Access { tls: tls(Trust::default()), credentials: None };
        Relay { port, access, pool: "bulk".into(), rate_milli: 1_500, ..relay() }
    }

    fn broken(stage: Stage, cause: Cause) -> DialogueResult {
        DialogueResult::Broken { stage, cause }
    }

    #[test]
    fn each_failure_has_a_next_step_that_fixes_it() {
        // The next step does not depend on the text of the problem.
        let problem = |fix| SetupProblem { message: "something is wrong".to_owned(), fix };
        let tls = |fix| broken(Stage::Tls, Cause::Tls(problem(fix)));
        let login = |fix| broken(Stage::Auth, Cause::Credentials(problem(fix)));
        let (starttls, implicit) = (secured(Tls::StartTls, 587), secured(Tls::Implicit, 587));
        let silent = broken(Stage::Banner, Cause::TimedOut);
        let all = "reveille relay add main --replace --host 127.0.0.1 --port 587 --pool bulk --tls";
        for (result, relay, next) in [
            (
                broken(Stage::Connect, Cause::Dial("Name or service not known".to_owned())),
                &relay(),
                "check that this node reaches 127.0.0.1, port 25, then: reveille relay test main; with another host: \
                 reveille relay add main --replace --host HOST --port 25 --tls none --sessions 10"
                    .to_owned(),
            ),
            (tls(Fix::TlsName), &starttls, format!("{all} starttls --tls-name NAME --rate 1.5 --sessions 10")),
            (tls(Fix::Ca), &implicit, format!("{all} implicit --ca FILE --rate 1.5 --sessions 10")),
            (tls(Fix::StartTls), &implicit, format!("{all} starttls --rate 1.5 --sessions 10")),
            (
                tls(Fix::ImplicitTls),
                &starttls,
                "reveille relay add main --replace --host 127.0.0.1 --port 465 --pool bulk --tls implicit --rate 1.5 \
                 --sessions 10"
                    .to_owned(),
            ),
            (tls(Fix::StartTls), &starttls, "see to it at the relay, then: reveille relay test main".to_owned()),
            (tls(Fix::CaFile), &implicit, "fix that file on this node, then: reveille relay test main".to_owned()),
            (tls(Fix::Relay), &implicit, "see to it at the relay, then: reveille relay test main".to_owned()),
            (
                login(Fix::LoginAfterStartTls),
                &relay(),
                "reveille relay add main --replace --host 127.0.0.1 --port 25 --tls starttls --sessions 10".to_owned(),
            ),
            (
                login(Fix::Reference),
                &implicit,
                "correct [credentials] in this node's configuration, then: reveille relay test main --auth".to_owned(),
            ),
            (
                silent,
                &Relay { port: 465, ..relay() },
                "reveille relay add main --replace --host 127.0.0.1 --port 465 --tls implicit --sessions 10".to_owned(),
            ),
        ] {
            assert_eq!(of(&result, relay), next, "{result:?}");
        }
    }

    #[test]
    fn command_is_one_that_a_shell_takes_as_it_is_meant() {
        let trust = Trust { ca: Some("/etc/Our CA/it's.pem".to_owned()), name: None };
        let credentials = Some("$(reboot)".to_owned());
        let odd = Relay { host: "a;b".into(), access: Access { tls: Tls::StartTls(trust), credentials }, ..relay() };
        let next =
            of(&broken(Stage::Tls, Cause::Tls(SetupProblem { message: String::new(), fix: Fix::TlsName })), &odd);
        assert_eq!(
            next,
            "reveille relay add main --replace --host 'a;b' --port 25 --tls starttls --tls-name NAME \
             --ca '/etc/Our CA/it'\\''s.pem' --credentials '$(reboot)' --sessions 10"
        );
    }
}
