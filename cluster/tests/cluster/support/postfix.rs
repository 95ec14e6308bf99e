//! A real Postfix with TLS and SASL, whose mailbox takes every email for `example.net`.
//!
//! It has its own configuration, queue, certificate and users, in a temporary folder. It stops with the test, even if
//! the test fails. Without Postfix, Cyrus' sasldb or root rights the test is skipped with a message (Debian: `postfix`,
//! `sasl2-bin`, `libsasl2-modules`).

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

/// The only user, whose realm is the relay's name.
pub const USER: &str = "anna";
/// Its password.
pub const PASSWORD: &str = "hunter2";

/// A running Postfix.
pub struct Postfix {
    folder: TempDir,
    /// Name in the certificate.
    name: &'static str,
    address: IpAddr,
    /// Port with STARTTLS and all mechanisms.
    pub submission: u16,
    /// Port with implicit TLS and LOGIN only.
    pub submissions: u16,
}

impl Postfix {
    /// Starts a Postfix. Returns `None` if this machine cannot run one, and prints why.
    pub fn start(name: &'static str, address: IpAddr, [submission, submissions]: [u16; 2]) -> Option<Postfix> {
        let lacks = |what: &str| {
            reveille_strict::skip(what);
            None
        };
        if !rustix::process::geteuid().is_root() {
            return lacks("only root can start a Postfix");
        }
        for program in ["postfix", "postconf", "saslpasswd2"] {
            if Command::new(program).arg("-h").output().is_err() {
                return lacks(&format!("{program} is not installed"));
            }
        }
        if !output_of(Command::new("postconf").arg("-a")).contains("cyrus") {
            return lacks("this Postfix knows no Cyrus SASL");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let postfix = Postfix { folder, name, address, submission, submissions };
        postfix.configure();
        // No pipes, because the daemons would keep them open.
        let quiet = || Stdio::null();
        let started = postfix.command("start").stdin(quiet()).stdout(quiet()).stderr(quiet()).status();
        assert!(started.expect("postfix start").success(), "{}", postfix.log());
        Some(postfix)
    }

    /// Returns the path of a file or folder of it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns all that it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("mail.log")).unwrap_or_default()
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new("postfix");
        command.arg("-c").arg(self.path("etc")).arg(verb);
        command
    }

    fn configure(&self) {
        let here = self.folder.path();
        let uid =
            |which| output_of(Command::new("id").args([which, "postfix"])).trim().parse::<u32>().expect("a number");
        let (user, group) = (uid("-u"), uid("-g"));
        // The user of Postfix must be able to read this folder.
        fs::set_permissions(here, fs::Permissions::from_mode(0o755)).expect("a mode");
        for name in ["etc", "etc/sasl", "queue", "data", "mail"] {
            fs::create_dir(self.path(name)).expect(name);
            fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).expect(name);
        }
        for name in ["data", "mail"] {
            chown(self.path(name), Some(user), Some(group)).expect(name);
        }
        self.certify();
        self.enlist(user);
        let (shown, name, address) = (here.display(), self.name, self.address);
        let main = format!(
            "compatibility_level = 3.6\nqueue_directory = {shown}/queue\ndata_directory = {shown}/data\n\
             mail_owner = postfix\nsetgid_group = postdrop\ninet_interfaces = {address}\ninet_protocols = ipv4\n\
             myhostname = {name}\nmydestination =\nmynetworks =\nalias_maps =\n\
             virtual_mailbox_domains = example.net\nvirtual_mailbox_base = {shown}/mail\n\
             virtual_mailbox_maps = static:all/\nvirtual_minimum_uid = 1\nvirtual_uid_maps = static:{user}\n\
             virtual_gid_maps = static:{group}\nmaillog_file = {shown}/mail.log\nmaillog_file_prefixes = {shown}\n\
             smtpd_tls_cert_file = {shown}/relay.pem\nsmtpd_tls_key_file = {shown}/relay.key\n\
             smtpd_tls_security_level = may\nsmtpd_tls_auth_only = yes\nsmtpd_sasl_auth_enable = yes\n\
             smtpd_sasl_type = cyrus\nsmtpd_sasl_path = smtpd\ncyrus_sasl_config_path = {shown}/etc/sasl\n\
             smtpd_sasl_local_domain = {name}\nsmtpd_relay_restrictions = permit_sasl_authenticated, reject\n\
             smtpd_reject_unlisted_recipient = no\ndefault_transport = error:5.1.1 no such user\n"
        );
        fs::write(self.path("etc/main.cf"), main).expect("main.cf");
        let (submission, submissions) = (self.submission, self.submissions);
        let master = format!(
            "{address}:{submission} inet n - n - - smtpd\n\
             {address}:{submissions} inet n - n - - smtpd\n  -o smtpd_tls_wrappermode=yes\n\
             \x20 -o smtpd_sasl_mechanism_filter=login\n\
             cleanup unix n - n - 0 cleanup\nqmgr unix n - n 300 1 qmgr\ntlsmgr unix - - n 1000? 1 tlsmgr\n\
             rewrite unix - - n - - trivial-rewrite\nbounce unix - - n - 0 bounce\ndefer unix - - n - 0 bounce\n\
             trace unix - - n - 0 bounce\nproxymap unix - - n - - proxymap\nerror unix - - n - - error\n\
             retry unix - - n - - error\nvirtual unix - n n - - virtual\nanvil unix - - n - 1 anvil\n\
             postlog unix-dgram n - n - 1 postlogd\n"
        );
        fs::write(self.path("etc/master.cf"), master).expect("master.cf");
    }

    /// Creates a CA, and a certificate for its name that the CA signs.
    fn certify(&self) {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA");
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![self.name.to_owned()]).expect("parameters");
        let certificate = params.signed_by(&key, &ca).expect("a certificate");
        fs::write(self.path("ca.pem"), ca.pem()).expect("ca.pem");
        fs::write(self.path("relay.pem"), certificate.pem()).expect("relay.pem");
        fs::write(self.path("relay.key"), key.serialize_pem()).expect("relay.key");
    }

    /// Adds the user of the relay to a sasldb that the user of Postfix can read.
    fn enlist(&self, reader: u32) {
        let users = self.path("users");
        // Debian reads the configuration's folder `sasl`, whatever `cyrus_sasl_config_path` says.
        let conf = format!(
            "pwcheck_method: auxprop\nauxprop_plugin: sasldb\nmech_list: PLAIN LOGIN\nsasldb_path: {}\n",
            users.display()
        );
        fs::write(self.path("etc/sasl/smtpd.conf"), conf).expect("smtpd.conf");
        let mut command = Command::new("saslpasswd2");
        command.args(["-p", "-c", "-u", self.name, "-f"]).arg(&users).arg(USER).stdin(Stdio::piped());
        let mut running = command.spawn().expect("saslpasswd2");
        running.stdin.take().expect("a pipe").write_all(PASSWORD.as_bytes()).expect("written");
        assert!(running.wait().expect("an end").success());
        chown(&users, Some(reader), None).expect("a reader");
    }

    /// Returns the number of emails in the mailbox.
    pub fn arrived(&self) -> usize {
        fs::read_dir(self.path("mail/all/new")).map_or(0, Iterator::count)
    }
}

impl Drop for Postfix {
    fn drop(&mut self) {
        let stopped = self.command("stop").stdin(Stdio::null()).output();
        if !stopped.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("postfix did not stop: {stopped:?}");
        }
    }
}

fn output_of(command: &mut Command) -> String {
    String::from_utf8_lossy(&command.output().expect("a program that runs").stdout).into_owned()
}
