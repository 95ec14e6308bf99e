//! Certificate and key for clients that the operator keeps as files, such as those of a company's authority.
//!
//! They are read at the start, and again when one of them changes. A pair that cannot be used, or has expired, changes
//! nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::BasicConstraints;

use super::TlsError;
use super::connection::serving_chain;

/// A certificate with its chain, and its key, as PEM files.
pub struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    current: Mutex<Pair>,
}

struct Pair {
    /// Higher after each change.
    generation: u64,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// When the files were changed last. `None`: the last reading failed, and is repeated.
    changed: Option<[SystemTime; 2]>,
}

impl CertificateFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`] if one cannot be read, the key is not the certificate's, or the certificate is an authority's.
    pub fn read(certificate: PathBuf, key: PathBuf) -> Result<CertificateFiles, TlsError> {
        let current = Mutex::new(pair(&certificate, &key)?);
        Ok(CertificateFiles { certificate, key, current })
    }

    /// Reads the files again if one has changed. Returns true if clients get another certificate from now on.
    ///
    /// # Errors
    /// As [`CertificateFiles::read`]; the former pair stays.
    pub fn read_changed(&self) -> Result<bool, TlsError> {
        let changed = changed(&self.certificate, &self.key).ok();
        let former = self.current.lock().changed;
        if former.is_some() && former == changed {
            return Ok(false);
        }
        let read = pair(&self.certificate, &self.key);
        let mut current = self.current.lock();
        current.changed = None;
        let (generation, read) = (current.generation + 1, read?);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if expires_at_s(&read.chain).is_some_and(|expires| expires <= now.as_secs()) {
            return Err(TlsError::Library(format!("{}: it has expired", self.certificate.display())));
        }
        *current = Pair { generation, ..read };
        Ok(true)
    }

    /// Returns when the present certificate expires, in seconds since 1970. `None`: it cannot be read.
    pub fn expires_at_s(&self) -> Option<u64> {
        expires_at_s(&self.current.lock().chain)
    }

    /// Returns a number that is higher after each change.
    pub(super) fn generation(&self) -> u64 {
        self.current.lock().generation
    }

    /// Returns an acceptor with the present pair, and its generation.
    pub(super) fn acceptor(&self, protocols: &[&str]) -> Result<(u64, TlsAcceptor), TlsError> {
        let current = self.current.lock();
        let acceptor = serving_chain(current.chain.clone(), current.key.clone_key(), protocols)?;
        Ok((current.generation, acceptor))
    }
}

fn expires_at_s(chain: &[CertificateDer<'static>]) -> Option<u64> {
    let certificate = Certificate::from_der(chain.first()?).ok()?;
    Some(certificate.tbs_certificate.validity.not_after.to_unix_duration().as_secs())
}

/// Returns true if the first certificate is one of an authority, which clients refuse as a server's own.
fn is_of_authority(chain: &[CertificateDer<'static>]) -> bool {
    let certificate = chain.first().and_then(|first| Certificate::from_der(first).ok());
    let constraints = certificate.and_then(|own| own.tbs_certificate.get::<BasicConstraints>().ok().flatten());
    constraints.is_some_and(|(_, constraints)| constraints.ca)
}

fn changed(certificate: &Path, key: &Path) -> Result<[SystemTime; 2], TlsError> {
    let of = |path: &Path| {
        let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
        changed.map_err(|error| TlsError::File { path: path.to_owned(), error })
    };
    Ok([of(certificate)?, of(key)?])
}

fn pair(certificate: &Path, key: &Path) -> Result<Pair, TlsError> {
    // Before reading: a change meanwhile is found by the next check.
    let changed = Some(changed(certificate, key)?);
    let read = |path: &Path| fs::read(path).map_err(|error| TlsError::File { path: path.to_owned(), error });
    let of = |path: &Path, why: &dyn std::fmt::Display| TlsError::Library(format!("{}: {why}", path.display()));
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(certificate)?).collect();
    let chain = chain.map_err(|error| of(certificate, &error))?;
    if chain.is_empty() {
        return Err(of(certificate, &"no certificate"));
    }
    if is_of_authority(&chain) {
        let why = "its first certificate is an authority's (basicConstraints CA:TRUE), which clients refuse; name one \
                   that the authority has signed, with CA:FALSE";
        return Err(of(certificate, &why));
    }
    let private = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| of(key, &error))?;
    serving_chain(chain.clone(), private.clone_key(), &[]).map_err(|error| of(certificate, &error))?;
    Ok(Pair { generation: 0, chain, key: private, changed })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    fn write(path: &Path, text: &str, second: u64) {
        fs::write(path, text).expect("written");
        let file = fs::File::options().write(true).open(path).expect("a file");
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(second)).expect("a time");
    }

    fn issued() -> (String, String) {
        issued_until(2100)
    }

    fn issued_until(year: i32) -> (String, String) {
        issued_as(IsCa::NoCa, year)
    }

    fn issued_as(is_ca: IsCa, year: i32) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut certificate = CertificateParams::new(vec!["a.example.com".to_owned()]).expect("a name");
        certificate.not_after = rcgen::date_time_ymd(year, 1, 1);
        certificate.is_ca = is_ca;
        (certificate.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
    }

    #[test]
    fn changed_pair_is_used_and_broken_one_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (certificate, key) = (folder.path().join("a.crt"), folder.path().join("a.key"));
        let ((first, first_key), (second, second_key)) = (issued(), issued());
        write(&certificate, &first, 1);
        assert!(CertificateFiles::read(certificate.clone(), key.clone()).is_err(), "no key");
        write(&key, &first_key, 1);
        let files = CertificateFiles::read(certificate.clone(), key.clone()).expect("a pair");
        let generation = || files.acceptor(&[]).expect("usable").0;
        assert_eq!((files.read_changed().expect("no change"), generation()), (false, 0));
        write(&certificate, &second, 2);
        for _ in 0..2 {
            let mismatch = files.read_changed().expect_err("another key").to_string();
            assert!(mismatch.contains("a.crt"), "{mismatch}");
            assert_eq!(generation(), 0, "clients get the former one");
        }
        write(&key, &second_key, 2);
        assert!(files.read_changed().expect("a pair"));
        assert_eq!(generation(), 1);
        let (expired, expired_key) = issued_until(2020);
        write(&key, &expired_key, 3);
        write(&certificate, &expired, 3);
        let refused = files.read_changed().expect_err("a pair of another time").to_string();
        assert!(refused.contains("a.crt: it has expired") && generation() == 1, "{refused}");
        write(&key, &second_key, 2);
        write(&certificate, "damaged", 3);
        assert!(files.read_changed().is_err() && generation() == 1);
        write(&certificate, &second, 3);
        assert!(files.read_changed().is_ok_and(|changed| changed));
    }

    /// `openssl req -x509` makes such certificates.
    #[test]
    fn certificate_of_an_authority_is_refused_at_load_and_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (certificate, key) = (folder.path().join("a.crt"), folder.path().join("a.key"));
        let (authority, authority_key) = issued_as(IsCa::Ca(BasicConstraints::Unconstrained), 2100);
        write(&certificate, &authority, 1);
        write(&key, &authority_key, 1);
        let refused = CertificateFiles::read(certificate.clone(), key.clone()).err().expect("refused").to_string();
        assert!(refused.contains("a.crt") && refused.contains("CA:TRUE"), "{refused}");
        for usable in [IsCa::NoCa, IsCa::ExplicitNoCa] {
            let (own, own_key) = issued_as(usable, 2100);
            write(&certificate, &own, 1);
            write(&key, &own_key, 1);
            let files = CertificateFiles::read(certificate.clone(), key.clone()).expect("a pair");
            write(&certificate, &authority, 2);
            write(&key, &authority_key, 2);
            let refused = files.read_changed().expect_err("an authority's").to_string();
            assert!(refused.contains("CA:TRUE") && files.generation() == 0, "{refused}");
            // The authority's certificate may follow in the chain.
            write(&certificate, &format!("{own}{authority}"), 3);
            write(&key, &own_key, 3);
            assert!(files.read_changed().is_ok_and(|changed| changed));
        }
    }
}
