//! Which flags were typed: an update changes those, and leaves to the cluster what has only its default.

use super::Args;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, Error, FromArgMatches};

/// Flags, and the names of those that were typed.
#[derive(Clone, Debug)]
pub struct Given<T> {
    /// With the defaults of the others.
    pub args: T,
    /// As the fields are called.
    pub names: Vec<String>,
}

impl<T: Args> Given<T> {
    fn names(matches: &ArgMatches) -> Vec<String> {
        let own = T::augment_args(Command::new("own"));
        let own = own.get_arguments().map(|argument| argument.get_id().to_string());
        own.filter(|id| {
            matches.try_contains_id(id).is_ok() && matches.value_source(id) == Some(ValueSource::CommandLine)
        })
        .collect()
    }
}

impl<T: Args> FromArgMatches for Given<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Given<T>, Error> {
        Ok(Given { names: Self::names(matches), args: T::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.names.extend(Self::names(matches));
        self.args.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Given<T> {
    fn augment_args(command: Command) -> Command {
        T::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}
