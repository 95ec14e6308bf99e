//! Tests of the whole API.
