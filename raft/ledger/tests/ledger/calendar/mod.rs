//! Tests the calendar from outside: test vectors of the policies, a brute-force oracle over UTC minutes, a second time
//! zone library, and properties.

mod grammar;
mod hashed;
mod oracle;
mod properties;
mod second_opinion;
mod support;
mod vectors;
