//! A share of the processor for some processes and no more: a group of the kernel (cgroup v1 or v2). Needs root.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::measure::rounded;
use crate::tool;

const V1: &str = "/sys/fs/cgroup/cpu";
const V2: &str = "/sys/fs/cgroup";
/// The quota is of this much time; microseconds.
const PERIOD_US: u64 = 100_000;
const PREFIX: &str = "reveille-jepsen-";

/// The group. It goes when this is dropped, which has to be after its processes are gone.
pub struct Quota {
    folder: PathBuf,
}

impl Quota {
    /// So many hundredths of one processor, for all processes of the group together. The inner error says why there is none.
    pub fn new(token: &str, percent: u64) -> Result<Result<Quota, String>> {
        if !tool::is_root() {
            return Ok(Err("a quota of the processor needs root".to_owned()));
        }
        let quota_us = PERIOD_US * percent / 100;
        let (parent, settings) = if Path::new(V1).join("cpu.cfs_quota_us").is_file() {
            (V1, vec![("cpu.cfs_period_us", PERIOD_US.to_string()), ("cpu.cfs_quota_us", quota_us.to_string())])
        } else if has_cpu(Path::new(V2)) {
            (V2, vec![("cpu.max", format!("{quota_us} {PERIOD_US}"))])
        } else {
            return Ok(Err("there are no groups with a processor quota on this machine".to_owned()));
        };
        let folder = Path::new(parent).join(format!("{PREFIX}{token}"));
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let quota = Quota { folder };
        for (name, value) in settings {
            quota.write(name, &value)?;
        }
        Ok(Ok(quota))
    }

    /// This process, and all that it starts, belongs to the group from now on.
    pub fn add(&self, process: u32) -> Result<()> {
        self.write("cgroup.procs", &process.to_string())
    }

    /// In how many hundredths of its periods the group was stopped, because it had used its share up.
    pub fn exhausted_percent(&self) -> Result<f64> {
        let path = self.folder.join("cpu.stat");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(exhausted(&text))
    }

    fn write(&self, name: &str, value: &str) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, value).with_context(|| format!("{value} to {}", path.display()))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

/// Removes what an owner of this token left.
pub fn sweep(token: &str) {
    for parent in [V1, V2] {
        let folder = Path::new(parent).join(format!("{PREFIX}{token}"));
        if folder.is_dir() {
            remove(&folder);
        }
    }
}

fn remove(folder: &Path) {
    if let Err(error) = fs::remove_dir(folder) {
        eprintln!("{} stays: {error}", folder.display());
    }
}

/// As the kernel counts: `nr_periods 600`, `nr_throttled 150`.
fn exhausted(stat: &str) -> f64 {
    let count = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<f64>().ok()
    };
    match (count("nr_periods "), count("nr_throttled ")) {
        (Some(periods), Some(throttled)) if periods > 0.0 => rounded(100.0 * throttled / periods),
        _ => 0.0,
    }
}

fn has_cpu(parent: &Path) -> bool {
    let controllers = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
    controllers.split_whitespace().any(|controller| controller == "cpu")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_was_used_up_is_told_in_periods() {
        assert_eq!(exhausted("usage_usec 9\nnr_periods 600\nnr_throttled 150\nthrottled_usec 7\n"), 25.0);
        assert_eq!(exhausted("nr_periods 0\nnr_throttled 0\n"), 0.0);
    }
}
