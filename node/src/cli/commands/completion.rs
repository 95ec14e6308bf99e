//! `reveille completion` and `reveille man`. Both are generated from the tree of commands, without a request, so that
//! they cannot differ from `--help`.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use serde_json::json;

use super::{Answer, CommandContext, Failure, Own, Stop};

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

/// Options of `reveille man`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  reveille man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Write a page for each command into this folder [default: print the first page]
    pub dir: Option<PathBuf>,
}

/// Prints the completion script for a shell, from the tree of commands.
pub fn run(context: &CommandContext<'_>, args: &CompletionArgs, tree: &Command) -> Result<(), Stop> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(tree), "reveille", &mut script);
    let script = with_names(args.shell, &String::from_utf8_lossy(&script));
    show(context, &args.shell.to_string(), script.as_bytes())
}

/// First line of the function that completes, in scripts for bash and zsh.
const FUNCTION: &str = "_reveille() {\n";
/// The function that asks for names first. `_reveille_words` is the former one.
const BASH: &str = r#"_reveille() {
    local names
    names=$("$1" complete-names -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
    if [[ -n $names ]]; then
        local IFS=$'\n'
        COMPREPLY=( $names )
    else
        _reveille_words "$@"
    fi
}

_reveille_words() {
"#;
/// Likewise for zsh.
const ZSH: &str = r#"_reveille() {
    local -a names
    names=(${(f)"$("$words[1]" complete-names -- "${(@)words[2,CURRENT]}" 2> /dev/null)"})
    if (( $#names )); then
        compadd -a names
    else
        _reveille_words "$@"
    fi
}

_reveille_words() {
"#;
/// In fish all candidates count. Names of options' values are not among them.
const FISH: &str = r#"
function __fish_reveille_names
    set -l words (commandline -opc)
    set -e words[1]
    reveille complete-names -- $words (commandline -ct) 2> /dev/null
end

complete -c reveille -a "(__fish_reveille_names)"
"#;

/// Returns the tree of commands without hidden ones: clap_complete offers those too.
fn visible(whole: &Command) -> Command {
    let shown = whole.get_subcommands().filter(|below| !below.is_hide_set()).cloned();
    let top = Command::new("reveille").version(env!("CARGO_PKG_VERSION"));
    top.args(whole.get_arguments().cloned()).subcommands(shown)
}

/// Adds names of objects to a script.
fn with_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => script.replacen(FUNCTION, BASH, 1),
        Shell::Zsh => script.replacen(FUNCTION, ZSH, 1),
        Shell::Fish => format!("{script}{FISH}"),
        _ => script.to_owned(),
    }
}

/// Prints the first man page, or writes all pages to a folder.
pub fn man(context: &CommandContext<'_>, args: &ManArgs, tree: Command) -> Result<(), Stop> {
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        Man::new(tree).render(&mut page).map_err(|error| {
            Failure::general(format!("the page cannot be written: {error}"), "look at where stdout goes")
        })?;
        return show(context, "reveille.1", &page);
    };
    let pages = write(dir, tree).map_err(|error| {
        Failure::file(dir.display().to_string(), format!("the pages cannot be written there: {error}"))
    })?;
    let words = format!("{} pages written to {}", pages.len(), dir.display());
    let own = Own(json!({ "dir": dir.display().to_string(), "pages": pages }));
    context.terminal.show(&Answer::new(&own, pages.join("\n"), words))
}

/// Prints a text for another program.
fn show(context: &CommandContext<'_>, of: &str, script: &[u8]) -> Result<(), Stop> {
    let script = String::from_utf8_lossy(script);
    let own = Own(json!({ "of": of, "script": script }));
    context.terminal.show(&Answer::new(&own, of, script.trim_end()))
}

fn write(dir: &Path, tree: Command) -> io::Result<Vec<String>> {
    fs::create_dir_all(dir)?;
    let mut command = tree.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    write_tree(&command, dir, &mut pages)?;
    pages.sort_unstable();
    Ok(pages)
}

fn write_tree(command: &Command, dir: &Path, pages: &mut Vec<String>) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_tree(below, dir, pages)?;
    }
    let page = Man::new(command.clone());
    page.generate_to(dir)?;
    pages.push(page.get_filename());
    Ok(())
}
