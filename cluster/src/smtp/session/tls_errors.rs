//! Descriptions of what is wrong with a relay's TLS, with the next step and the setting that fixes it.
//!
//! [`super::tls`] calls this after a failed handshake. The text is shown in `relay test` and in the cause of an open
//! circuit. No code decides by it.

use std::io;

use jiff::Timestamp;
use rustls::{CertificateError, Error, InvalidMessage, ProtocolVersion, pki_types::UnixTime};

use crate::smtp::cause::{Fix, SetupProblem};

/// Describes a failed handshake with a peer that should have been `name`. `ca` is the trusted CA file, or `None` for
/// the system's roots.
pub(crate) fn problem(error: &io::Error, name: &str, ca: Option<&str>) -> SetupProblem {
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                Fix::StartTls.because("the relay closed the connection during the handshake; does this port speak TLS?")
            }
            _ => Fix::Relay.because(format!("the connection failed during the handshake: {error}")),
        };
    };
    match error {
        Error::InvalidCertificate(problem) => certificate(problem, name, ca),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => Fix::StartTls
            .because("what answers does not speak TLS here; implicit is usual on port 465, starttls on 25 and 587"),
        Error::AlertReceived(alert) => Fix::Relay.because(format!("the relay refused the handshake: {alert:?}")),
        Error::PeerIncompatible(why) => {
            Fix::Relay.because(format!("the relay speaks no TLS that is safe (1.2 or 1.3): {why:?}"))
        }
        other => Fix::Relay.because(other.to_string()),
    }
}

fn certificate(problem: &CertificateError, name: &str, ca: Option<&str>) -> SetupProblem {
    match problem {
        // A bad signature means a CA of the same name with another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Fix::Ca.because(match ca {
            Some(path) => {
                format!("the relay's certificate is not signed by the CA in {path}; name the one that did")
            }
            None => "the relay's certificate is signed by no CA that this system trusts; name its CA".to_owned(),
        }),
        CertificateError::NotValidForNameContext { presented, .. } => {
            // The names have the form `DnsName("a.example")`.
            let names = presented.iter().map(|shown| shown.split('"').nth(1).unwrap_or(shown)).collect::<Vec<_>>();
            let names: String = names.join(", ").chars().filter(|one| !one.is_control()).take(300).collect();
            let names = if names.is_empty() { "no name".to_owned() } else { names };
            let words = format!("the relay's certificate is for {names}, not for {name}; name what it is for");
            Fix::TlsName.because(words)
        }
        other => Fix::Relay.because(at_the_relay(other)),
    }
}

fn at_the_relay(problem: &CertificateError) -> String {
    match problem {
        CertificateError::ExpiredContext { not_after, .. } => {
            format!(
                "the relay's certificate expired at {}; renew it there, or check this node's clock",
                when(*not_after)
            )
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("the relay's certificate is valid from {}; check this node's clock", when(*not_before))
        }
        CertificateError::Other(why) if why.to_string().contains("CaUsedAsEndEntity") => {
            "the relay shows a CA's certificate as its own; give it one that the CA signed".to_owned()
        }
        CertificateError::Revoked => "the relay's certificate was revoked; renew it there".to_owned(),
        other => format!("the relay's certificate is not valid: {other}"),
    }
}

fn when(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |at| at.to_string())
}

/// Returns the usual name of a protocol version.
pub(crate) fn version(version: ProtocolVersion) -> String {
    match version {
        ProtocolVersion::TLSv1_3 => "TLS 1.3".to_owned(),
        ProtocolVersion::TLSv1_2 => "TLS 1.2".to_owned(),
        other => format!("{other:?}"),
    }
}
