//! `reveille completion` and `reveille man`: what is made of the tree of commands.

use super::{Args, PathBuf};
use clap_complete::Shell;

/// Options of `reveille completion`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  reveille completion bash > /usr/share/bash-completion/completions/reveille
  reveille completion zsh > ~/.zfunc/_reveille
  reveille completion fish > ~/.config/fish/completions/reveille.fish")]
pub struct CompletionArgs {
    /// Which shell reads it
    pub shell: Shell,
}

/// What a completion script asks.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  reveille complete-names schedule show mor")]
pub struct NamesArgs {
    /// Words of the command line after the program, up to the cursor
    pub words: Vec<String>,
}

/// Options of `reveille man`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  reveille man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Write a page for each command into this folder [default: print the first page]
    pub dir: Option<PathBuf>,
}
