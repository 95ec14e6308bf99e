//! Replaces two functions of the C library, `getrandom` and `clock_gettime`, in a binary that links this crate.
//!
//! On a thread that called [`begin`], random numbers come from a seed, and the clocks show the time that
//! [`set_elapsed`] sets. On every other thread both functions ask the kernel, as they always do. So all code in a
//! simulation, our own and that of dependencies, draws the same numbers and reads the same clocks in every process: the
//! keys of hash maps, the random numbers of Raft, `std::time::Instant`.
//!
//! This is the only crate with `unsafe`, and these two functions are all of it. It does not reach code that asks the
//! kernel without the C library (`rustix`; the product reads those clocks behind its own seam), nor instructions of the
//! processor.

use std::cell::Cell;
use std::time::Duration;

use libc::{c_int, c_uint, c_void, clockid_t, size_t, ssize_t, timespec};

/// Time that all clocks except the wall clock show at [`begin`]. It is large enough that no subtraction goes below
/// zero.
pub const UPTIME: Duration = Duration::from_secs(1_000_000);

#[derive(Clone, Copy)]
struct Virtual {
    random: u64,
    wall: Duration,
    elapsed: Duration,
}

thread_local! {
    // Without a destructor and a lazy start, it can be read at any time of a thread's life.
    static HERE: Cell<Option<Virtual>> = const { Cell::new(None) };
}

/// Makes this thread draw random numbers from `seed`, and its wall clock begin at `wall` after 1970.
pub fn begin(seed: u64, wall: Duration) {
    HERE.set(Some(Virtual { random: seed, wall, elapsed: Duration::ZERO }));
}

/// Sets the time since [`begin`] on this thread. Has no effect on a thread that did not call [`begin`].
pub fn set_elapsed(elapsed: Duration) {
    if let Some(here) = HERE.get() {
        HERE.set(Some(Virtual { elapsed, ..here }));
    }
}

/// Makes this thread ask the kernel again.
pub fn end() {
    HERE.set(None);
}

/// Returns the next number of a splitmix64 sequence, which is good enough for hash keys and seeds.
fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *random;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Replaces `getrandom` of the C library.
///
/// # Safety
/// `buffer` must be valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut c_void, length: size_t, flags: c_uint) -> ssize_t {
    let Some(mut here) = HERE.get() else {
        // SAFETY: the kernel requires what the caller guarantees.
        return unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) } as ssize_t;
    };
    for start in (0..length).step_by(8) {
        let bytes = next(&mut here.random).to_le_bytes();
        let count = (length - start).min(8);
        // SAFETY: `start + count` is at most `length`, and the bytes are a local array.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast::<u8>().add(start), count) };
    }
    HERE.set(Some(here));
    length as ssize_t
}

/// Replaces `clock_gettime` of the C library.
///
/// # Safety
/// `time` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let Some(here) = HERE.get() else {
        // SAFETY: the kernel requires what the caller guarantees.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } as c_int;
    };
    let since = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => here.wall,
        _ => UPTIME,
    };
    let reading = since + here.elapsed;
    // SAFETY: the caller guarantees that `time` is valid for a write.
    unsafe {
        (*time).tv_sec = reading.as_secs() as libc::time_t;
        (*time).tv_nsec = libc::c_long::from(reading.subsec_nanos() as i32);
    }
    0
}

#[cfg(test)]
mod tests {
    use std::collections::hash_map::RandomState;
    use std::hash::BuildHasher;
    use std::time::{Instant, SystemTime, UNIX_EPOCH};

    use super::*;

    /// Draws on a thread of its own, because the keys of hash maps are drawn once for each thread.
    fn drawn(seed: u64) -> u64 {
        let thread = std::thread::spawn(move || {
            begin(seed, Duration::from_secs(86_400));
            RandomState::new().hash_one(1)
        });
        thread.join().expect("a number")
    }

    #[test]
    fn hash_maps_are_keyed_by_the_seed() {
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }

    #[test]
    fn clocks_show_set_time_on_this_thread_only() {
        begin(1, Duration::from_secs(86_400));
        let start = Instant::now();
        assert_eq!(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs(), 86_400);
        assert_eq!(start.elapsed(), Duration::ZERO);
        set_elapsed(Duration::from_millis(1_500));
        assert_eq!(start.elapsed(), Duration::from_millis(1_500));
        let elsewhere = std::thread::spawn(SystemTime::now).join().expect("a time");
        assert!(elsewhere.duration_since(UNIX_EPOCH).expect("after 1970").as_secs() > 1_700_000_000);
        end();
        assert!(SystemTime::now() > UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    }
}
