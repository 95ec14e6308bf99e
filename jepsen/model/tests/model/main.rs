//! Searches of the model, and single steps of it, in one program: each program more would compile the generic search
//! again.

mod broken_decisions;
mod broken_rules;
mod decided;
mod decisions_hold;
mod evidence;
mod holds;
mod restored;
mod rules_hold;
mod violates;
