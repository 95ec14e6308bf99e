//! Tests the calendar from outside: test vectors of the policies, a brute-force oracle over UTC minutes, a second time
//! zone library, and properties.

#[path = "calendar/grammar.rs"]
mod grammar;
#[path = "calendar/hashed.rs"]
mod hashed;
#[path = "calendar/oracle.rs"]
mod oracle;
#[path = "calendar/properties.rs"]
mod properties;
#[path = "calendar/second_opinion.rs"]
mod second_opinion;
#[path = "calendar/support.rs"]
mod support;
#[path = "calendar/vectors.rs"]
mod vectors;
