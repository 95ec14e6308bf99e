//! Percentiles, clocks, sizes of folders, and measurements of a process by the kernel.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

/// Returns the percentile of sorted values by nearest rank. `None`: there are no values.
pub fn percentile<T: Copy>(sorted: &[T], per_cent: f64) -> Option<T> {
    let rank = (per_cent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).or(sorted.last()).copied()
}

/// Converts microseconds to milliseconds, rounded to a tenth.
pub fn in_ms(us: i64) -> f64 {
    (us as f64 / 100.0).round() / 10.0
}

/// Rounds to two digits after the point.
pub fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Converts a wall clock time to microseconds since 1970 UTC.
pub fn unix_us(at: SystemTime) -> i64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// Returns the wall clock in milliseconds since 1970 UTC.
pub fn now_ms() -> u64 {
    unix_us(SystemTime::now()) as u64 / 1_000
}

/// Waits until an instant of the wall clock.
pub async fn sleep_until(at: SystemTime) {
    tokio::time::sleep(at.duration_since(SystemTime::now()).unwrap_or_default()).await;
}

/// Returns CLOCK_BOOTTIME in microseconds. The sink records its accepts by the same clock.
pub fn monotonic_us() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

/// Returns the processor time of all threads of a process, user and system, in seconds. The kernel counts steps of 10
/// ms.
pub fn cpu_seconds(process: u32) -> Result<f64> {
    let ticks = of_process(process, "stat", cpu_ticks)?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns the resident memory of a process in megabytes of 1,000,000 bytes.
pub fn resident_mb(process: u32) -> Result<f64> {
    Ok(rounded(of_process(process, "status", resident_kib)? as f64 * 1_024.0 / 1e6))
}

fn of_process(process: u32, file: &str, parse: fn(&str) -> Option<u64>) -> Result<u64> {
    let path = format!("/proc/{process}/{file}");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    parse(&text).with_context(|| format!("{path} has an unknown format"))
}

/// Size of a folder, with its subfolders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderSize {
    /// Sum of the lengths of the files.
    pub bytes: u64,
    /// Number of the files.
    pub files: u64,
}

/// Returns the size of a folder with its subfolders. A process may remove files meanwhile.
pub fn folder_size(folder: &Path) -> Result<FolderSize> {
    let mut size = FolderSize::default();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let added = match std::fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => folder_size(&path)?,
            Ok(metadata) => FolderSize { bytes: metadata.len(), files: 1 },
            Err(error) if error.kind() == ErrorKind::NotFound => FolderSize::default(),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        size.bytes += added.bytes;
        size.files += added.files;
    }
    Ok(size)
}

/// Returns the sum of `utime` and `stime` (proc(5), fields 14 and 15). The second field is a name in brackets that may
/// contain anything, so counting begins after the last bracket, with field 3.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Returns `VmRSS` (proc(5)), which the kernel gives in units of 1,024 bytes.
fn resident_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_measured_value() {
        let values: Vec<i64> = (1..=200).collect();
        assert_eq!(percentile(&values, 50.0), Some(100));
        assert_eq!(percentile(&values, 99.0), Some(198));
        assert_eq!(percentile(&values, 100.0), Some(200));
        assert_eq!(percentile(&values, 0.0), Some(1));
        assert_eq!(percentile(&[7], 99.0), Some(7));
        assert_eq!(percentile::<i64>(&[], 50.0), None);
    }

    #[test]
    fn process_name_may_contain_brackets_and_blanks() {
        let stat = "4711 (a) b (c) S 1 4711 4711 0 -1 4194560 901 0 2 0 150 25 9 8 20 0 7 0 31416 1 2 3";
        assert_eq!(cpu_ticks(stat), Some(175));
        assert_eq!(cpu_ticks("4711 (reveille) S 1"), None);
    }

    #[test]
    fn resident_memory_is_read_from_status() {
        let status = "Name:\treveille\nVmPeak:\t  900 kB\nVmRSS:\t  123456 kB\nThreads:\t9\n";
        assert_eq!(resident_kib(status), Some(123_456));
        assert_eq!(resident_kib("Name:\tzombie\n"), None);
    }

    #[test]
    fn folder_size_includes_subfolders() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(folder.path().join("a"), [1; 3]).unwrap();
        std::fs::write(inner.join("b"), [1; 4]).unwrap();
        assert_eq!(folder_size(folder.path()).unwrap(), FolderSize { bytes: 7, files: 2 });
        assert!(folder_size(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn own_process_has_used_time_and_memory() {
        let before = cpu_seconds(std::process::id()).unwrap();
        let mut sum = 0_u64;
        while cpu_seconds(std::process::id()).unwrap() <= before {
            sum = std::hint::black_box((0..100_000).fold(sum, u64::wrapping_add));
        }
        assert!(resident_mb(std::process::id()).unwrap() > 0.1);
    }

    #[test]
    fn milliseconds_have_one_decimal() {
        assert_eq!((in_ms(1_234_567), in_ms(-49), in_ms(50)), (1_234.6, -0.0, 0.1));
    }
}
