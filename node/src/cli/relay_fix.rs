//! Suggests how to fix a relay that a test could not use: a command, if one fixes it.
//!
//! `relay test` calls it. The answer of the node says which setting must change ([`RelayFix`]). The suggested command
//! changes that setting and keeps all others, quoted for a shell.

use std::borrow::Cow;
use std::fmt::Write;

use reveille_ledger::DEFAULT_POOL;
use reveille_proto::admin::v1::{Relay, RelayFix, RelayStage, RelayTls, TestRelayResponse};

/// The usual port for TLS from the first byte (RFC 8314).
const IMPLICIT_PORT: u32 = 465;

/// Returns the next step after a test that failed.
pub fn next_step(test: &TestRelayResponse) -> String {
    let relay = test.relay.clone().unwrap_or_default();
    let again = format!("reveille relay test {}", relay.name);
    let with = |tls: RelayTls| Relay { tls: tls.into(), ..relay.clone() };
    match test.fix() {
        RelayFix::TlsName => replace(&Relay { tls_name: "NAME".to_owned(), ..relay }),
        RelayFix::Ca => replace(&Relay { ca: "FILE".to_owned(), ..relay }),
        RelayFix::CaFile => format!("fix that file on this node, then: {again}"),
        RelayFix::ImplicitTls => replace(&Relay { port: IMPLICIT_PORT, ..with(RelayTls::Implicit) }),
        RelayFix::StartTls if relay.tls() != RelayTls::Starttls => replace(&with(RelayTls::Starttls)),
        RelayFix::LoginAfterStartTls => replace(&with(RelayTls::Starttls)),
        RelayFix::NoLogin => {
            "ask the relay's operator which port takes a login: usual are 587 with --tls starttls, 465 with --tls implicit"
                .to_owned()
        }
        RelayFix::Reference => format!("correct [credentials] in this node's configuration, then: {again} --authenticate"),
        RelayFix::StartTls | RelayFix::Relay => format!("see to it at the relay, then: {again}"),
        RelayFix::Unspecified => of_stage(test.stage(), &relay, &again),
    }
}

fn of_stage(stage: RelayStage, relay: &Relay, again: &str) -> String {
    let words = match stage {
        RelayStage::Connect => {
            let (host, port) = (quoted(&relay.host), relay.port);
            let other = replace(&Relay { host: "HOST".to_owned(), ..relay.clone() });
            return format!(
                "check that this node reaches {host}, port {port}, then: {again}; with another host: {other}"
            );
        }
        RelayStage::Greeting if relay.port == IMPLICIT_PORT && relay.tls() != RelayTls::Implicit => {
            return replace(&Relay { tls: RelayTls::Implicit.into(), ..relay.clone() });
        }
        RelayStage::Greeting => {
            "the relay may refuse this node's address; a port of implicit TLS accepts no plaintext connection"
        }
        RelayStage::Tls => "look into the relay's log; its TLS may not be set up",
        RelayStage::Auth => "check the user and the password that this node reads, and that the relay knows them",
        RelayStage::Ehlo | RelayStage::Mail | RelayStage::Unspecified => "look into the relay's log",
    };
    format!("{words}; then: {again}")
}

/// Returns the command that replaces the relay of that name with `relay`.
fn replace(relay: &Relay) -> String {
    let mut command =
        format!("reveille relay add {} --replace --host {} --port {}", relay.name, quoted(&relay.host), relay.port);
    let mut add = |flag: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = write!(command, " --{flag} {}", quoted(value));
    };
    let pool = if relay.pool == DEFAULT_POOL { "" } else { &relay.pool };
    let (tls, ca, tls_name) = match relay.tls() {
        RelayTls::None | RelayTls::Unspecified => ("none", "", ""),
        RelayTls::Starttls => ("starttls", relay.ca.as_str(), relay.tls_name.as_str()),
        RelayTls::Implicit => ("implicit", relay.ca.as_str(), relay.tls_name.as_str()),
    };
    let rate = |rate: f64| if rate > 0.0 { rate.to_string() } else { String::new() };
    let weight = if relay.weight > 1 { relay.weight.to_string() } else { String::new() };
    let flags = [
        ("pool", pool),
        ("tls", tls),
        ("tls-name", tls_name),
        ("ca", ca),
        ("credentials", &relay.credentials),
        ("rate-per-second", &rate(relay.rate_per_second)),
        ("late-rate-per-second", &rate(relay.late_rate_per_second)),
        ("max-sessions", &relay.max_sessions.to_string()),
        ("weight", &weight),
    ];
    flags.into_iter().filter(|(_, value)| !value.is_empty()).for_each(|(flag, value)| add(flag, value));
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
mod tests {
    use super::*;

    /// Returns a relay without TLS.
    fn relay() -> Relay {
        Relay {
            name: "main".into(),
            pool: DEFAULT_POOL.into(),
            host: "127.0.0.1".into(),
            port: 25,
            tls: RelayTls::None.into(),
            max_sessions: 10,
            weight: 1,
            ..Relay::default()
        }
    }

    fn next(stage: RelayStage, fix: RelayFix, relay: &Relay) -> String {
        let (stage, fix, relay) = (stage.into(), fix.into(), Some(relay.clone()));
        next_step(&TestRelayResponse { stage, fix, relay, ..TestRelayResponse::default() })
    }

    #[test]
    fn each_failure_has_a_next_step_that_fixes_it() {
        let secured =
            |tls: RelayTls| Relay { port: 587, tls: tls.into(), pool: "bulk".into(), rate_per_second: 1.5, ..relay() };
        let (starttls, implicit) = (secured(RelayTls::Starttls), secured(RelayTls::Implicit));
        let none = RelayFix::Unspecified;
        let all = "reveille relay add main --replace --host 127.0.0.1 --port 587 --pool bulk --tls";
        for (stage, fix, relay, expected) in [
            (
                RelayStage::Connect,
                none,
                &relay(),
                "check that this node reaches 127.0.0.1, port 25, then: reveille relay test main; with another host: \
                 reveille relay add main --replace --host HOST --port 25 --tls none --max-sessions 10"
                    .to_owned(),
            ),
            (
                RelayStage::Tls,
                RelayFix::TlsName,
                &starttls,
                format!("{all} starttls --tls-name NAME --rate-per-second 1.5 --max-sessions 10"),
            ),
            (RelayStage::Tls, RelayFix::Ca, &implicit, format!("{all} implicit --ca FILE --rate-per-second 1.5 --max-sessions 10")),
            (RelayStage::Tls, RelayFix::StartTls, &implicit, format!("{all} starttls --rate-per-second 1.5 --max-sessions 10")),
            (
                RelayStage::Tls,
                RelayFix::ImplicitTls,
                &starttls,
                "reveille relay add main --replace --host 127.0.0.1 --port 465 --pool bulk --tls implicit --rate-per-second 1.5 \
                 --max-sessions 10"
                    .to_owned(),
            ),
            (
                RelayStage::Tls,
                RelayFix::StartTls,
                &starttls,
                "see to it at the relay, then: reveille relay test main".to_owned(),
            ),
            (
                RelayStage::Tls,
                RelayFix::CaFile,
                &implicit,
                "fix that file on this node, then: reveille relay test main".to_owned(),
            ),
            (
                RelayStage::Auth,
                RelayFix::LoginAfterStartTls,
                &relay(),
                "reveille relay add main --replace --host 127.0.0.1 --port 25 --tls starttls --max-sessions 10".to_owned(),
            ),
            (
                RelayStage::Auth,
                RelayFix::Reference,
                &implicit,
                "correct [credentials] in this node's configuration, then: reveille relay test main --authenticate".to_owned(),
            ),
            (
                RelayStage::Greeting,
                none,
                &Relay { port: 465, ..relay() },
                "reveille relay add main --replace --host 127.0.0.1 --port 465 --tls implicit --max-sessions 10".to_owned(),
            ),
        ] {
            assert_eq!(next(stage, fix, relay), expected, "{stage:?} {fix:?}");
        }
    }

    #[test]
    fn command_is_one_that_a_shell_takes_as_it_is_meant() {
        let odd = Relay {
            host: "a;b".into(),
            tls: RelayTls::Starttls.into(),
            ca: "/etc/Our CA/it's.pem".into(),
            credentials: "$(reboot)".into(),
            ..relay()
        };
        assert_eq!(
            next(RelayStage::Tls, RelayFix::TlsName, &odd),
            "reveille relay add main --replace --host 'a;b' --port 25 --tls starttls --tls-name NAME \
             --ca '/etc/Our CA/it'\\''s.pem' --credentials '$(reboot)' --max-sessions 10"
        );
    }
}
