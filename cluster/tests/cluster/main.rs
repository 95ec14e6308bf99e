//! Tests of whole nodes, and of the SMTP client against a real Postfix, in one program: each program more would compile
//! the generic code of the cluster, of Raft and of the ledger again.

mod backup_files;
mod leadership;
mod one_mail;
mod postfix;
mod sessions;
mod support;
mod suspects;
mod three;
