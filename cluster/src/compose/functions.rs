//! The filters and tests that templates may use: one table for the check of a template and for the template engine.

use minijinja::{Environment, filters, tests};

macro_rules! table {
    ($names:ident, $register:ident, $add:ident: $($name:literal => $function:expr,)*) => {
        pub(super) const $names: &[&str] = &[$($name),*];

        /// Makes them known to the engine.
        pub(super) fn $register(environment: &mut Environment<'static>) {
            $(environment.$add($name, $function);)*
        }
    };
}

// The output of each filter is at most a constant times its input.
table! { FILTERS, register_filters, add_filter:
    "abs" => filters::abs,
    "capitalize" => filters::capitalize,
    "d" => filters::default,
    "default" => filters::default,
    "e" => filters::escape,
    "escape" => filters::escape,
    "first" => filters::first,
    "float" => filters::float,
    "int" => filters::int,
    "last" => filters::last,
    "length" => filters::length,
    "lower" => filters::lower,
    "round" => filters::round,
    "safe" => filters::safe,
    "split" => filters::split,
    "title" => filters::title,
    "trim" => filters::trim,
    "upper" => filters::upper,
}

table! { TESTS, register_tests, add_test:
    "defined" => tests::is_defined,
    "undefined" => tests::is_undefined,
    "none" => tests::is_none,
    "odd" => tests::is_odd,
    "even" => tests::is_even,
    "startingwith" => tests::is_startingwith,
    "endingwith" => tests::is_endingwith,
}
