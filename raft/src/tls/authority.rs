//! A certificate authority of the cluster: one key, held by every member. The first is made with the cluster; each
//! later one succeeds the one before it.

use std::fmt;
use std::time::{Duration, SystemTime};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber, SignatureAlgorithm, date_time_ymd,
};
use reveille_ledger::ids::{AuthorityId, NodeId};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::ParsedCertificate;

use super::pem::{certificate, pem_of};
use super::{ANY_NODE, TlsError, node_name};
use crate::identity::ClusterId;

/// Bytes of an uncompressed point of P-256: a 4, then both coordinates (SEC 1, 2.3.3).
const POINT_BYTES: usize = 65;
const UNCOMPRESSED: u8 = 4;
/// A certificate for clients is valid for this time before and after its issue: clients may have another clock. Clients
/// of Apple accept at most 825 days.
pub(super) const VALID_FOR: Duration = Duration::from_secs(365 * 86_400);

/// Hash of a node's public key, in the form that a certificate contains (SubjectPublicKeyInfo in DER).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct KeyPin(pub [u8; 32]);

impl KeyPin {
    fn of(subject_public_key_info: &[u8]) -> KeyPin {
        KeyPin(*blake3::hash(subject_public_key_info).as_bytes())
    }

    /// Returns the hash of the key in a certificate; `None` if the certificate cannot be read.
    pub(super) fn of_certificate(certificate: &CertificateDer<'_>) -> Option<KeyPin> {
        Some(KeyPin::of(&ParsedCertificate::try_from(certificate).ok()?.subject_public_key_info()))
    }
}

impl fmt::Debug for KeyPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(6).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Public key of a node: a point of P-256, uncompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeKey(Vec<u8>);

impl NodeKey {
    /// Returns the key; `None` if the bytes have not the form of a point. Whether it is on the curve shows at its first
    /// handshake.
    pub(super) fn from_bytes(bytes: Vec<u8>) -> Option<NodeKey> {
        (bytes.len() == POINT_BYTES && bytes.first() == Some(&UNCOMPRESSED)).then_some(NodeKey(bytes))
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn pin(&self) -> KeyPin {
        KeyPin::of(&self.subject_public_key_info())
    }
}

impl PublicKeyData for NodeKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// An authority of one cluster, with its key.
pub struct Authority {
    cluster: ClusterId,
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    /// A certificate for this authority's key, issued by the authority before it. With it, clients that trust only the
    /// former authority accept certificates of this one. Empty for the first authority.
    succession_pem: String,
    id: AuthorityId,
}

impl Authority {
    /// Makes the first authority of a new cluster.
    ///
    /// # Errors
    /// [`TlsError::Library`] if the system has no randomness.
    pub fn create(cluster: ClusterId) -> Result<Authority, TlsError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate_pem = parameters(cluster).self_signed(&key)?.pem();
        Authority::new(cluster, certificate_pem, String::new(), key)
    }

    /// Makes an authority that succeeds this one.
    pub(super) fn successor(&self) -> Result<Authority, TlsError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate_pem = parameters(self.cluster).self_signed(&key)?.pem();
        let mut succession = parameters(self.cluster);
        succession.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        succession.use_authority_key_identifier_extension = true;
        // Both certificates of the key have the same issuer name, so their numbers must differ.
        let mut number = *blake3::hash(certificate_pem.as_bytes()).as_bytes().first_chunk::<16>().unwrap_or(&[1; 16]);
        number[0] &= 0x7f;
        succession.serial_number = Some(SerialNumber::from_slice(&number));
        let succession_pem = succession.signed_by(&key, &self.issuer)?.pem();
        Authority::new(self.cluster, certificate_pem, succession_pem, key)
    }

    fn new(
        cluster: ClusterId,
        certificate_pem: String,
        succession_pem: String,
        key: KeyPair,
    ) -> Result<Authority, TlsError> {
        let certificate = certificate(&certificate_pem)?;
        if KeyPin::of_certificate(&certificate) != Some(KeyPin::of(&key.subject_public_key_info())) {
            return Err(TlsError::Library("certificate and key of the authority do not match".to_owned()));
        }
        let (id, issuer) = (id_of(&certificate), Issuer::new(parameters(cluster), key));
        Ok(Authority { cluster, issuer, certificate_pem, succession_pem, id })
    }

    /// Reads an authority from the text of [`Authority::to_pem`].
    ///
    /// # Errors
    /// [`TlsError::Library`] if certificate or key cannot be read, or do not match.
    pub(super) fn from_pem(cluster: ClusterId, text: &str) -> Result<Authority, TlsError> {
        let mut certificates = CertificateDer::pem_slice_iter(text.as_bytes());
        let own = certificates.next().ok_or_else(|| TlsError::Library("no certificate".to_owned()))??;
        let succession = certificates.next().transpose()?.map(|der| pem_of(&der)).unwrap_or_default();
        let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes())?;
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256)?;
        Authority::new(cluster, pem_of(&own), succession, key)
    }

    /// Returns certificates and key. Only members may get it.
    pub(super) fn to_pem(&self) -> String {
        format!("{}{}{}", self.certificate_pem, self.succession_pem, self.issuer.key().serialize_pem())
    }

    /// Returns the cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Returns the authority's own certificate. It is no secret.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Returns the certificates that a server shows behind its own: the authority's own certificate is the last, so
    /// that a new client can ask its user about it.
    pub(super) fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let all = format!("{}{}", self.succession_pem, self.certificate_pem);
        Ok(CertificateDer::pem_slice_iter(all.as_bytes()).collect::<Result<_, _>>()?)
    }

    /// Returns the name by which ledger, join tokens and users know the authority.
    pub fn id(&self) -> AuthorityId {
        self.id
    }

    /// Returns a secret for one purpose. Only members can compute it.
    pub(super) fn derived_secret(&self, purpose: &str) -> [u8; 32] {
        blake3::derive_key(purpose, &self.issuer.key().serialize_der())
    }

    /// Issues the certificate of a node, in PEM.
    ///
    /// # Errors
    /// [`TlsError::Library`] if the library refuses the key.
    pub(super) fn issue(&self, node: NodeId, key: &NodeKey) -> Result<String, TlsError> {
        let mut leaf = CertificateParams::default();
        let name = |text: &str| Ia5String::try_from(text).map(SanType::DnsName);
        leaf.subject_alt_names = vec![name(&node_name(self.cluster, node))?, name(ANY_NODE)?];
        leaf.distinguished_name = named("Reveille node");
        (leaf.not_before, leaf.not_after) = (date_time_ymd(1970, 1, 1), date_time_ymd(9999, 12, 31));
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        leaf.use_authority_key_identifier_extension = true;
        Ok(leaf.signed_by(key, &self.issuer)?.pem())
    }

    /// Issues a certificate for clients to a new key. Returns both in PEM. The names are host names and IP addresses.
    ///
    /// # Errors
    /// [`TlsError::Library`] if a name is not valid, or the system has no randomness.
    pub(super) fn issue_to_server(&self, names: &[String], at: SystemTime) -> Result<(String, String), TlsError> {
        let mut leaf = CertificateParams::default();
        leaf.subject_alt_names = names.iter().map(|name| alternative_name(name)).collect::<Result<_, TlsError>>()?;
        leaf.distinguished_name = named("Reveille admin API");
        (leaf.not_before, leaf.not_after) = ((at - VALID_FOR).into(), (at + VALID_FOR).into());
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        Ok((leaf.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }
}

fn alternative_name(name: &str) -> Result<SanType, TlsError> {
    let bad = || TlsError::Library(format!("'{name}' is neither a host name nor an address"));
    match ServerName::try_from(name).map_err(|_| bad())? {
        ServerName::IpAddress(address) => Ok(SanType::IpAddress(address.into())),
        _ => Ok(SanType::DnsName(Ia5String::try_from(name)?)),
    }
}

/// Returns the SHA-256 of an authority's certificate.
pub(super) fn id_of(certificate: &CertificateDer<'_>) -> AuthorityId {
    // The library has no other way to a hash. The suite is of TLS 1.3 by its name.
    let suite = TLS13_AES_128_GCM_SHA256.tls13();
    let hash = suite.map(|suite| suite.common.hash_provider.hash(certificate));
    AuthorityId(hash.and_then(|hash| hash.as_ref().try_into().ok()).unwrap_or_default())
}

/// Parameters of the authority's own certificate. They follow from the cluster id, so a member that has the key and the
/// certificate needs no other data to issue certificates.
fn parameters(cluster: ClusterId) -> CertificateParams {
    let mut own = CertificateParams::default();
    own.distinguished_name = named(&format!("Reveille cluster {cluster}"));
    // Below it may be the key of its successor.
    own.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
    own.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (own.not_before, own.not_after) = (date_time_ymd(1970, 1, 1), date_time_ymd(9999, 12, 31));
    own
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}
