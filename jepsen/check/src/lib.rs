//! The checker: judges a run by its recorded history, and by nothing else.

pub mod history;
