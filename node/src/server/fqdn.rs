//! Finds the fully qualified name of this machine, for EHLO (RFC 5321 4.1.1.1) and for the certificate of the admin
//! API.
//!
//! Called once when a node starts. It reads two local files and asks no resolver, because an unresponsive name server
//! must not delay the start. If the files have no full name, EHLO uses the address of the connection.

use std::fs;

/// Returns the host name of this machine, and its full name if it has one.
pub fn names_of_this_machine() -> impl Iterator<Item = String> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|host| host.trim().to_owned());
    host.filter(|host| !host.is_empty()).into_iter().chain(of_this_machine())
}

/// Returns the host name if it has a dot, else its full name in `/etc/hosts`, else `None`.
pub fn of_this_machine() -> Option<String> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    of(host.trim(), &fs::read_to_string("/etc/hosts").unwrap_or_default())
}

/// In `hosts`, the full name is on the same line as the short one (hosts(5)).
fn of(host: &str, hosts: &str) -> Option<String> {
    let lines = hosts.lines().map(|line| line.split('#').next().unwrap_or_default());
    let of_host = lines.filter_map(|line| {
        let names: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
        names.contains(&host).then_some(names)
    });
    std::iter::once(host).chain(of_host.flatten()).find(|name| is_full(name)).map(str::to_owned)
}

/// Returns true if other machines can know `name`: it has a dot, valid labels and no local suffix.
fn is_full(name: &str) -> bool {
    let is_local = ["localhost", "localdomain"].iter().any(|end| name.ends_with(end));
    let fits = name.len() <= 253 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    let labels_fit = name.split('.').all(|label| (1..=63).contains(&label.len()));
    // An IP address is not a name.
    let is_address = name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    fits && labels_fit && name.contains('.') && !is_local && !is_address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_name_is_host_name_or_its_line_in_hosts() {
        let hosts = "127.0.0.1 localhost\n127.0.1.1 mail-1.example.org mail-1 # a comment mail-1.wrong.org\n";
        assert_eq!(of("mail-1", hosts).as_deref(), Some("mail-1.example.org"));
        assert_eq!(of("a.example.net", hosts).as_deref(), Some("a.example.net"));
    }

    #[test]
    fn short_or_local_name_is_none() {
        assert_eq!(of("mail-2", "10.0.0.2 mail-2 other\n"), None);
        assert_eq!(of("localhost.localdomain", ""), None);
        assert_eq!(of("10.0.0.2", ""), None);
        assert_eq!(of("under_score.example.org", ""), None);
        assert_eq!(of("", "127.0.0.1\n"), None);
    }
}
