//! The command line from outside: the binary is started, against a node that answers what a test tells it.

mod apply;
mod audience_import;
mod audiences;
mod campaigns;
mod changes;
mod clock;
mod completion;
mod config;
mod create;
mod doctor;
mod ends;
mod fake;
mod follow;
mod import;
mod labels;
mod letters;
mod lists;
mod nodes;
mod preview;
mod send_test;
mod shapes;
mod template;
mod tenants;
mod terminal;
mod update;
mod watch;
