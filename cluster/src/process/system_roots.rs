//! The certificate authorities that this machine trusts.

use rustls::RootCertStore;

/// Reads the system's authorities.
///
/// # Errors
/// Returns why there are none.
pub(crate) fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    match roots.is_empty() {
        true => {
            let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
            Err(format!("this node has no system roots{why}; install ca-certificates"))
        }
        false => Ok(roots),
    }
}
